#!/usr/bin/env bash
# check_arm.sh [arguments of kernel_check]: builds the native core for 64-bit ARM in build/arm and runs it in qemu: every
# kernel against its reference (--quick unless arguments are given), the program files of the tests at every instruction
# set, with the results that were kept, and an example of the C API on some of them.
# With BRIEF=1, as CI runs it, the programs go through the example alone, at the best instruction set.
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

targets=(program_levels)
[ -z "${BRIEF:-}" ] || targets=()
build=build/arm
log=$build/build.log
mkdir -p "$build"
echo "check-arm: building $build"
arm=(-G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" -DCMAKE_BUILD_TYPE=Release)
{ cmake -S . -B "$build" "${arm[@]}" -DZEROPOINT_PYTHON=OFF \
    -DCMAKE_EXE_LINKER_FLAGS=-static && cmake --build "$build" --target kernel_check "${targets[@]}" zeropoint \
    && cmake --install "$build" --component c_api --prefix "$build/c_api" \
    && cmake -S examples/cpp -B "$build/examples" "${arm[@]}" -Dzeropoint_DIR="$PWD/$build/c_api/lib/cmake/zeropoint" \
    && cmake --build "$build/examples"; } >"$log" 2>&1 \
    || { tail -n 40 "$log" >&2; echo "check-arm: FAILED to build, see $log" >&2; exit 1; }

[ $# -gt 0 ] || set -- --quick
"${run[@]}" "$build/kernel_check" "$@" >"$build/kernel_check.log" \
    || { grep -v '^ok ' "$build/kernel_check.log" >&2; echo "check-arm: FAILED: kernel_check" >&2; exit 1; }
echo "check-arm: kernel_check: $(tail -n 1 "$build/kernel_check.log")"

golden=tests/golden/programs
if [ -z "${BRIEF:-}" ]; then
    "${run[@]}" "$build/program_levels" "$golden"/*.zpt >"$build/levels.log" \
        || { grep -v '^ok ' "$build/levels.log" >&2; echo "check-arm: FAILED: kept programs" >&2; exit 1; }
    echo "check-arm: kept programs: $(tail -n 2 "$build/levels.log" | paste -sd ' ')"
fi

export LD_LIBRARY_PATH=
echo "check-arm: $(PYTHON=$PYTHON scripts/check_example.sh "$build" "${run[@]}" -L /usr/aarch64-linux-gnu "$build/examples/run")"
