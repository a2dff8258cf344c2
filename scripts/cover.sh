#!/usr/bin/env bash
# cover.sh [SECONDS] [LAYER...]: program files chosen by the branches of reader, checker, planners and steps that they
# reach (libFuzzer; needs clang), SECONDS for all layers together:
#   container   the reader and the JSON, tens of thousands of small files a second
#   plan        loaded, and planned for three shapes
#   run         run, too
# Begins with tests/fuzz/corpus and the programs of the tests, keeps what reaches more in build/corpus, and what is
# trouble in build/found. SANITIZE=address adds AddressSanitizer and UndefinedBehaviorSanitizer. MINIMIZE=1 writes
# tests/fuzz/corpus anew: of the smallest files that reach as much, the first 1.9 MB.
set -euo pipefail
cd "$(dirname "$0")/.."

clang=${CLANG:-}
for version in 22 21 20 19 18 17 16 15 14; do
    [ -n "$clang" ] || clang=$(command -v "clang++-$version" || true)
done
[ -n "$clang" ] || clang=$(command -v clang++) || { echo "cover: NOT RUN: clang++ not found (Debian: clang-19 libclang-rt-19-dev)" >&2; exit 3; }
tools=$(dirname "${PYTHON:-.venv/bin/python}")
[ -x "$tools/cmake" ] && PATH="$(cd "$tools" && pwd):$PATH"

build=build/cover${SANITIZE:+-$SANITIZE}
mkdir -p "$build" build/corpus/{container,plan,run} build/found
echo "cover: building $build/program_cover with $clang"
{ cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DZEROPOINT_PYTHON=OFF \
    -DZEROPOINT_FUZZER=ON "-DZEROPOINT_SANITIZE=${SANITIZE:-OFF}" "-DCMAKE_CXX_COMPILER=$clang" &&
    cmake --build "$build" --target program_cover; } >"$build/build.log" 2>&1 \
    || { tail -n 40 "$build/build.log" >&2; echo "cover: FAILED to build, see $build/build.log" >&2; exit 1; }

export ZEROPOINT_FUZZ_SEEDS=tests/golden/programs
corpus=tests/fuzz/corpus
common=(-timeout=20 -rss_limit_mb=2048 -artifact_prefix=build/found/)
if [ "${MINIMIZE:-}" = 1 ]; then
    rm -rf build/smallest && mkdir build/smallest
    # By branches, not by how often each ran: a file for every count would be thousands.
    "$build/program_cover" "${common[@]}" -max_len=16384 -merge=1 -use_counters=0 build/smallest "$corpus" \
        build/corpus/{container,plan,run}
    rm -f "$corpus"/*.zpt
    taken=0
    for file in $(ls -rS build/smallest); do
        taken=$((taken + $(stat -c %s "build/smallest/$file")))
        [ "$taken" -gt 1900000 ] || cp "build/smallest/$file" "$corpus/${file:0:12}.zpt"
    done
    du -sh --apparent-size "$corpus"
    exit
fi

seconds=${1:-60}
layers=("${@:2}")
[ "${#layers[@]}" -gt 0 ] || layers=(container plan run)
# One long file is as much work as ten short ones, and reaches no more.
declare -A longest=([container]=1024 [plan]=4096 [run]=8192)
for layer in "${layers[@]}"; do
    most=${longest[$layer]} log=$build/$layer.log
    find "$corpus" "$ZEROPOINT_FUZZ_SEEDS" -name '*.zpt' -size "-$((most + 1))c" | paste -sd, >"$build/$layer.seeds"
    ZEROPOINT_FUZZ_LAYER=$layer "$build/program_cover" "${common[@]}" "-max_len=$most" -mutate_depth=2 -entropic=0 \
        -max_total_time="$((seconds / ${#layers[@]}))" -dict=native/check/fuzz/container.dict \
        "-seed_inputs=@$build/$layer.seeds" "build/corpus/$layer" >"$log" 2>&1 \
        || { grep -a -E "WRONG|ERROR|SUMMARY|runtime error|Test unit" "$log" >&2; echo "cover: TROUBLE, see $log" >&2; exit 1; }
    echo "cover: $layer: $(grep -a DONE "$log")"
    grep -a "cover:" "$log"
done
