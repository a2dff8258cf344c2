#!/usr/bin/env bash
# build_onnx_provider.sh INCLUDE FOLDER: builds the execution provider for ONNX Runtime into FOLDER and prints its path.
# INCLUDE has onnxruntime_c_api.h of ONNX Runtime 1.23 or later; PyPI's packages do not have it.
set -euo pipefail
include=${1-}
folder=${2:?a folder to write to}
if [ ! -f "$include/onnxruntime_ep_c_api.h" ]; then
    echo "onnx-provider: onnxruntime_ep_c_api.h is not in '$include': install libonnxruntime-dev 1.23 or later (Debian sid" \
        "has it), or name the folder that has the headers: make onnx-provider ONNXRUNTIME_INCLUDE=dir" >&2
    exit 1
fi
include=$(cd "$include" && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")/.."
build=$(scripts/build_checks.sh zeropoint_core)
tools=$(dirname "${PYTHON:-.venv/bin/python}")
[ -x "$tools/cmake" ] && PATH="$(cd "$tools" && pwd):$PATH"
log=$build/onnx_provider.log
{ cmake -S . -B "$build" -DONNXRUNTIME_INCLUDE="$include" && cmake --build "$build" --target zeropoint_onnx_provider; } \
    >"$log" 2>&1 || { tail -n 40 "$log" >&2; exit 1; }
cp "$build/libzeropoint_onnx_provider.so" "$folder"
echo "$folder/libzeropoint_onnx_provider.so"
