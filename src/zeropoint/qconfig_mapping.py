"""QConfigMapping: which part of a model gets which QConfig, and the default mapping of each backend."""

from __future__ import annotations

import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from torch import nn

from zeropoint.described import described
from zeropoint.fake_quant import FixedQParamsFakeQuantize, default_weight_fake_quant
from zeropoint.observers import (
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
    default_placeholder_observer,
    default_weight_observer,
)
from zeropoint.operators import Observed, Output, layer_records, modules_of, operators, traced
from zeropoint.qconfig import (
    QConfig,
    QConfigAny,
    checked_qconfig,
    default_quint8_weight_qconfig,
    default_reuse_input_qconfig,
    default_symmetric_qnnpack_qat_qconfig,
    default_symmetric_qnnpack_qconfig,
    get_default_qat_qconfig,
    get_default_qconfig,
)

# A module class, a function, or the name of a method of Tensor.
ObjectType = Callable[..., Any] | str

# Attribute of QConfigMapping -> its key in the form of a dictionary; from the weakest to the strongest.
_STYLES = MappingProxyType(
    {
        "global_qconfig": "",
        "object_type_qconfigs": "object_type",
        "module_name_regex_qconfigs": "module_name_regex",
        "module_name_qconfigs": "module_name",
        "module_name_object_type_order_qconfigs": "module_name_object_type_order",
    }
)


