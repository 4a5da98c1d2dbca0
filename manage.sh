#!/usr/bin/env bash
# Test, install and manage the plugin; ./manage.sh --help lists the verbs.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/scripts/lib.sh"

python=$(find_python)
exec "$python" "$root/scripts/manage.py" "$@"
