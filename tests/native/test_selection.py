"""The choice of kernels is a function of CPU flags, so every host tests every answer."""

from __future__ import annotations

import itertools
import platform
import re
import subprocess
from pathlib import Path

import pytest

import zeropoint
from zeropoint import _native

LADDER = ("portable", "avx2", "avx512", "vnni", "amx")
LEVELS = ("reference", *LADDER, "avx_vnni")
ARM_LADDER = ("portable", "neon", "dotprod", "i8mm")
LISTED = _native.kernel_list()
OPERATIONS = sorted({operation for operation, _ in LISTED})


FEATURES = ("avx2", "avx_vnni", "avx512", "avx512_vnni", "amx_int8", "neon", "dotprod", "i8mm")
NEEDS = {name: set(needs) for name, needs in _native.levels()}


@pytest.mark.parametrize("flags", [*itertools.product((0, 1), repeat=8)], ids=lambda f: "".join(map(str, f)))
def test_the_best_level_is_the_last_that_has_all_it_needs(flags: tuple[int, ...]) -> None:
    offered = {name for name, flag in zip(FEATURES, flags) if flag}
    assert _native.best_isa([*offered]) == [name for name, needs in NEEDS.items() if needs <= offered][-1]


def test_a_cpu_with_avx_vnni_and_no_avx512_uses_it() -> None:
    assert _native.best_isa(["avx2", "avx_vnni"]) == "avx_vnni"
    assert _native.best_isa(["avx2", "avx_vnni", "avx512", "avx512_vnni"]) == "vnni"
    assert not NEEDS["avx_vnni"] & {"avx512", "avx512_vnni"}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="kernels for x86-64")
def test_kernels_for_avx_vnni_have_instructions_of_no_avx512() -> None:
    objects = [*Path(__file__).resolve().parents[2].glob("build/cp*/native/CMakeFiles/core_avx_vnni.dir/**/*.o")]
    assert objects
    for file in objects:
        text = subprocess.run(["objdump", "-d", file], capture_output=True, text=True, check=True).stdout
        assert "{vex} vpdpbusd" in text
        assert not re.findall(r"%zmm|%k[0-7]|%[xy]mm(?:1[6-9]|2\d|3[01])", text)  # what only AVX512 can name
        for line in text.splitlines():
            encoded = re.match(r"\s+[0-9a-f]+:\t62 ", line)  # EVEX
            assert encoded is None, line


def test_levels_of_one_architecture_include_each_other() -> None:
    for ladder in (LADDER, ARM_LADDER):
        for lower, higher in itertools.pairwise(ladder):
            assert NEEDS[lower] < NEEDS[higher]
    assert not NEEDS["amx"] & NEEDS["i8mm"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_selected_isa_is_the_best_kernel_of_the_level(operation: str, level: str) -> None:
    kernels = [isa for name, isa in LISTED if name == operation]  # best first
    if level == "reference":
        expected = "reference"
    else:
        expected = next(isa for isa in kernels if isa != "reference" and NEEDS[isa] <= NEEDS[level])
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
        ("gemm", "avx_vnni", "avx_vnni"),
        ("gemm", "avx512", "avx2"),
        ("gemm", "vnni", "vnni"),
        ("quantize", "avx_vnni", "avx2"),
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
