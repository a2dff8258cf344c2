#!/usr/bin/env bash
# check_system.sh windows|macos|musl [arguments of kernel_check]: builds the native core for another system in build/SYSTEM
# and runs it: every kernel against its reference (--quick unless arguments are given), the program files of the tests at
# every instruction set of this CPU, with the results that were kept, and an example of the C API on each of them.
#   windows   Windows on x86-64; runs in wine
#   macos     macOS on ARM; compiles and links, for nothing of it can run here
#   musl      Linux with musl in place of glibc, as Alpine has it; the example only where the package `musl` is installed
# PYTHON names the interpreter whose cmake, ninja and ziglang are used.
set -euo pipefail
cd "$(dirname "$0")/.."

system=${1:?windows, macos or musl}
shift
export PYTHON=${PYTHON:-.venv/bin/python}
tools=$(dirname "$PYTHON")
[ -x "$tools/cmake" ] && PATH="$(cd "$tools" && pwd):$PATH"
build=build/$system
log=$build/build.log
mkdir -p "$build"
run=() program=""
case $system in
    windows)
        target=x86_64-windows-gnu program=.exe
        run=("$(command -v wine64 || command -v wine)") \
            || { echo "check-$system: NOT RUN: wine not found; on Debian: apt-get install wine64" >&2; exit 1; }
        export WINEPREFIX=$PWD/$build/wine WINEDEBUG=${WINEDEBUG:--all}
        ;;
    macos) target=aarch64-macos ;;
    musl) target=$(uname -m)-linux-musl ;;
    *) echo "check_system: $system is none of windows, macos, musl" >&2; exit 2 ;;
esac

echo "check-$system: building $build (some minutes the first time)"
read -ra compiler <<<"$(scripts/zig_compiler.sh "$target" "$build/compiler")"
settings=(-G Ninja "${compiler[@]}" -DCMAKE_BUILD_TYPE=Release)
{ cmake -S . -B "$build" "${settings[@]}" -DZEROPOINT_PYTHON=OFF \
    && cmake --build "$build" --target kernel_check program_levels zeropoint \
    && cmake --install "$build" --component c_api --prefix "$build/c_api" \
    && cmake -S examples/cpp -B "$build/examples" "${settings[@]}" -Dzeropoint_DIR="$PWD/$build/c_api/lib/cmake/zeropoint" \
    && cmake --build "$build/examples"; } >"$log" 2>&1 \
    || { tail -n 40 "$log" >&2; echo "check-$system: FAILED to build, see $log" >&2; exit 1; }

if [ "$system" = macos ]; then
    for made in kernel_check program_levels examples/run; do
        # A Mach-O file for 64 bits begins with CF FA ED FE, then its CPU: 0C 00 00 01 is 64-bit ARM.
        [ "$(od -An -tx1 -N8 "$build/$made" | tr -d ' ')" = cffaedfe0c000001 ] \
            || { echo "check-macos: FAILED: $made is no program for macOS on ARM" >&2; exit 1; }
    done
    echo "check-macos: kernel_check, program_levels, the C library and its examples compile and link; nothing was run"
    exit
fi

[ $# -gt 0 ] || set -- --quick
"${run[@]}" "$build/kernel_check$program" "$@" >"$build/kernel_check.log" \
    || { grep -v '^ok ' "$build/kernel_check.log" >&2; echo "check-$system: FAILED: kernel_check" >&2; exit 1; }
echo "check-$system: kernel_check: $(tail -n 1 "$build/kernel_check.log")"

"${run[@]}" "$build/program_levels$program" tests/golden/programs/*.zpt >"$build/levels.log" \
    || { grep -v '^ok ' "$build/levels.log" >&2; echo "check-$system: FAILED: kept programs" >&2; exit 1; }
echo "check-$system: kept programs: $(tail -n 2 "$build/levels.log" | paste -sd ' ')"

[ "$system" != windows ] || cp "$build"/c_api/bin/*.dll "$build/examples" # where Windows looks
if [ "$system" = musl ] && [ ! -e "/lib/ld-musl-$(uname -m).so.1" ]; then
    echo "check-musl: NOT RUN: the example of the C API, which needs musl; on Debian: apt-get install musl"
    exit
fi
echo "check-$system: $(scripts/check_example.sh "$build" "${run[@]}" "$build/examples/run$program")"
