"""The same integers and qparams as a QTensor and as PyTorch's quantized tensor, which is the oracle."""

from __future__ import annotations

import hypothesis.strategies as st
import torch
from oracle_vectors import assert_same_in_vectors

from zeropoint.numerics.dtypes import QuantizedDtype, qint8, qint32, quint8
from zeropoint.tensor import QTensor
from zeropoint.tensor.quantizer import PerTensorQuantizer

BYTES = (qint8, quint8)
DTYPES = (*BYTES, qint32)


def mine(values: torch.Tensor, scale: float, zero_point: int, dtype: QuantizedDtype) -> QTensor:
    """A QTensor over these very integers, in their layout."""
    return QTensor(values, PerTensorQuantizer(scale, zero_point), dtype)


def theirs(values: torch.Tensor, scale: float, zero_point: int) -> torch.Tensor:
    """PyTorch's, contiguous."""
    return torch._make_per_tensor_quantized_tensor(values.contiguous(), scale, zero_point)


def every_integer(dtype: QuantizedDtype) -> torch.Tensor:
    return torch.arange(dtype.qmin, dtype.qmax + 1, dtype=dtype.torch_storage)


def assert_twins(ours: QTensor, oracle: torch.Tensor) -> None:
    assert isinstance(ours, QTensor)
    assert f"torch.{ours.qdtype.name}" == str(oracle.dtype)
    assert (ours.q_scale(), ours.q_zero_point()) == (oracle.q_scale(), oracle.q_zero_point())
    assert_same_in_vectors(ours.int_repr(), oracle.int_repr())


def zero_points(dtype: QuantizedDtype) -> st.SearchStrategy[int]:
    """Anywhere, often at the ends, where half of all functions saturate."""
    ends = st.sampled_from([dtype.qmin, dtype.qmax, max(dtype.qmin, 0)])
    near = st.integers(max(dtype.qmin, -300), min(dtype.qmax, 300))
    return st.one_of(ends, near, st.integers(dtype.qmin, dtype.qmax))


def integers_near(seed: int, shape: tuple[int, ...], zero_point: int, dtype: QuantizedDtype) -> torch.Tensor:
    """Integers of which half lie around the zero point: in 32 bits few others would stand for ordinary numbers."""
    g = torch.Generator().manual_seed(seed)
    anywhere = torch.randint(dtype.qmin, dtype.qmax + 1, shape, generator=g)
    near = torch.randint(-3000, 3001, shape, generator=g) + zero_point
    chosen = torch.where(torch.rand(shape, generator=g) < 0.5, anywhere, near)
    return chosen.clamp(dtype.qmin, dtype.qmax).to(dtype.torch_storage)
