"""In-place operators as ordinary ones, and attention in its parts, so that every value has one node."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.graph import torch_internals as internals
from zeropoint.graph.passes.decompose import DECOMPOSED, PRODUCTS
from zeropoint.graph.passes.decompose_complex import decompose_complex
from zeropoint.graph.passes.decompose_experts import EXPERTS
from zeropoint.graph.passes.decompose_matrices import LINEAR_ALGEBRA
from zeropoint.graph.passes.decompose_order import ORDER
from zeropoint.graph.passes.decompose_places import PLACES
from zeropoint.graph.passes.decompose_scan import SCANS
from zeropoint.graph.passes.decompose_scatter import SCATTER
from zeropoint.graph.passes.decompose_signs import SIGNS
from zeropoint.graph.passes.decompose_unknown import decompose_unknown
from zeropoint.graph.passes.input_checks import update_sizes
from zeropoint.graph.passes.insert_traced import take_apart
from zeropoint.graph.passes.nodes import call as _call, has_value
from zeropoint.graph.provenance import STAYS_FLOAT
from zeropoint.graph.state_buffers import keep_state, read_states
from zeropoint.operators import BY_ATEN, composed_of
from zeropoint.operators.node import arguments, aten_name, operator_key

aten = torch.ops.aten


def make_plain(graph: fx.GraphModule) -> fx.GraphModule:
    """`graph`, changed in place: no operator writes in place, and what has several spellings has one."""
    for node in list(graph.graph.nodes):
        if aten_name(node) == "_assert_tensor_metadata.default":  # what a conversion was captured with
            graph.graph.erase_node(node)
    decompose_complex(rewrite(write_nothing(graph), _joins_complex))
    rewrite(graph)
    before = set(graph.graph.nodes)
    if decompose_unknown(graph, REWRITTEN, write_nothing):
        update_sizes(graph)
        for node in rewrite(graph).graph.nodes:
            record = BY_ATEN.get(operator_key(node) or "")
            if node not in before and not (record is not None and record.heavy):
                node.meta[STAYS_FLOAT] = "a part of an operator that has no form on integers"
    return graph


def write_nothing(graph: fx.GraphModule) -> fx.GraphModule:
    """`graph`, changed in place: ``relu_(x)`` becomes ``relu(x)``, which later readers of `x` then read.

    What is written to a part of a tensor (``x[1:] = y``) becomes a part of a new one, which its later readers read.
    What is written to a buffer of the model is its state (`graph/state_buffers.py`).

    Raises:
        NotImplementedError: for a write that is seen through another view: the graph would compute another thing.
    """
    for node in list(graph.graph.nodes):
        if _written(node) and not _writes(node):
            _copy_to_out(graph.graph, node)
    writing = [node for node in graph.graph.nodes if _writes(node)]
    roots = {_views_to(node.args[0])[1] for node in writing}
    stand_ins = read_states(graph, {root for root in roots if root.op == "get_attr"})
    for read in stand_ins:
        _drop_other_names(graph, read)
    for node in writing:
        name = aten_name(node) or ""
        packet, overload = name.split(".")
        plain = getattr(getattr(aten, packet.rstrip("_"), None), overload, None)
        if plain is None:
            raise NotImplementedError(f"{name} writes in place and has no out-of-place version, so it is not supported")
        _write(graph, node, plain)
    keep_state(graph, stand_ins)
    graph.recompile()
    return graph


def keep_inputs(graph: fx.GraphModule) -> None:
    """Refuse a graph that writes to its inputs: its caller would see that, and quantized graphs write nothing."""
    for node in graph.graph.nodes:
        for root in (_views_to(written)[1] for written in _written(node)):
            if root.op != "placeholder" or aten_name(node) == "detach_.default":
                continue
            raise NotImplementedError(
                f"{aten_name(node)} writes to the input {root.target!r} of the model. Quantized graphs and programs "
                f"leave their inputs as they are: pass the model a copy, as in `model({root.target}.clone())`"
            )


def _copy_to_out(graph: fx.Graph, node: fx.Node) -> None:
    """``add(x, y, out=z)`` as ``z.copy_(add(x, y))``."""
    kept, kwargs = ({k: v for k, v in given.items() if k != "out"} for given in (arguments(node), node.kwargs))
    packet = getattr(aten, (aten_name(node) or "").split(".")[0])
    for plain in (getattr(packet, overload) for overload in packet.overloads()):
        if [argument.name for argument in plain._schema.arguments] == list(kept) and not plain._schema.is_mutable:
            with graph.inserting_before(node):
                made = graph.call_function(plain, node.args, kwargs)
                made.meta.update(node.meta)
                copied = _call(graph, node, aten.copy_.default, node.kwargs["out"], made)
            node.replace_all_uses_with(copied)
            return graph.erase_node(node)
    raise NotImplementedError(f"{aten_name(node)} writes to its arguments: use the operator that returns a new tensor")


def _drop_other_names(graph: fx.GraphModule, state: fx.Node) -> None:
    """Let readers of a state read it itself, not through calls that give all of it as it is."""
    for view in list(_views_of(state)):
        if (aten_name(view) or "").split(".")[0] in ("to", "detach", "alias") and view.users:
            view.replace_all_uses_with(view.args[0])
            graph.graph.erase_node(view)


def _written(node: fx.Node) -> list[fx.Node]:
    """The arguments that an operator of PyTorch writes to, by its schema."""
    if aten_name(node) is None or not node.target._schema.is_mutable:
        return []
    schema, given = node.target._schema, arguments(node)
    names = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return [given[name] for name in names if isinstance(given[name], fx.Node)]


def _writes(node: fx.Node) -> bool:
    """Whether a node writes in place."""
    name = aten_name(node)
    return name is not None and name.split(".")[0].endswith("_") and not name.startswith("_")


# What puts values in the place of a part of a tensor, by the view that gives the part.
_PARTS = {"slice.Tensor": aten.slice_scatter.default, "select.int": aten.select_scatter.default}
# Views that give all of a tensor, with another shape, or with its axes in another order.
SHAPES = frozenset(
    ("view.default", "view_as.default", "unflatten.int", "unsqueeze.default", "squeeze.default", "squeeze.dim",
     "squeeze.dims", "alias.default", "detach.default")
)  # fmt: skip
COPIES = frozenset(("reshape.default", "flatten.using_ints", "reshape_as.default"))  # of what is not contiguous
_PUT_BACK = "put_back"  # key of what is known about a node: it gives a tensor that was written through a view
_WRITTEN = "written_in_parts"  # key of what is known about a node: other nodes with memory of its result
_ORDERS = frozenset(("permute.default", "transpose.int", "t.default", "movedim.int"))


def _can_put_back(view: fx.Node) -> bool:
    """Whether it is known what becomes of a tensor that is written through a view."""
    name, before = aten_name(view), view.args[0].meta.get("val")
    if name in COPIES and not view.meta.get(_PUT_BACK):
        return isinstance(before, torch.Tensor) and before.is_contiguous()
    return name in {*_PARTS, *SHAPES, *COPIES, *_ORDERS}


def _put_back(graph: fx.Graph, node: fx.Node, view: fx.Node, part: fx.Node) -> fx.Node:
    """The tensor that `view` shows, after `part` was written through it."""
    name, (whole, *given) = aten_name(view) or "", view.args
    if name in _PARTS:
        return _call(graph, node, _PARTS[name], whole, part, *given)
    if name in SHAPES | COPIES:
        return _call(graph, node, aten.reshape_as.default, part, whole)
    if name == "permute.default":
        order = [axis % len(given[0]) for axis in given[0]]
        return _call(graph, node, aten.permute.default, part, [order.index(axis) for axis in range(len(order))])
    return _call(graph, node, view.target, part, *reversed(given))  # axes that change places do so once more


def _write(graph: fx.GraphModule, node: fx.Node, plain: Any) -> None:
    """Let a node that writes in place give what it writes, to who reads that memory later."""
    name, written = aten_name(node), node.args[0]
    views, root = _views_to(written)
    later = _after(graph, node)
    others = (view for view in _views_of(root, written) if view not in views)
    made_before = [view for view in (*others, *_parts_written(root)) if view not in later]
    if any(later & set(view.users) for view in made_before):
        raise NotImplementedError(
            f"{name} writes to a tensor that is read later through another view of it: use the out-of-place operator"
        )
    replaced = {written: node}
    if any(later & set(read.users) for read in (*views[1:], root) if read is not written):
        strange = [view for view in views if not _can_put_back(view)]
        if strange:
            raise NotImplementedError(
                f"{name} writes through a view ({aten_name((strange or views)[0])}) of a tensor that is used "
                "again: use the out-of-place operator"
            )
        part = node
        for view in views:
            with graph.graph.inserting_after(part):
                whole = _put_back(graph.graph, node, view, part)
            if aten_name(view) in _PARTS:
                whole.meta[_WRITTEN] = (part, *view.args[0].meta.get(_WRITTEN, ()))
                part.meta[_WRITTEN] = (whole, *part.meta.get(_WRITTEN, ()))
            whole.meta[_PUT_BACK] = True
            replaced[view.args[0]] = part = whole
    node.target = plain
    for user in later:
        for old, new in replaced.items():
            user.replace_input_with(old, new)


def _parts_written(node: fx.Node) -> list[fx.Node]:
    """What has memory of a node's result since that was written in parts: the parts, or what they are parts of."""
    found: list[fx.Node] = []
    waiting = [node]
    while waiting:
        known = waiting.pop()
        for other in (*known.meta.get(_WRITTEN, ()), *(_views_of(known) if known is not node else ())):
            if other is not node and other not in found:
                found.append(other)
                waiting.append(other)
    return found


