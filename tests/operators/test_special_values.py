"""Every float function of the records, at values where formulas go wrong, against PyTorch in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import zeropoint
from zeropoint.operators import elementwise

SIZES = (0.0, 1e-45, 3e-40, 1e-38, 1e-20, 0.5, 1.0, 1.5, 2.0, 3.0, 88.0, 1e10, 1e30, 3e38, math.inf)
VALUES = torch.tensor([*SIZES, *(-v for v in SIZES), math.nan, 2.5])  # 32: pairs of them fill PyTorch's vectors
FIRST, SECOND = VALUES.repeat_interleave(len(VALUES)), VALUES.repeat(len(VALUES))
# Results that differ in float64.
OF_THE_DTYPE = {"nan_to_num": lambda x, y: torch.nan_to_num(x), "nextafter of two": torch.nextafter}
ROUNDING = 3e-7  # of values that are computed in float32 in a few steps, where PyTorch's are rounded once

INEXACT = {"igammac of two": 1e-17}  # how far PyTorch is from it in float64, of tiny numbers


def _call(name: str) -> Callable[..., Any] | None:
    return getattr(torch, name, None) or getattr(F, name, None)


def _functions(count: int) -> dict[str, Callable[..., Any]]:
    """Those of so many tensors."""
    found = {}
    for record in elementwise.RECORDS:
        function = _call(record.name)
        try:
            result = None if function is None else function(*[torch.rand(2) for _ in range(count)])
        except (TypeError, RuntimeError):
            continue
        if isinstance(result, Tensor) and not isinstance(function, type):
            found[record.name] = function
    return found


class _All(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.unary, self.binary = _functions(1), _functions(2)

    def forward(self, side: Tensor, x: Tensor, y: Tensor) -> list[Tensor]:
        made = [f(x) for f in self.unary.values()] + [f(x, y) for f in self.binary.values()]
        return [self.layer(side), *made, x.clamp(0.0, 1.0), x.clamp(max=-0.0)]

    def names(self) -> list[str]:
        return [*self.unary, *(f"{name} of two" for name in self.binary), "clamp", "clamp with max"]


@pytest.fixture(scope="module")
def compiled() -> tuple[_All, Any, Any]:
    model, side = _All().eval(), torch.randn(3, 4)
    example = (side, torch.rand(len(FIRST)), torch.rand(len(FIRST)))
    graph = zeropoint.to_int8(model, example, [example], progress=False)
    return model, graph, zeropoint.compile(graph, example)


def test_the_records_have_the_functions() -> None:
    assert len(_functions(1)) > 35
    assert {"maximum", "minimum", "hypot", "remainder", "fmod", "pow", "atan2", "div"} <= set(_functions(2))


@pytest.mark.parametrize("isa", zeropoint.cpu_info().available)
def test_functions_have_pytorchs_values_at_the_ends_of_their_range(compiled: tuple[_All, Any, Any], isa: str) -> None:
    model, graph, program = compiled
    side = torch.randn(3, 4)
    with torch.no_grad():
        wide = model.double()(side.double(), FIRST.double(), SECOND.double())[1:]
        model.float()
    with zeropoint.use_isa(isa):
        found = {"graph": graph(side, FIRST, SECOND)[1:], "program": program(side, FIRST, SECOND)[1:]}
    wrong = []
    for k, (name, exact) in enumerate(zip(model.names(), wide)):
        expected = exact.float() if exact.is_floating_point() else exact
        expected = OF_THE_DTYPE[name](FIRST, SECOND) if name in OF_THE_DTYPE else expected
        for who, results in found.items():
            same = _alike(results[k], expected, INEXACT.get(name, 2e-44))
            wrong += [
                f"{who} {name}({FIRST[i]:g}, {SECOND[i]:g}) = {results[k][i]:g}, not {expected[i]:g}"
                for i in (~same).nonzero().flatten().tolist()[:3]
            ]
    assert not wrong, "\n".join(wrong)


def _alike(found: Tensor, expected: Tensor, least: float) -> Tensor:
    """NaN, infinity and the sign of zero are the same, and numbers are close."""
    if not expected.is_floating_point():
        return found == expected
    close = torch.isclose(found, expected, rtol=ROUNDING, atol=least, equal_nan=True)
    return close & ((expected != 0) | (torch.signbit(found) == torch.signbit(expected)))
