# shellcheck shell=bash
# Sourced by the scripts at the top of the checkout: where it is, and which Python runs its set-up.

root=$(dirname -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")")
export root

die() {
    printf 'vspec: %s\n' "$1" >&2
    exit 2
}

# Whether $1 is a Python 3.11 to 3.14; $2 is code that it must be able to run as well.
is_usable_python() {
    "$1" -I -S -c "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
${2-}" >/dev/null 2>&1
}

# Print the Python for the set-up: that of .venv, so that another one first on PATH does not make it anew.
find_python() {
    local candidate needs
    for needs in 'import venv, ensurepip' ''; do
        for candidate in "$root/.venv/bin/python" ${VSPEC_PYTHON:+"$VSPEC_PYTHON"} python3.{11,12,13,14} python3; do
            if is_usable_python "$candidate" "$needs"; then
                printf '%s\n' "$candidate"
                return
            fi
        done
    done
    die "Python 3.11 to 3.14 is needed and none was found; install one, or name it in VSPEC_PYTHON"
}

# become_venv_python LAYER ARGS…: set up .venv to LAYER, then become its Python with ARGS.
become_venv_python() {
    local python layer=$1
    python=$(find_python)
    exec "$python" "$root/scripts/setup_env.py" "$layer" --then "${@:2}"
}
