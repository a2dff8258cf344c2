#!/usr/bin/env bash
# check_macos.sh: compiles the native core for macOS on ARM in build/macos and links kernel_check, program_levels, the C
# library and its examples. Nothing of it can run here; what it needs of the system is printed.
# PYTHON names the interpreter whose cmake, ninja and ziglang are used.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-.venv/bin/python}
export PYTHON
tools=$(dirname "$PYTHON")
[ -x "$tools/cmake" ] && PATH="$(cd "$tools" && pwd):$PATH"
build=build/macos
log=$build/build.log
mkdir -p "$build"

echo "check-macos: building $build (some minutes the first time)"
read -ra compiler <<<"$(scripts/zig_compiler.sh aarch64-macos "$build/compiler")"
macos=(-G Ninja "${compiler[@]}" -DCMAKE_BUILD_TYPE=Release)
{ cmake -S . -B "$build" "${macos[@]}" -DZEROPOINT_PYTHON=OFF \
    && cmake --build "$build" --target kernel_check program_levels zeropoint \
    && cmake --install "$build" --component c_api --prefix "$build/c_api" \
    && cmake -S examples/cpp -B "$build/examples" "${macos[@]}" -Dzeropoint_DIR="$PWD/$build/c_api/lib/cmake/zeropoint" \
    && cmake --build "$build/examples"; } >"$log" 2>&1 \
    || { tail -n 40 "$log" >&2; echo "check-macos: FAILED to build, see $log" >&2; exit 1; }
for made in kernel_check program_levels examples/run; do
    # A Mach-O file for 64 bits begins with CF FA ED FE, then its CPU: 0C 00 00 01 is 64-bit ARM.
    [ "$(od -An -tx1 -N8 "$build/$made" | tr -d ' ')" = cffaedfe0c000001 ] \
        || { echo "check-macos: FAILED: $made is no program for macOS on ARM" >&2; exit 1; }
done
echo "check-macos: kernel_check, program_levels, the C library and its examples compile and link; nothing was run"
