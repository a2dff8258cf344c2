#!/usr/bin/env bash
# sanitize.sh [address|thread|programs] [arguments of kernel_check]: builds the native core and its checks with sanitizers in
# build/sanitize or build/sanitize-thread, and runs them.
#   address (default): AddressSanitizer and UndefinedBehaviorSanitizer on kernel_check, on the program files of the
#                      tests at every instruction set and with SANITIZE_STARVED requests for memory of each refused, on
#                      files that once were trouble, and on SANITIZE_COUNT wrong ones
#   programs:          the same on program files alone, and fewer wrong ones: kernel_check takes most of the time
#   thread:            ThreadSanitizer on programs that threads share
# PYTHON names the interpreter whose cmake and ninja are used.
set -euo pipefail
cd "$(dirname "$0")/.."

which=address
case "${1:-}" in address | thread | programs) which=$1 && shift ;; esac
tools=$(dirname "${PYTHON:-.venv/bin/python}")
[ -x "$tools/cmake" ] && PATH="$(cd "$tools" && pwd):$PATH"
for tool in cmake ninja; do
    command -v "$tool" >/dev/null || { echo "sanitize: $tool not found; run 'make setup' first" >&2; exit 1; }
done

build=build/sanitize sanitizers=address
[ "$which" != thread ] || { build=build/sanitize-thread && sanitizers=thread; }
log=$build/build.log
targets=(program_fuzz program_levels)
[ "$which" != address ] || targets+=(kernel_check)
mkdir -p "$build"
echo "sanitize: building $build"
{ cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DZEROPOINT_PYTHON=OFF \
    "-DZEROPOINT_SANITIZE=$sanitizers" && cmake --build "$build" --target "${targets[@]}"; } >"$log" 2>&1 \
    || { tail -n 40 "$log" >&2; echo "sanitize: FAILED to build, see $log" >&2; exit 1; }

# A forked child leaves by _exit, so only the parent looks for leaks.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}

# Runs a check of the build; its last line says how it went.
run() {
    local log=$build/$1.log
    if "$build/$@" 2>&1 | tee "$log"; then
        echo "sanitize: clean ($* | $(tail -n 1 "$log"))" | cut -c1-150
    else
        echo "sanitize: FAILED, see $log" >&2
        exit 1
    fi
}

golden=tests/golden/programs
if [ "$which" = thread ]; then
    ZEROPOINT_NUM_THREADS=2 run program_fuzz threads "$golden"/*.zpt
    exit
fi
run program_fuzz replay "$golden"/*.zpt tests/fuzz/found/*.zpt tests/fuzz/corpus/*.zpt
run program_levels "$golden"/*.zpt
count=20000 starved=100
[ "$which" = address ] || count=2000 starved=5
run program_fuzz starve --most "${SANITIZE_STARVED:-$starved}" "$golden"/*.zpt
run program_fuzz fuzz "$golden" --count "${SANITIZE_COUNT:-$count}" --keep "$build/found"
[ "$which" != address ] || run kernel_check "$@"
