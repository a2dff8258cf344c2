"""zeropoint: PyTorch quantization, re-homed.

Names load on first use (PEP 562), so that what needs no torch works where torch is not installed.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

# Public name -> the module that defines it.
_EXPORTS = {
    "cpu_info": "cpu",
    "get_num_threads": "cpu",
    "set_num_threads": "cpu",
    "use_isa": "cpu",
    **dict.fromkeys(("qint8", "quint8", "qint32", "quint4x2", "quint2x4", "QuantizedDtype"), "numerics.dtypes"),
    **dict.fromkeys(
        (
            "QScheme",
            "per_tensor_affine",
            "per_tensor_symmetric",
            "per_channel_affine",
            "per_channel_symmetric",
            "per_channel_affine_float_qparams",
        ),
        "numerics.schemes",
    ),
    "choose_qparams": "numerics.qparams",
    "choose_qparams_optimized": "numerics.qparams",
    "saturate_weight_to_fp16": "numerics.qparams",
    "fake_quantize_per_tensor_affine": "ops.fake_quant",
    "fake_quantize_per_channel_affine": "ops.fake_quant",
    "QTensor": "tensor",
    **dict.fromkeys(
        (
            "quantize_per_tensor",
            "quantize_per_channel",
            "quantize_per_tensor_dynamic",
            "dequantize",
            "make_per_tensor_quantized_tensor",
            "make_per_channel_quantized_tensor",
            "empty_affine_quantized",
            "empty_per_channel_affine_quantized",
            "empty_like",
        ),
        "tensor.create",
    ),
    "save_qtensors": "tensor.files",
    "load_qtensors": "tensor.files",
}
_MODULES = ("cpu", "numerics", "ops", "tensor")

__all__ = [*_EXPORTS, *_MODULES]


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None and name not in _MODULES:
        raise AttributeError(f"module 'zeropoint' has no attribute {name!r}")
    try:
        loaded = importlib.import_module(f"zeropoint.{module or name}")
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise ImportError(f"zeropoint.{name} needs PyTorch: pip install 'zeropoint[torch]'") from error
        raise
    value = getattr(loaded, name) if module else loaded
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _rebuild_qtensor(*parts: Any) -> Any:
    from zeropoint.tensor.qtensor import rebuild

    return rebuild(*parts)


# torch.load(weights_only=True) calls only what is registered; without torch there is nothing to load.
if sys.modules.get("torch"):
    sys.modules["torch"].serialization.add_safe_globals([(_rebuild_qtensor, "zeropoint.tensor.qtensor.rebuild")])