def _after(graph: fx.GraphModule, node: fx.Node) -> set[fx.Node]:
    nodes = list(graph.graph.nodes)
    return set(nodes[nodes.index(node) + 1 :])


def _views_to(node: fx.Node) -> tuple[list[fx.Node], fx.Node]:
    """The views from a node back to the tensor whose memory it gives, and that."""
    views = []
    while _is_view(node) or (node.target is operator.getitem and _is_view(node.args[0])):
        if node.target is not operator.getitem:
            views.append(node)
        node = node.args[0]
    return views, node


def _views_of(node: fx.Node, but: fx.Node | None = None) -> Iterator[fx.Node]:
    """Nodes that give memory of a node's result, directly or through others; without `but`, and without what was split
    off together with it, which is other memory."""
    for user in node.users:
        if user.args[:1] != (node,) or not (_is_view(user) or (user.target is operator.getitem and _is_view(node))):
            continue
        is_beside = but is not None and but.target is operator.getitem and user is not but and but.args[0] is node
        if is_beside:
            continue
        if user is not but:
            yield user
        yield from _views_of(user, but)


def _is_view(node: fx.Node) -> bool:
    """Whether a node gives memory of its first argument, by ATen's schema of its operator."""
    name = aten_name(node)
    if name is None:
        return False
    if name.startswith("unsafe_"):  # whose schema promises that nothing writes
        return True
    alias = node.target._schema.arguments[0].alias_info if node.target._schema.arguments else None
    if alias is None or alias.is_write:
        return False
    return name.split(".")[0] not in ("contiguous", "to") or not _is_changed(node)


