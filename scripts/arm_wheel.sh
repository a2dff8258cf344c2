#!/usr/bin/env bash
# arm_wheel.sh: builds the wheel of CPython 3.11 for 64-bit ARM with a cross compiler, into dist/, and tries it in qemu
# with Debian's Python, where the kept programs must give the kept bytes. Debian's packages, and numpy and safetensors
# for ARM, are unpacked in build/arm_python; nothing is installed. PYTHON names a CPython 3.11 with the pinned build
# tools. Wheels for PyPI come from .github/workflows/release.yml, which builds them on ARM.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-.venv/bin/python}
not_run() {
    echo "arm-wheel: NOT RUN: $1" >&2
    exit 1
}
"$PYTHON" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || not_run "$PYTHON is no CPython 3.11, as Debian 12 has it"
packages="on Debian: apt-get install g++-aarch64-linux-gnu qemu-user-static"
command -v aarch64-linux-gnu-g++ >/dev/null || not_run "aarch64-linux-gnu-g++ not found; $packages"
qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) || not_run "qemu-aarch64-static not found; $packages"
PATH="$(cd "$(dirname "$PYTHON")" && pwd):$PATH"

root=$PWD/build/arm_python
if [ ! -f "$root/ready" ]; then
    echo "arm-wheel: Python for ARM in $root"
    rm -rf "$root" && mkdir -p "$root"/{apt/lists/partial,apt/archives/partial,debs,wheels,site}
    touch "$root/apt/status"
    apt=(apt-get -qq -o "Dir::State=$root/apt" -o "Dir::Cache=$root/apt" -o "Dir::State::status=$root/apt/status"
        -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root)
    "${apt[@]}" update
    (cd "$root/debs" && "${apt[@]}" download python3.11-minimal libpython3.11-minimal libpython3.11-stdlib \
        libpython3.11-dev libc6 libexpat1 zlib1g libffi8 libssl3 libbz2-1.0 liblzma5 libstdc++6 libgcc-s1)
    for package in "$root"/debs/*.deb; do dpkg -x "$package" "$root"; done
    "$PYTHON" -m pip -q --disable-pip-version-check download --no-deps --only-binary :all: --python-version 3.11 \
        --platform manylinux2014_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_28_aarch64 \
        -d "$root/wheels" numpy safetensors
    for wheel in "$root"/wheels/*.whl; do "$PYTHON" -m zipfile -e "$wheel" "$root/site"; done
    cp -r "$root/usr/include/python3.11" "$root/headers"
    cp "$root/usr/include/aarch64-linux-gnu/python3.11/pyconfig.h" "$root/headers/pyconfig.h"
    touch "$root/ready"
fi

echo "arm-wheel: building"
mkdir -p dist && rm -f dist/zeropoint-*aarch64.whl
_PYTHON_HOST_PLATFORM=linux-aarch64 SETUPTOOLS_EXT_SUFFIX=.cpython-311-aarch64-linux-gnu.so \
    CMAKE_ARGS="-DCMAKE_TOOLCHAIN_FILE=$PWD/cmake/aarch64.cmake -DPython_INCLUDE_DIR=$root/headers" \
    "$PYTHON" -m pip -q --disable-pip-version-check wheel --no-build-isolation --no-deps -w dist .
wheel=$(ls dist/zeropoint-*aarch64.whl)
echo "arm-wheel: $wheel, $(stat -c %s "$wheel") bytes"
rm -rf "$root/zeropoint" && mkdir "$root/zeropoint"
"$PYTHON" -m zipfile -e "$wheel" "$root/zeropoint"
"$qemu" -cpu max -L "$root" -E "PYTHONPATH=$root/zeropoint:$root/site" \
    "$root/usr/bin/python3.11" scripts/try_wheel.py "${1:-tests/golden/programs}"
