"""``python tests/fuzz/make_found.py``: write the files of found/, made after what fuzzing once found.

Each has the name of a bug. The original files are gone; these are made after their description, from programs that we
keep, and were not tried on the code that had the bugs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import golden_programs

FOUND = Path(__file__).parent / "found"
Program = dict[str, Any]


def _attributes(op: str, number: int = 0, **values: Any) -> Callable[[Program], None]:
    def edit(program: Program) -> None:
        [s for s in program["steps"] if s["op"] == op][number]["attributes"].update(values)

    return edit


def _every_value_many_times(program: Program) -> None:
    program["outputs"] = program["outputs"] * 2000


def _a_name_for_every_size(program: Program) -> None:
    first = program["inputs"][0]
    program["inputs"] += [
        {**first, "name": f"more_{i}", "shape": [f"size_{i}_{axis}" for axis in range(len(first["shape"]))]}
        for i in range(1000)
    ]


def _sizes_whose_product_overflows(program: Program) -> None:
    first = program["inputs"][0]
    first["shape"] = [None] * 8
    first["example"] = [1 << 32] * 7 + [0]  # no elements, but strides of 2^192


FILES: dict[str, tuple[str, Callable[[Program], None]]] = {
    "phases_of_a_stride": ("upsampled", _attributes("conv", 1, stride=[1, 1 << 15, 1 << 15])),
    "gathered_by_dilation": (
        "image",
        _attributes("conv", dilation=[1, 1 << 14, 1 << 14], padding=[0, 1 << 15, 1 << 15]),
    ),
    "overflow_in_pads": ("moving", _attributes("pad", pads=[1 << 62, 1 << 62, 1 << 62, 1 << 62])),
    "overflow_in_a_factor": ("moving", _attributes("pixel_unshuffle", factor=1 << 15)),
    "unchecked_result": ("image", lambda program: program.update(result='{"tuple": [0, 7, "')),
    "results_that_do_not_count": ("image", _every_value_many_times),
    "least_integer": ("chosen", _attributes("range", first=-(1 << 63), step=-(1 << 63))),
    "strides_that_overflow": ("moving", _sizes_whose_product_overflows),
    "names_of_sizes": ("image", _a_name_for_every_size),
    "overflow_in_a_fold": ("windows", _attributes("fold", shape=[(1 << 63) - 1, 1 << 32])),
}


def main() -> None:
    for name, (source, edit) in FILES.items():
        header, program, data = golden_programs.parts_of((golden_programs.FOLDER / f"{source}.zpt").read_bytes())
        edit(program)
        (FOUND / f"{name}.zpt").write_bytes(golden_programs.joined(header, program, data))


if __name__ == "__main__":
    main()
