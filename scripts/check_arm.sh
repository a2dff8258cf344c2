#!/usr/bin/env bash
# check_arm.sh [arguments of kernel_check]: builds the native core for 64-bit ARM in build/arm and runs it in qemu: every
# kernel against its reference (--quick unless arguments are given), the program files of the tests at every instruction
# set, with the results that were kept, and an example of the C API on some of them.
# PYTHON names the interpreter whose cmake and ninja are used.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-.venv/bin/python}
tools=$(dirname "$PYTHON")
[ -x "$tools/cmake" ] && PATH="$(cd "$tools" && pwd):$PATH"
not_run() {
    echo "check-arm: NOT RUN: $1" >&2
    exit 1
}
for tool in cmake ninja; do
    command -v "$tool" >/dev/null || not_run "$tool not found; run 'make setup' first"
done
packages="on Debian: apt-get install g++-aarch64-linux-gnu qemu-user-static"
command -v aarch64-linux-gnu-g++ >/dev/null || not_run "aarch64-linux-gnu-g++ not found; $packages"
qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) || not_run "qemu-aarch64-static not found; $packages"
run=("$qemu" -cpu max)

build=build/arm
log=$build/build.log
mkdir -p "$build"
echo "check-arm: building $build"
arm=(-G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" -DCMAKE_BUILD_TYPE=Release)
{ cmake -S . -B "$build" "${arm[@]}" -DSKBUILD_PROJECT_VERSION=0 -DZEROPOINT_PYTHON=OFF \
    -DCMAKE_EXE_LINKER_FLAGS=-static && cmake --build "$build" --target kernel_check program_fuzz zeropoint \
    && cmake --install "$build" --component c_api --prefix "$build/c_api" \
    && cmake -S examples/cpp -B "$build/examples" "${arm[@]}" -Dzeropoint_DIR="$PWD/$build/c_api/lib/cmake/zeropoint" \
    && cmake --build "$build/examples"; } >"$log" 2>&1 \
    || { tail -n 40 "$log" >&2; echo "check-arm: FAILED to build, see $log" >&2; exit 1; }

[ $# -gt 0 ] || set -- --quick
"${run[@]}" "$build/kernel_check" "$@" >"$build/kernel_check.log" \
    || { grep -v '^ok ' "$build/kernel_check.log" >&2; echo "check-arm: FAILED: kernel_check" >&2; exit 1; }
echo "check-arm: kernel_check: $(tail -n 1 "$build/kernel_check.log")"

golden=tests/golden/programs
"${run[@]}" "$build/program_fuzz" levels "$golden"/*.zpt >"$build/levels.log" \
    || { grep -v '^ok ' "$build/levels.log" >&2; echo "check-arm: FAILED: kept programs" >&2; exit 1; }
echo "check-arm: kept programs: $(tail -n 2 "$build/levels.log" | paste -sd ' ')"

# Programs with one float32 input, and one float32 result that lies in the order of its axes.
export LD_LIBRARY_PATH=
sysroot=/usr/aarch64-linux-gnu
for name in encoder gru image lstm residual upsampled weights4 weights8; do
    "$PYTHON" - "$golden/$name.safetensors" "$build/$name" <<'END'
import sys
from safetensors.numpy import load_file

arrays = load_file(sys.argv[1])
for which, ending in (("input_00", "in"), ("output_00", "want")):
    with open(f"{sys.argv[2]}.{ending}", "wb") as file:
        file.write(arrays[which].tobytes())
END
    "${run[@]}" -L "$sysroot" "$build/examples/stream" "$golden/$name.zpt" <"$build/$name.in" >"$build/$name.out"
    cmp "$build/$name.want" "$build/$name.out" \
        || { echo "check-arm: FAILED: the C API gives other bytes for $name" >&2; exit 1; }
done
echo "check-arm: the C++ example gives the kept bytes"
