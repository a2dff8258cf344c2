#!/usr/bin/env bash
# build_wheels.sh PYTHON...: builds the wheel of each interpreter into dist/, and tries it in an empty environment of
# every interpreter that it is for: the kept programs must give the kept bytes where there is no PyTorch.
# A wheel of CPython 3.12 is for all later ones (the stable ABI).
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { echo "usage: build_wheels.sh PYTHON..." >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p dist
for python in "$@"; do
    tag=$("$python" -c 'import sys; print("cp%d%d" % min(sys.version_info[:2], (3, 12)))')
    ls dist/zeropoint-*-"$tag"-*.whl >/dev/null 2>&1 && [ -z "${REBUILD:-}" ] && continue
    echo "wheel: building $tag with $python"
    "$python" -m venv "$work/build-$tag"
    "$work/build-$tag/bin/pip" -q --disable-pip-version-check install -c constraints.txt scikit-build-core nanobind cmake ninja
    PATH="$work/build-$tag/bin:$PATH" "$work/build-$tag/bin/pip" -q --disable-pip-version-check wheel \
        --no-build-isolation --no-deps -w dist .
done
for python in "$@"; do
    tag=$("$python" -c 'import sys; print("cp%d%d" % min(sys.version_info[:2], (3, 12)))')
    name=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    "$python" -m venv "$work/try-$name"
    "$work/try-$name/bin/pip" -q --disable-pip-version-check install dist/zeropoint-*-"$tag"-*.whl
    "$work/try-$name/bin/python" scripts/try_wheel.py tests/golden/programs
done
