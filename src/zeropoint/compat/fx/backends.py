"""The shipped backends: views of the operator records, with the dtypes that each backend has kernels for."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from zeropoint.compat.fx.backend_config import (
    BackendConfig,
    BackendPatternConfig,
    DTypeConfig,
    DTypeWithConstraints,
    ObservationType,
)
from zeropoint.compat.fx.conv_add import conv_add_configs
from zeropoint.compat.fx.fuser_methods import fuse_linear_bn_leaky_relu, get_fuser_method
from zeropoint.nn import intrinsic as nni
from zeropoint.numerics.dtypes import qint8, quint4x2, quint8
from zeropoint.operators import (
    Observed,
    Operator,
    Output,
    activations,
    embedding,
    float_weight_functions,
    module_forms,
    modules_of,
    operators,
    recurrent,
    traced,
)
from zeropoint.operators.registry import BY_NAME

__all__ = [
    "get_executorch_backend_config",
    "get_fbgemm_backend_config",
    "get_native_backend_config",
    "get_native_backend_config_dict",
    "get_onednn_backend_config",
    "get_qnnpack_backend_config",
    "get_tensorrt_backend_config",
    "get_tensorrt_backend_config_dict",
    "get_x86_backend_config",
]

_OWN = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
_SHARED = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT

# ------------------------------------------------------------------------------------------------------------ dtypes

FLOAT, HALF = torch.float32, torch.float16
STATIC = DTypeConfig(quint8, quint8, qint8, FLOAT)
PLAIN = DTypeConfig(quint8, quint8)
DYNAMIC = DTypeConfig(quint8, FLOAT, qint8, FLOAT, is_dynamic=True)
DYNAMIC_HALF = DTypeConfig(HALF, FLOAT, HALF, FLOAT, is_dynamic=True)
HALF_EVERYWHERE = DTypeConfig(HALF, HALF, HALF, HALF)
FLOAT_WEIGHT = DTypeConfig(quint8, quint8, FLOAT, FLOAT)
WEIGHT_ONLY = DTypeConfig(FLOAT, FLOAT, quint8)
WEIGHT_ONLY_4_BITS = DTypeConfig(FLOAT, FLOAT, quint4x2)
# XNNPACK: scales of at least 2**-12, and weights without -128.
_SYMMETRIC = DTypeWithConstraints(qint8, scale_min_lower_bound=2**-12)
_SYMMETRIC_WEIGHT = DTypeWithConstraints(qint8, -127, 127, scale_min_lower_bound=2**-12)
SYMMETRIC = DTypeConfig(_SYMMETRIC, _SYMMETRIC, _SYMMETRIC_WEIGHT, FLOAT)
SYMMETRIC_PLAIN = DTypeConfig(_SYMMETRIC, _SYMMETRIC)
DYNAMIC_SYMMETRIC = DTypeConfig(_SYMMETRIC, FLOAT, _SYMMETRIC_WEIGHT, FLOAT, is_dynamic=True)
SIGNED = DTypeConfig(qint8, qint8, qint8, FLOAT)
SIGNED_PLAIN = DTypeConfig(qint8, qint8)

_FIXED = {
    Output.UNIT: DTypeWithConstraints(quint8, 0, 255, scale_exact_match=1.0 / 256.0, zero_point_exact_match=0),
    Output.SYMMETRIC: DTypeWithConstraints(quint8, 0, 255, scale_exact_match=2.0 / 256.0, zero_point_exact_match=128),
}


@dataclass
class _Dtypes:
    """The dtypes of a backend for each kind of operator; none: it does not quantize them."""

    conv: list[DTypeConfig]
    linear: list[DTypeConfig]
    binary: list[DTypeConfig]
    plain: list[DTypeConfig]
    fixed: list[DTypeConfig] = field(default_factory=list)
    shared: list[DTypeConfig] = field(default_factory=list)
    info: list[DTypeConfig] = field(default_factory=list)
    norm: list[DTypeConfig] = field(default_factory=list)
    batch_norm: list[DTypeConfig] = field(default_factory=list)
    recurrent: list[DTypeConfig] = field(default_factory=list)
    embedding: list[DTypeConfig] = field(default_factory=list)
    joined: list[DTypeConfig] = field(default_factory=list)


# ------------------------------------------------------------------------------------------------ records as patterns


def _config(pattern: Any, dtypes: list[DTypeConfig], observation: ObservationType = _OWN) -> BackendPatternConfig:
    return BackendPatternConfig(pattern).set_observation_type(observation).set_dtype_configs(dtypes)


def _layer(record: Operator, dtypes: list[DTypeConfig], relu_only: bool = True) -> Iterator[BackendPatternConfig]:
    """A linear layer or convolution: its module, its forms in training, its fusions, its function."""
    (root,) = record.modules
    forms = {form.module: form for form in record.forms}
    reference = forms[root].reference
    fused = [f for f in record.fusions if not relu_only or f.parts[-1] in (nn.ReLU, *_NORMS)]
    for fusion in fused:
        yield from _fusion(fusion, dtypes)
    classes = {root} | {c for f in fused for c in (f.evaluation, f.training) if isinstance(c, type)}
    trained = {forms[c].training for c in classes if c in forms} - {None}
    for module in (*sorted(classes, key=lambda c: c is not root), *trained):
        config = _config(module, dtypes).set_root_module(root)
        if reference is not None:
            config.set_reference_quantized_module(reference)
        if module in forms and forms[module].training is not None:
            config.set_qat_module(forms[module].training)
        yield config
    for function in record.functions:
        yield _config(function, dtypes)._set_input_type_to_index({"weight": 1, "bias": 2})
        if record.relu:
            yield from (_config((function, relu), dtypes) for relu in (nn.ReLU, F.relu))


_NORMS = BY_NAME["batch_norm"].modules
_FUNCTIONS = {m: record.functions[0] for record in activations.RECORDS if record.functions for m in record.modules}


def _fusion(fusion: Any, dtypes: list[DTypeConfig]) -> Iterator[BackendPatternConfig]:
    """Modules that become one; the activation behind them may be a function."""
    made = fusion.training or fusion.evaluation
    last = fusion.parts[-1]
    for end in (last, _FUNCTIONS.get(last)):
        if end is None:
            continue
        config = _config((*fusion.parts[:-1], end), dtypes).set_fuser_method(get_fuser_method(fusion.parts))
        if isinstance(made, type):
            config.set_fused_module(made)
        yield config


def _layers(convs: list[DTypeConfig], linear: list[DTypeConfig]) -> Iterator[BackendPatternConfig]:
    for record in operators():
        if record.is_layer and record.modules:
            yield from _layer(record, linear if record.name == "linear" else convs)


def _sums(calls: Iterable[Any], dtypes: list[DTypeConfig]) -> Iterator[BackendPatternConfig]:
    """Sums and products, with or without a ReLU behind them."""
    by_tensors = {0: _OWN, 1: _SHARED, 2: _OWN}
    for call in calls:
        for pattern in ((call, nn.ReLU), (call, F.relu), (call, torch.relu), call):
            yield _config(pattern, dtypes)._set_num_tensor_args_to_observation_type(by_tensors)


# Where weight and bias stand in the arguments of norms.
_PARAMETERS = {
    function: {name: list(inspect.signature(function).parameters).index(name) for name in ("weight", "bias")}
    for function in float_weight_functions()
}


def _calls(observed: Observed, dtypes: list[DTypeConfig], observation: ObservationType) -> Iterator[Any]:
    for record in traced(observed):
        for call in record.traced_calls:
            config = _config(call, dtypes, observation)
            if call in _PARAMETERS:
                config._set_input_type_to_index(_PARAMETERS[call])
            yield config


def _fixed(dtypes: list[DTypeConfig]) -> Iterator[BackendPatternConfig]:
    """Operators whose results have fixed parameters, which an observer must then have."""
    for record in traced(Observed.FIXED):
        fixed = _FIXED[record.output]
        for call in record.traced_calls:
            yield _config(call, [_with_fixed(d, fixed) for d in dtypes])


def _with_fixed(dtypes: DTypeConfig, fixed: DTypeWithConstraints) -> DTypeConfig:
    made = copy.deepcopy(dtypes)
    for part in ("input_dtype_with_constraints", "output_dtype_with_constraints"):
        if getattr(made, part).dtype == fixed.dtype:
            setattr(made, part, copy.copy(fixed))
    return made


def _batch_norms(dtypes: list[DTypeConfig]) -> Iterator[BackendPatternConfig]:
    yield from _calls(Observed.BATCH_NORM, dtypes, _OWN)
    for fusion in BY_NAME["batch_norm"].fusions:
        yield from _fusion(fusion, dtypes)
        yield _config(fusion.evaluation, dtypes)


def _with_reference(names: tuple[type, ...], dtypes: list[DTypeConfig]) -> Iterator[BackendPatternConfig]:
    """Modules whose weights alone, or whose inputs while they run, are quantized; and their forms in training."""
    forms = {form.module: form for _, form in module_forms()}
    for module in names:
        form = forms[module]
        config = _config(module, dtypes).set_root_module(module).set_reference_quantized_module(form.reference)
        yield config
        if form.training is not None:
            config.set_qat_module(form.training)
            yield _config(form.training, dtypes).set_root_module(module).set_reference_quantized_module(form.reference)


_RECURRENT = modules_of(recurrent.RECORDS, "dynamic")
_EMBEDDINGS = modules_of(embedding.RECORDS)


def _backend(name: str, dtypes: _Dtypes) -> BackendConfig:
    made = BackendConfig(name).set_backend_pattern_configs(_layers(dtypes.conv, dtypes.linear))
    sums = (call for record in traced(Observed.SUM) for call in record.traced_calls)
    made.set_backend_pattern_configs(_sums(sums, dtypes.binary))
    made.set_backend_pattern_configs(_calls(Observed.PRODUCT, dtypes.binary, _OWN))
    made.set_backend_pattern_configs(_calls(Observed.JOINED, dtypes.joined or dtypes.plain, _SHARED))
    made.set_backend_pattern_configs(_calls(Observed.OWN, dtypes.plain, _OWN) if dtypes.plain else ())
    made.set_backend_pattern_configs(_fixed(dtypes.fixed) if dtypes.fixed else ())
    made.set_backend_pattern_configs(_calls(Observed.SHARED, dtypes.shared, _SHARED))
    if dtypes.info:
        not_observed = ObservationType.INPUT_OUTPUT_NOT_OBSERVED
        made.set_backend_pattern_configs(_calls(Observed.INFO, dtypes.info, not_observed))
    made.set_backend_pattern_configs(_batch_norms(dtypes.batch_norm) if dtypes.batch_norm else ())
    made.set_backend_pattern_configs(_calls(Observed.NORM, dtypes.norm, _OWN) if dtypes.norm else ())
    made.set_backend_pattern_configs(_with_reference(_RECURRENT, dtypes.recurrent) if dtypes.recurrent else ())
    made.set_backend_pattern_configs(_with_reference(_EMBEDDINGS, dtypes.embedding) if dtypes.embedding else ())
    return made


# ---------------------------------------------------------------------------------------------------------- backends


def _server(**more: Any) -> _Dtypes:
    """What PyTorch's kernels for servers take."""
    return _Dtypes(
        conv=[STATIC], linear=[STATIC, DYNAMIC, DYNAMIC_HALF], binary=[PLAIN], plain=[PLAIN], fixed=[PLAIN],
        shared=[PLAIN], info=[PLAIN], batch_norm=[PLAIN], recurrent=[DYNAMIC, DYNAMIC_HALF],
        embedding=[WEIGHT_ONLY, WEIGHT_ONLY_4_BITS], **more,
    )  # fmt: skip


