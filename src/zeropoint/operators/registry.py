"""The registry of operators: finds a record by its name, its ATen overload, its module class or its quantized form."""

from __future__ import annotations

import copyreg
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from torch import nn

from zeropoint.context import CONTEXT
from zeropoint.operators.onnx_forms import Read, Write
from zeropoint.operators.record import CustomModule, Effect, Fusion, ModuleForms, Observed, Operator
from zeropoint.operators.steps import Emit, Restore

_BY_NAME: dict[str, Operator] = {}
_BY_ATEN: dict[str, Operator] = {}
_BY_FORMS: dict[type, tuple[Operator, ModuleForms]] = {}
_STEPS: dict[str, Emit] = {}
_RESTORES: dict[str, Restore] = {}
_ONNX_WRITES: dict[str, Write] = {}
_ONNX_READS: dict[str, Read] = {}
_MOVING: set[str] = set()
_ONNX_KEEPS_SCALE: set[str] = set()

# Operators by their name, and by the overload of ATen that is this operator ("conv2d.default"); what emits the steps of
# a program by the call in a quantized graph ("zeropoint.conv2d.default"); what makes such calls of a step again, by the
# kind of the step ("conv"); what writes such a call to an ONNX file, what reads an operator of ONNX ("Conv"), and the
# names of those that give integers of the scale that they take. All grow when an operator is registered.
BY_NAME: Mapping[str, Operator] = MappingProxyType(_BY_NAME)
BY_ATEN: Mapping[str, Operator] = MappingProxyType(_BY_ATEN)
STEPS: Mapping[str, Emit] = MappingProxyType(_STEPS)
RESTORES: Mapping[str, Restore] = MappingProxyType(_RESTORES)
ONNX_WRITES: Mapping[str, Write] = MappingProxyType(_ONNX_WRITES)
ONNX_READS: Mapping[str, Read] = MappingProxyType(_ONNX_READS)
ONNX_KEEPS_SCALE: Collection[str] = _ONNX_KEEPS_SCALE


def register(*records: Operator) -> None:
    """Enter operators. Nothing is entered if one of their names is taken.

    Raises:
        ValueError: if there is an operator of the same name, for the same call or the same module class.
    """
    for record in records:
        taken = [record.name] if record.name in _BY_NAME else []
        taken += [name for name in record.aten if name in _BY_ATEN]
        taken += [name for name, emit in record.steps if _STEPS.get(name, emit) is not emit]
        taken += [kind for kind, restore in record.restores if _RESTORES.get(kind, restore) is not restore]
        taken += [forms.module.__name__ for forms in record.forms if forms.module in _BY_FORMS]
        if taken:
            raise ValueError(f"operator {record.name!r}: already registered for {', '.join(taken)}; use another name")
        _enter(record)


def _enter(record: Operator) -> None:
    _BY_NAME[record.name] = record
    _BY_ATEN.update(dict.fromkeys(record.aten, record))
    _BY_FORMS.update({forms.module: (record, forms) for forms in record.forms})
    _STEPS.update(record.steps)
    _RESTORES.update(record.restores)
    _ONNX_WRITES.update(record.onnx.writes)
    _ONNX_READS.update(record.onnx.reads)
    if (record.keeps_scale and not record.rounds_to_input) or record.effect is Effect.JOINS:
        _ONNX_KEEPS_SCALE.update(name for name, _ in record.onnx.reads)
    if record.moves_values:
        _MOVING.update(record.called)


def _stored(record: Operator) -> tuple[Any, ...]:
    return _registered, (record.name,)


def _registered(name: str) -> Operator:
    if name not in _BY_NAME:
        raise ValueError(
            f"operator {name!r} is unknown: call register_operator with the same arguments as where the model was saved"
        )
    return _BY_NAME[name]


copyreg.pickle(Operator, _stored)  # a record has functions, which files cannot hold: files have its name


def moves_values(name: str) -> bool:
    """Whether a function of this name, or the same in place, gives values of its input in other places."""
    return name in _MOVING or name.rstrip("_") in _MOVING


CONTEXT.moves_values = moves_values


def unregister(name: str) -> None:
    """Take an operator out again; its node is then treated as any unknown one."""
    kept = [record for record in _BY_NAME.values() if record is not _BY_NAME[name]]
    for derived in (_BY_NAME, _BY_ATEN, _BY_FORMS, _STEPS, _RESTORES, _ONNX_WRITES, _ONNX_READS, _MOVING):
        derived.clear()  # calls may be shared, as convolutions over any number of axes share one
    for record in kept:
        _enter(record)


def operators() -> Iterator[Operator]:
    """Every record, in the order of registration."""
    yield from _BY_NAME.values()


def module_forms() -> Iterator[tuple[Operator, ModuleForms]]:
    """Every module that eager mode knows, with its operator."""
    yield from _BY_FORMS.values()


def mapping(form: str) -> dict[type[nn.Module], Any]:
    """Float module -> its `form` ("static", "dynamic", "reference" or "training"), for those that have one.

    Example:
        >>> mapping("training")[nn.Linear].__module__
        'zeropoint.nn.qat.linear'
    """
    found = {forms.module: getattr(forms, form) for _, forms in module_forms()}
    return {module: made for module, made in found.items() if made is not None}


def composed_of(name: str) -> Iterator[Operator]:
    """Operators that PyTorch makes of others, the last of which has this name."""
    return (record for record in operators() if record.composed is not None and record.composed[0] == name)


def layer_records(*, transposed: bool | None = None) -> Iterator[Operator]:
    """Linear layers and convolutions; or, of these, only the transposed ones, or only the others."""
    found = (record for record in operators() if record.is_layer and record.modules)
    return (record for record in found if transposed is None or (record.weight_axis == 1) == transposed)


def modules_of(records: Iterable[Operator], form: str = "module") -> tuple[type[nn.Module], ...]:
    """The float modules of these operators that eager mode has this form of: "static", "dynamic", ...; all, without.

    Example:
        >>> [module.__name__ for module in modules_of(layer_records(transposed=True))]
        ['ConvTranspose1d', 'ConvTranspose2d', 'ConvTranspose3d']
    """
    modules = dict.fromkeys(module for record in records for module in record.modules)
    return tuple(m for m in modules if form == "module" or (m in _BY_FORMS and getattr(_BY_FORMS[m][1], form)))


def fusions() -> tuple[Fusion, ...]:
    """The modules that eager mode fuses."""
    return tuple(fusion for record in operators() for fusion in record.fusions)


def custom_modules() -> tuple[CustomModule, ...]:
    """The modules that are swapped as a whole."""
    return tuple(custom for record in operators() for custom in record.custom)


def eager_functions() -> dict[Any, Any]:
    """Function of floats -> function of quantized tensors that takes scale and zero point of the result."""
    return dict(record.eager_function for record in operators() if record.eager_function is not None)


def traced(*observed: Observed) -> Iterator[Operator]:
    """Operators that FX graph mode observes in one of these ways; all that it knows, if none is named."""
    known = (record for record in operators() if record.traced is not None)
    return (record for record in known if not observed or record.traced.observed in observed)  # type: ignore[union-attr]


def float_weight_functions() -> tuple[Any, ...]:
    """The functions that FX graph mode observes and whose `weight` and `bias` stay float: norms."""
    with_weight = (record for record in traced() if "weight" in record.arguments)
    return tuple(call for record in with_weight for call in record.traced_calls if call in record.functions)
