"""Observers that find no range: they keep tensors, stand for a dtype, or hold parameters that are known before."""

import warnings
from typing import Any, Optional

import torch
from torch import Tensor

from zeropoint.numerics.dtypes import quint8
from zeropoint.numerics.schemes import per_tensor_affine, qscheme as qscheme_of
from zeropoint.observers.base import EPS, ObserverBase


class FixedQParamsObserver(ObserverBase):
    """Returns a fixed (scale, zero_point), for outputs whose range is known, such as a sigmoid's.

    Example:
        >>> FixedQParamsObserver(scale=1 / 256, zero_point=0).calculate_qparams()
        (tensor([0.0039]), tensor([0], dtype=torch.int32))
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self,
        scale: float,
        zero_point: int,
        dtype: Any = quint8,
        qscheme: Any = per_tensor_affine,
        quant_min: int = 0,
        quant_max: int = 255,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        if is_dynamic:
            raise NotImplementedError(
                "FixedQParamsObserver: is_dynamic is not supported, because the qparams are fixed"
            )
        factory_kwargs = torch.nn.factory_kwargs(kwargs.pop("factory_kwargs", None))
        super().__init__(dtype=dtype, is_dynamic=is_dynamic, **kwargs)
        self.quant_min = quant_min
        self.quant_max = quant_max
        self.qscheme = qscheme_of(qscheme)
        device = factory_kwargs.get("device")
        self.register_buffer("scale", torch.tensor([scale], dtype=torch.float32, device=device))
        self.register_buffer("zero_point", torch.tensor([zero_point], dtype=torch.int32, device=device))

    def forward(self, X: Tensor) -> Tensor:
        return X

    @torch.jit.export
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """The given (scale, zero_point)."""
        return self.scale, self.zero_point


class PlaceholderObserver(ObserverBase):
    """Carries a dtype where nothing has to be observed: float16, or dynamic quantization.

    Example:
        >>> PlaceholderObserver(dtype=torch.float16)
        PlaceholderObserver(dtype=torch.float16, is_dynamic=False)
    """

    def __init__(
        self,
        dtype: Any = torch.float32,
        custom_op_name: str = "",
        compute_dtype: Any = None,
        quant_min: int | None = None,
        quant_max: int | None = None,
        qscheme: Any = None,
        eps: float | None = None,
        is_dynamic: bool = False,
    ) -> None:
        if compute_dtype:
            warnings.warn("PlaceholderObserver: compute_dtype is deprecated: use is_dynamic=True", stacklevel=2)
            is_dynamic = True
        super().__init__(dtype=dtype, is_dynamic=is_dynamic)
        self.qscheme = qscheme_of(per_tensor_affine if qscheme is None else qscheme)
        self.quant_min = quant_min
        self.quant_max = quant_max
        self.eps = EPS if eps is None else eps
        self.custom_op = custom_op_name

    def forward(self, x: Tensor) -> Tensor:
        return x

    def extra_repr(self) -> str:
        return f"dtype={self.dtype}, is_dynamic={self.is_dynamic}"

    @torch.jit.export
    def calculate_qparams(self) -> None:
        raise RuntimeError("a PlaceholderObserver observes nothing, so it has no scale and zero point")


class RecordingObserver(ObserverBase):
    """Keeps a copy of every tensor, for debugging.

    Example:
        >>> observer = RecordingObserver()
        >>> _ = observer(torch.tensor([1.0]))
        >>> observer.get_tensor_value()
        [tensor([1.])]
    """

    tensor_val: list[Optional[Tensor]]  # noqa: UP045 (TorchScript reads this)

    def __init__(self, dtype: Any = quint8) -> None:
        super().__init__(dtype=dtype, is_dynamic=False)
        self.tensor_val = []

    def forward(self, x: Tensor) -> Tensor:
        self.tensor_val.append(x.clone())
        return x

    @torch.jit.export
    def calculate_qparams(self) -> None:
        raise RuntimeError("a RecordingObserver keeps tensors; it has no scale and zero point")

    @torch.jit.export
    def get_tensor_value(self):  # type: ignore[no-untyped-def]
        """The tensors seen, in order."""
        return self.tensor_val


class NoopObserver(ObserverBase):
    """Observes nothing: the tensor is left unquantized."""

    def __init__(self, dtype: Any = torch.float16, custom_op_name: str = "") -> None:
        super().__init__(dtype=dtype, is_dynamic=False)
        self.custom_op = custom_op_name

    def forward(self, x: Tensor) -> Tensor:
        return x

    @torch.jit.export
    def calculate_qparams(self) -> None:
        raise RuntimeError("a NoopObserver observes nothing, so it has no scale and zero point")


class ReuseInputObserver(ObserverBase):
    """Marks an operation whose output shares the parameters of its input, such as reshape."""

    def __init__(self) -> None:
        super().__init__(quint8, is_dynamic=False)

    def forward(self, x: Tensor) -> Tensor:
        return x

    @torch.jit.export
    def calculate_qparams(self) -> None:
        raise RuntimeError("a ReuseInputObserver has no parameters of its own; use the observer of its input")
