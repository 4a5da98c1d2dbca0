#!/usr/bin/env bash
# Remove the plugin from the active Python: a short name for ./manage.sh uninstall.
set -euo pipefail
exec "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/manage.sh" uninstall "$@"
