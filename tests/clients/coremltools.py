"""coremltools: `LinearQuantizer`, quantization-aware training in FX graph mode with layers of its own."""

from __future__ import annotations

import functools
from typing import Any

import torch
from coremltools.optimize.torch.quantization import LinearQuantizer, LinearQuantizerConfig
from torch import nn

PACKAGES = ("coremltools", "cattrs", "attrs", "pyaml", "tqdm")

MODELS = {
    "conv": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)),
    "conv, batch norm": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)),
    "transposed": lambda: nn.Sequential(nn.ConvTranspose2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()),
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 4)),
}


def _trained(name: str) -> Any:
    config = LinearQuantizerConfig.from_dict(
        {"global_config": {"quantization_scheme": "symmetric", "milestones": [0, 0, 9, 9]}}
    )
    x = torch.randn(2, 3, 8, 8)
    quantizer = LinearQuantizer(MODELS[name](), config)
    prepared = quantizer.prepare(example_inputs=(x,), inplace=False)
    optimizer = torch.optim.SGD(prepared.parameters(), 0.01)
    with torch.enable_grad():
        for _ in range(3):
            quantizer.step()
            optimizer.zero_grad()
            prepared(x).pow(2).mean().backward()
            optimizer.step()
    made = quantizer.finalize(inplace=False).eval()
    return made, lambda: made(x)


CASES = {name: functools.partial(_trained, name) for name in MODELS}
