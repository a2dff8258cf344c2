"""transformers: `from_pretrained(..., quantization_config=ZeropointConfig())`, for linear layers in 8 or 4 bits.

Importing this module registers the method "zeropoint" with transformers: it also loads what was saved.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.quantizers.quantizers_utils import should_convert_module
from transformers.utils.quantization_config import QuantizationConfigMixin

from zeropoint.nn.quantized.storage import with_same_dtype
from zeropoint.numerics.packing import packed_columns
from zeropoint.qfunctions.weight_only import WeightOnlyPackedParams, weight_only_prepack

_METHOD = "zeropoint"
_MODES = ("dynamic", "weight_only")


@register_quantization_config(_METHOD)
class ZeropointConfig(QuantizationConfigMixin):
    """How the linear layers of a model of transformers are quantized.

    Args:
        mode: "dynamic": weights in int8, activations in 8 bits with a range for each token; or "weight_only".
        bits: of weights: 8, or, with "weight_only", 4.
        group_size: inputs that share a scale, a multiple of 8; 0: all. By default 128 with 4 bits, all with 8.
        modules_to_not_convert: names of modules, or their ends, that stay in float; by default output layers and what
            shares its weight with another module, as transformers chooses them.
        quant_method: what transformers writes to config.json.

    Example: ``AutoModel.from_pretrained(name, quantization_config=ZeropointConfig("weight_only", bits=4))``
    """

    def __init__(
        self,
        mode: str = "dynamic",
        bits: int = 8,
        group_size: int | None = None,
        modules_to_not_convert: Sequence[str] | None = None,
        quant_method: str = _METHOD,
    ) -> None:
        if mode not in _MODES:
            raise ValueError(f"ZeropointConfig: mode must be one of {', '.join(_MODES)}, got {mode!r}")
        if bits not in ((8,) if mode == "dynamic" else (8, 4)):
            raise ValueError(f'ZeropointConfig: bits must be 8, or, with mode="weight_only", 4; got {bits!r}')
        if group_size is None:
            group_size = 128 if bits == 4 else 0
        if type(group_size) is not int or group_size < 0 or group_size % 8:
            raise ValueError(f"ZeropointConfig: group_size must be a multiple of 8, or 0, got {group_size!r}")
        if mode == "dynamic" and group_size:
            raise ValueError('ZeropointConfig: mode="dynamic" has one scale for each output: omit group_size')
        if isinstance(modules_to_not_convert, str):
            raise TypeError(f"ZeropointConfig: modules_to_not_convert is a list, got {modules_to_not_convert!r}")
        if quant_method != _METHOD:
            raise ValueError(f"ZeropointConfig: quant_method is {_METHOD!r}, got {quant_method!r}")
        self.mode, self.bits, self.group_size = mode, bits, group_size
        self.modules_to_not_convert = None if modules_to_not_convert is None else list(modules_to_not_convert)
        self.quant_method = quant_method


class QuantizedLinear(nn.Module):
    """A linear layer on floats whose state is plain tensors, as safetensors files take them.

    It computes in float32 and returns the dtype of its input.

    Args:
        inputs, outputs, bias: as for nn.Linear.
        config: says how.
    """

    quantized_weight: Tensor  # not `weight`: a reader without zeropoint would take the integers for floats
    scale: Tensor
    bias: Tensor | None

    def __init__(self, inputs: int, outputs: int, bias: bool, config: ZeropointConfig) -> None:
        super().__init__()
        self.in_features, self.out_features = inputs, outputs
        self.mode, self.bits = config.mode, config.bits
        self.group_size = min(config.group_size or inputs, inputs)
        columns, dtype = packed_columns(inputs, config.bits), torch.uint8 if config.bits == 4 else torch.int8
        self.register_buffer("quantized_weight", torch.zeros(outputs, columns, dtype=dtype))
        # float32 by name: transformers makes models with another default dtype.
        self.register_buffer("scale", torch.ones(outputs, -(-inputs // self.group_size), dtype=torch.float32))
        self.register_buffer("bias", torch.zeros(outputs, dtype=torch.float32) if bias else None)
        self._zero_point = torch.zeros(1, dtype=torch.int32, device="cpu")  # no buffer: transformers would empty it

    @classmethod
    def from_float(cls, layer: nn.Module, config: ZeropointConfig) -> QuantizedLinear:
        """The quantized layer of a float one: nn.Linear, or the Conv1D of GPT-2."""
        weight = _as_rows(layer).detach()
        packed = weight_only_prepack(weight, None, config.bits, config.group_size)
        made = cls(weight.shape[1], weight.shape[0], layer.bias is not None, config)
        made.quantized_weight, made.scale = packed.int_repr(), packed.qparams()[0]
        if layer.bias is not None:
            made.bias = layer.bias.detach().float().clone()
        return made

    def forward(self, x: Tensor) -> Tensor:
        floats, weight = x.float(), self.quantized_weight
        if self.mode == "dynamic":
            y = torch.ops.zeropoint.linear_dynamic(
                floats, weight, self.scale, self._zero_point, self.bias, per_token=True
            )
        elif self.bits == 8:
            y = torch.ops.zeropoint.weight_only_linear(floats, weight, self.scale, None, self.bias, self.group_size)
        else:
            y = torch.ops.zeropoint.weight_only_linear_4bit(
                floats, weight, self.scale, None, self.bias, self.group_size
            )
        return y.to(x.dtype)

    @property
    def weight(self) -> Tensor:
        """The weight in float32, computed anew each time: for code that looks at the weights of its layers."""
        parts = self.quantized_weight, self.scale, None, None, self.bits, self.in_features, self.group_size
        return WeightOnlyPackedParams(*parts).unpack()[0]

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """`.half()` and relatives leave scales alone."""
        return super()._apply(with_same_dtype(fn), recurse)

    def extra_repr(self) -> str:
        text = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        return f"{text}, mode={self.mode}, bits={self.bits}, group_size={self.group_size}"


@register_quantizer(_METHOD)
class ZeropointQuantizer(HfQuantizer):
    """What transformers calls while it loads a model."""

    quantization_config: ZeropointConfig

    def __init__(self, quantization_config: ZeropointConfig, **given: Any) -> None:
        super().__init__(copy.deepcopy(quantization_config), **given)  # names of modules of this model are added

    def validate_environment(self, *args: Any, device_map: Any = None, **given: Any) -> None:
        devices = device_map.values() if isinstance(device_map, dict) else [device_map or "cpu"]
        wrong = [device for device in devices if str(device) not in ("cpu", "auto")]
        if wrong:
            raise ValueError(f"zeropoint's kernels run on CPUs: device_map must be None or 'cpu', got {wrong[0]!r}")

    def update_device_map(self, device_map: Any) -> Any:
        return {"": "cpu"} if device_map == "auto" else device_map

    def _process_model_before_weight_loading(self, model: nn.Module, **given: Any) -> None:
        config = self.quantization_config
        if not self.pre_quantized:
            config.modules_to_not_convert = self._left_in_float(model)
            return
        for name, layer in _layers(model, config):
            outputs, inputs = _as_rows(layer).shape
            with torch.device("meta"):
                made = QuantizedLinear(inputs, outputs, layer.bias is not None, config)
            model.set_submodule(name, made)

    def _process_model_after_weight_loading(self, model: nn.Module, **given: Any) -> nn.Module:
        if not self.pre_quantized:
            for name, layer in _layers(model, self.quantization_config):
                model.set_submodule(name, QuantizedLinear.from_float(layer, self.quantization_config))
        if not any(isinstance(module, QuantizedLinear) for module in model.modules()):
            raise ValueError(
                f"{type(model).__name__} has no linear layer to quantize that modules_to_not_convert leaves:"
                f" {self.quantization_config.modules_to_not_convert}"
            )
        return model

    def _left_in_float(self, model: Any) -> list[str]:
        """By name, for config.json: another class of model, that loads the same file, would choose others."""
        given = self.quantization_config.modules_to_not_convert
        found = self.get_modules_to_not_convert(model, given, model._keep_in_fp32_modules)
        return sorted({name.removesuffix(".bias") for name in found})  # of the last parameter: its module

    def is_serializable(self) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        return False


def _layers(model: nn.Module, config: ZeropointConfig) -> Iterator[tuple[str, nn.Module]]:
    """What is quantized, one after the other, while it is replaced."""
    found = [
        name
        for name, module in model.named_modules()
        if type(module) in (nn.Linear, Conv1D) and should_convert_module(name, config.modules_to_not_convert)
    ]
    for name in found:
        yield name, model.get_submodule(name)


def _as_rows(layer: Any) -> Tensor:
    """The weight as (outputs, inputs)."""
    return layer.weight.t() if isinstance(layer, Conv1D) else layer.weight
