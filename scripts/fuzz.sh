#!/usr/bin/env bash
# Builds program_fuzz in build/check and tries FUZZ_COUNT wrong program files, made from those of the tests
# (FUZZ_SEED=1: others with another number). Files that are trouble are kept in build/check/found.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$(dirname "${PYTHON:-.venv/bin/python}")
[ -x "$tools/cmake" ] && PATH="$(cd "$tools" && pwd):$PATH"
build=build/check
mkdir -p "$build"
echo "fuzz: building $build"
{ cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSKBUILD_PROJECT_VERSION=0 -DZEROPOINT_PYTHON=OFF \
    -DZEROPOINT_CHECK=ON && cmake --build "$build" --target program_fuzz; } >"$build/fuzz.log" 2>&1 \
    || { tail -n 40 "$build/fuzz.log" >&2; echo "fuzz: FAILED to build, see $build/fuzz.log" >&2; exit 1; }
"$build/program_fuzz" fuzz tests/golden/programs --count "${FUZZ_COUNT:-1000000}" --seed "${FUZZ_SEED:-1}" \
    --keep "$build/found"
