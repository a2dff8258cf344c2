#!/usr/bin/env bash
# Builds the native core and kernel_check with AddressSanitizer and UndefinedBehaviorSanitizer in build/sanitize and runs
# kernel_check (PYTHON names the interpreter whose cmake and ninja are used; arguments go to kernel_check).
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$(dirname "${PYTHON:-.venv/bin/python}")
[ -x "$tools/cmake" ] && PATH="$(cd "$tools" && pwd):$PATH"
for tool in cmake ninja; do
    command -v "$tool" >/dev/null || { echo "sanitize: $tool not found; run 'make setup' first" >&2; exit 1; }
done

build=build/sanitize
log=$build/build.log
mkdir -p "$build"
echo "sanitize: building $build"
{ cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSKBUILD_PROJECT_VERSION=0 -DZEROPOINT_PYTHON=OFF \
    -DZEROPOINT_CHECK=ON -DZEROPOINT_SANITIZE=ON && cmake --build "$build"; } >"$log" 2>&1 \
    || { tail -n 40 "$log" >&2; echo "sanitize: FAILED to build, see $log" >&2; exit 1; }

# A forked child leaves by _exit, so only the parent looks for leaks.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
if "$build/kernel_check" "$@" 2>&1 | tee "$build/kernel_check.log"; then
    echo "sanitize: clean ($(tail -n 1 "$build/kernel_check.log"))"
else
    echo "sanitize: FAILED, see $build/kernel_check.log" >&2
    exit 1
fi