def get_native_backend_config() -> BackendConfig:
    """Everything that FX graph mode quantizes by default.

    Example:
        >>> get_native_backend_config().name
        'native'
    """
    return _backend("native", _server(norm=[FLOAT_WEIGHT]))


def get_fbgemm_backend_config() -> BackendConfig:
    """What PyTorch's FBGEMM kernels took."""
    return _backend("fbgemm", _server())


def get_x86_backend_config() -> BackendConfig:
    """What PyTorch's x86 kernels took."""
    dtypes = _server()
    dtypes.binary = dtypes.fixed = [STATIC]
    return _backend("x86", dtypes)


def get_test_only_legacy_native_backend_config() -> BackendConfig:
    """`get_native_backend_config` with operators in float16."""
    dtypes = _server(norm=[FLOAT_WEIGHT])
    dtypes.linear = [*dtypes.linear, HALF_EVERYWHERE]
    dtypes.binary = dtypes.fixed = dtypes.shared = [PLAIN, HALF_EVERYWHERE]
    return _backend("_native_and_fp16", dtypes)


def get_qnnpack_backend_config() -> BackendConfig:
    """What PyTorch's QNNPACK and XNNPACK kernels took."""
    plain = [SYMMETRIC_PLAIN, PLAIN]
    return _backend(
        "qnnpack",
        _Dtypes(
            conv=[SYMMETRIC, STATIC], linear=[SYMMETRIC, STATIC, DYNAMIC, DYNAMIC_HALF], binary=plain, plain=plain,
            fixed=plain, shared=plain, batch_norm=plain, recurrent=[DYNAMIC, DYNAMIC_HALF],
            embedding=[WEIGHT_ONLY, WEIGHT_ONLY_4_BITS],
        ),
    )  # fmt: skip


