#!/usr/bin/env bash
# zig_compiler.sh TARGET DIRECTORY: writes a compiler for another system there, and prints the arguments of cmake that use
# it. It is clang with the headers and libraries of many systems, from the package `ziglang` of PyPI, in the environment of
# PYTHON.
set -euo pipefail
target=${1:?a target such as x86_64-windows-gnu}
mkdir -p "${2:?a directory}"
directory=$(cd "$2" && pwd)
zig=$("${PYTHON:-python3}" -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).with_name("zig"))' 2>/dev/null) \
    || { echo "zig_compiler: the package ziglang is not installed: pip install ziglang" >&2; exit 1; }
tool() {
    printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$zig" "$2" >"$directory/$1"
    chmod +x "$directory/$1"
}
# Where clang adds extensions to an architecture, zig adds them to a CPU.
cat >"$directory/clang++" <<END
#!/bin/bash
exec "$zig" c++ -target $target "\${@/#-march=armv8.2-a/-mcpu=baseline}"
END
chmod +x "$directory/clang++"
for name in ar ranlib rc; do tool "$name" "$name"; done
case $target in
    *-windows-*) system=Windows ;;
    *-macos*) system=Darwin ;;
    *) system=Linux ;;
esac
echo "-DCMAKE_SYSTEM_NAME=$system -DCMAKE_SYSTEM_PROCESSOR=${target%%-*} -DCMAKE_CXX_COMPILER=$directory/clang++" \
    "-DCMAKE_AR=$directory/ar -DCMAKE_RANLIB=$directory/ranlib -DCMAKE_RC_COMPILER=$directory/rc"