class QConfigMapping:
    """The QConfig of each part of a model. None keeps a part in float.

    The rules, in order of precedence:

    1. `set_module_name_object_type_order`: the n-th module or call of one type inside a module
    2. `set_module_name`: a module and everything inside it; the longest name wins
    3. `set_module_name_regex`: modules whose name starts with a match; the first rule wins
    4. `set_object_type`: modules of exactly this class, calls of this function or method
    5. `set_global`: everything else

    `qconfig_for` applies them.

    Example:
        >>> from zeropoint import default_qconfig, per_channel_dynamic_qconfig
        >>> mapping = QConfigMapping().set_global(default_qconfig).set_module_name("head", None)
        >>> mapping.set_object_type(nn.LSTM, per_channel_dynamic_qconfig).qconfig_for("head.norm", nn.LayerNorm)
        >>> mapping.qconfig_for("body.rnn", nn.LSTM) == per_channel_dynamic_qconfig
        True
    """

    def __init__(self) -> None:
        self.global_qconfig: QConfigAny = None
        self.object_type_qconfigs: OrderedDict[ObjectType, QConfigAny] = OrderedDict()
        self.module_name_regex_qconfigs: OrderedDict[str, QConfigAny] = OrderedDict()
        self.module_name_qconfigs: OrderedDict[str, QConfigAny] = OrderedDict()
        self.module_name_object_type_order_qconfigs: OrderedDict[tuple[str, ObjectType, int], QConfigAny] = (
            OrderedDict()
        )

    # ------------------------------------------------------------------------------------------------------ the rules

    def set_global(self, global_qconfig: QConfigAny) -> QConfigMapping:
        """Set the QConfig of everything that no other rule names.

        Example:
            >>> QConfigMapping().set_global(get_default_qconfig("native")).qconfig_for("any", nn.Linear) is None
            False
        """
        self.global_qconfig = checked_qconfig("set_global", global_qconfig)
        return self

    def set_object_type(self, object_type: ObjectType, qconfig: QConfigAny) -> QConfigMapping:
        """Set the QConfig of modules of exactly this class, or of calls of this function or method name.

        Raises:
            TypeError: if `object_type` is none of these.

        Example:
            >>> mapping = QConfigMapping().set_object_type("reshape", default_reuse_input_qconfig)
            >>> mapping.qconfig_for("", "reshape") == default_reuse_input_qconfig
            True
        """
        _check_object_type("set_object_type", object_type)
        qconfig = checked_qconfig("set_object_type", qconfig)
        self.object_type_qconfigs[object_type] = qconfig
        return self

    def set_module_name_regex(self, module_name_regex: str, qconfig: QConfigAny) -> QConfigMapping:
        """Set the QConfig of modules whose name starts with a match of the regular expression.

        The first rule wins, so set the more specific ones first. Setting a rule again keeps its position. The match can
        end anywhere in the name; use ``$`` to match the whole name.

        Raises:
            ValueError: if it is not a regular expression.

        Example:
            >>> mapping = QConfigMapping().set_module_name_regex(r"layer[12]$", default_quint8_weight_qconfig)
            >>> [mapping.qconfig_for(name, nn.Linear) is None for name in ("layer1", "layer1.fc", "layer3")]
            [False, True, True]
        """
        _check_string("set_module_name_regex", module_name_regex)
        qconfig = checked_qconfig("set_module_name_regex", qconfig)
        try:
            re.compile(module_name_regex)
        except re.error as error:
            raise ValueError(
                f"set_module_name_regex: {module_name_regex!r} is not a regular expression: {error}; use "
                "re.escape(name) for a plain name"
            ) from error
        self.module_name_regex_qconfigs[module_name_regex] = qconfig
        return self

    def set_module_name(self, module_name: str, qconfig: QConfigAny) -> QConfigMapping:
        """Set the QConfig of the module with this dotted name, and of everything inside it without a longer rule.

        Raises:
            ValueError: if the name is empty.

        Example:
            >>> mapping = QConfigMapping().set_module_name("body.head", default_quint8_weight_qconfig)
            >>> [mapping.qconfig_for(name, nn.Linear) is None for name in ("body", "body.head", "body.head.0")]
            [True, False, False]
        """
        _check_string("set_module_name", module_name)
        qconfig = checked_qconfig("set_module_name", qconfig)
        if not module_name:
            raise ValueError("set_module_name: the name is empty; for the whole model, write set_global(qconfig)")
        self.module_name_qconfigs[module_name] = qconfig
        return self

    def set_module_name_object_type_order(
        self, module_name: str, object_type: ObjectType, index: int, qconfig: QConfigAny
    ) -> QConfigMapping:
        """Set the QConfig of call number `index`, counted from 0, of `object_type` directly inside the module
        `module_name`.

        Example:
            >>> from torch.nn import functional as F
            >>> mapping = QConfigMapping().set_module_name_object_type_order("body", F.linear, 1, get_default_qconfig())
            >>> [mapping.qconfig_for("body", F.linear, index) is None for index in (0, 1)]
            [True, False]
        """
        where = "set_module_name_object_type_order"
        _check_string(where, module_name)
        _check_object_type(where, object_type)
        qconfig = checked_qconfig(where, qconfig)
        if not isinstance(index, int) or isinstance(index, bool):
            raise TypeError(f"{where}: index must be an int, got {described(index)}; 0 is the first call")
        if index < 0:
            raise ValueError(f"{where}: index must be 0 or more, got {index}; 0 is the first call")
        self.module_name_object_type_order_qconfigs[module_name, object_type, index] = qconfig
        return self

    # ----------------------------------------------------------------------------------------------------- the answer

    def qconfig_for(
        self,
        module_name: str,
        object_type: ObjectType,
        index: int | None = None,
        *,
        module_type: type[nn.Module] | None = None,
    ) -> QConfigAny:
        """The QConfig of a module, or of a call inside one; None leaves it in float.

        Args:
            module_name: the dotted name of the module, or, for a function or method, of the module that calls it.
            object_type: the class of the module, or the function, or the name of the method.
            index: how many of this type came before it in the module around it; None skips the rules about order.
            module_type: for a function or method, the class of the module that calls it: a rule for that class is
                stronger than one for the function.

        Example:
            >>> fixed = get_default_qconfig_mapping("native").qconfig_for("gate", nn.Sigmoid)
            >>> type(fixed.activation()).__name__
            'FixedQParamsObserver'
        """
        is_module = isinstance(object_type, type) and issubclass(object_type, nn.Module)
        if index is not None:
            around = module_name.rpartition(".")[0] if is_module else module_name
            place = (around, object_type, index)
            if place in self.module_name_object_type_order_qconfigs:
                return self.module_name_object_type_order_qconfigs[place]
        for kind in (module_type, object_type):
            if kind is not None and kind in self.object_type_qconfigs:
                return self.qconfig_for_name(module_name, self.object_type_qconfigs[kind])
        return self.qconfig_for_name(module_name, self.global_qconfig)

    def qconfig_for_name(self, module_name: str, otherwise: QConfigAny) -> QConfigAny:
        """What the rules about names say: that for the module or the nearest around it, else the first that matches.

        Example:
            >>> mapping = QConfigMapping().set_module_name("body", None)
            >>> mapping.qconfig_for_name("body.0", "qconfig") is None, mapping.qconfig_for_name("head", "qconfig")
            (True, 'qconfig')
        """
        name = module_name
        while name:
            if name in self.module_name_qconfigs:
                return self.module_name_qconfigs[name]
            name = name.rpartition(".")[0]
        found = (q for regex, q in self.module_name_regex_qconfigs.items() if re.match(regex, module_name))
        return next(found, otherwise)

    # ----------------------------------------------------------------------------------------------------- other forms

    def to_dict(self) -> dict[str, Any]:
        """The rules as a dictionary: "" -> the global QConfig, and for each other kind a list of tuples.

        Example:
            >>> QConfigMapping().set_module_name("head", None).to_dict()["module_name"]
            [('head', None)]
        """
        return {
            "": self.global_qconfig,
            "object_type": list(self.object_type_qconfigs.items()),
            "module_name_regex": list(self.module_name_regex_qconfigs.items()),
            "module_name": list(self.module_name_qconfigs.items()),
            "module_name_object_type_order": [
                (*place, qconfig) for place, qconfig in self.module_name_object_type_order_qconfigs.items()
            ],
        }

    @classmethod
    def from_dict(cls, qconfig_dict: Mapping[str, Any]) -> QConfigMapping:
        """The mapping that `to_dict` wrote; every key may be missing, unknown ones are left out with a warning.

        Example:
            >>> QConfigMapping.from_dict({"module_name": [("head", None)]}).module_name_qconfigs["head"]
        """
        if not isinstance(qconfig_dict, Mapping):
            raise TypeError(
                f"from_dict: expected a dictionary, got {described(qconfig_dict)}; "
                "for one QConfig for all, write QConfigMapping().set_global(qconfig)"
            )
        unknown = [key for key in qconfig_dict if key not in _STYLES.values()]
        if unknown:
            warnings.warn(
                f"QConfigMapping.from_dict: ignored the unknown keys {unknown}; supported: {list(_STYLES.values())}",
                stacklevel=2,
            )
        mapping = cls()
        mapping.set_global(qconfig_dict.get(""))
        for key, setter, parts in (
            ("object_type", mapping.set_object_type, 2),
            ("module_name_regex", mapping.set_module_name_regex, 2),
            ("module_name", mapping.set_module_name, 2),
            ("module_name_object_type_order", mapping.set_module_name_object_type_order, 4),
        ):
            for rule in qconfig_dict.get(key, ()):
                if not isinstance(rule, (tuple, list)) or len(rule) != parts:
                    raise TypeError(
                        f"from_dict: {key!r} must be a list of tuples of {parts}, got {described(rule)} in it"
                    )
                setter(*rule)
        return mapping

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for style in _STYLES:
            rules = getattr(self, style)
            lines.append(f" {style}")
            if style != "global_qconfig" and rules:
                lines += [f"  {key}: {qconfig}" for key, qconfig in rules.items()]
            else:
                lines.append(f"  {rules}")
        return "\n".join([*lines, ")"])


