"""QConfig: how a layer is quantized, as one observer constructor for its output and one for its weight.

The defaults are data: named values, and two tables (backend, version) -> QConfig, for calibration and for training.
"""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import nn

from zeropoint.described import described
from zeropoint.fake_quant import (
    FakeQuantize,
    FakeQuantizeBase,
    FusedMovingAvgObsFakeQuantize,
    default_dynamic_fake_quant,
    default_embedding_fake_quant,
    default_embedding_fake_quant_4bit,
    default_fake_quant,
    default_fused_act_fake_quant,
    default_fused_per_channel_wt_fake_quant,
    default_fused_wt_fake_quant,
    default_per_channel_weight_fake_quant,
    default_weight_fake_quant,
    fused_per_channel_wt_fake_quant_range_neg_127_to_127,
    fused_wt_fake_quant_range_neg_127_to_127,
)
from zeropoint.mistakes import MistakenValue
from zeropoint.numerics.dtypes import qint8, quint8
from zeropoint.numerics.schemes import per_channel_symmetric
from zeropoint.observers import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    NoopObserver,
    PlaceholderObserver,
    ReuseInputObserver,
    default_debug_observer,
    default_dynamic_quant_observer,
    default_float_qparams_observer,
    default_float_qparams_observer_4bit,
    default_observer,
    default_per_channel_weight_observer,
    default_placeholder_observer,
    default_reuse_input_observer,
    default_weight_observer,
    per_channel_weight_observer_range_neg_127_to_127,
    weight_observer_range_neg_127_to_127,
)
from zeropoint.observers.grouped import GROUP, GroupedWeightObserver
from zeropoint.observers.partial import PartialWrapper


class _Constructors(NamedTuple):
    activation: Any
    weight: Any


class QConfig(_Constructors):
    """Two constructors: ``activation()`` creates the observer of a layer's output, ``weight()`` that of its weight.

    A constructor is an observer or fake-quantize class, optionally with arguments from ``with_args``. It is called once
    for each layer, so instances are not accepted.

    Raises:
        ValueError: if given an observer instance.

    Example:
        >>> from zeropoint import MinMaxObserver, qint8
        >>> qconfig = QConfig(activation=MinMaxObserver, weight=MinMaxObserver.with_args(dtype=qint8))
        >>> qconfig.weight().dtype
        zeropoint.qint8
    """

    __slots__ = ()

    def __new__(cls, activation: Any, weight: Any) -> QConfig:
        refuse_instances(cls.__name__, activation=activation, weight=weight)
        return super().__new__(cls, activation, weight)


class QConfigDynamic(_Constructors):
    """A QConfig by its old name for dynamic quantization; write QConfig instead.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     qconfig = QConfigDynamic(weight=default_weight_observer)
        >>> qconfig.activation, caught[0].category
        (<class 'torch.nn.modules.linear.Identity'>, <class 'FutureWarning'>)
    """

    __slots__ = ()

    def __new__(cls, activation: Any = nn.Identity, weight: Any = nn.Identity) -> QConfigDynamic:
        warnings.warn("QConfigDynamic is deprecated: write QConfig, with both fields", FutureWarning, stacklevel=2)
        refuse_instances(cls.__name__, activation=activation, weight=weight)
        return super().__new__(cls, activation, weight)


QConfigAny = QConfig | None


def refuse_instances(name: str, **fields: Any) -> None:
    """Raise ValueError if a field of the qconfig class `name` is an observer that is built already."""
    for field, value in fields.items():
        if isinstance(value, nn.Module):
            built = type(value).__name__
            raise ValueError(
                f"{name}: {field} is an instance of {built}, but each layer needs its own: pass the class, {built}"
                f", or {built}.with_args(...) to set its arguments"
            )


def checked_qconfig(where: str, qconfig: Any) -> Any:
    """`qconfig` if it has an activation and a weight, None if it is None or empty; else raise TypeError.

    The activation of an EqualizationQConfig, which mappings take too, is ``input_activation``.

    Example:
        >>> checked_qconfig("set_global", [])
        >>> checked_qconfig("set_global", "x86")
        Traceback (most recent call last):
        ...
        TypeError: set_global: expected a QConfig or None, got 'x86'; for a backend: get_default_qconfig('x86')
    """
    if qconfig is None or (isinstance(qconfig, (list, tuple, Mapping)) and not qconfig):
        return None
    if (
        not isinstance(qconfig, type)
        and (hasattr(qconfig, "activation") or hasattr(qconfig, "input_activation"))
        and hasattr(qconfig, "weight")
    ):
        return qconfig
    if isinstance(qconfig, str):
        way_out = f"for a backend: get_default_qconfig({described(qconfig)})"
    elif isinstance(qconfig, (list, tuple, Mapping)):
        way_out = "to read the form that QConfigMapping.to_dict writes: QConfigMapping.from_dict(...)"
    else:
        way_out = "write QConfig(activation=..., weight=...), or None to leave it in float"
    raise TypeError(f"{where}: expected a QConfig or None, got {described(qconfig)}; {way_out}")


