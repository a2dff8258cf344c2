"""Files of the old stack: the quantized tensors in them become QTensors."""

from __future__ import annotations

from typing import Any

import torch

from zeropoint.compat.changes import Changes
from zeropoint.numerics.dtypes import quantized_dtype
from zeropoint.numerics.schemes import qscheme
from zeropoint.tensor.qtensor import QTensor, rebuild


def rebuild_qtensor(
    storage: Any, storage_offset: int, size: Any, stride: Any, quantizer_params: Any, requires_grad: bool, hooks: Any
) -> QTensor:
    """What torch.load calls for a quantized tensor of PyTorch's: the same integers and qparams as a QTensor.

    Raises:
        ValueError: if the parts do not fit together, as in a damaged file.
    """
    kind = quantized_dtype(storage.dtype)
    scheme, *parameters = quantizer_params
    if qscheme(scheme).per_channel:
        scales, zero_points, axis = parameters
        if isinstance(scales, list):  # as PyTorch wrote them once
            is_float = qscheme(scheme).float_zero_point
            scales = torch.tensor(scales, dtype=torch.float32 if is_float else torch.float64)
            zero_points = torch.tensor(zero_points, dtype=torch.float32 if is_float else torch.int64)
        parameters = [scales, zero_points, axis]
    memory = torch.empty(0, dtype=kind.torch_storage, device=storage.device)
    if kind.bits >= 8:
        return rebuild(
            memory.set_(storage._untyped_storage, storage_offset, size, stride), kind.name, (*parameters,), None
        )
    data = memory.set_(storage._untyped_storage, 0, (storage._untyped_storage.nbytes(),), (1,))
    return rebuild(data, kind.name, (*parameters,), (tuple(size), tuple(stride), storage_offset))


def replace_loading(changes: Changes) -> None:
    """Let torch.load, with weights_only or without, make QTensors of quantized tensors."""
    from torch import _weights_only_unpickler

    changes.attribute(torch._utils, "_rebuild_qtensor", rebuild_qtensor)
    changes.item(_weights_only_unpickler._get_allowed_globals(), "torch._utils._rebuild_qtensor", rebuild_qtensor)
