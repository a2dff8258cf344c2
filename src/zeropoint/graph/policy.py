"""What `to_int8` decides beyond the QConfig: what stays float and why, equalization, recurrent weights, tables.

A policy is chosen from what a graph shows, not from the names of its modules:

- a norm (LayerNorm or RMSNorm, whole or in parts) that feeds a linear layer: a few of its channels may be tens
  of times larger than the others. It stays float, and what goes into linear layers is equalized (passes/equalize.py).
- attention, a softmax between two matrix products, next to such norms: a transformer. The sums of its blocks, its
  activations and attention weights stay float, because their large channels leave no room for the others in 8 bits.
- scores that decide which values are taken (the routers of experts, `topk`, `argmax`, the condition of a `torch.cond`):
  they stay float behind the layer that computes them, because rounded ones are often equal, and another choice changes
  all that follows.
- functions whose results span many orders of magnitude, and sums and products of these, everywhere: 8 bits have 256
  steps of one size.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import fx

from zeropoint.described import described
from zeropoint.graph.expressions import ARITHMETIC, expressions_in
from zeropoint.graph.passes.float_readers import mark_float_readers
from zeropoint.graph.passes.qconfig_rules import has_own_rule
from zeropoint.graph.provenance import EXPRESSION, GIVEN_OUT, STAYS_FLOAT
from zeropoint.observers import (
    WidenedHistogramObserver,
    default_per_channel_weight_observer,
    default_placeholder_observer,
)
from zeropoint.operators import BY_ATEN, embedding, modules_of, recurrent
from zeropoint.operators.node import packet_name
from zeropoint.qconfig import (
    QConfig,
    default_dynamic_qconfig,
    float16_dynamic_qconfig,
    float_qparams_weight_only_qconfig,
    float_qparams_weight_only_qconfig_4bit,
    get_default_qconfig,
    per_token_dynamic_qconfig,
    qconfig_equals,
)
from zeropoint.qconfig_mapping import QConfigMapping, get_default_qconfig_mapping

_WIDE = ("rsqrt", "reciprocal", "exp", "log", "pow")
_WIDE_WHY = "its outputs span too many orders of magnitude for 8 bits"
_BETWEEN = (*ARITHMETIC, "softmax", "gelu", "silu", "tanh")
_BETWEEN_WHY = (
    "between the layers of a transformer: a few large channels would leave too little precision for the others"
)
_NORM_WHY = "a norm before linear layers: a few large channels would leave too little precision for the others"
_HANDS_ON = frozenset(
    name.split(".")[0] for name, record in BY_ATEN.items() if record.keeps_scale and record.integers is None
) | {"dropout", "to", "_to_copy", "clone", "type_as"}
_SOFTMAX = frozenset(n.split(".")[0] for n, r in BY_ATEN.items() if r.name in ("softmax", "safe_softmax"))
_SCORES = _HANDS_ON | {"add", "mul", "div", "sub", "where", "masked_fill", "tanh", "clamp", *_SOFTMAX}
_PRODUCTS = ("matmul", "bmm")
_CHOOSES = ("topk", "argmax", "argmin", "argsort", "sort", "max", "min")
_DECIDES_WHY = "it decides which values are taken: rounding could decide otherwise"
_DECIDES = _SCORES | {"sigmoid", "log_softmax", "softplus", "sqrt", "masked_fill", "scatter"}
_CONDITIONS = frozenset(
    ("abs", "all", "any", "eq", "ge", "gt", "le", "logical_and", "logical_not", "logical_or", "lt", "max", "mean",
     "min", "ne", "norm", "linalg_vector_norm", "pow", "square", "sum", "amax", "amin", "var", "std")
)  # fmt: skip
_LAST = _HANDS_ON | {
    *ARITHMETIC, "abs", "cat", "clamp", "clamp_min", "linalg_vector_norm", "log_softmax", "mean", "neg", "sigmoid",
    "softplus", "sqrt", "square", "stack", "sum", "tanh", *_SOFTMAX,
}  # fmt: skip
_RETURNED_WHY = "the model returns what becomes of it"
_MODES = ("static", "dynamic", "weight_only")


@dataclass(frozen=True)
class Policy:
    """The choices that `to_int8` makes for a model. Change one with ``dataclasses.replace``, or pass some by name.

    Attributes:
        float_operators: ATen names of operators that stay in float, each with the reason.
        float_norms: norms that feed linear layers stay in float.
        equalize: scale down large channels before linear layers (static mode).
        whole_ranges: the default observer always keeps the full range (static mode).
        widen_ranges: the default observer widens ranges of tensors with few calibration values (static mode; see
            `WidenedHistogramObserver`).
        recurrent_weights: "int8", "float16" or "auto": 8 bits, but float16 for layers that lose too much in 8 bits.
        granularity: activation ranges in dynamic mode, "per_token" or "per_tensor".
        embedding_bits: 8 or 4 bits for embedding tables, or 0 to keep them in float. None means 8, but float in dynamic
            mode, where the other layers lose less than 8-bit tables.
        products: products of activations in dynamic mode, such as the two of attention: "float", or "int8" with a range
            for each row and column.
        whole_expressions: element-wise operators that make up a function of one tensor, such as ``x * sigmoid(x)``, are
            rounded at the end only. A program has one table for them (static mode).
        float_outputs: linear layers whose results the model returns, as they are or after cheap operators such as a
            softmax or a sum, give float32, which is not rounded (static mode).
        float_readers: sums, products and joined tensors that only float operators read stay in float, and the filters
            of a spectrum give float32, with ranges computed at run time (static mode).
        float_decisions: scores that decide which values are taken stay in float (static mode), such as those of the
            routers of experts.

    Example:
        >>> import dataclasses
        >>> dataclasses.replace(Policy(), recurrent_weights="float16").granularity
        'per_token'
    """

    float_operators: tuple[tuple[str, str], ...] = tuple((name, _WIDE_WHY) for name in _WIDE)
    float_norms: bool = False
    equalize: bool = False
    whole_ranges: bool = False
    widen_ranges: bool = True
    recurrent_weights: str = "auto"
    granularity: str = "per_token"
    embedding_bits: int | None = None
    products: str = "float"
    whole_expressions: bool = True
    float_readers: bool = True
    float_decisions: bool = True
    float_outputs: bool = True

    def __post_init__(self) -> None:
        for name, accepted in (
            ("recurrent_weights", ("auto", "int8", "float16")),
            ("granularity", ("per_token", "per_tensor")),
            ("products", ("float", "int8")),
            ("embedding_bits", (None, 8, 4, 0)),
        ):
            if getattr(self, name) not in accepted:
                listed = ", ".join(map(repr, accepted))
                raise ValueError(f"Policy: {name} must be one of {listed}, got {described(getattr(self, name))}")

    def __str__(self) -> str:
        kept = ", ".join(name for name, _ in self.float_operators)
        rest = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.name != "float_operators")
        return f"policy: float {kept or 'nothing'}; {rest}"

    def mapping(self, qconfig: QConfig | QConfigMapping | None, mode: str) -> QConfigMapping:
        """The rules for a model: those of `qconfig`, or the defaults of the mode."""
        if mode not in _MODES:
            raise ValueError(f"to_int8: mode must be one of {', '.join(_MODES)}, got {described(mode)}")
        if isinstance(qconfig, QConfigMapping):
            mapping = QConfigMapping.from_dict(qconfig.to_dict())
        elif qconfig is not None:
            mapping = QConfigMapping().set_global(qconfig)
        elif mode == "static":
            mapping = get_default_qconfig_mapping("native")
        else:
            mapping = QConfigMapping().set_global(self._default(mode))
        if mapping.global_qconfig is None:  # only what is named is quantized
            return mapping
        for kind, given in self._by_type(mapping.global_qconfig, mode).items():
            if kind not in mapping.object_type_qconfigs:
                mapping.set_object_type(kind, given)
        if mode == "static" and (self.widen_ranges or self.whole_ranges):
            self._set_ranges(mapping)
        return mapping

    def _by_type(self, qconfig: Any, mode: str) -> dict[Any, QConfig | None]:
        """The qconfigs of layers whose weights have a form of their own."""
        stay_float = self.embedding_bits == 0 or (self.embedding_bits is None and mode == "dynamic")
        four = self.embedding_bits == 4 or str(qconfig.weight().dtype).endswith("quint4x2")
        tables = float_qparams_weight_only_qconfig_4bit if four else float_qparams_weight_only_qconfig
        kinds = (kind for record in embedding.RECORDS for kind in record.object_types)
        found: dict[Any, QConfig | None] = dict.fromkeys(kinds, None if stay_float else tables)
        if self.recurrent_weights == "float16":
            sequences = modules_of(record for record in recurrent.RECORDS if record.weights == ("params",))
            found.update(dict.fromkeys(sequences, float16_dynamic_qconfig))
        if self.products == "int8" and mode == "dynamic":
            found.update(dict.fromkeys((torch.matmul, torch.bmm), qconfig))
        return found

    def _default(self, mode: str) -> QConfig:
        if mode == "weight_only":
            return QConfig(activation=default_placeholder_observer, weight=default_per_channel_weight_observer)
        if self.granularity == "per_tensor":
            return QConfig(activation=default_dynamic_qconfig.activation, weight=per_token_dynamic_qconfig.weight)
        return per_token_dynamic_qconfig

    def _set_ranges(self, mapping: QConfigMapping) -> None:
        """Put the observer with whole or widened ranges in the place of the default one."""
        default = get_default_qconfig("native")
        options: dict[str, Any] = {} if self.widen_ranges else {"many": 0}
        watched = WidenedHistogramObserver.with_args(reduce_range=False, whole=self.whole_ranges, **options)

        def widened(given: Any) -> Any:
            is_default = given is not None and qconfig_equals(QConfig(given.activation, default.weight), default)
            return QConfig(watched, given.weight) if is_default else given

        mapping.set_global(widened(mapping.global_qconfig))
        every: tuple[dict[Any, Any], ...] = (
            mapping.object_type_qconfigs,
            mapping.module_name_regex_qconfigs,
            mapping.module_name_qconfigs,
            mapping.module_name_object_type_order_qconfigs,
        )
        for rules in every:
            rules.update({key: widened(given) for key, given in rules.items()})

    def mark(self, graph: fx.GraphModule, mapping: QConfigMapping) -> None:
        """Write at each node that stays float why it does, but for those that the mapping has a rule of its own for."""
        kept = dict(self.float_operators)
        marked = dict.fromkeys(_norms(graph), _NORM_WHY) if self.float_norms else {}
        wide = [node for node in graph.graph.nodes if kept.get(packet_name(node)) == _WIDE_WHY]
        marked.update(_readers_of_wide(graph, wide))
        expressions = expressions_in(graph) if self.whole_expressions else set()
        if self.float_decisions:
            marked.update(dict.fromkeys(_deciding(graph), _DECIDES_WHY))
        if self.float_outputs:
            marked.update(dict.fromkeys(_given_out(graph), _RETURNED_WHY))
        for node in graph.graph.nodes:
            why = marked.get(node) or kept.get(packet_name(node).removeprefix("_safe").removeprefix("_"))
            if has_own_rule(mapping, node):
                continue
            if why is not None:
                node.meta[STAYS_FLOAT] = why
            elif node in expressions:
                node.meta[EXPRESSION] = True
        if self.float_readers:
            mark_float_readers(graph, mapping)


@dataclass(frozen=True)
class Evidence:
    """What a graph shows."""

    norm_to_linear: bool = False
    attention: bool = False


def choose_policy(graph: fx.GraphModule) -> Policy:
    """The policy for what a graph shows."""
    found = evidence_in(graph)
    wide = tuple((name, _WIDE_WHY) for name in _WIDE)
    between = tuple((name, _BETWEEN_WHY) for name in _BETWEEN) if found.attention and found.norm_to_linear else ()
    large = found.norm_to_linear
    return Policy(wide + between, float_norms=large, equalize=large, whole_ranges=large)


def evidence_in(graph: fx.GraphModule) -> Evidence:
    """Norms that feed linear layers, and attention: a softmax between two matrix products."""
    feeds = any(_reaches(norm, ("linear",), _HANDS_ON) for norm in _norms(graph))
    attention = any(
        packet_name(node) in _SOFTMAX and _reaches(node, _PRODUCTS, _HANDS_ON) and _comes_from(node, _PRODUCTS, _SCORES)
        for node in graph.graph.nodes
    ) or any(packet_name(node) == "scaled_dot_product_attention" for node in graph.graph.nodes)
    return Evidence(feeds, attention)


def _reaches(node: fx.Node, wanted: tuple[str, ...], through: Any) -> bool:
    """Whether a value goes into one of the `wanted` operators, by way of others that hand it on."""
    return any(
        packet_name(user) in wanted or (packet_name(user) in through and _reaches(user, wanted, through))
        for user in node.users
    )


def _comes_from(node: fx.Node, wanted: tuple[str, ...], through: Any) -> bool:
    return any(
        packet_name(before) in wanted or (packet_name(before) in through and _comes_from(before, wanted, through))
        for before in node.all_input_nodes
    )


def _norms(graph: fx.GraphModule) -> Iterator[fx.Node]:
    """Norms over the last axes, those that a model spells in parts too (passes/fuse_norms.py)."""
    return (node for node in graph.graph.nodes if packet_name(node) in ("layer_norm", "rms_norm"))


def _deciding(graph: fx.GraphModule) -> set[fx.Node]:
    """What chooses among values by their size, if somebody reads which, and what is done to these values before."""
    found: set[fx.Node] = set()
    waiting = [node for node in graph.graph.nodes if packet_name(node) in _CHOOSES and _gives_places(node)]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += [n for n in node.all_input_nodes if packet_name(n) in _DECIDES or n.target is operator.getitem]
    waiting = [node.args[0] for node in graph.graph.nodes if _is_condition(node)]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += [n for n in node.all_input_nodes if packet_name(n) in _DECIDES | _CONDITIONS]
    return found


def _is_condition(node: fx.Node) -> bool:
    """Whether it takes one of two tensors as a whole: what `torch.cond` becomes."""
    condition = (
        node.args[0].meta.get("val") if packet_name(node) == "where" and isinstance(node.args[0], fx.Node) else None
    )
    return isinstance(condition, torch.Tensor) and condition.dim() == 0


def _given_out(graph: fx.GraphModule) -> set[fx.Node]:
    """What is done to the results of last layers before the model returns them; these layers are marked.

    Operators that read images, too, are left out: those are many values, and quicker as integers.
    """
    last: set[fx.Node] = set()  # cheap operators on the results of layers, and on others that are small
    for node in graph.graph.nodes:
        is_cheap = packet_name(node) in _LAST or node.target is operator.getitem
        if is_cheap and all(n in last or packet_name(n) == "linear" or _is_small(n) for n in node.all_input_nodes):
            last.add(node)
    returned: set[fx.Node] = set()
    for node in reversed(graph.graph.nodes):
        if node.users and all(
            user.op == "output" or packet_name(user) == "sym_size" or (user in returned and user in last)
            for user in node.users
        ):
            returned.add(node)
    found: set[fx.Node] = set()
    waiting = [node for node in returned if packet_name(node) == "linear"]
    for layer in waiting:
        layer.meta[GIVEN_OUT] = True
    while waiting:
        new = {user for user in waiting.pop().users if user in returned} - found
        found |= new
        waiting += new
    return {node for node in found if packet_name(node) not in _HANDS_ON}


def _is_small(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return node.op == "get_attr" or not isinstance(value, torch.Tensor) or value.dim() <= 2


def _gives_places(node: fx.Node) -> bool:
    """Whether somebody reads which values were chosen, not the values alone."""
    if packet_name(node).startswith("arg"):
        return bool(node.users)
    return any(user.target is operator.getitem and user.args[1] == 1 and user.users for user in node.users)


def _readers_of_wide(graph: fx.GraphModule, wide: Iterable[fx.Node]) -> Iterator[tuple[fx.Node, str]]:
    """Sums and products that read what a function with wide results gives, each with the reason to stay float."""
    for node in wide:
        why = f"it reads {packet_name(node)}, whose outputs span too many orders of magnitude for 8 bits"
        reached = [node]
        while reached:
            for user in reached.pop().users:
                if packet_name(user) in ARITHMETIC:
                    yield user, why
                is_number = sum(part.op != "get_attr" for part in user.all_input_nodes) == 1
                if packet_name(user) in _HANDS_ON or (packet_name(user) in ARITHMETIC and is_number):
                    reached.append(user)
