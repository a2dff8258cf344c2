#!/usr/bin/env bash
# build_web.sh: builds the runtime as WebAssembly into build/web/package, and prints that directory. PYTHON names the
# interpreter whose cmake and ninja are used. emcc is Debian's emscripten; its optimizer needs acorn, which npm has.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$(dirname "${PYTHON:-.venv/bin/python}")
[ -x "$tools/cmake" ] && PATH="$(cd "$tools" && pwd):$PATH"
for tool in emcc node npm; do
    command -v "$tool" >/dev/null || { echo "build_web: $tool not found: apt-get install emscripten nodejs npm" >&2; exit 1; }
done
build=build/web
mkdir -p "$build/package"
[ -d "$build/node_modules/acorn" ] || npm install --silent --no-audit --no-fund --prefix "$build" acorn@8 >&2
export NODE_PATH=$PWD/$build/node_modules
version=$(sed -n 's/^version = "\([^"]*\)".*/\1/p' pyproject.toml)
{ emcmake cmake -S . -B "$build/cmake" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DZEROPOINT_PYTHON=OFF -DCMAKE_CXX_FLAGS=-fwasm-exceptions \
    && cmake --build "$build/cmake" --target zeropoint_core_wasm; } >"$build/build.log" 2>&1 \
    || { tail -n 40 "$build/build.log" >&2; echo "build_web: FAILED, see $build/build.log" >&2; exit 1; }
cp web/zeropoint.mjs web/zeropoint.d.ts web/README.md "$build/cmake/web/core.mjs" "$build/cmake/web/core.wasm" "$build/package"
cp LICENSE "$build/package"
sed "s/\"version\": \".*\"/\"version\": \"$version\"/" web/package.json >"$build/package/package.json"
echo "$build/package"
