#!/bin/sh
# Checks that a C++17 compiler works: $CXX if set, else the first of c++, g++, clang++ (the order CMake looks in).
# Silent when all is well.
set -eu

say_how() {
    cat >&2 <<EOF
error: $1
  zeropoint builds its native kernels at set-up. Install a C++ compiler, then run make again:
    Debian, Ubuntu   apt install g++
    Fedora           dnf install gcc-c++
    macOS            xcode-select --install
  or name one: make setup CXX=/path/to/c++
EOF
    exit 1
}

compiler=""
for candidate in ${CXX:-c++ g++ clang++}; do
    if command -v "$candidate" >/dev/null 2>&1; then
        compiler=$candidate
        break
    fi
done
[ -n "$compiler" ] || say_how "no C++ compiler found (looked for ${CXX:-c++, g++, clang++})."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/probe.cpp" <<'EOF'
#include <optional>
#include <thread>
int main() {
    if constexpr (sizeof(void*) == 8) return std::optional<int>(0).value();
    return std::thread::hardware_concurrency() > 0 ? 0 : 1;
}
EOF
if ! "$compiler" -std=c++17 -pthread "$scratch/probe.cpp" -o "$scratch/probe" >"$scratch/log" 2>&1; then
    sed 's/^/  | /' "$scratch/log" | head -n 15 >&2
    say_how "$compiler cannot build a C++17 program (its output is above)."
fi
