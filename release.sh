#!/usr/bin/env bash
# Check, build and verify a release; ./release.sh --help lists the steps.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/scripts/lib.sh"

python=$(find_python)
exec "$python" "$root/scripts/release.py" "$@"
