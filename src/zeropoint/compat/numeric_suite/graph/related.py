"""Which calls of two graphs may be the same layer: float, fused, in training, and quantized forms of one operator."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from zeropoint.compat.fx.targets import TARGETS
from zeropoint.eager.mappings import get_default_float_to_quantized_operator_mappings
from zeropoint.fake_quant import FakeQuantizeBase
from zeropoint.nn import quantized as nnq
from zeropoint.observers import ObserverBase
from zeropoint.operators import Observed, fusions, mapping, operators, traced
from zeropoint.tensor.create import quantize_per_tensor


# Functions of floats, and the names of what computes them on quantized tensors; both with and without a ReLU.
def _functions() -> Iterator[tuple[Any, ...]]:
    for record in operators():
        names = [record.name, f"{record.name}_relu"]
        if record.name == "linear":
            names += [f"{name}_{precision}" for name in names for precision in ("dynamic", "dynamic_fp16")]
        quantized = [TARGETS.functions[name] for name in names if name in TARGETS.functions]
        if quantized and record.functions:
            yield (record.functions[0], *quantized)


# What torch.ao's numeric suite relates too, although its FX graph mode does not quantize it, or by another name.
_RELATED_TOO: tuple[tuple[Any, ...], ...] = (
    (torch.relu, "relu"), (F.sigmoid, torch.sigmoid), (F.tanh, torch.tanh), (nn.SiLU, F.silu), (nn.Mish, F.mish),
    (torch.sort,), (torch.min,), (torch.max,), (torch.chunk,), (F.prelu,), (nn.LSTM,),
)  # fmt: skip


class _Sets:
    """Sets that are joined where they have a member in common."""

    def __init__(self) -> None:
        self._set_of: dict[Any, set[Any]] = {}

    def join(self, *members: Any) -> None:
        found = {id(s): s for m in members if (s := self._set_of.get(m)) is not None}
        joined = set(members).union(*found.values())
        for member in joined:
            self._set_of[member] = joined

    def sets(self) -> list[set[Any]]:
        return list({id(s): s for s in self._set_of.values()}.values())


def related_sets() -> dict[str, set[Any]]:
    """Name of a set -> calls that may be the same layer: functions, module types, names of methods.

    Example:
        >>> any({nn.Linear, nnq.Linear} <= found for found in related_sets().values())
        True
    """
    sets = _Sets()
    for record in traced():
        if record.name not in ("instance_norm", "batch_norm", "dropout", "reshape", "size"):
            # Functions and modules are told apart where their quantized forms are.
            modules = [call for call in record.traced_calls if isinstance(call, type)]
            others = [call for call in record.traced_calls if not isinstance(call, type)]
            apart = record.eager_function is not None
            for group in (modules, others) if apart else ((*modules, *others),):
                if group:
                    sets.join(*group)
    for calls in (*_functions(), *_RELATED_TOO):
        sets.join(*calls)
    for function, made in get_default_float_to_quantized_operator_mappings().items():
        sets.join(function, made)
    for form in ("static", "dynamic", "training", "reference"):
        for module, made in mapping(form).items():
            forms = made if isinstance(made, tuple) else (made,)
            sets.join(module, *(kind for kind in forms if kind is not nnq.Function))  # which stands for many functions
    for fusion in fusions():
        for fused in (fusion.evaluation, fusion.training):
            if isinstance(fused, type):
                sets.join(fusion.parts[0], fused)
    # A module that computes many functions is related to each of them, which are not related to each other.
    swapped = mapping("static").items()
    many = [{module, nnq.Function} for module, made in swapped if made is nnq.Function]
    return {str(index): found for index, found in enumerate([*sets.sets(), *many])}


def pair_names() -> frozenset[str]:
    """The names of functions that make one tensor of several."""
    names = {record.name for record in traced(Observed.SUM, Observed.JOINED)}
    return frozenset(names | {f"{name}_relu" for name in names})


def related_types(sets: dict[str, set[Any]]) -> set[tuple[Any, Any]]:
    """All pairs of calls that are in one set."""
    return {(a, b) for members in sets.values() for a in members for b in members}


def base_name_of(sets: dict[str, set[Any]], op: Any) -> str | None:
    """The name of the set that a call is in."""
    return next((name for name, members in sets.items() if op in members), None)


def add_to_set(sets: dict[str, set[Any]], op: Any, related_op: Any) -> None:
    """Put `op` into the set of `related_op`, or into one of its own if that is None.

    Raises:
        ValueError: if `related_op` is in no set.
    """
    if related_op is None:
        sets[str(len(sets))] = {op}
        return
    name = base_name_of(sets, related_op)
    if name is None:
        raise ValueError(f"{related_op} has no set of related calls: add it with None first")
    sets[name].add(op)


def unmatchable() -> dict[str, set[Any]]:
    """Calls that move or convert values, and are no layers."""
    return {
        "funs_unmatchable": {TARGETS.dequantize[1], quantize_per_tensor, operator.getitem},
        "mods_unmatchable": {ObserverBase, FakeQuantizeBase, nn.Identity, nnq.Quantize, nnq.DeQuantize},
        "meths_unmatchable": set(_MOVING.split()),
    }


_MOVING = (
    "chunk clamp contiguous dequantize detach detach_ mean numel permute repeat repeat_interleave reshape resize_ shape"
    " size squeeze squeeze_ to transpose unsqueeze unsqueeze_ view"
)


def io_types() -> dict[str, set[Any]]:
    """Calls by what they take and give: floats, quantized tensors, or whichever they get."""
    found: dict[str, set[Any]] = {
        f"{kind}_io_type_{name}": set()
        for kind in ("funs", "mods", "meths")
        for name in ("fp32", "int8", "fp32_or_int8")
    } | {"funs_io_type_fp16": set()}
    quantized = {call for name, call in TARGETS.functions.items() if "dynamic" not in name}
    both = {call for record in traced(*_PASSING) for call in record.traced_calls} | {torch.relu, F.sigmoid, F.tanh}
    for members in related_sets().values():
        for call in members:
            kind = "mods" if isinstance(call, type) else "meths" if isinstance(call, str) else "funs"
            if call in both:
                found[f"{kind}_io_type_fp32_or_int8"].add(call)
            elif call in quantized or (kind == "mods" and _is_quantized(call)):
                found[f"{kind}_io_type_int8"].add(call)
            else:
                found[f"{kind}_io_type_fp32"].add(call)
    swapped = get_default_float_to_quantized_operator_mappings()
    for kind, pairs in (("mods", mapping("static")), ("funs", swapped)):  # also those that would take both
        found[f"{kind}_io_type_fp32"] |= set(pairs)
        found[f"{kind}_io_type_int8"] |= set(pairs.values())
    return found


_PASSING = (Observed.SHARED, Observed.FIXED, Observed.PASSED, Observed.JOINED)


def _is_quantized(module: type) -> bool:
    path = module.__module__
    within = path.startswith(("zeropoint.nn.quantized.", "zeropoint.nn.intrinsic.quantized."))
    return within and ".dynamic" not in path and ".reference" not in path
