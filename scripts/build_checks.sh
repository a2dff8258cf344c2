#!/usr/bin/env bash
# build_checks.sh TARGET...: builds programs of native/check and prints the directory that has them. That is the one where
# the core was compiled, so that only the checks are compiled; build/check where there is none.
# PYTHON names the interpreter whose cmake and ninja are used.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$(dirname "${PYTHON:-.venv/bin/python}")
[ -x "$tools/cmake" ] && PATH="$(cd "$tools" && pwd):$PATH"
for tool in cmake ninja; do
    command -v "$tool" >/dev/null || { echo "$tool not found: run 'make setup', or 'pip install cmake ninja'" >&2; exit 1; }
done

build=build/check
for cache in build/cp*/CMakeCache.txt; do
    if [ -f "$cache" ]; then build=$(dirname "$cache"); fi
done
mkdir -p "$build"
log=$build/checks.log
exec 9>"$build/.checks-lock"
flock 9 # another run of the tests may be building, too
configure() {
    cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DZEROPOINT_PYTHON=OFF \
        "$@"
}
# pip builds with tools of an environment that it removes afterwards. What it compiled in native/ is still good.
kept() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
tools_are_left() {
    [ -x "$(kept CMAKE_COMMAND)" ] && [ -x "$(kept CMAKE_MAKE_PROGRAM)" ] \
        && { [ -d "$(kept nanobind_DIR)" ] || [ "$(kept ZEROPOINT_PYTHON)" = OFF ]; }
}
take_over() {
    local compiler
    compiler=$(kept CMAKE_CXX_COMPILER)
    rm -rf "$build/CMakeCache.txt" "$build/CMakeFiles"
    : >"$build/.skbuild-info.json" # not pip's any more: its next build configures again
    configure -DCMAKE_CXX_COMPILER="$compiler"
}
{ if [ "$build" = build/check ]; then configure; elif ! tools_are_left; then take_over; fi \
    && cmake --build "$build" --target "$@"; } >"$log" 2>&1 \
    || { tail -n 40 "$log" >&2; echo "checks: FAILED to build $*, see $log" >&2; exit 1; }
echo "$build"
