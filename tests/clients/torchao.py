"""torchao: PT2E with the quantizer of its own tests."""

from __future__ import annotations

from typing import Any

import torch
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

PACKAGES = ("torchao==0.18.0",)


def _pt2e() -> Any:
    x = torch.randn(2, 3, 8, 8)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4))
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(model.eval(), (x,)).module(), quantizer)
    prepared(x)
    made = convert_pt2e(prepared)
    return made, lambda: made(x)


CASES = {"pt2e": _pt2e}


def INT8(model: Any) -> int:
    """The nodes that quantize."""
    return sum(
        "quantize_per" in str(node.target) and "dequantize" not in str(node.target) for node in model.graph.nodes
    )
