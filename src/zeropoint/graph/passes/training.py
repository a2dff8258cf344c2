"""A graph for quantization-aware training: layers as modules that train with rounding, with their batch norm inside."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from zeropoint.graph.passes.annotate import Choice, State, Way, _qconfig, is_static
from zeropoint.graph.provenance import Meaning
from zeropoint.nn import qat as nnqat
from zeropoint.nn.flow import as_integers, observed, plain
from zeropoint.nn.intrinsic import qat as nniqat
from zeropoint.operators import BY_ATEN
from zeropoint.operators.node import arguments, aten_name, each, parameter
from zeropoint.qconfig_mapping import QConfigMapping

__all__ = ["Averaging", "Rounded", "round_averages", "swap_layers"]

_FLOAT = {"conv1d": nn.Conv1d, "conv2d": nn.Conv2d, "conv3d": nn.Conv3d}
_BATCH_NORM = {"conv1d": nn.BatchNorm1d, "conv2d": nn.BatchNorm2d, "conv3d": nn.BatchNorm3d, "linear": nn.BatchNorm1d}


class Rounded(nn.Module):
    """A fake quantization at its place in a graph; rounds to the whole range that the deployed value has."""

    def __init__(self, post_process: nn.Module) -> None:
        super().__init__()
        self.post_process = post_process

    def forward(self, x: Tensor) -> Tensor:
        return plain(observed(self.post_process, x))


class Averaging(nn.Module):
    """An average at its place in a graph, with the values that the integers will give."""

    def __init__(self, node: fx.Node, name: str) -> None:
        super().__init__()
        self.name, self._target = name, node.target
        self._arguments = {k: v for k, v in arguments(node).items() if not isinstance(v, fx.Node)}
        self.source: list[Any] = []  # the fake quantization of its input; in a list, so that it is no module of this

    def arguments(self) -> dict[str, Any]:
        """By name, without the input."""
        return self._arguments

    def forward(self, x: Tensor) -> Tensor:
        result = self._target(x, **self._arguments)
        return as_integers(self._target, x, self._arguments, result, self.source[0]) if self.source else result


def swap_layers(graph: fx.GraphModule, mapping: QConfigMapping) -> dict[fx.Node, Choice]:
    """Layers as modules in training, with the batch norm and the ReLU behind them; dropout and batch norms as modules.

    The parameters are those of the graph.
    """
    state = State(graph, mapping)
    choices: dict[fx.Node, Choice] = {}
    for node in list(graph.graph.nodes):
        found = BY_ATEN.get(aten_name(node) or "")
        if found is None or found.name not in (*_FLOAT, "linear"):
            continue
        a = arguments(node)
        qconfig = _qconfig(state, node, found)
        if qconfig is None or parameter(graph, a["weight"]) is None or not is_static(qconfig.activation()):
            continue
        norm = _only_user(node, "batch_norm.default")
        relu = _only_user(norm or node, "relu.default")
        module = _layer(graph, found.name, a, qconfig, norm, relu is not None)
        last = relu or norm or node
        path = _place(graph, node)
        graph.add_submodule(path, module)
        with graph.graph.inserting_after(last):
            made = graph.graph.call_module(path, (a["input"],))
        made.meta.update({k: last.meta[k] for k in ("val", "origin") if k in last.meta})
        made.meta["origin"] = node.meta.get("origin")
        made.meta["meaning"] = Meaning((relu or node).name)
        last.replace_all_uses_with(made)
        for old in (relu, norm, node):
            if old is not None:
                graph.graph.erase_node(old)
        choices[made] = Choice(Way.STATIC, "", found, qconfig, (a["input"].name,))
    _swap_others(graph)
    for made, choice in choices.items():
        choice.inputs = (made.args[0].name,)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return choices


def _only_user(node: fx.Node, name: str) -> fx.Node | None:
    user = next(iter(node.users)) if len(node.users) == 1 else None
    return user if user is not None and aten_name(user) == name and user.args[0] is node else None


def _place(graph: fx.GraphModule, node: fx.Node) -> str:
    """A name for a new module, after where the node came from."""
    at = node.meta["origin"].path.replace(".", "_") if node.meta.get("origin") else ""
    name = f"{at or node.name}_trained"
    while hasattr(graph, name):
        name += "_"
    return name


def _layer(
    graph: fx.GraphModule, name: str, a: dict[str, Any], qconfig: Any, norm: fx.Node | None, relu: bool
) -> nn.Module:
    weight: Any = parameter(graph, a["weight"])
    bias: Any = parameter(graph, a["bias"])
    layer: Any
    if name == "linear":
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    else:
        dims = weight.dim() - 2
        geometry = {k: tuple(each(a[k], dims)) for k in ("stride", "padding", "dilation")}
        inputs = weight.shape[1] * a["groups"]
        layer = _FLOAT[name](
            inputs, weight.shape[0], tuple(weight.shape[2:]), **geometry, groups=a["groups"], bias=bias is not None,
            device="meta",
        )  # fmt: skip
    layer.weight = weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight)
    if bias is not None:
        layer.bias = bias if isinstance(bias, nn.Parameter) else nn.Parameter(bias)
    kind: Any
    if norm is None:
        source, kind = layer, {
            ("linear", False): nnqat.Linear, ("linear", True): nniqat.LinearReLU,
            ("conv1d", False): nnqat.Conv1d, ("conv1d", True): nniqat.ConvReLU1d,
            ("conv2d", False): nnqat.Conv2d, ("conv2d", True): nniqat.ConvReLU2d,
            ("conv3d", False): nnqat.Conv3d, ("conv3d", True): nniqat.ConvReLU3d,
        }[name, relu]  # fmt: skip
        source = layer if not relu else kind._FLOAT_MODULE(layer, nn.ReLU())
    else:
        if name == "linear":
            kind = nniqat.LinearBn1d
        else:
            kind = getattr(nniqat, f"ConvBn{'ReLU' if relu else ''}{name[-2]}d")
        parts = [layer, _batch_norm(graph, norm, _BATCH_NORM[name])]
        source = kind._FLOAT_MODULE(*parts, *([nn.ReLU()] if relu and name != "linear" else []))
    source.qconfig = qconfig
    return kind.from_float(source.train())


def _batch_norm(graph: fx.GraphModule, node: fx.Node, kind: Any) -> Any:
    a = arguments(node)
    mean: Any = parameter(graph, a["running_mean"])
    bn = kind(mean.numel(), a["eps"], a["momentum"], affine=a["weight"] is not None, device="meta")
    for name, key in (("weight", "weight"), ("bias", "bias"), ("running_mean",) * 2, ("running_var",) * 2):
        if a[key] is not None:
            setattr(bn, name, parameter(graph, a[key]))
    bn.num_batches_tracked = torch.zeros((), dtype=torch.long)
    return bn


def _swap_others(graph: fx.GraphModule) -> None:
    """Dropout and batch norms that are left, as modules, which know whether they are in training."""
    for node in list(graph.graph.nodes):
        name = aten_name(node)
        module: nn.Module
        if name == "dropout.default":
            module = nn.Dropout(arguments(node)["p"])
        elif name == "batch_norm.default":
            dims = node.args[0].meta["val"].dim()
            kinds = {4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
            module = _batch_norm(graph, node, kinds.get(dims, nn.BatchNorm1d))
        else:
            continue
        path = _place(graph, node)
        graph.add_submodule(path, module)
        with graph.graph.inserting_after(node):
            made = graph.graph.call_module(path, (node.args[0],))
        made.meta.update(node.meta)
        made.meta["meaning"] = Meaning(node.name)
        node.replace_all_uses_with(made)
        graph.graph.erase_node(node)


def round_averages(graph: fx.GraphModule, choices: dict[fx.Node, Choice]) -> None:
    """Pools and means of values that will be integers, rounded as the integers will be."""
    for node in list(graph.graph.nodes):
        name = aten_name(node) or ""
        choice = choices.get(node)
        averages = name in BY_ATEN and BY_ATEN[name].averages
        if not averages or choice is None or choice.way is not Way.PASSED or len(node.all_input_nodes) > 1:
            continue
        module = Averaging(node, name)
        path = _place(graph, node)
        graph.add_submodule(path, module)
        with graph.graph.inserting_after(node):
            made = graph.graph.call_module(path, (node.args[0],))
        made.meta.update(node.meta)
        made.meta["meaning"] = Meaning(node.name)
        node.replace_all_uses_with(made)
        graph.graph.erase_node(node)
        choices[made] = choices.pop(node)
        for reader in choices.values():
            reader.inputs = tuple(made.name if name == node.name else name for name in reader.inputs)


def connect_averages(graph: fx.GraphModule, observer_prefix: str) -> None:
    """Tell each average the fake quantization that its input went through."""
    for node in graph.graph.nodes:
        module = graph.get_submodule(str(node.target)) if node.op == "call_module" else None
        if not isinstance(module, Averaging):
            continue
        at: Any = node.args[0]
        while not (at.op == "call_module" and str(at.target).startswith(observer_prefix)):
            at = at.args[0]
        module.source = [graph.get_submodule(str(at.target)).post_process]
