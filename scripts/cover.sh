#!/usr/bin/env bash
# cover.sh [SECONDS]: program files chosen by the branches of reader, checker, planners and steps that they reach
# (libFuzzer; needs clang). Begins with tests/fuzz/corpus and the programs of the tests, keeps what reaches more in
# build/corpus, and what is trouble in build/found. SANITIZE=address adds AddressSanitizer and
# UndefinedBehaviorSanitizer. MINIMIZE=1 writes tests/fuzz/corpus anew: of the smallest files that reach as much, the
# first 1.9 MB.
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
mkdir -p "$build" build/corpus build/found
echo "cover: building $build/program_cover with $clang"
{ cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSKBUILD_PROJECT_VERSION=0 -DZEROPOINT_PYTHON=OFF \
    -DZEROPOINT_FUZZER=ON "-DZEROPOINT_SANITIZE=${SANITIZE:-OFF}" "-DCMAKE_CXX_COMPILER=$clang" &&
    cmake --build "$build" --target program_cover; } >"$build/build.log" 2>&1 \
    || { tail -n 40 "$build/build.log" >&2; echo "cover: FAILED to build, see $build/build.log" >&2; exit 1; }

export ZEROPOINT_FUZZ_SEEDS=tests/golden/programs
corpus=tests/fuzz/corpus
# One long file is as much work as ten short ones, and reaches no more.
common=(-max_len=16384 -timeout=20 -rss_limit_mb=2048 -artifact_prefix=build/found/)
if [ "${MINIMIZE:-}" = 1 ]; then
    rm -rf build/smallest && mkdir build/smallest
    # By branches, not by how often each ran: a file for every count would be thousands.
    "$build/program_cover" "${common[@]}" -merge=1 -use_counters=0 build/smallest "$corpus" build/corpus
    rm -f "$corpus"/*.zpt
    taken=0
    for file in $(ls -rS build/smallest); do
        taken=$((taken + $(stat -c %s "build/smallest/$file")))
        [ "$taken" -gt 1900000 ] || cp "build/smallest/$file" "$corpus/${file:0:12}.zpt"
    done
    du -sh --apparent-size "$corpus"
    exit
fi
"$build/program_cover" "${common[@]}" -max_total_time="${1:-60}" -mutate_depth=2 -entropic=0 -print_final_stats=1 \
    build/corpus "$corpus" "$ZEROPOINT_FUZZ_SEEDS" >"$build/run.log" 2>&1 \
    || { grep -a -E "WRONG|ERROR|SUMMARY|runtime error|Test unit" "$build/run.log" >&2; echo "cover: TROUBLE, see $build/run.log" >&2; exit 1; }
grep -a -E "DONE|cover:" "$build/run.log"