# ------------------------------------------------------------------------------------------------------- calibration

# One scale for the weight, activations in 7 bits.
default_qconfig = QConfig(activation=default_observer, weight=default_weight_observer)

# Keeps every activation, to look at.
default_debug_qconfig = QConfig(activation=default_debug_observer, weight=default_weight_observer)

# A scale for each output channel of the weight.
default_per_channel_qconfig = QConfig(activation=default_observer, weight=default_per_channel_weight_observer)

# Dynamic: the activation's parameters are found when the model runs.
default_dynamic_qconfig = QConfig(activation=default_dynamic_quant_observer, weight=default_weight_observer)
per_channel_dynamic_qconfig = QConfig(
    activation=default_dynamic_quant_observer, weight=default_per_channel_weight_observer
)
# A range for each row of an input, that is, for each token. In graph mode; convolutions have one range for all.
per_token_dynamic_qconfig = QConfig(
    activation=PlaceholderObserver.with_args(dtype=qint8, is_dynamic=True, qscheme=per_channel_symmetric),
    weight=default_per_channel_weight_observer,
)

# Half precision instead of integers: weights only, or both.
float16_dynamic_qconfig = QConfig(
    activation=PlaceholderObserver.with_args(dtype=torch.float16, is_dynamic=True),
    weight=PlaceholderObserver.with_args(dtype=torch.float16),
)
float16_static_qconfig = QConfig(
    activation=PlaceholderObserver.with_args(dtype=torch.float16),
    weight=PlaceholderObserver.with_args(dtype=torch.float16),
)

# Embedding tables: float zero points, a scale for each row.
float_qparams_weight_only_qconfig = QConfig(
    activation=default_placeholder_observer, weight=default_float_qparams_observer
)
float_qparams_weight_only_qconfig_4bit = QConfig(
    activation=default_placeholder_observer, weight=default_float_qparams_observer_4bit
)

# Unsigned weights, as PReLU's slope.
default_quint8_weight_qconfig = QConfig(activation=HistogramObserver, weight=MinMaxObserver)

# The output has the parameters of the input, as for reshape.
default_reuse_input_qconfig = QConfig(activation=default_reuse_input_observer, weight=NoopObserver)

# XNNPACK's rules: everything signed, weights without -128, and no scale below 2**-12, which keeps
# input_scale * weight_scale / output_scale above XNNPACK's lowest, 2**-32, for output scales up to 256.
_SYMMETRIC_EPS = 2**-12
_signed_histogram = HistogramObserver.with_args(dtype=qint8, reduce_range=False, eps=_SYMMETRIC_EPS)
default_symmetric_qnnpack_qconfig = QConfig(activation=_signed_histogram, weight=weight_observer_range_neg_127_to_127)
default_per_channel_symmetric_qnnpack_qconfig = QConfig(
    activation=_signed_histogram, weight=per_channel_weight_observer_range_neg_127_to_127
)

# Placeholders: they carry a dtype through graph mode and observe nothing. The second is for operators without weight.
_default_fp32_placeholder_qconfig = QConfig(
    activation=PlaceholderObserver.with_args(dtype=torch.float32),
    weight=PlaceholderObserver.with_args(dtype=torch.float32),
)
_default_quint8_placeholder_qconfig = QConfig(activation=PlaceholderObserver.with_args(dtype=quint8), weight=None)

# ---------------------------------------------------------------------------------------------------------- training

default_qat_qconfig = QConfig(activation=default_fake_quant, weight=default_weight_fake_quant)
default_dynamic_qat_qconfig = QConfig(activation=default_dynamic_fake_quant, weight=default_weight_fake_quant)
default_weight_only_qconfig = QConfig(activation=nn.Identity, weight=default_weight_fake_quant)
default_activation_only_qconfig = QConfig(activation=default_fake_quant, weight=nn.Identity)

# Observing and fake-quantizing fused into one step.
default_qat_qconfig_v2 = QConfig(activation=default_fused_act_fake_quant, weight=default_fused_wt_fake_quant)

default_embedding_qat_qconfig = QConfig(
    activation=NoopObserver.with_args(dtype=torch.float32), weight=default_embedding_fake_quant
)
default_embedding_qat_qconfig_4bit = QConfig(
    activation=NoopObserver.with_args(dtype=torch.float32), weight=default_embedding_fake_quant_4bit
)

