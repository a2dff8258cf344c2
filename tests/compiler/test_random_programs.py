"""Random models as programs: the bytes of PyTorch's quantized graph in all ways; differential.py runs thousands."""

from __future__ import annotations

import pytest
from differential import compare

COUNT, QUICK = 40, 10  # CI runs 300 of them


@pytest.mark.parametrize(
    "first", [pytest.param(n, marks=[pytest.mark.thorough] * (n >= QUICK)) for n in range(0, COUNT, 10)]
)
def test_random_models_give_the_bytes_of_the_graph_in_every_way(first: int) -> None:
    outcomes = [compare(seed) for seed in range(first, first + 10)]
    wrong = {outcome.seed: (outcome.words, outcome.wrong[:3]) for outcome in outcomes if outcome.wrong}
    assert not wrong
    equal = [outcome for outcome in outcomes if outcome.result == "equal"]
    assert len(equal) >= 9  # a model without a program shows nothing
    assert all(outcome.runs > 50 for outcome in equal)
