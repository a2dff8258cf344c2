"""The choice of kernels is a function of CPU flags, so every host tests every answer."""

from __future__ import annotations

import itertools

import pytest

import zeropoint
from zeropoint import _native

LADDER = ("portable", "avx2", "avx512", "vnni", "amx")
LEVELS = ("reference", *LADDER)
ARM_LADDER = ("portable", "neon", "dotprod", "i8mm")
LISTED = _native.kernel_list()
OPERATIONS = sorted({operation for operation, _ in LISTED})


@pytest.mark.parametrize(
    "flags", [*itertools.product((False, True), repeat=4)], ids=lambda f: "".join("01"[b] for b in f)
)
def test_best_isa(flags: tuple[bool, bool, bool, bool]) -> None:
    # Detection sets a flag only if all below it hold, so the highest one decides.
    highest = max((i + 1 for i, flag in enumerate(flags) if flag), default=0)
    assert _native.best_isa(*flags) == LADDER[highest]


@pytest.mark.parametrize(
    "flags", [*itertools.product((False, True), repeat=3)], ids=lambda f: "".join("01"[b] for b in f)
)
def test_best_isa_of_arm(flags: tuple[bool, bool, bool]) -> None:
    highest = max((i + 1 for i, flag in enumerate(flags) if flag), default=0)
    assert _native.best_isa(False, False, False, False, *flags) == ARM_LADDER[highest]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_selected_isa_is_the_best_kernel_of_the_level(operation: str, level: str) -> None:
    kernels = {isa for name, isa in LISTED if name == operation}
    if level == "reference":
        expected = "reference"
    else:
        expected = next(isa for isa in reversed(LADDER[: LADDER.index(level) + 1]) if isa in kernels)
    assert _native.selected_isa(operation, level) == expected


@pytest.mark.parametrize(
    ("operation", "level", "isa"),
    [
        ("quantize", "amx", "avx512"),
        ("quantize", "vnni", "avx512"),
        ("quantize", "avx2", "avx2"),
        ("quantization_loss", "amx", "avx2"),
        ("quantization_loss", "avx512", "avx2"),
        ("minmax", "portable", "portable"),
        ("pack", "reference", "reference"),
    ],
)
def test_golden_choices(operation: str, level: str, isa: str) -> None:
    assert _native.selected_isa(operation, level) == isa


@pytest.mark.parametrize("bad", ["", "AVX2", "sse4", "avx512_vnni"])
def test_unknown_isa_lists_the_names(bad: str) -> None:
    before = _native.isa()
    with pytest.raises(ValueError, match="unknown instruction set") as error, zeropoint.use_isa(bad):
        pass
    assert f"'{bad}'" in str(error.value)
    assert all(level in str(error.value) for level in (*LEVELS, *ARM_LADDER))
    assert _native.isa() == before


def test_unknown_operation_is_named() -> None:
    with pytest.raises(ValueError, match="no_such_operation"):
        _native.selected_isa("no_such_operation", "portable")


@pytest.mark.parametrize("isa", [*LADDER, *ARM_LADDER[1:]])
def test_use_isa_switches_and_restores(isa: str) -> None:
    info = zeropoint.cpu_info()
    if isa not in info.available:
        with pytest.raises(ValueError, match=f"'{isa}'.*best is '{info.best_isa}'"), zeropoint.use_isa(isa):
            pass
    else:
        with zeropoint.use_isa(isa):
            assert _native.isa() == isa
        with pytest.raises(KeyError), zeropoint.use_isa(isa):
            raise KeyError  # restored after an error, too
    assert _native.isa() == info.isa
