"""Programs are called as the model was, with nested inputs and None, and give what it gave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import zeropoint
import zeropoint.runtime


class _Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, batch: dict[str, Any], scale: float = 1.0, extra: Tensor | None = None) -> dict[str, Any]:
        y = self.left(batch["a"]) - self.right(batch["b"][0]) * scale
        if extra is not None:
            y = y + extra
        return {"y": y, "nothing": None, "kind": "difference", "parts": (y.relu(), 3)}


def _programs(model: nn.Module, inputs: Any, folder: Path) -> tuple[Any, list[Any]]:
    quantized = zeropoint.to_int8(model.eval(), inputs, mode="dynamic", progress=False)
    program = zeropoint.compile(quantized, inputs)
    program.save(folder / "model.zpt")
    return quantized, [program, zeropoint.runtime.load(folder / "model.zpt")]


def test_a_program_takes_dictionaries_and_what_was_left_out(tmp_path: Path) -> None:
    a, b = torch.randn(2, 4), torch.randn(2, 4)
    quantized, programs = _programs(_Nested(), ({"a": a, "b": [b]}, 1.0, None), tmp_path)
    expected = quantized({"a": a, "b": [b]}, 1.0, None)
    for program in programs:
        for given in (
            program({"a": a, "b": [b]}, 1.0, None),
            program({"b": (b,), "a": a}),  # keys are found by name, constants may be left out
            program(a, b),  # and the inputs one by one still do
        ):
            assert torch.equal(torch.as_tensor(given["y"]), expected["y"])
            assert torch.equal(torch.as_tensor(given["parts"][0]), expected["parts"][0])
            assert (given["nothing"], given["kind"], given["parts"][1]) == (None, "difference", 3)


def test_what_does_not_fit_the_call_is_named(tmp_path: Path) -> None:
    a, b = torch.randn(2, 4), torch.randn(2, 4)
    _, programs = _programs(_Nested(), ({"a": a, "b": [b]}, 2.0), tmp_path)
    for program in programs:
        with pytest.raises(ValueError, match=r"captured with argument 1 = 2\.0, got 3\.0"):
            program({"a": a, "b": [b]}, 3.0)
        with pytest.raises(TypeError, match="argument 0 must be a dictionary of 'a', 'b'"):
            program({"a": a})
        with pytest.raises(TypeError, match=r"argument 0\['b'\] must be a list of 1"):
            program({"a": a, "b": [b, b]})
        with pytest.raises(TypeError, match=r"argument 0\['a'\] must be an array, got NoneType"):
            program({"a": None, "b": [b]})
        with pytest.raises(TypeError, match="has no input 'more'"):
            program({"a": a, "b": [b]}, more=a)


def test_a_grouped_convolution_whose_groups_are_the_channels_of_its_input_compiles() -> None:
    class Smooth(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = nn.Parameter(torch.rand(3, 1, 5))

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.conv1d(x, self.kernel, padding=2, groups=x.size(1))

    x = torch.randn(2, 3, 12)
    quantized = zeropoint.to_int8(Smooth(), (x,), [x], progress=False)
    assert torch.equal(zeropoint.compile(quantized, (x,))(x), quantized(x))


def test_padding_of_a_convolution_may_be_a_size() -> None:
    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = nn.Parameter(torch.rand(3, 3, 5))

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.conv1d(x, self.kernel, padding=x.size(2) // 2)

    x = torch.randn(2, 3, 12)
    quantized = zeropoint.to_int8(Padded(), (x,), [x], dynamic_shapes="all", progress=False)
    program = zeropoint.compile(quantized, (x,))
    for length in (12, 7):
        other = torch.randn(2, 3, length)
        assert torch.equal(program(other), quantized(other))
