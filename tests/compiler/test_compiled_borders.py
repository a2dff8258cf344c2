"""Floats to bytes with a scale for each channel: as the graph does it, and no other way."""

from __future__ import annotations

from typing import Any

import golden_programs
import pytest
import torch
from torch import Tensor, nn

import zeropoint
from zeropoint import _native
from zeropoint.runtime import FormatError


class Outlying(nn.Module):
    """A linear layer behind a layer norm with a channel that is much larger than the others."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(24), nn.Linear(24, 8)
        with torch.no_grad():
            self.norm.weight[5] = 40.0

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.norm(x))


def test_channels_that_are_equalized_give_the_bytes_of_the_graph(isa: str) -> None:
    torch.manual_seed(0)
    batches = [torch.randn(4, 6, 24) for _ in range(3)]
    graph = zeropoint.to_int8(Outlying().eval(), (batches[0],), batches, progress=False)
    program = zeropoint.compile(graph, (batches[0],))
    assert "quantize_channels" in [step["op"] for step in golden_programs.text_of(program._native.data())["steps"]]
    for shape in ((4, 6, 24), (1, 1, 24), (3, 0, 24)):
        x = 10 * torch.randn(shape)
        with torch.no_grad():
            assert torch.equal(program(x), graph(x))


def edited(attributes: dict[str, Any], constant: str = "", value: Any = None) -> Any:
    """The golden program with other attributes in its first step, or another constant."""
    header, program, data = golden_programs.parts_of((golden_programs.FOLDER / "channels.zpt").read_bytes())
    program["steps"][0]["attributes"].update(attributes)
    if constant:
        begin, end = header[constant]["data_offsets"]
        data = data[:begin] + value.numpy().tobytes().ljust(end - begin, b"\0") + data[end:]
    return _native.Program(golden_programs.joined(header, program, data))


@pytest.mark.parametrize(
    ("attributes", "constant", "value", "message"),
    [
        ({"axis": 2}, "", None, "does not have 3 channels along axis 2"),
        ({"axis": 3}, "", None, "does not have 3 channels along axis 3"),
        ({"axis": 8}, "", None, "axis"),
        ({"low": 5, "high": 4}, "", None, "high"),
        ({"dtype": "int8"}, "", None, "zero point of 255"),
        ({}, "scales", torch.tensor([1.0, 0.0, 1.0]), "a scale of 0"),
        ({}, "scales", torch.tensor([1.0, torch.nan, 1.0]), "a scale of nan"),
        ({}, "zero_points", torch.tensor([0, -1, 0], dtype=torch.int32), "zero point of -1"),
    ],
)
def test_what_is_not_in_order_is_refused(attributes: dict[str, Any], constant: str, value: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        edited(attributes, constant, value)
