#!/usr/bin/env bash
# check_windows.sh [arguments of kernel_check]: builds the native core for Windows on x86-64 in build/windows and runs it in
# wine: every kernel against its reference (--quick unless arguments are given), the program files of the tests at every
# instruction set of this CPU, with the results that were kept, and an example of the C API on each of them.
# PYTHON names the interpreter whose cmake, ninja and ziglang are used.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-.venv/bin/python}
tools=$(dirname "$PYTHON")
[ -x "$tools/cmake" ] && PATH="$(cd "$tools" && pwd):$PATH"
wine=$(command -v wine64 || command -v wine) \
    || { echo "check-windows: NOT RUN: wine not found; on Debian: apt-get install wine64" >&2; exit 1; }
build=build/windows
log=$build/build.log
mkdir -p "$build"
WINEPREFIX=$PWD/$build/wine
export WINEPREFIX WINEDEBUG=${WINEDEBUG:--all}

echo "check-windows: building $build (some minutes the first time)"
export PYTHON
read -ra compiler <<<"$(scripts/zig_compiler.sh x86_64-windows-gnu "$build/compiler")"
windows=(-G Ninja "${compiler[@]}" -DCMAKE_BUILD_TYPE=Release)
{ cmake -S . -B "$build" "${windows[@]}" -DZEROPOINT_PYTHON=OFF \
    && cmake --build "$build" --target kernel_check program_levels zeropoint \
    && cmake --install "$build" --component c_api --prefix "$build/c_api" \
    && cmake -S examples/cpp -B "$build/examples" "${windows[@]}" -Dzeropoint_DIR="$PWD/$build/c_api/lib/cmake/zeropoint" \
    && cmake --build "$build/examples"; } >"$log" 2>&1 \
    || { tail -n 40 "$log" >&2; echo "check-windows: FAILED to build, see $log" >&2; exit 1; }
cp "$build"/c_api/bin/*.dll "$build/examples" # where Windows looks

[ $# -gt 0 ] || set -- --quick
"$wine" "$build/kernel_check.exe" "$@" >"$build/kernel_check.log" \
    || { grep -v '^ok ' "$build/kernel_check.log" >&2; echo "check-windows: FAILED: kernel_check" >&2; exit 1; }
echo "check-windows: kernel_check: $(tail -n 1 "$build/kernel_check.log")"

"$wine" "$build/program_levels.exe" tests/golden/programs/*.zpt >"$build/levels.log" \
    || { grep -v '^ok ' "$build/levels.log" >&2; echo "check-windows: FAILED: kept programs" >&2; exit 1; }
echo "check-windows: kept programs: $(tail -n 2 "$build/levels.log" | paste -sd ' ')"

echo "check-windows: $(PYTHON=$PYTHON scripts/check_example.sh "$build" "$wine" "$build/examples/run.exe")"
