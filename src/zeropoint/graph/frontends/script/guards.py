"""Exceptions before what they guard: ``if ok: y = f(x) else: raise`` as ``if not ok: raise`` and then ``y = f(x)``."""

from __future__ import annotations

from typing import Any

from zeropoint.graph.frontends.script.inline import walk

__all__ = ["raise_first"]


def raise_first(graph: Any) -> None:
    """Take what stands in a branch out of it, if the other branch only raises: then it has one way to be reached."""
    for node in reversed(list(walk(graph))):
        if node.kind() == "prim::RaiseException":
            _drop_behind(graph, node)
    for node in reversed(list(walk(graph))):  # the inner ones first
        if node.kind() != "prim::If" or not node.outputsSize():
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
