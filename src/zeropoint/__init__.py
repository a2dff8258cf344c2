"""zeropoint: quantization of PyTorch models to int8, on CPUs.

Names load on first use (PEP 562), so that what needs no torch works where torch is not installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

# Public name -> the module that defines it.
_EXPORTS = {
    "cpu_info": "cpu",
    "get_num_threads": "cpu",
    "set_num_threads": "cpu",
    "use_isa": "cpu",
    "register_operator": "operators",
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
    "get_qparam_dict": "nn.quantized.reference.weight",
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
    "save_script": "tensor.script_files",
    "load_qtensors": "tensor.files",
    **dict.fromkeys(
        (
            "AffineQuantizedMinMaxObserver",
            "AffineQuantizedMovingAverageMinMaxObserver",
            "AffineQuantizedObserverBase",
            "EntropyObserver",
            "FixedQParamsObserver",
            "Granularity",
            "GroupedWeightObserver",
            "HistogramObserver",
            "MSEObserver",
            "MappingType",
            "MinMaxObserver",
            "MovingAverageMinMaxObserver",
            "MovingAveragePerChannelMinMaxObserver",
            "NoopObserver",
            "ObserverBase",
            "PerAxis",
            "PerBlock",
            "PerChannelMinMaxObserver",
            "PerGroup",
            "PerRow",
            "PerTensor",
            "PerToken",
            "PercentileObserver",
            "PlaceholderObserver",
            "RecordingObserver",
            "ReuseInputObserver",
            "StreamingHistogramObserver",
            "TorchAODType",
            "UniformQuantizationObserverBase",
            "WidenedHistogramObserver",
            "ZeroPointDomain",
            "default_affine_fixed_qparams_observer",
            "default_debug_observer",
            "default_dynamic_quant_observer",
            "default_fixed_qparams_range_0to1_observer",
            "default_fixed_qparams_range_neg1to1_observer",
            "default_float_qparams_observer",
            "default_float_qparams_observer_4bit",
            "default_histogram_observer",
            "default_observer",
            "default_per_channel_weight_observer",
            "default_placeholder_observer",
            "default_reuse_input_observer",
            "default_symmetric_fixed_qparams_observer",
            "default_weight_observer",
            "get_block_size",
            "get_observer_state_dict",
            "load_observer_state_dict",
            "per_channel_weight_observer_range_neg_127_to_127",
            "weight_observer_range_neg_127_to_127",
        ),
        "observers",
    ),
    **dict.fromkeys(
        (
            "FakeQuantize",
            "FakeQuantizeBase",
            "FixedQParamsFakeQuantize",
            "FusedMovingAvgObsFakeQuantize",
            "default_affine_fixed_qparams_fake_quant",
            "default_dynamic_fake_quant",
            "default_embedding_fake_quant",
            "default_embedding_fake_quant_4bit",
            "default_fake_quant",
            "default_fixed_qparams_range_0to1_fake_quant",
            "default_fixed_qparams_range_neg1to1_fake_quant",
            "default_fused_act_fake_quant",
            "default_fused_per_channel_wt_fake_quant",
            "default_fused_wt_fake_quant",
            "default_histogram_fake_quant",
            "default_per_channel_weight_fake_quant",
            "default_symmetric_fixed_qparams_fake_quant",
            "default_weight_fake_quant",
            "disable_fake_quant",
            "disable_observer",
            "enable_fake_quant",
            "enable_observer",
            "fused_per_channel_wt_fake_quant_range_neg_127_to_127",
            "fused_wt_fake_quant_range_neg_127_to_127",
        ),
        "fake_quant",
    ),
    **dict.fromkeys(
        (
            "QConfig",
            "QConfigAny",
            "QConfigDynamic",
            "activation_is_memoryless",
            "add_module_to_qconfig_obs_ctr",
            "default_activation_only_qconfig",
            "default_debug_qconfig",
            "default_dynamic_qat_qconfig",
            "default_dynamic_qconfig",
            "default_embedding_qat_qconfig",
            "default_embedding_qat_qconfig_4bit",
            "default_per_channel_qconfig",
            "default_per_channel_symmetric_qnnpack_qat_qconfig",
            "default_per_channel_symmetric_qnnpack_qconfig",
            "default_qat_qconfig",
            "default_qat_qconfig_v2",
            "default_qconfig",
            "default_quint8_weight_qconfig",
            "default_reuse_input_qconfig",
            "default_symmetric_qnnpack_qat_qconfig",
            "default_symmetric_qnnpack_qconfig",
            "default_weight_only_qconfig",
            "float16_dynamic_qconfig",
            "float16_static_qconfig",
            "float_qparams_weight_only_qconfig",
            "float_qparams_weight_only_qconfig_4bit",
            "get_default_qat_qconfig",
            "get_default_qconfig",
            "get_weight_only_qconfig_4bit",
            "is_reuse_input_qconfig",
            "per_channel_dynamic_qconfig",
            "per_token_dynamic_qconfig",
            "qconfig_equals",
        ),
        "qconfig",
    ),
    **dict.fromkeys(
        (
            "QConfigMapping",
            "get_default_qat_qconfig_dict",
            "get_default_qat_qconfig_mapping",
            "get_default_qconfig_dict",
            "get_default_qconfig_mapping",
            "get_symmetric_qnnpack_qat_qconfig_mapping",
            "get_symmetric_qnnpack_qconfig_mapping",
        ),
        "qconfig_mapping",
    ),
    "propagate_qconfig_": "qconfig_propagation",
    **dict.fromkeys(("convert_fx", "convert_to_reference_fx", "fuse_fx", "prepare_fx", "prepare_qat_fx"), "compat.fx"),
    "to_int8": "graph.to_int8",
    "Cut": "graph.split",
    "split_at": "graph.split",
    "nms": "ops.nms",
    "Policy": "graph.policy",
    "compare": "comparison.layers",
    "sensitivity": "comparison.sensitivity",
    "tune": "accuracy.tune",
    "calibration_advice": "accuracy.advice",
    "write_report": "report.html",
    "write_program_page": "report.program_page",
    **dict.fromkeys(
        ("convert_graph", "convert_to_reference_graph", "prepare_graph", "prepare_qat_graph"), "graph.workflow"
    ),
    **dict.fromkeys(
        (
            "convert_dynamic_jit",
            "convert_jit",
            "prepare_dynamic_jit",
            "prepare_jit",
            "quantize_dynamic_jit",
            "quantize_jit",
        ),
        "graph.quantize_jit",
    ),
    "fuse_conv_bn_jit": "graph.frontends.script.fold_batch_norm",
    "script_qconfig": "graph.frontends.script.observers",
    "summary": "graph.frontends.script.saved_plan",
    **dict.fromkeys(("DeQuantStub", "QuantStub", "QuantWrapper"), "nn.stubs"),
    **dict.fromkeys(
        (
            "add_quant_dequant",
            "auto_fuse",
            "convert",
            "fuse_known_modules",
            "fuse_modules",
            "fuse_modules_qat",
            "get_default_custom_config_dict",
            "prepare",
            "prepare_qat",
            "quantize",
            "quantize_dynamic",
            "quantize_qat",
            "swap_module",
        ),
        "eager",
    ),
    **dict.fromkeys(
        (
            "get_default_compare_output_module_list",
            "get_default_dynamic_quant_module_mappings",
            "get_default_float_to_quantized_operator_mappings",
            "get_default_qat_module_mappings",
            "get_default_qconfig_propagation_list",
            "get_default_static_quant_module_mappings",
            "get_default_static_quant_reference_module_mappings",
            "get_dynamic_quant_module_class",
            "get_embedding_qat_module_mappings",
            "get_embedding_static_quant_module_mappings",
            "get_quantized_operator",
            "get_static_quant_module_class",
            "no_observer_set",
        ),
        "eager.mappings",
    ),
    "fused_moving_avg_obs_fake_quant": "ops.fused",
    "CaptureError": "graph.frontends.export",
    "FormatError": "runtime",
    "NotCalibrated": "graph.lowering.integer",
    "export_onnx": "interop.onnx.export",
    "from_onnx": "interop.onnx.model",
    "from_pt2e": "interop.pt2e",
    "Unsupported": "compiler",
    "compile": "compiler",
}
_MODULES = (
    "cpu",
    "numerics",
    "ops",
    "tensor",
    "observers",
    "fake_quant",
    "qconfig",
    "qconfig_mapping",
    "distributed",
    "qfunctions",
    "nn",
    "graph",
    "eager",
    "fx",
    "runtime",
    "compiler",
    "report",
    "compat",
)

__all__ = [*_EXPORTS, *_MODULES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("zeropoint")
    module = _EXPORTS.get(name)
    if module is None and name not in _MODULES:
        raise AttributeError(f"module 'zeropoint' has no attribute {name!r}")
    try:
        loaded = importlib.import_module(f"zeropoint.{module or name}")
    except ModuleNotFoundError as error:
        if error.name == "torch":
            from zeropoint.installation import install_command

            raise ImportError(f"zeropoint.{name} needs PyTorch: {install_command('torch')}") from error
        raise
    value = getattr(loaded, name) if module else loaded
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _stand_in(path: str) -> Any:
    """A function that loads what `zeropoint.<path>` names, and calls it."""
    module, _, name = path.rpartition(".")

    def rebuild(*parts: Any) -> Any:
        return getattr(importlib.import_module(f"zeropoint.{module}"), name)(*parts)

    rebuild.__name__ = rebuild.__qualname__ = f"_rebuild_{name}"
    return rebuild


def _meet_torch() -> None:
    """Register what files name: our operators, for TorchScript, and what torch.load(weights_only=True) may call."""
    stand_ins = {
        path: _stand_in(path)
        for path in (
            "tensor.qtensor.rebuild",
            "qfunctions.packed.LinearPackedParams",
            "qfunctions.packed.LinearPackedParamsFp16",
            "qfunctions.packed.ConvPackedParams",
            "qfunctions.recurrent.CellParams",
            "qfunctions.embedding.EmbeddingPackedParams",
            "qfunctions.weight_only.WeightOnlyPackedParams",
        )
    }
    # Under their own names too: the first call imports what they stand for, which then has the other name, while a
    # file that is being loaded calls the stand-in again.
    sys.modules["torch"].serialization.add_safe_globals(
        [*stand_ins.values(), *((f, f"zeropoint.{path}") for path, f in stand_ins.items())]
    )
    importlib.import_module("zeropoint.ops")
    makers = importlib.import_module("zeropoint.ops.qtensor_storage").MAKERS
    for name in ("per_tensor", "per_channel"):
        makers.setdefault(name, _maker(makers, name))


def _maker(makers: Any, name: str) -> Any:
    """What makes QTensors until zeropoint.tensor is loaded: it loads that, which puts its own in this place."""

    def make(*parts: Any) -> Any:
        importlib.import_module("zeropoint.tensor")
        return makers[name](*parts)

    return make


class _AfterTorch:
    """Finds torch as everybody does, once, and calls `_meet_torch` when it is loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_meet(module: Any) -> None:
                load(module)
                _meet_torch()

            spec.loader.exec_module = load_and_meet  # type: ignore[method-assign]
        return spec


if sys.modules.get("torch"):
    _meet_torch()
else:
    sys.meta_path.insert(0, _AfterTorch())
