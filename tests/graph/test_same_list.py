"""Eager mode, export and TorchScript cover the same list."""

from __future__ import annotations

from typing import Any

import torch
from operator_cases import CASES, MOVING_CASES, POOLING_CASES
from script_graphs import calls, quantized, scripted
from torch import nn

import zeropoint
from zeropoint.operators import custom_modules, eager_functions, module_forms, operators

# Modules that only graphs quantize: neither torch.ao's eager mode nor ours has a quantized class for them.
ONLY_IN_GRAPHS = {nn.BatchNorm1d, nn.CELU, nn.GELU, nn.Mish, nn.RNN, nn.SiLU}
# Modules that graphs see as something else: attention and bilinear forms in parts, a linear layer, nothing at all.
NOT_IN_GRAPHS = {nn.MultiheadAttention, nn.Bilinear, nn.modules.linear.NonDynamicallyQuantizableLinear, nn.Identity}


def in_eager_mode() -> set[type[nn.Module]]:
    """The modules of torch.nn that eager mode quantizes, or lets quantized values through."""
    keeping = {module for operator in operators() if operator.keeps_scale for module in operator.modules}
    known = {*(f.module for _, f in module_forms()), *(c.module for c in custom_modules()), *keeping}
    return {module for module in known if module.__module__.startswith("torch.nn.")}


def in_graphs() -> set[type[nn.Module]]:
    """The modules that the cases of both views try, row by row of the tables."""
    tried = [case for table in (CASES, MOVING_CASES, POOLING_CASES) for cases in table.values() for _, case in cases]
    return {type(part) for case in tried if isinstance(case, nn.Module) for part in case.modules()}


def test_what_eager_mode_quantizes_both_views_of_graphs_do() -> None:
    assert in_eager_mode() - in_graphs() == NOT_IN_GRAPHS


def test_what_graphs_quantize_eager_mode_does() -> None:
    named = {module for operator in operators() if operator.annotate is not None for module in operator.modules}
    assert named - in_eager_mode() == ONLY_IN_GRAPHS


def test_functions_of_eager_mode_are_in_the_table_of_operators() -> None:
    named = {f for operator in operators() for f in operator.functions}
    assert set(eager_functions()) <= named


def everything() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Hardswish(), nn.MaxPool2d(2), nn.ELU(), nn.LeakyReLU(), nn.PReLU(),
        nn.GroupNorm(2, 8), nn.AvgPool2d(2, 1), nn.InstanceNorm2d(8), nn.BatchNorm2d(8), nn.Dropout(), nn.ReLU6(),
        nn.PixelShuffle(2), nn.Upsample(size=(10, 10)), nn.ConvTranspose2d(2, 4, 3), nn.Hardtanh(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 8),
        nn.Tanh(), nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 5), nn.Hardsigmoid(), nn.Softmax(-1),
    ).eval()  # fmt: skip


def test_one_model_of_everything_is_on_integers_in_all_three() -> None:
    qconfig = zeropoint.QConfig(activation=zeropoint.default_observer, weight=zeropoint.default_weight_observer)
    model, x = everything(), torch.randn(4, 3, 12, 12)

    eager = zeropoint.QuantWrapper(everything()).eval()
    eager.qconfig = qconfig
    prepared = zeropoint.prepare(eager)
    prepared(x)
    converted = zeropoint.convert(prepared)
    floats: list[str] = []

    def look(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if not isinstance(output, zeropoint.QTensor):
                floats.append(name)

        return hook

    for name, part in converted.module.named_children():
        part.register_forward_hook(look(f"{name} {type(part).__name__}"))
    expected = converted(x)
    assert floats == []

    exported = zeropoint.prepare_graph(model, zeropoint.QConfigMapping().set_global(qconfig), (x,))
    exported(x)
    made = zeropoint.convert_graph(exported)
    in_export = [str(node.target) for node in made.graph_module.graph.nodes if "quantize_per" in str(node.target)]
    assert in_export == ["zeropoint.quantize_per_tensor.default", "zeropoint.dequantize_per_tensor.default"]

    for traced in (False, True):
        in_script = quantized(scripted(model, traced, x), x, qconfigs={"": qconfig})
        ends = [call for call in calls(in_script) if call in ("quantize_per_tensor", "dequantize")]
        assert ends == ["quantize_per_tensor", "dequantize"]
        assert torch.equal(in_script(x), made(x))
    # Steps of 1/256, which softmax has always: its results are all near 1/5.
    assert (made(x) - expected).abs().max() <= 1.01 / 256
    assert (made(x) - model(x)).abs().max() <= 2.01 / 256
