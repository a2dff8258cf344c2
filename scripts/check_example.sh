#!/usr/bin/env bash
# check_example.sh DIRECTORY COMMAND...: runs an example of the C API, which takes a program and files with the bytes of its
# inputs, on the program files of the tests, and compares its results with those that were kept. Files go to DIRECTORY.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1/example golden=tests/golden/programs
shift
mkdir -p "$build"
"${PYTHON:-.venv/bin/python}" - "$golden" "$build" <<'END'
import pathlib
import sys
from safetensors.numpy import load_file

for path in pathlib.Path(sys.argv[1]).glob("*.safetensors"):
    arrays, results = load_file(path), b""
    for name in sorted(arrays):
        if name.startswith("input"):
            pathlib.Path(sys.argv[2], f"{path.stem}.{name}").write_bytes(arrays[name].tobytes())
        else:
            results += arrays[name].tobytes()
    pathlib.Path(sys.argv[2], f"{path.stem}.want").write_bytes(results)
END
shopt -s nullglob
count=0
for program in "$golden"/*.zpt; do
    name=$(basename "$program" .zpt)
    "$@" "$program" "$build/$name".input_* >"$build/$name.out"
    cmp "$build/$name.want" "$build/$name.out" || { echo "FAILED: the example gives other bytes for $name" >&2; exit 1; }
    count=$((count + 1))
done
echo "the example of the C API gives the kept bytes of $count programs"
