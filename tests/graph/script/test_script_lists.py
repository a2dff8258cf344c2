"""Lists that loops and appends make are written out, so that operators see what is in them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from eight_bit_steps import steps_between
from few_layers import Layers
from script_graphs import calls, kinds, quantized
from torch import Tensor, nn

import zeropoint


class Resized(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.before, self.after = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.resize = nn.Upsample(**options)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.resize(self.before(x)))


@pytest.mark.parametrize(
    ("options", "operator"),
    [
        ({"scale_factor": 2}, "stored_nearest"),
        ({"scale_factor": 1.5, "mode": "nearest-exact"}, "stored_nearest"),
        ({"scale_factor": 2, "mode": "bilinear"}, "stored_bilinear"),
        ({"scale_factor": 2, "mode": "bilinear", "align_corners": True}, "stored_bilinear"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_images_are_resized_by_factors_on_integers(options: dict[str, Any], operator: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 6, 6)
    other = x[:1].repeat(1, 1, 2, 1)[:, :, :8, :5]  # values in the range that was seen
    model = Resized(**options).eval()
    made = quantized(torch.jit.script(model), x)
    assert calls(made) == ["quantize_per_tensor", "conv2d", operator, "conv2d", "dequantize"]
    program = zeropoint.compile(made, (x,))
    with torch.no_grad():
        for given in (x, other):
            expected, found = model(given), made(given)
            assert expected.shape == found.shape
            assert steps_between(expected, found) <= 3
            assert torch.equal(program(given), found)


class Collected(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)])

    def forward(self, x: Tensor) -> Tensor:
        outputs = []
        for layer in self.layers:
            x = layer(x)
            outputs.append(x)
        return torch.cat(outputs, 1)


def test_tensors_that_are_appended_are_joined_on_integers() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4, 4)
    model = Collected().eval()
    made = quantized(torch.jit.script(model), x)
    assert calls(made) == ["quantize_per_tensor", "conv2d", "conv2d", "cat", "dequantize"]
    assert steps_between(made(x), model(x)) <= 3


class Kept(Layers):
    """Lists that are not written out: one is read too early, one is changed later, one grows with the input."""

    def forward(self, x: Tensor) -> tuple[Tensor, int, int, list[int]]:
        y = self.layer(x)
        early = [1]
        before = len(early)
        early.append(2)
        changed: list[int] = []
        changed.append(5)
        changed.append(6)
        changed[0] = 7
        long = [i * 2 for i in range(x.size(0))]
        if x.size(0) > 2:
            early.append(before)
        return F.relu(y), before, len(early), [changed[0], changed[1], early[-1], len(long)]


def test_lists_that_change_stay_as_they_are() -> None:
    model, x = Kept(layer=nn.Linear(4, 4)).eval(), torch.randn(3, 4)
    script = torch.jit.script(model)
    made = quantized(script, x)
    for given in (x, torch.randn(2, 4)):
        assert made(given)[1:] == script(given)[1:]
    assert "aten::append" in kinds(made)
