"""Fusing the modules of a model that torch.fx can trace, without naming them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from torch import fx, nn

from zeropoint.described import described
from zeropoint.eager.fuse import fuse_known_modules
from zeropoint.operators import fusions

__all__ = ["fuse_fx"]


def fuse_fx(model: nn.Module, fuse_custom_config: Any = None, backend_config: Any = None) -> fx.GraphModule:
    """A copy of `model` in which layers, batch norms and activations that follow each other are one module.

    Example:
        >>> fuse_fx(nn.Sequential(nn.Linear(1, 1), nn.ReLU()).eval()).get_submodule("0")
        LinearReLU(
          (0): Linear(in_features=1, out_features=1, bias=True)
          (1): ReLU()
        )
    """
    if fuse_custom_config:
        raise NotImplementedError(
            f"fuse_fx: fuse_custom_config has no meaning here, got {described(fuse_custom_config)}"
        )
    traced = fx.symbolic_trace(copy.deepcopy(model))
    modules = dict(traced.named_modules())
    known: Iterable[Any] = sorted({f.parts for f in fusions() if _fits(f, model.training)}, key=len, reverse=True)
    for node in list(traced.graph.nodes):
        for parts in known:
            chain = _chain(node, modules, parts)
            if chain is None:
                continue
            fused, *_ = fuse_known_modules([modules[str(n.target)] for n in chain], model.training)
            traced.add_submodule(str(node.target), fused)
            modules = dict(traced.named_modules())
            chain[-1].replace_all_uses_with(node)
            for old in reversed(chain[1:]):
                traced.graph.erase_node(old)
            break
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced


def _fits(fusion: Any, training: bool) -> bool:
    return fusion.training is not None if training else fusion.evaluation is not None or fusion.folds


def _chain(node: fx.Node, modules: Mapping[str, nn.Module], parts: tuple[type, ...]) -> list[fx.Node] | None:
    chain = [node]
    while len(chain) < len(parts):
        users = list(chain[-1].users)
        if len(users) != 1:
            return None
        chain.append(users[0])
    if any(n.op != "call_module" for n in chain):
        return None
    return chain if tuple(type(modules[str(n.target)]) for n in chain) == parts else None