def _is_changed(node: fx.Node) -> bool:
    """Whether what gives its input, if that is right already, has to make another tensor."""
    before, after = (n.meta.get("val") for n in (node.args[0], node))
    known = isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor)
    return known and (before.dtype, before.device, before.stride()) != (after.dtype, after.device, after.stride())


def _joins_complex(node: fx.Node) -> bool:
    """Whether it is a sum of products of complex numbers, which pairs can do in the parts that it is made of."""
    values = [part.meta.get("val") for part in node.all_input_nodes]
    is_sum = (aten_name(node) or "").split(".")[0] in _SUMS_OF_PRODUCTS
    return is_sum and any(isinstance(value, Tensor) and value.is_complex() for value in values)


_SUMS_OF_PRODUCTS = ("einsum", "tensordot", "outer", "mv", "dot")


def rewrite(graph: fx.GraphModule, wanted: Callable[[fx.Node], bool] = lambda node: True) -> fx.GraphModule:
    """`graph`, changed in place: what has another spelling that more is known about, in that; only `wanted` nodes."""
    for node in list(graph.graph.nodes):
        record = BY_ATEN.get(operator_key(node) or "")
        if record is not None and record.parts is not None and has_value(node):
            take_apart(graph, node, record.parts, lambda call, inputs: internals.trace(call, inputs, whole=True))
    for node in list(graph.graph.nodes):
        if wanted(node):
            _take_floats(graph.graph, node)
        waiting = [node]
        while waiting:
            current = waiting.pop()
            name = operator_key(current) or ""
            if _composed(graph.graph, current, name) or name not in REWRITTEN or not wanted(current):
                continue
            before = current.prev
            with graph.graph.inserting_before(current):
                made = REWRITTEN[name](graph.graph, current, arguments(current))
            if made is not None:
                made.meta.setdefault("val", current.meta.get("val"))
                new = before.next
                while new is not current:  # all parts may have other spellings, too
                    waiting.append(new)
                    new = new.next
                current.replace_all_uses_with(made)
                graph.graph.erase_node(current)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