def get_onednn_backend_config() -> BackendConfig:
    """What PyTorch's oneDNN kernels took: also layers with a leaky ReLU, a tanh or a sum behind them."""
    linear = [STATIC, DYNAMIC]
    made = _backend(
        "onednn",
        _Dtypes(
            conv=[STATIC], linear=linear, binary=[PLAIN], plain=[PLAIN], fixed=[PLAIN], shared=[PLAIN],
            batch_norm=[PLAIN], norm=[FLOAT_WEIGHT], recurrent=[DYNAMIC], embedding=[DTypeConfig(FLOAT, FLOAT, qint8)],
        ),
    )  # fmt: skip
    made.set_backend_pattern_configs(_layer(BY_NAME["linear"], linear, relu_only=False))
    ends = dict.fromkeys(f.parts[1] for f in BY_NAME["linear"].fusions if f.parts[1] not in (nn.ReLU, *_NORMS))
    made.set_backend_pattern_configs(
        _config((F.linear, call), linear) for end in ends for call in (end, _FUNCTIONS[end])
    )
    made.set_backend_pattern_config(
        _config((nn.Linear, nn.BatchNorm1d, nn.LeakyReLU), linear)
        .set_fuser_method(fuse_linear_bn_leaky_relu)
        .set_fused_module(nni.LinearLeakyReLU)
    )
    return made.set_backend_pattern_configs(conv_add_configs([STATIC]))


