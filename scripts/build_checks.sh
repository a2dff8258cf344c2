#!/usr/bin/env bash
# build_checks.sh TARGET...: builds programs of native/check and prints the directory that has them. That is the one where
# set-up compiled the core, so that only the checks are compiled; build/check where there is none.
# PYTHON names the interpreter whose cmake and ninja are used.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$(dirname "${PYTHON:-.venv/bin/python}")
[ -x "$tools/cmake" ] && PATH="$(cd "$tools" && pwd):$PATH"
for tool in cmake ninja; do
    command -v "$tool" >/dev/null || { echo "$tool not found; run 'make setup' first" >&2; exit 1; }
done

build=build/check
for cache in build/cp*/CMakeCache.txt; do
    if [ -f "$cache" ]; then build=$(dirname "$cache"); fi
done
mkdir -p "$build"
log=$build/checks.log
exec 9>"$build/.checks-lock"
flock 9 # another run of the tests may be building, too
{ if [ "$build" = build/check ]; then
    cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSKBUILD_PROJECT_VERSION=0 -DZEROPOINT_PYTHON=OFF
fi && cmake --build "$build" --target "$@"; } >"$log" 2>&1 \
    || { tail -n 40 "$log" >&2; echo "checks: FAILED to build $*, see $log" >&2; exit 1; }
echo "$build"