def _take_floats(graph: fx.Graph, node: fx.Node) -> None:
    """Let a function of integers alone that gives floats take them as floats, as PyTorch computes it."""
    is_function = torch.Tag.pointwise in getattr(node.target, "tags", ()) or aten_name(node) == "logsumexp.default"
    if not is_function or (aten_name(node) or "").startswith("where") or not has_value(node):
        return
    values = [x.meta.get("val") for x in node.all_input_nodes]
    given = [value for value in values if isinstance(value, Tensor)]
    result = node.meta["val"]
    if not isinstance(result, Tensor) or result.dtype != torch.float32 or not given:
        return
    if len(given) < len(values) or any(value.is_floating_point() or value.is_complex() for value in given):
        return
    with graph.inserting_before(node):
        for x in node.all_input_nodes:
            node.replace_input_with(x, _call(graph, node, aten.to.dtype, x, torch.float32))
    node.meta[STAYS_FLOAT] = "it takes integers"


def _composed(graph: fx.Graph, node: fx.Node, name: str) -> bool:
    """Put one call in the place of the function that PyTorch made of several, of which `node` is the last."""
    for record in composed_of(name):
        assert record.composed is not None
        found = record.composed[1](node)
        if found is not None:
            with graph.inserting_before(node):
                made = _call(graph, node, getattr(torch.ops.zeropoint, f"float_{record.name}").default, found)
            made.meta.setdefault("val", node.meta.get("val"))
            node.replace_all_uses_with(made)
            graph.erase_node(node)
            return True
    return False