def get_tensorrt_backend_config() -> BackendConfig:
    """What TensorRT takes: signed integers everywhere."""
    made = _backend(
        "tensorrt",
        _Dtypes(
            conv=[SIGNED], linear=[SIGNED], binary=[SIGNED], plain=[], shared=[SIGNED_PLAIN], info=[SIGNED_PLAIN],
            joined=[SIGNED_PLAIN],
        ),
    )  # fmt: skip
    addmm = _config(torch.addmm, [SIGNED])._set_input_type_to_index({"bias": 0, "input": 1, "weight": 2})
    return made.set_backend_pattern_config(addmm)


# What ExecuTorch shares the observer of the input with.
_EXECUTORCH = (
    nn.Flatten, F.adaptive_avg_pool2d, F.elu, F.hardtanh, F.max_pool2d, F.pad, F.relu, F.relu6, F.leaky_relu,
    F.leaky_relu_, nn.AdaptiveAvgPool2d, nn.ConstantPad2d, nn.ELU, nn.MaxPool2d, nn.ReLU6, nn.Hardtanh, nn.LeakyReLU,
    torch.clamp, torch.flatten, torch.mean, torch.permute, torch.permute_copy, torch.squeeze, "clamp", "mean",
    "permute", "reshape", "relu", "relu_", "squeeze", "squeeze_", "leaky_relu",
)  # fmt: skip


def get_executorch_backend_config() -> BackendConfig:
    """What is lowered to ExecuTorch."""
    plain = [SYMMETRIC_PLAIN, PLAIN]
    linear = [SYMMETRIC, STATIC, DYNAMIC, DYNAMIC_SYMMETRIC, DYNAMIC_HALF]
    made = BackendConfig("executorch")
    for config in _layer(BY_NAME["linear"], linear):
        if config.fuser_method is None and config.pattern in (nn.Linear, F.linear, config.root_module):
            made.set_backend_pattern_config(config)
    trained = made.by_pattern[nn.Linear].qat_module
    made.set_backend_pattern_configs(c for c in _layer(BY_NAME["linear"], linear) if c.pattern is trained)
    made.set_backend_pattern_configs(_layer(BY_NAME["conv2d"], [SYMMETRIC, STATIC]))
    with_differences = (function for record in traced(Observed.SUM) for function in record.functions)
    made.set_backend_pattern_configs(_sums(with_differences, [SYMMETRIC_PLAIN, STATIC]))
    made.set_backend_pattern_configs(_config(call, plain, _SHARED) for call in _EXECUTORCH)
    made.set_backend_pattern_config(_config(nn.BatchNorm2d, plain))
    made.set_backend_pattern_configs(
        _config(call, plain, _SHARED) for call in (torch.cat, torch.concat, torch.concatenate)
    )
    made.set_backend_pattern_configs(_with_reference(_EMBEDDINGS, [WEIGHT_ONLY]))
    return made.set_backend_pattern_config(_config(F.embedding, [WEIGHT_ONLY])._set_input_type_to_index({"weight": 1}))


def get_native_backend_config_dict() -> dict[str, Any]:
    """`get_native_backend_config` as a dictionary."""
    return get_native_backend_config().to_dict()


def get_test_only_legacy_native_backend_config_dict() -> dict[str, Any]:
    """`get_test_only_legacy_native_backend_config` as a dictionary."""
    return get_test_only_legacy_native_backend_config().to_dict()


def get_tensorrt_backend_config_dict() -> dict[str, Any]:
    """`get_tensorrt_backend_config` as a dictionary."""
    return get_tensorrt_backend_config().to_dict()
