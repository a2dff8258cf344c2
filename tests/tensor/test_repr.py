"""How QTensors are shown: torch's words, wrapped as torch wraps."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from pairs import BYTES, DTYPES, make, pairs, torch_dtype

import zeropoint
from zeropoint.numerics.dtypes import QuantizedDtype, qint8, quint8
from zeropoint.tensor import QTensor


def words(text: str) -> list[str]:
    return text.replace("torch.", "zeropoint.").split()


@pytest.mark.parametrize("dtype", BYTES, ids=repr)
def test_one_line(dtype: QuantizedDtype) -> None:
    q = zeropoint.quantize_per_tensor(torch.tensor([15.3]), 1.0, 2, dtype)
    assert " ".join(str(q).split()) == (
        f"tensor([15.], size=(1,), dtype=zeropoint.{dtype.name}, quantization_scheme=zeropoint.per_tensor_affine,"
        " scale=1.0, zero_point=2)"
    )
    empty = zeropoint.quantize_per_tensor(torch.ones(0, 1), 1.0, 2, dtype)
    assert " ".join(str(empty).split()) == (
        f"tensor([], size=(0, 1), dtype=zeropoint.{dtype.name}, quantization_scheme=zeropoint.per_tensor_affine,"
        " scale=1.0, zero_point=2)"
    )


@given(pairs())
def test_the_same_words_as_torch(pair: tuple[QTensor, torch.Tensor]) -> None:
    ours, oracle = pair
    if not oracle.numel() and ours.qscheme().per_channel:
        assert repr(ours).startswith("tensor([]")  # PyTorch divides by zero
        return
    assert words(repr(ours)) == words(repr(oracle))
    assert str(ours) == repr(ours)


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_packed_types_too(dtype: QuantizedDtype) -> None:
    x = torch.rand(3, 5) * 3
    oracle = torch.quantize_per_tensor(x, 0.25, 1, torch_dtype(dtype))
    assert words(repr(zeropoint.quantize_per_tensor(x, 0.25, 1, dtype))) == words(repr(oracle))


def test_long_lines_are_wrapped() -> None:
    for q in (make(quint8, shape=(2, 3)), make(qint8, "per_channel", shape=(2, 3)), make(quint8, shape=(40, 60))):
        assert max(map(len, repr(q).splitlines())) <= 81  # torch counts without the last bracket
        assert all(line.startswith("       ") or i == 0 for i, line in enumerate(repr(q).splitlines()) if line)
    assert "..." in repr(make(quint8, shape=(40, 60)))


def test_tensors_without_values() -> None:
    q = zeropoint.empty_affine_quantized(2, 3, dtype=quint8, device="meta")
    assert repr(q).startswith("tensor(..., device='meta', size=(2, 3), dtype=zeropoint.quint8")


def test_inside_other_things() -> None:
    q = make(quint8)
    assert repr([q]) == f"[{q!r}]"
    assert f"{q}" == repr(q)
    with pytest.raises(TypeError, match="unsupported format string"):
        format(q, ".2f")