def _negated(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``x - alpha * number`` as a sum."""
    if isinstance(a["other"], fx.Node) or isinstance(a["alpha"], fx.Node):
        return None
    return _call(graph, node, aten.add.Tensor, a["self"], -a["other"] * a["alpha"])


def _weighted(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``x + alpha * number`` without `alpha`."""
    if isinstance(a["other"], fx.Node) or isinstance(a["alpha"], fx.Node) or a["alpha"] == 1:
        return None
    return _call(graph, node, aten.add.Tensor, a["self"], a["other"] * a["alpha"])


def _turned(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node:
    """``rsub(x, y)`` as ``y - x``."""
    made = graph.call_function(aten.sub.Tensor, (a["other"], a["self"]), {"alpha": a["alpha"]})
    made.meta.update(node.meta)
    return made


def _inverted(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``x / number`` as a product."""
    if isinstance(a["other"], fx.Node) or not a["other"]:
        return None
    return _call(graph, node, aten.mul.Tensor, a["self"], 1.0 / a["other"])


def _attention(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``softmax(q k' * scale + mask) v`` in its parts; where there is a mask, a row without any key gives zeros."""
    query = a["query"].meta.get("val")
    if a["dropout_p"] or not isinstance(query, torch.Tensor):
        return None
    mask = a["attn_mask"]
    if a.get("enable_gqa"):  # several heads of the query share one of the keys and values
        shared = int(query.shape[-3]) // int(a["key"].meta["val"].shape[-3])
        a |= {k: _call(graph, node, aten.repeat_interleave.self_int, a[k], shared, -3) for k in ("key", "value")}
    if mask is None and a["is_causal"]:
        sizes = [_call(graph, node, aten.sym_size.int, a[k], -2) for k in ("query", "key")]
        every = graph.call_function(aten.ones.default, (sizes,), {"dtype": torch.bool, "pin_memory": False})
        every.meta["val"] = torch.ones(1, 1, dtype=torch.bool)
        mask = _call(graph, node, aten.tril.default, every)
    scale = a["scale"] if a["scale"] is not None else 1.0 / math.sqrt(int(query.shape[-1]))
    keys = _call(graph, node, aten.transpose.int, a["key"], -2, -1)
    scores = _call(graph, node, aten.mul.Tensor, _call(graph, node, aten.matmul.default, a["query"], keys), scale)
    if mask is None:
        weights = _call(graph, node, aten.softmax.int, scores, -1)
    else:
        allows = mask.meta["val"].dtype == torch.bool
        if allows:
            masked = _call(graph, node, aten.where.ScalarOther, mask, scores, -math.inf)
        else:
            masked = _call(graph, node, aten.add.Tensor, scores, mask)
        masked.meta.setdefault("val", scores.meta.get("val"))
        weights = _call(graph, node, aten._safe_softmax.default, masked, -1)
    return _call(graph, node, aten.matmul.default, weights, a["value"])


def _padded(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """A convolution with ``padding="same"`` or ``"valid"`` with numbers; what one side gets more is padded before."""
    dims = int((aten_name(node) or "")[4])
    weight: Any = graph.owning_module
    if a["weight"].op != "get_attr":
        return None
    for part in str(a["weight"].target).split("."):
        weight = getattr(weight, part)
    dilation = list(a["dilation"]) * (dims if len(a["dilation"]) == 1 else 1)
    total = [d * (k - 1) if a["padding"] == "same" else 0 for d, k in zip(dilation, weight.shape[2:])]
    x, padding = a["input"], [n // 2 for n in total]
    if any(n % 2 for n in total):
        sides = [side for n in reversed(total) for side in (n // 2, n - n // 2)]
        x, padding = _call(graph, node, aten.constant_pad_nd.default, x, sides), [0] * dims
    options = (x, a["weight"], a["bias"], a["stride"], padding, a["dilation"], a["groups"])
    return _call(graph, node, getattr(aten, f"conv{dims}d").default, *options)


def _stacked(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``stack`` as ``cat`` of tensors with one more axis."""
    if isinstance(a["tensors"], fx.Node):
        return None
    parts = [_call(graph, node, aten.unsqueeze.default, t, a["dim"]) for t in a["tensors"]]
    return _call(graph, node, aten.cat.default, parts, a["dim"])


def _in_columns(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``column_stack`` as ``cat`` of tensors with two axes or more."""
    if isinstance(a["tensors"], fx.Node) or not all(map(has_value, a["tensors"])):
        return None
    ranks = [t.meta["val"].dim() for t in a["tensors"]]
    flat = [t if rank else _call(graph, node, aten.reshape.default, t, [1]) for t, rank in zip(a["tensors"], ranks)]
    parts = [t if rank > 1 else _call(graph, node, aten.unsqueeze.default, t, 1) for t, rank in zip(flat, ranks)]
    return _call(graph, node, aten.cat.default, parts, 1)


def _mean_of_all(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``mean()`` as a mean over every axis."""
    return None if a["dtype"] is not None else _call(graph, node, aten.mean.dim, a["self"], [])


def _reshaped(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node:
    """A view as a reshape: the results of layers may lie in memory in another order than those of float layers."""
    return _call(graph, node, aten.reshape.default, a["self"], a["size"])


def _reshaped_as(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node:
    return _call(graph, node, aten.reshape_as.default, a["self"], a["other"])


def _negative(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``-x`` as a product."""
    value = a["self"].meta.get("val")
    if value is None or not value.is_floating_point():
        return None
    return _call(graph, node, aten.mul.Tensor, a["self"], -1.0)


def _taken_from(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``number - x`` as a product and a sum."""
    negative = None if isinstance(a["other"], fx.Node) or a["alpha"] != 1 else _negative(graph, node, a)
    return None if negative is None else _call(graph, node, aten.add.Tensor, negative, a["other"])


def _convolved(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """A convolution as traces spell it."""
    dims = len(a["stride"])
    if not 1 <= dims <= 3:
        return None
    first = (a["input"], a["weight"], a["bias"], a["stride"], a["padding"])
    if a.get("transposed"):
        packet = getattr(aten, f"conv_transpose{dims}d")
        op = packet.default if dims == 1 else packet.input
        return _call(graph, node, op, *first, a["output_padding"], a["groups"], a["dilation"])
    packet = getattr(aten, f"conv{dims}d")
    op = packet.padding if isinstance(a["padding"], str) else packet.default
    return _call(graph, node, op, *first, a["dilation"], a["groups"])


def _with_kept_statistics(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """An instance norm with the mean and variance of training is a batch norm."""
    if a["use_input_stats"] or a["running_mean"] is None or a["running_var"] is None:
        return None
    given = (a["input"], a["weight"], a["bias"], a["running_mean"], a["running_var"])
    return _call(graph, node, aten.batch_norm.default, *given, False, a["momentum"], a["eps"], False)


def _gated(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node:
    """``glu(x)`` as ``first half * sigmoid(second half)``."""
    halves = _call(graph, node, aten.chunk.default, a["self"], 2, a["dim"])
    first, second = (_call(graph, node, operator.getitem, halves, i) for i in range(2))
    return _call(graph, node, aten.mul.Tensor, first, _call(graph, node, aten.sigmoid.default, second))


def _selu(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node:
    """A SELU is an ELU with two fixed numbers."""
    return _call(graph, node, aten.elu.default, a["self"], 1.6732632423543772, 1.0507009873554805)


def _mean_slope(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """In evaluation an RReLU is a leaky ReLU."""
    slope = (a["lower"] + a["upper"]) / 2
    return None if a["training"] else _call(graph, node, aten.leaky_relu.default, a["self"], slope)


def _random_dropout(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """Dropout that is on in evaluation, under a name of its own: what is known of `dropout` is that it does nothing."""
    if a["train"] is not True or not has_value(node):  # TorchScript of a model in training says True, too
        return None
    if a["p"] == 0:
        return _call(graph, node, aten.dropout.default, a["input"], 0.0, False)
    both = graph.call_function(aten.native_dropout.default, (a["input"], a["p"], True))
    return graph.call_function(operator.getitem, (both, 0))


def _clamped(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node:
    """``clip`` is another name of ``clamp``."""
    return _call(graph, node, aten.clamp.default, a["self"], a["min"], a["max"])


def _same_type(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """A conversion to the dtype and device that a tensor has already."""
    old, new = a["self"].meta.get("val"), node.meta.get("val")
    if not (isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor)):  # TorchScript says neither
        return None
    if (old.dtype, old.device) != (new.dtype, new.device):
        return None
    return _call(graph, node, aten.alias.default, a["self"])


# What becomes several operators, each of which may be quantized by itself.
_TAKEN_APART: dict[str, Any] = {
    **DECOMPOSED,
    "glu.default": _gated,
    "scaled_dot_product_attention.default": _attention,
    "stack.default": _stacked,
    "column_stack.default": _in_columns,
}
IN_PARTS = frozenset(name.split(".")[0] for name in _TAKEN_APART)

REWRITTEN: dict[str, Any] = {
    **_TAKEN_APART,
    **EXPERTS,
    **ORDER,
    **PLACES,
    **PRODUCTS,
    **SCANS,
    **SCATTER,
    **SIGNS,
    **LINEAR_ALGEBRA,
    "convolution.default": _convolved,
    "_convolution.default": _convolved,
    "_convolution.deprecated": _convolved,
    "_convolution_mode.default": _convolved,
    "add.Tensor": _weighted,
    "add.Scalar": _weighted,
    "rsub.Tensor": _turned,
    "clip.default": _clamped,
    "dropout.default": _random_dropout,
    "instance_norm.default": _with_kept_statistics,
    "selu.default": _selu,
    "rrelu.default": _mean_slope,
    **dict.fromkeys(("to.dtype", "to.dtype_layout", "_to_copy.default", "type_as.default"), _same_type),
    "view.default": _reshaped,
    "_unsafe_view.default": _reshaped,
    "view_as.default": _reshaped_as,
    "neg.default": _negative,
    "rsub.Scalar": _taken_from,
    **{f"conv{d}d.padding": _padded for d in (1, 2, 3)},
    "mean.default": _mean_of_all,
    "sub.Tensor": _negated,
    "sub.Scalar": _negated,
    "div.Tensor": _inverted,
    "div.Scalar": _inverted,
}
