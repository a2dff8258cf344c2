"""try_wheel.py FOLDER: runs the kept programs of a folder with the installed zeropoint, and compares the bytes."""

from __future__ import annotations

import importlib.util
import pathlib
import sys

import numpy
from safetensors.numpy import load_file

import zeropoint.runtime

assert importlib.util.find_spec("torch") is None, "PyTorch is here: this is to be tried without it"
paths = sorted(pathlib.Path(sys.argv[1]).glob("*.zpt"))
for path in paths:
    arrays = load_file(path.with_suffix(".safetensors"))
    found = zeropoint.runtime.load(path)._native.run([arrays[n] for n in sorted(arrays) if n.startswith("input")])
    wanted = [arrays[n] for n in sorted(arrays) if n.startswith("output")]
    assert [numpy.ascontiguousarray(y).tobytes() for y in found] == [y.tobytes() for y in wanted], path.name
print(f"wheel: Python {sys.version.split()[0]}, zeropoint {zeropoint.__version__}: {len(paths)} programs, equal bytes")
