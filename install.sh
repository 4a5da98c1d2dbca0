#!/usr/bin/env bash
# Install this checkout, editable, into the active Python: a short name for ./manage.sh install --editable.
set -euo pipefail
exec "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/manage.sh" install --editable "$@"
