"""make_model.py FOLDER: writes a MobileNetV2-like classifier as model.zpt, and as model.onnx for comparison.

The weights are random: this is about serving, not about accuracy.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import zeropoint


class Block(nn.Module):
    """An inverted residual."""

    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inputs * expand
        self.skips = stride == 1 and inputs == outputs
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, hidden, 1), nn.ReLU6(),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden), nn.ReLU6(),
            nn.Conv2d(hidden, outputs, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.skips else self.layers(x)


def mobile_net() -> nn.Module:
    rows = [
        (32, 16, 1, 1),
        (16, 24, 2, 6),
        (24, 24, 1, 6),
        (24, 32, 2, 6),
        (32, 32, 1, 6),
        (32, 64, 2, 6),
        (64, 64, 1, 6),
    ]
    rows += [(64, 96, 1, 6), (96, 96, 1, 6), (96, 160, 2, 6), (160, 160, 1, 6), (160, 320, 1, 6)]
    blocks = [Block(*row) for row in rows]
    stem, head = nn.Conv2d(3, 32, 3, 2, 1), nn.Conv2d(320, 1280, 1)
    last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)]
    return nn.Sequential(stem, nn.ReLU6(), *blocks, head, nn.ReLU6(), *last)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    batches = [torch.randn(4, 3, 224, 224) for _ in range(2)]
    quantized = zeropoint.to_int8(mobile_net().eval(), (batches[0],), batches)
    zeropoint.compile(quantized, (batches[0][:1],)).save(folder / "model.zpt")
    zeropoint.export_onnx(quantized, (batches[0][:1],), folder / "model.onnx")
