"""Lists written out: ``[f for _ in range(2)]`` and ``[]`` with ``append`` behind it, as ``[f, f]``."""

from __future__ import annotations

from typing import Any

__all__ = ["write_out_lists"]

_LONGEST = 16
_CHANGING = ("_set_item", "insert", "pop", "extend", "clear", "add_", "reverse", "sort", "Delete", "remove")


def write_out_lists(graph: Any, nodes: list[Any]) -> None:
    """Unroll loops over numbers that are known, and make lists with all their parts; `nodes` are those of the graph."""
    loops = [node for node in nodes if node.kind() == "prim::Loop" and _is_known(node)]
    lists = [node for node in nodes if node.kind() == "prim::ListConstruct"]
    for node in loops:
        _unroll(graph, node)
    for node in lists:
        _fill(graph, node)


def _is_known(loop: Any) -> bool:
    """Whether a loop runs a few times, does nothing with tensors, and hands nothing on."""
    (block,) = loop.blocks()
    goes_on = [loop.inputsAt(1), next(iter(block.outputs()))]
    values = [v for node in block.nodes() for v in (*node.inputs(), *node.outputs())]
    return (
        loop.inputsSize() == 2
        and _constant(loop.inputsAt(0)) in range(_LONGEST + 1)
        and all(_constant(value) is True for value in goes_on)
        and not any(list(node.blocks()) for node in block.nodes())
        and not any("Tensor" in value.type().str() for value in values)
    )


def _constant(value: Any) -> Any:
    return value.toIValue() if value.node().kind() == "prim::Constant" else None


def _unroll(graph: Any, loop: Any) -> None:
    (block,) = loop.blocks()
    for number in range(loop.inputsAt(0).toIValue()):
        with graph.insert_point_guard(loop):
            made = {next(iter(block.inputs())): graph.insertConstant(number)}
        for node in block.nodes():
            clone = graph.createClone(node, lambda value, made=made: made.get(value, value))
            clone.insertBefore(loop)
            made.update(zip(node.outputs(), clone.outputs()))
    loop.destroy()


def _fill(graph: Any, empty: Any) -> None:
    """Put what is appended to a list into it, if that happens before anybody reads it."""
    users = [use.user for use in empty.output().uses()]
    appends = [node for node in users if node.kind() == "aten::append" and node.inputsAt(0) == empty.output()]
    readers = [node for node in users if node not in appends]
    if not appends or any(node.kind().removeprefix("aten::") in _CHANGING for node in readers):
        return
    if any(node.owningBlock() != empty.owningBlock() or node.output().uses() for node in appends):
        return
    last = appends[0]
    for node in appends:
        last = node if node.isAfter(last) else last
    if not all(node.isAfter(last) for node in readers):
        return
    ordered = [node for node in empty.owningBlock().nodes() if node in appends]
    made = graph.create("prim::ListConstruct", [*empty.inputs(), *(node.inputsAt(1) for node in ordered)], 1)
    made.output().setType(empty.output().type())
    made.insertAfter(last)
    for node in ordered:
        node.destroy()
    empty.output().replaceAllUsesWith(made.output())
    empty.destroy()
