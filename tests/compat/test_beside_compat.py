"""What is not ours goes on working beside zeropoint.compat: libraries that take insides of torch.ao."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from processes import run

PT2E = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
        X86InductorQuantizer, get_default_x86_inductor_quantization_config)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5)).eval()
    x = torch.randn(2, 3, 8, 8)
    for prepare, is_qat in ((prepare_pt2e, False), (prepare_qat_pt2e, True)):
        config = get_default_x86_inductor_quantization_config(is_qat=is_qat)
        prepared = prepare(torch.export.export(model, (x,)).module(), X86InductorQuantizer().set_global(config))
        prepared(x)
        converted = convert_pt2e(prepared)
        targets = [str(node.target) for node in converted.graph.nodes]
        print(sum("quantize_per" in target for target in targets), converted(x).tolist())
"""


@pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is not installed")
def test_pt2e_of_torchao_gives_what_it_gives_without_us() -> None:
    alone = run(PT2E)
    beside = run("import zeropoint.compat; zeropoint.compat.install()", PT2E)
    counts = [[line.partition(" ")[0] for line in text.splitlines()] for text in (alone, beside)]
    assert counts[0] == counts[1]
    values = [[eval(line.partition(" ")[2]) for line in text.splitlines()] for text in (alone, beside)]
    for a, b in zip(*values, strict=True):  # we round as PyTorch does; convolutions between are PyTorch's own
        torch.testing.assert_close(torch.tensor(a), torch.tensor(b), atol=1e-5, rtol=1e-5)


def test_insides_that_packages_call_have_a_counterpart() -> None:
    code = """
        import torch
        from torch.ao.quantization.fx.utils import node_arg_is_weight
        graph = torch.fx.symbolic_trace(lambda x, w: torch.nn.functional.linear(x, w)).graph
        linear = list(graph.nodes)[2]
        linear.meta["target_dtype_info"] = {"weight_index": 1}
        print(node_arg_is_weight(linear, linear.args[1]), node_arg_is_weight(linear, linear.args[0]))
    """
    assert run("import zeropoint.compat; zeropoint.compat.install()", code).split() == ["True", "False"]
