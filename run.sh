#!/usr/bin/env bash
# Serve a preset with vLLM, or show the demo. Does the set-up that it needs.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/scripts/lib.sh"

presets=(draft draft-adaptive eagle eagle-relaxed qwen3)

usage() {
    cat <<'TEXT'
Usage: ./run.sh PRESET [options] [-- vLLM arguments]
       ./run.sh demo [--method ngram|draft|eagle] [--quick] [--json FILE] [--port N]

Presets (configs/*.toml; options override them, VSPEC_CONFIG=FILE replaces them):
  draft           Qwen2.5-14B-Instruct, drafter Qwen2.5-0.5B-Instruct, adaptive gamma up to 4
  draft-adaptive  the same, tuned for batches of 128; relaxed acceptance: output may differ from target-only
  eagle           Qwen2.5-14B-Instruct with its EAGLE drafter, strict acceptance
  eagle-relaxed   the same, top-K acceptance: output may differ from target-only
  qwen3           Qwen3-14B, drafter Qwen3-1.7B, gamma 3

  ./run.sh draft --dry-run          print the environment and the vllm command, start nothing
  ./run.sh draft --help             every option
  ./run.sh demo                     real vLLM on this machine's CPU: adaptive against fixed gamma and target-only

A preset runs in $VSPEC_PYTHON, else in the active python3 if this version of vllm-hust-vspec is installed there,
else in the checkout's own .venv, which is set up when needed. The demo always runs in .venv.
TEXT
}

# Print the version of vllm-hust-vspec that Python $1 imports, or nothing.
version_in() {
    "$1" -c 'import sys
sys.path[:] = [entry for entry in sys.path if entry]
import vllm_hust_vspec
print(vllm_hust_vspec.__version__)' 2>/dev/null || true
}

names=$(printf ', %s' "${presets[@]}" demo)
names=${names:2}
(($# > 0)) || die "name a preset: $names; ./run.sh --help tells more"
preset=$1
shift
case $preset in
    -h | --help | help)
        usage
        exit 0
        ;;
    demo) become_venv_python cpu-host -m vllm_hust_vspec.demo "$@" ;;
esac
printf '%s\n' "${presets[@]}" | grep -qxF -e "$preset" || die "unknown preset '$preset'; one of: $names"

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$root/src/vllm_hust_vspec/_version.py")
command=(-m vllm_hust_vspec.cli --preset "$preset" "$@")
if [[ -n ${VSPEC_PYTHON-} ]]; then
    [[ $(version_in "$VSPEC_PYTHON") == "$version" ]] ||
        die "VSPEC_PYTHON=$VSPEC_PYTHON does not import vllm-hust-vspec $version; install it there: ./manage.sh --python '$VSPEC_PYTHON' install --editable"
    exec "$VSPEC_PYTHON" "${command[@]}"
fi
active=$(version_in python3)
if [[ $active == "$version" ]]; then
    exec python3 "${command[@]}"
fi
[[ -z $active ]] || printf 'vspec: the active python3 has vllm-hust-vspec %s, this checkout is %s; using %s\n' \
    "$active" "$version" "$root/.venv" >&2
become_venv_python launcher "${command[@]}"
