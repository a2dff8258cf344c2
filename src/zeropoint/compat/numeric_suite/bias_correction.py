"""torch.ao's bias correction: float modules beside the quantized ones say how far the means of channels are off.

`zeropoint.accuracy.correct_biases` does it for graphs too, and leaves no shadows in the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from zeropoint.compat.numeric_suite.eager import prepare_model_with_stubs
from zeropoint.compat.numeric_suite.loggers import Logger
from zeropoint.compat.numeric_suite.shadow import Shadow
from zeropoint.nn import quantized as nnq
from zeropoint.tensor.create import dequantize
from zeropoint.tensor.qtensor import QTensor

FLOAT_LAYERS = (nn.Linear, nn.Conv2d)
QUANTIZED_LAYERS = (nnq.Linear, nnq.Conv2d)


class MeanShadowLogger(Logger):
    """Keeps the means over all calls of the results of a quantized module and of its float shadow.

    Example:
        >>> import torch
        >>> logger = MeanShadowLogger()
        >>> for x in (1.0, 3.0):
        ...     logger(torch.tensor([x]), torch.tensor([x + 1]))
        >>> logger.stats
        {'float': tensor([3.]), 'quantized': tensor([2.])}
    """

    def __init__(self) -> None:
        super().__init__()
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.stats |= {"float": None, "quantized": None}
        self.count = 0
        self.float_sum: Tensor | None = None
        self.quant_sum: Tensor | None = None

    def forward(self, x: Tensor, y: Tensor) -> None:
        values = dequantize(x) if isinstance(x, QTensor) else x
        self.count += 1
        self.quant_sum = values if self.quant_sum is None else self.quant_sum + values
        self.float_sum = y if self.float_sum is None else self.float_sum + y
        self.stats |= {"quantized": self.quant_sum / self.count, "float": self.float_sum / self.count}


def bias_correction(
    float_model: nn.Module,
    quantized_model: nn.Module,
    img_data: Iterable[Any],
    target_modules: Iterable[type] = QUANTIZED_LAYERS,
    neval_batches: int | None = None,
) -> None:
    """Correct the biases of a quantized model, in place. The float modules stay in the model as shadows.

    Args:
        float_model: the original model.
        img_data: batches; the model is called with the first element of each. Each layer reads all of them once.
        target_modules: types of modules to correct.
        neval_batches: number of batches to use; by default all.
    """
    prepare_model_with_stubs(float_model, quantized_model, FLOAT_LAYERS, MeanShadowLogger)
    types = tuple(target_modules)
    for shadow in [m for m in quantized_model.modules() if isinstance(m, Shadow) and type(m.orig_module) in types]:
        bias: Any = shadow.orig_module.bias
        bias = bias() if callable(bias) else bias
        if bias is None:
            continue
        for count, data in enumerate(img_data, start=1):
            quantized_model(data[0])
            if count == neval_batches:
                break
        _correct(shadow, bias)
        for module in quantized_model.modules():
            if isinstance(module, MeanShadowLogger):
                module.clear()


def _correct(shadow: Any, bias: Tensor) -> None:
    stats = shadow.logger.stats
    error = (stats["quantized"] - stats["float"]).detach()
    corrected = bias.detach() - error.mean([d for d in range(error.dim()) if d != 1])
    layer = shadow.orig_module
    if hasattr(layer, "set_weight_bias"):
        layer.set_weight_bias(layer.weight(), corrected)
    else:
        layer.bias.data = corrected