def _check_string(where: str, name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(
            f"{where}: expected a string, got {described(name)}; model.named_modules() lists the names of modules"
        )


def _check_object_type(where: str, object_type: Any) -> None:
    if isinstance(object_type, nn.Module):
        kind = type(object_type).__name__
        raise TypeError(
            f"{where}: the object type is an instance of {kind}; pass the class, {kind}, "
            "or name the one module with set_module_name"
        )
    if not (callable(object_type) or isinstance(object_type, str)):
        raise TypeError(
            f"{where}: the object type must be a module class, a function or the name of a method,"
            f" got {described(object_type)}"
        )


# ---------------------------------------------------------------------------------------------------------- defaults

# In the order that torch.ao has them.
_TRANSPOSED_RECORDS = tuple(layer_records(transposed=True))
_TRANSPOSED: tuple[ObjectType, ...] = (
    *modules_of(_TRANSPOSED_RECORDS),
    *(f for record in _TRANSPOSED_RECORDS for f in record.functions),
)
_NORMS = tuple(call for record in traced(Observed.NORM) for call in record.object_types)
_WITH_SLOPES = tuple(call for record in operators() if record.slopes for call in record.traced_calls)
# Their outputs have a known range, and so fixed parameters.
FIXED_QPARAMS: Mapping[ObjectType, Any] = MappingProxyType(
    {
        call: observer
        for output, observer in (
            (Output.UNIT, default_fixed_qparams_range_0to1_observer),
            (Output.SYMMETRIC, default_fixed_qparams_range_neg1to1_observer),
        )
        for record in sorted(operators(), key=lambda record: record.name)
        if record.output is output
        for call in record.traced_calls
    }
)


def get_default_qconfig_mapping(backend: str = "x86", version: int = 0) -> QConfigMapping:
    """The rules for calibrating a model that will run on `backend`; see `get_default_qconfig` for the backends.

    Example:
        >>> get_default_qconfig_mapping("native").qconfig_for("up", nn.ConvTranspose2d).weight().ch_axis
        1
    """
    return _default_mapping(get_default_qconfig(backend, version), backend, training=False)


def get_default_qat_qconfig_mapping(backend: str = "x86", version: int = 1) -> QConfigMapping:
    """The rules for training a model that will run on `backend`; see `get_default_qat_qconfig` for the versions.

    Example:
        >>> mapping = get_default_qat_qconfig_mapping("native")
        >>> type(mapping.qconfig_for("gate", nn.Sigmoid).activation()).__name__
        'FixedQParamsFakeQuantize'
    """
    return _default_mapping(get_default_qat_qconfig(backend, version), backend, training=True)


def _default_mapping(qconfig: QConfig, backend: str, training: bool) -> QConfigMapping:
    per_tensor_weight = default_weight_fake_quant if training else default_weight_observer
    if backend in ("x86", "fbgemm"):  # PyTorch's kernels for these have one scale for a transposed weight
        transposed = QConfig(qconfig.activation, per_tensor_weight)
    elif backend == "native":  # the output channels of a transposed weight are on axis 1
        transposed = QConfig(qconfig.activation, qconfig.weight.with_args(ch_axis=1))
    else:
        transposed = qconfig
    # The weight of a layer norm stays float.
    layer_norm = QConfig(qconfig.activation, default_placeholder_observer)

    mapping = QConfigMapping().set_global(qconfig).set_object_type("reshape", default_reuse_input_qconfig)
    for object_type in _TRANSPOSED:
        mapping.set_object_type(object_type, transposed)
    for object_type in _NORMS:
        mapping.set_object_type(object_type, layer_norm)
    for object_type in _WITH_SLOPES:
        mapping.set_object_type(object_type, default_quint8_weight_qconfig)
    for object_type, observer in FIXED_QPARAMS.items():
        activation = FixedQParamsFakeQuantize.with_args(observer=observer) if training else observer
        mapping.set_object_type(object_type, QConfig(activation, per_tensor_weight))
    return mapping


def get_symmetric_qnnpack_qconfig_mapping() -> QConfigMapping:
    """The rules for calibrating with signed activations and symmetric weights, as XNNPACK's kernels take them.

    Example:
        >>> get_symmetric_qnnpack_qconfig_mapping().global_qconfig.activation().dtype
        zeropoint.qint8
    """
    return _everywhere(default_symmetric_qnnpack_qconfig, get_default_qconfig_mapping("qnnpack"))


def get_symmetric_qnnpack_qat_qconfig_mapping() -> QConfigMapping:
    """The rules for training with signed activations and symmetric weights, as XNNPACK's kernels take them.

    Example:
        >>> get_symmetric_qnnpack_qat_qconfig_mapping().global_qconfig.weight().quant_min
        -127
    """
    return _everywhere(default_symmetric_qnnpack_qat_qconfig, get_default_qat_qconfig_mapping("qnnpack"))


def _everywhere(qconfig: QConfig, mapping: QConfigMapping) -> QConfigMapping:
    """`qconfig` for all but the operators with fixed parameters."""
    mapping.set_global(qconfig)
    for object_type in mapping.object_type_qconfigs:
        if object_type not in FIXED_QPARAMS:
            mapping.set_object_type(object_type, qconfig)
    return mapping


def get_default_qconfig_dict(backend: str = "x86", version: int = 0) -> dict[str, Any]:
    """`get_default_qconfig_mapping` as a dictionary; deprecated.

    Example:
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     sorted(get_default_qconfig_dict())
        ['', 'module_name', 'module_name_object_type_order', 'module_name_regex', 'object_type']
    """
    warnings.warn(
        "get_default_qconfig_dict is deprecated: use get_default_qconfig_mapping", FutureWarning, stacklevel=2
    )
    return get_default_qconfig_mapping(backend, version).to_dict()


def get_default_qat_qconfig_dict(backend: str = "x86", version: int = 1) -> dict[str, Any]:
    """`get_default_qat_qconfig_mapping` as a dictionary; deprecated.

    Example:
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     len(get_default_qat_qconfig_dict()["object_type"])
        23
    """
    warnings.warn(
        "get_default_qat_qconfig_dict is deprecated: use get_default_qat_qconfig_mapping", FutureWarning, stacklevel=2
    )
    return get_default_qat_qconfig_mapping(backend, version).to_dict()