_signed_fused = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver,
    quant_min=-128,
    quant_max=127,
    dtype=qint8,
    reduce_range=False,
    eps=_SYMMETRIC_EPS,
)
default_symmetric_qnnpack_qat_qconfig = QConfig(
    activation=_signed_fused, weight=fused_wt_fake_quant_range_neg_127_to_127
)
default_per_channel_symmetric_qnnpack_qat_qconfig = QConfig(
    activation=_signed_fused, weight=fused_per_channel_wt_fake_quant_range_neg_127_to_127
)

# ---------------------------------------------------------------------------------------------------------- backends


def _moving_average(fake_quantize: Any, reduce_range: bool) -> PartialWrapper:
    """What watches activations in training: histograms would be too slow."""
    return fake_quantize.with_args(
        observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, reduce_range=reduce_range
    )


_histogram_7bit = HistogramObserver.with_args(reduce_range=True)
_histogram_8bit = HistogramObserver.with_args(reduce_range=False)
_unfused_7bit = _moving_average(FakeQuantize, reduce_range=True)
_unfused_8bit = _moving_average(FakeQuantize, reduce_range=False)
_fused_7bit = _moving_average(FusedMovingAvgObsFakeQuantize, reduce_range=True)
_fused_8bit = _moving_average(FusedMovingAvgObsFakeQuantize, reduce_range=False)

# x86 and fbgemm keep activations to 7 bits, because PyTorch's kernels may saturate without VNNI. zeropoint's never do:
# native has all 8 bits on every CPU. qnnpack has one scale for a weight.
_CALIBRATION: Mapping[tuple[str, int], QConfig] = MappingProxyType(
    {
        ("x86", 0): QConfig(_histogram_7bit, default_per_channel_weight_observer),
        ("fbgemm", 0): QConfig(_histogram_7bit, default_per_channel_weight_observer),
        ("qnnpack", 0): QConfig(_histogram_8bit, default_weight_observer),
        ("onednn", 0): QConfig(_histogram_8bit, default_per_channel_weight_observer),
        ("native", 0): QConfig(_histogram_8bit, default_per_channel_weight_observer),
    }
)
# Version 1 is fused, version 0 is not.
_TRAINING: Mapping[tuple[str, int], QConfig] = MappingProxyType(
    {
        ("x86", 0): QConfig(_unfused_7bit, default_per_channel_weight_fake_quant),
        ("fbgemm", 0): QConfig(_unfused_7bit, default_per_channel_weight_fake_quant),
        ("qnnpack", 0): QConfig(_unfused_8bit, default_weight_fake_quant),
        ("onednn", 0): QConfig(_unfused_8bit, default_per_channel_weight_fake_quant),
        ("native", 0): QConfig(_unfused_8bit, default_per_channel_weight_fake_quant),
        ("x86", 1): QConfig(_fused_7bit, default_fused_per_channel_wt_fake_quant),
        ("fbgemm", 1): QConfig(_fused_7bit, default_fused_per_channel_wt_fake_quant),
        ("qnnpack", 1): QConfig(_fused_8bit, default_fused_wt_fake_quant),
        ("onednn", 1): QConfig(_fused_8bit, default_fused_per_channel_wt_fake_quant),
        ("native", 1): QConfig(_fused_8bit, default_fused_per_channel_wt_fake_quant),
    }
)


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """The QConfig for calibrating a model: histogram observers for activations, int8 weights.

    Args:
        backend: 'x86', 'fbgemm', 'qnnpack' or 'onednn' as in PyTorch, or 'native', which uses all 8 bits on every CPU.
        version: 0.

    Raises:
        ValueError: for an unknown backend or version.

    Example:
        >>> qconfig = get_default_qconfig("native")
        >>> qconfig.activation().reduce_range, qconfig.weight().qscheme
        (False, zeropoint.per_channel_symmetric)
    """
    return _choose("get_default_qconfig", _CALIBRATION, backend, version)


def get_weight_only_qconfig_4bit(group_size: int = GROUP) -> QConfig:
    """The QConfig for 4-bit weights and float activations, with one scale per `group_size` inputs of an output.

    Example:
        >>> get_weight_only_qconfig_4bit(32).weight().group_size
        32
    """
    return QConfig(default_placeholder_observer, GroupedWeightObserver.with_args(group_size=group_size))


def get_default_qat_qconfig(backend: str = "x86", version: int = 1) -> QConfig:
    """The QConfig for quantization-aware training: fake quantization with moving averages.

    Args:
        backend: as for `get_default_qconfig`.
        version: 1 fuses observer and fake quantization into one step; 0 runs one after the other.

    Raises:
        ValueError: for an unknown backend or version.

    Example:
        >>> type(get_default_qat_qconfig("native").activation()).__name__
        'FusedMovingAvgObsFakeQuantize'
    """
    return _choose("get_default_qat_qconfig", _TRAINING, backend, version)


