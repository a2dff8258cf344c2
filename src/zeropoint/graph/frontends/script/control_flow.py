"""Simpler control flow: short loops unrolled, lists filled where they are made, exceptions before what they guard."""

from __future__ import annotations

from typing import Any

from zeropoint.graph.frontends.script.script_module import of_kind

_LONGEST = 16
_CHANGING = ("_set_item", "insert", "pop", "extend", "clear", "add_", "reverse", "sort", "Delete", "remove")

# -------------------------------------------------------------------------------------------------- loops and lists


def unroll_loops(graph: Any) -> None:
    """Unroll loops over numbers that are known: ``[f for _ in range(2)]`` is a list with two ``append`` behind it."""
    for node in [node for node in of_kind(graph, "prim::Loop") if _is_known(node)]:
        _unroll(graph, node)


def fill_lists(graph: Any) -> None:
    """Make lists with all their parts: ``[]`` with ``append`` behind it."""
    for node in of_kind(graph, "prim::ListConstruct"):
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


# --------------------------------------------------------------------------------------------------------- exceptions


def hoist_exceptions(graph: Any) -> None:
    """Turn ``if ok: y = f(x) else: raise`` into ``if not ok: raise`` and then ``y = f(x)``."""
    for node in reversed(of_kind(graph, "prim::RaiseException")):
        _drop_behind(graph, node)
    for node in reversed(of_kind(graph, "prim::If")):  # the inner ones first
        if not node.outputsSize():
            continue
        raising = [_only_raises(block) for block in node.blocks()]
        if raising.count(True) == 1:
            _take_out(graph, node, raising)


def _drop_behind(graph: Any, raising: Any) -> None:
    """Drop what stands in a branch behind an exception, as loading a file does."""
    end = raising.owningBlock().returnNode()
    if end == graph.return_node():
        return
    for index, value in enumerate(list(end.inputs())):
        never = graph.create("prim::Uninitialized", 1)
        never.output().setType(value.type())
        never.insertBefore(end)
        end.replaceInput(index, never.output())
    behind = [node for node in raising.owningBlock().nodes() if node.isAfter(raising)]
    for node in reversed(behind):
        if node.kind() != "prim::Uninitialized":
            node.destroy()


def _only_raises(block: Any) -> bool:
    made = {value.node().kind() for value in block.outputs()}
    return made == {"prim::Uninitialized"} and any(node.kind() == "prim::RaiseException" for node in block.nodes())


def _take_out(graph: Any, node: Any, raising: list[bool]) -> None:
    guard = graph.create("prim::If", list(node.inputs()), 0)
    guard.copyMetadata(node)
    guard.insertBefore(node)
    for block, raises in zip(list(node.blocks()), raising):
        end = guard.addBlock().returnNode()
        for inner in list(block.nodes()):
            inner.moveBefore(end if raises else node)
        if not raises:
            for old, new in zip(node.outputs(), block.outputs()):
                old.replaceAllUsesWith(new)
    node.destroy()
