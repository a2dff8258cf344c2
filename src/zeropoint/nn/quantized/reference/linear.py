"""Linear layers whose weights are rounded to what quantization will make of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from zeropoint.nn.quantized.reference.weight import OneWeight, as_float


class Linear(OneWeight, nn.Linear):
    """``x @ dequantize(quantize(weight)).T + bias`` in float32: what a backend is to compute.

    Args:
        weight_qparams: how the weight is quantized: `qscheme`, `dtype`, `scale`, `zero_point`, per channel `axis`, and
            perhaps `quant_min`, `quant_max`. With `is_decomposed` the weight goes through the operators of graphs,
            ``torch.ops.zeropoint.quantize_per_tensor`` and ``dequantize_per_tensor``, or those per channel.

    Example:
        >>> qparams = {"qscheme": "per_tensor_affine", "dtype": "qint8", "scale": 0.5, "zero_point": 0}
        >>> layer = Linear(2, 1, weight_qparams=qparams)
        >>> _ = nn.init.constant_(layer.weight, 0.7)
        >>> layer.get_weight()
        tensor([[0.5000, 0.5000]])
    """

    _FLOAT: ClassVar[tuple[type, ...]] = (nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias_: bool = True,
        device: Any = None,
        dtype: Any = None,
        weight_qparams: Mapping[str, Any] | None = None,
    ) -> None:
        nn.Linear.__init__(self, in_features, out_features, bias_, device=device, dtype=dtype)
        self._init_weight_qparams(weight_qparams, device)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(as_float(x), self.get_weight(), self.bias)

    @classmethod
    def from_float(
        cls, mod: Any, weight_qparams: Mapping[str, Any] | None = None, use_precomputed_fake_quant: bool = False
    ) -> Linear:
        """The reference layer of a float layer; without `weight_qparams`, what its qconfig finds for the weight."""
        layer, qparams = cls._found(mod, weight_qparams)
        outputs, inputs = layer.weight.shape
        made = cls(inputs, outputs, layer.bias is not None, device=layer.weight.device, weight_qparams=qparams)
        return made._take(layer)
