"""Graphs are for the sizes for which the model goes the way that was captured; for others they refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from eight_bit_steps import steps_between
from torch import Tensor, nn

import zeropoint


class Asking(nn.Module):
    def __init__(self, question: Callable[[Tensor], bool]) -> None:
        super().__init__()
        self.linear, self.question = nn.Linear(4, 4), question

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return y + 1 if self.question(x) else y - 1


# question -> sizes of (batch, length) that give the answer of (8, 6), and some that do not
QUESTIONS: dict[str, tuple[Callable[[Tensor], bool], list[tuple[int, int]], list[tuple[int, int]]]] = {
    "more": (lambda x: x.size(0) > 3, [(4, 1), (9, 6)], [(3, 6), (1, 1)]),
    "at least": (lambda x: x.size(0) >= 3, [(3, 1), (9, 6)], [(2, 6)]),
    "fewer": (lambda x: x.size(0) < 10, [(1, 1), (9, 6)], [(10, 6)]),
    "at most": (lambda x: x.size(1) <= 6, [(1, 6), (9, 2)], [(8, 7)]),
    "no": (lambda x: x.size(0) < 8, [(8, 1), (9, 2)], [(7, 6)]),
    "multiple": (lambda x: x.size(1) % 3 == 0, [(1, 3), (2, 9)], [(8, 4)]),
    "not equal": (lambda x: x.size(0) != 5, [(4, 6), (6, 6)], [(5, 6)]),
    "two sizes": (lambda x: x.size(0) > x.size(1), [(3, 2), (9, 8)], [(6, 6), (2, 3)]),
    "product": (lambda x: x.size(0) * x.size(1) > 40, [(41, 1), (7, 6)], [(5, 8), (1, 40)]),
    "quotient": (lambda x: x.size(0) // 3 == 2, [(6, 6), (7, 1)], [(5, 6), (9, 6)]),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_graph_and_program_refuse_sizes_for_which_the_model_goes_another_way(name: str, tmp_path: Path) -> None:
    question, same, others = QUESTIONS[name]
    torch.manual_seed(0)
    model, x = Asking(question).eval(), torch.rand(8, 6, 4)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    program = zeropoint.compile(quantized, (x,))
    program.save(tmp_path / "asking.zpt")
    loaded = zeropoint.runtime.load(tmp_path / "asking.zpt")
    with torch.no_grad():
        for sizes in same:
            given = torch.rand(*sizes, 4)
            assert steps_between(quantized(given), model(given)) <= 3
            assert torch.equal(program(given), quantized(given))
    for sizes in others:
        given = torch.rand(*sizes, 4)
        for run in (quantized, program, lambda v: loaded(v.numpy())):
            with pytest.raises(ValueError, match=r"test_conditions\.py, line"):
                run(given)


def test_a_model_that_asks_nothing_takes_every_size() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), torch.rand(8, 4)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert quantized.graph_module._sizes.conditions == ()
    assert quantized(torch.rand(1, 4)).shape == (1, 4)
