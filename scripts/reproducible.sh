#!/usr/bin/env bash
# reproducible.sh: builds the wheel twice, in two folders of different names from copies of the committed files, and
# compares the bytes. PYTHON names the interpreter with the pinned build tools.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$(realpath -s "${PYTHON:-.venv/bin/python}")
PATH="$(dirname "$python"):$PATH"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
for name in first a_second_one; do
    mkdir -p "$work/$name"
    git archive HEAD | tar -x -C "$work/$name"
    (cd "$work/$name" && "$python" -m pip wheel -q --no-build-isolation --no-deps -w "$work/wheels_$name" .)
done
sha256sum "$work"/wheels_*/*.whl | sed "s|$work/||"
cmp "$work"/wheels_first/*.whl "$work"/wheels_a_second_one/*.whl && echo "reproducible: the same bytes"
