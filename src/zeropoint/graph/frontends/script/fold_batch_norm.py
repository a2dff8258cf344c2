"""Batch norms into the convolutions before them, module by module: submodules stay what they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from zeropoint.graph import torch_internals as internals
from zeropoint.graph.frontends.script.script_module import modules, of_kind, private_copy, result, walk
from zeropoint.nn.qat.trained import folded
from zeropoint.operators import layer_records, modules_of

_CONVOLUTIONS = tuple(m.__name__ for m in modules_of(layer_records(transposed=False)) if m is not nn.Linear)
_BIAS = "folded_bias"


def fuse_conv_bn_jit(model: Any, inplace: bool = False) -> Any:
    """A ScriptModule whose batch norms are folded into the convolutions before them.

    Folded are ``self.bn(self.conv(x))`` in evaluation mode, in every submodule, where nothing else calls the two.

    Args:
        model: scripted, traced, or loaded from a file.
        inplace: change `model` itself.

    Example:
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)).eval()
        >>> fused = fuse_conv_bn_jit(torch.jit.trace(model, torch.ones(1, 1, 2, 2)))
        >>> len(fused.graph.findAllNodes("prim::CallMethod"))
        1
    """
    module = private_copy("fuse_conv_bn_jit", model)
    by_class: dict[str, list[Any]] = {}
    for _, part in modules(module):
        by_class.setdefault(part._type().str(), []).append(part)
    for instances in by_class.values():
        for conv, norm, call in _pairs(instances[0]):
            pairs = [(part.getattr(conv), part.getattr(norm)) for part in instances]
            if all(_can_fold(c, n) and _is_used_once(module, c) for c, n in pairs):
                for c, n in pairs:
                    _fold(c, n, by_class[c._type().str()])
                call.output().replaceAllUsesWith(call.inputsAt(1))
                call.destroy()
        for name in instances[0]._method_names():
            internals.remove_dead_code(instances[0]._get_method(name).graph)
    return result(model, module, inplace)


def _pairs(part: Any) -> list[tuple[str, str, Any]]:
    """Names of submodules that are called one after the other and nowhere else, with the second call."""
    graphs = [part._get_method(name).graph for name in part._method_names()]
    calls = [node for graph in graphs for node in of_kind(graph, "prim::CallMethod")]
    reads = [node.s("name") for graph in graphs for node in of_kind(graph, "prim::GetAttr")]
    found = []
    for second in calls:
        first = second.inputsAt(1).node() if second.inputsSize() == 2 else None
        if first is None or first.kind() != "prim::CallMethod" or len(first.output().uses()) != 1:
            continue
        owners = [node.inputsAt(0).node() for node in (first, second)]
        if any(o.kind() != "prim::GetAttr" or o.inputsAt(0).node().kind() != "prim::Param" for o in owners):
            continue
        conv, norm = (owner.s("name") for owner in owners)
        if reads.count(conv) == 1 and reads.count(norm) == 1 and first.s("name") == second.s("name") == "forward":
            found.append((conv, norm, second))
    return found


def _class_of(part: Any) -> str:
    """The name of a layer of torch.nn; "" for other modules."""
    *path, name = part._type().qualified_name().split(".")
    return name if path[:4] == ["__torch__", "torch", "nn", "modules"] else ""


def _can_fold(conv: Any, norm: Any) -> bool:
    dims = _class_of(conv)[-2:]
    if _class_of(conv) not in _CONVOLUTIONS or _class_of(norm) != f"BatchNorm{dims}":
        return False
    return not norm.getattr("training") and norm.hasattr("running_mean") and norm.getattr("running_mean") is not None


def _is_used_once(module: Any, conv: Any) -> bool:
    """Whether a convolution is in one place of the model only, and its weight is no other layer's."""
    weight = conv.getattr("weight")
    return sum(p.hasattr("weight") and p.getattr("weight") is weight for _, p in modules(module)) == 1


def _optional(part: Any, name: str) -> Any:
    return part.getattr(name) if part.hasattr(name) else None


def _epsilon(norm: Any) -> float:
    graph = norm._get_method("forward").graph.copy()
    internals.inline(graph)
    node = graph.findNode("aten::batch_norm", True)
    return list(node.inputs())[7].toIValue()


def _fold(conv: Any, norm: Any, alike: list[Any]) -> None:
    """Fold `norm` into `conv`; `alike` are all convolutions of the same class, which have the same code."""
    names = ("running_mean", "running_var", "weight", "bias")
    numbers = SimpleNamespace(**{name: _optional(norm, name) for name in names}, eps=_epsilon(norm))
    bias = _optional(conv, _BIAS)
    bias = _optional(conv, "bias") if bias is None else bias
    with torch.no_grad():
        weight, new_bias = folded(conv.getattr("weight"), bias, numbers, 0)
    conv.setattr("weight", torch.nn.Parameter(weight.detach(), requires_grad=False))
    if _optional(conv, "bias") is not None:
        conv.setattr("bias", torch.nn.Parameter(new_bias.detach(), requires_grad=False))
        return
    if not conv.hasattr(_BIAS):
        for other in alike:
            internals.add_attribute(other, _BIAS, internals.tensor_type(), torch.zeros_like(new_bias))
        _read_bias(conv)
    conv.setattr(_BIAS, new_bias.detach())


def _read_bias(conv: Any) -> None:
    """Let a convolution that had no bias read one."""
    graph = conv._get_method("forward").graph
    internals.inline(graph)
    for node in list(walk(graph)):
        if "conv" in node.kind() and node.inputsSize() >= 6:
            read = graph.create("prim::GetAttr", [next(graph.inputs())], 1)
            read.s_("name", _BIAS)
            read.output().setType(internals.tensor_type())
            read.insertBefore(node)
            node.replaceInput(2, read.output())
