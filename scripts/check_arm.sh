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

targets=(program_fuzz)
[ -z "${BRIEF:-}" ] || targets=()
build=build/arm
log=$build/build.log
mkdir -p "$build"
echo "check-arm: building $build"
arm=(-G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" -DCMAKE_BUILD_TYPE=Release)
{ cmake -S . -B "$build" "${arm[@]}" -DSKBUILD_PROJECT_VERSION=0 -DZEROPOINT_PYTHON=OFF \
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
    "${run[@]}" "$build/program_fuzz" levels "$golden"/*.zpt >"$build/levels.log" \
        || { grep -v '^ok ' "$build/levels.log" >&2; echo "check-arm: FAILED: kept programs" >&2; exit 1; }
    echo "check-arm: kept programs: $(tail -n 2 "$build/levels.log" | paste -sd ' ')"
fi

# Files with the bytes of inputs and results, in the order of their names.
"$PYTHON" - "$golden" "$build" <<'END'
import pathlib
import sys
from safetensors.numpy import load_file

for path in pathlib.Path(sys.argv[1]).glob("*.safetensors"):
    arrays, results = load_file(path), b""
    for name in sorted(arrays):
        if name.startswith("input"):
            pathlib.Path(sys.argv[2], f"{path.stem}.{name}").write_bytes(arrays[name].tobytes())
        else:
            results += arrays[name].tobytes()
    pathlib.Path(sys.argv[2], f"{path.stem}.want").write_bytes(results)
END
export LD_LIBRARY_PATH=
count=0
for program in "$golden"/*.zpt; do
    name=$(basename "$program" .zpt)
    shopt -s nullglob
    "${run[@]}" -L /usr/aarch64-linux-gnu "$build/examples/run" "$program" "$build/$name".input_* >"$build/$name.out"
    cmp "$build/$name.want" "$build/$name.out" \
        || { echo "check-arm: FAILED: the C API gives other bytes for $name" >&2; exit 1; }
    count=$((count + 1))
done
echo "check-arm: the C++ example gives the kept bytes of $count programs"
