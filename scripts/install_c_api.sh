#!/usr/bin/env bash
# install_c_api.sh PREFIX: builds libzeropoint.so and installs it there with its headers, CMake package and pkg-config
# file. PYTHON names the interpreter whose cmake and ninja are used.
set -euo pipefail
prefix=${1:?a directory to install into}
mkdir -p "$prefix"
prefix=$(cd "$prefix" && pwd)
cd "$(dirname "$0")/.."
build=$(scripts/build_checks.sh zeropoint)
tools=$(dirname "${PYTHON:-.venv/bin/python}")
[ -x "$tools/cmake" ] && PATH="$(cd "$tools" && pwd):$PATH"
cmake --install "$build" --component c_api --prefix "$prefix" >/dev/null
echo "$prefix"
