"""The quantized dtypes and schemes: ranges, identity, aliases, errors."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch

import zeropoint
from zeropoint.numerics.dtypes import DTYPES, quantized_dtype
from zeropoint.numerics.schemes import SCHEMES, qscheme

dtypes = pytest.mark.parametrize("dtype", DTYPES.values(), ids=repr)
schemes = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=repr)
found_by = pytest.mark.parametrize(
    ("find", "thing"),
    [(quantized_dtype, dtype) for dtype in DTYPES.values()] + [(qscheme, scheme) for scheme in SCHEMES.values()],
    ids=lambda part: part.__name__ if callable(part) else repr(part),
)


@pytest.mark.parametrize(
    ("dtype", "low", "high", "storage", "per_byte", "itemsize"),
    [
        (zeropoint.qint8, -128, 127, torch.int8, 1, 1),
        (zeropoint.quint8, 0, 255, torch.uint8, 1, 1),
        (zeropoint.qint32, -(2**31), 2**31 - 1, torch.int32, 1, 4),
        (zeropoint.quint4x2, 0, 15, torch.uint8, 2, 1),
        (zeropoint.quint2x4, 0, 3, torch.uint8, 4, 1),
    ],
    ids=repr,
)
def test_ranges_and_storage(dtype, low, high, storage, per_byte, itemsize):
    assert (dtype.qmin, dtype.qmax) == (low, high)
    assert dtype.torch_storage == storage
    assert dtype.storage == str(storage).removeprefix("torch.")
    assert (dtype.per_byte, dtype.itemsize) == (per_byte, itemsize)


@found_by
def test_it_goes_by_its_object_and_its_name(find, thing):
    assert find(thing) is thing
    assert find(thing.name) is thing
    assert getattr(zeropoint, thing.name) is thing


@pytest.mark.oracle  # found by name
@found_by
def test_it_goes_by_torch_s(find, thing):
    assert find(getattr(torch, thing.name)) is thing


@pytest.mark.parametrize("thing", [*DTYPES.values(), *SCHEMES.values()], ids=repr)
def test_copies_and_pickles_are_the_same_object(thing):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(thing, protocol)) is thing
    assert copy.copy(thing) is thing
    assert copy.deepcopy(thing) is thing


@pytest.mark.parametrize("thing", [*DTYPES.values(), *SCHEMES.values()], ids=repr)
def test_they_are_frozen_hashable_and_say_where_they_live(thing):
    with pytest.raises(AttributeError, match="cannot be changed"):
        thing.name = "other"
    assert {thing: 1}[thing] == 1
    assert repr(thing) == f"zeropoint.{thing.name}"


def test_a_dictionary_made_before_torch_was_loaded_knows_the_dtypes_of_torch():
    program = (
        "import zeropoint\n"
        "known = {zeropoint.qint8: 1, zeropoint.per_tensor_affine: 2}\n"
        "import torch\n"
        "assert known[torch.qint8] == 1 and known[torch.per_tensor_affine] == 2\n"
        "assert {torch.qint8: 3}[zeropoint.qint8] == 3 and known[zeropoint.qint8] == 1\n"
    )
    without = (
        "import sys\n"
        "sys.modules['torch'] = None  # importing it raises\n"
        "import zeropoint\n"
        "assert {zeropoint.qint8: 1}[zeropoint.qint8] == 1\n"
    )
    for code in (program, without):
        ran = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stderr


def test_schemes_say_what_they_share():
    per_channel = {s.name for s in SCHEMES.values() if s.per_channel}
    symmetric = {s.name for s in SCHEMES.values() if s.symmetric}
    floating = {s.name for s in SCHEMES.values() if s.float_zero_point}
    assert per_channel == {"per_channel_affine", "per_channel_symmetric", "per_channel_affine_float_qparams"}
    assert symmetric == {"per_tensor_symmetric", "per_channel_symmetric"}
    assert floating == {"per_channel_affine_float_qparams"}


@pytest.mark.parametrize("wrong", [torch.float32, "int8", None, 8, torch.uint8], ids=str)
def test_other_dtypes_are_refused_by_name(wrong):
    with pytest.raises(TypeError, match="dtype must be one of qint8, quint8, qint32, quint4x2, quint2x4, got"):
        quantized_dtype(wrong)


@pytest.mark.parametrize("wrong", ["affine", None, 0, torch.float32], ids=str)
def test_other_schemes_are_refused_by_name(wrong):
    with pytest.raises(TypeError, match=r"scheme must be one of per_tensor_affine, .*, got"):
        qscheme(wrong)


@pytest.mark.parametrize("constant", [*DTYPES.values(), *SCHEMES.values()], ids=repr)
def test_what_holds_a_dtype_or_scheme_keeps_it_whole(constant: Any) -> None:
    @dataclasses.dataclass(frozen=True)
    class Spec:
        held: Any

    assert dataclasses.asdict(Spec(constant))["held"] is constant