def _choose(caller: str, table: Mapping[tuple[str, int], QConfig], backend: str, version: int) -> QConfig:
    for name, choice, choices in (
        ("backend", backend, list(dict.fromkeys(b for b, _ in table))),
        ("version", version, list(dict.fromkeys(v for _, v in table))),
    ):
        if choice not in choices:
            raise MistakenValue(f"{caller}: {name} must be one of {choices}, got {choice!r}, which is not supported")
    # New constructors each time: old code tells the answers of two calls apart.
    return QConfig(*map(copy.copy, table[backend, version]))


# -------------------------------------------------------------------------------------------------------- comparison


def qconfig_equals(q1: QConfigAny, q2: QConfigAny) -> bool:
    """Whether two QConfigs build the same observers.

    Arguments that are called at construction, such as the device of a module, do not count.

    Example:
        >>> q1 = QConfig(MinMaxObserver.with_args(eps=0.1).with_args(dtype=qint8), MinMaxObserver)
        >>> q2 = QConfig(MinMaxObserver.with_args(dtype=qint8, eps=0.1), MinMaxObserver.with_args())
        >>> qconfig_equals(q1, q2), qconfig_equals(q1, None)
        (True, False)
    """
    if q1 is None or q2 is None:
        return q1 is q2
    fields = ("activation", "input_activation", "weight")  # an EqualizationQConfig has the second, others the first
    return all(bool(_spelled_out(getattr(q1, f, None)) == _spelled_out(getattr(q2, f, None))) for f in fields)


def _spelled_out(constructor: Any) -> Any:
    """(class, positional arguments, keyword arguments), with every with_args taken apart."""
    args: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    while isinstance(constructor, PartialWrapper):  # the inner one's arguments come first and are overridden
        args = (*constructor.p.args, *args)
        keywords = {**constructor.p.keywords, **keywords}
        constructor = constructor.p.func
    return constructor, args, {name: _spelled_out(value) for name, value in keywords.items()}


def activation_is_memoryless(qconfig: QConfig) -> bool:
    """Whether the activation observer uses only the last tensor: a moving average with `averaging_constant` 1.

    Example:
        >>> activation_is_memoryless(default_dynamic_qat_qconfig), activation_is_memoryless(default_qat_qconfig)
        (True, False)
    """
    watcher = qconfig.activation()
    if isinstance(watcher, FakeQuantizeBase):
        watcher = getattr(watcher, "activation_post_process", watcher)
    return bool(getattr(watcher, "averaging_constant", None) == 1)


def is_reuse_input_qconfig(qconfig: QConfigAny) -> bool:
    """Whether the output of an operator with this QConfig has the qparams of its input.

    Example:
        >>> is_reuse_input_qconfig(default_reuse_input_qconfig), is_reuse_input_qconfig(default_qconfig)
        (True, False)
    """
    return (
        qconfig is not None
        and qconfig.weight is not None
        and isinstance(qconfig.activation(), ReuseInputObserver)
        and isinstance(qconfig.weight(), NoopObserver)
    )


# ------------------------------------------------------------------------------------------------------------ device


class _ModuleDevice:
    """Answers ``factory_kwargs`` for the device a module is on at that time, or None if it holds no tensors.

    It does not keep the module alive, and its copies, also through pickle, answer the last device known.
    """

    def __init__(self, module: nn.Module | None, device: torch.device | None = None) -> None:
        self.module: Callable[[], nn.Module | None] = weakref.ref(module) if module is not None else _gone
        self.device = device
        self()

    def __call__(self) -> dict[str, Any] | None:
        module = self.module()
        if module is not None:
            tensor = next(module.parameters(), None)
            tensor = next(module.buffers(), None) if tensor is None else tensor
            self.device = None if tensor is None else tensor.device
        return None if self.device is None else {"device": self.device}

    def __reduce__(self) -> tuple[Any, ...]:
        self()  # it may have moved
        return _ModuleDevice, (None, self.device)


def _gone() -> None:
    return None


def add_module_to_qconfig_obs_ctr(qconfig: Any, module: nn.Module | None) -> Any:
    """`qconfig` with constructors that build on the device `module` is on at that time.

    Constructors that take no `factory_kwargs`, and values that are not a QConfig, are returned unchanged.

    Example:
        >>> module = nn.Linear(2, 2, device="meta")
        >>> add_module_to_qconfig_obs_ctr(default_qconfig, module).weight().min_val.device
        device(type='meta')
    """
    if module is None or qconfig is None or getattr(qconfig, "_fields", None) != QConfig._fields:
        return qconfig
    return QConfig(*(_built_on_the_device_of(module, constructor) for constructor in qconfig))


def _built_on_the_device_of(module: nn.Module, constructor: Any) -> Any:
    if not hasattr(constructor, "with_callable_args"):
        return constructor
    try:
        constructor(factory_kwargs=None)
    except TypeError:  # it has no such argument
        return constructor
    return constructor.with_callable_args(factory_kwargs=_ModuleDevice(module))
