"""TorchScript models quantized by zeropoint and by torch.ao's TorchScript mode, with the same qconfigs and data."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
import torch
import torch.ao.quantization as theirs
from observer_pairs import quietly
from oracle_models import MODELS
from oracle_sides import close, engine, sqnr

import zeropoint

pytestmark = pytest.mark.oracle

LOSS = 0.5  # dB that ours may lose


def side(library: Any, traced: Any, qconfig: Any, batches: list[Any]) -> tuple[list[tuple[Any, ...]], torch.Tensor]:
    """What observers found, of activations and weights, as (scales, zero points); and the output of the first batch."""
    with quietly(), torch.no_grad():
        prepared = library.prepare_jit(copy.deepcopy(traced), {"": qconfig})
        for batch in batches:
            prepared(*batch)
        found = []
        for _, module in prepared.named_modules():
            if hasattr(module, "calculate_qparams") and _has_seen(module):
                scale, zero_point = module.calculate_qparams()
                found.append((tuple(scale.flatten().tolist()), tuple(int(z) for z in zero_point.flatten())))
        return found, library.convert_jit(prepared)(*batches[0])


def _has_seen(observer: Any) -> bool:
    return hasattr(observer, "min_val") and observer.min_val.numel() > 0 and bool(observer.min_val.isfinite().all())


def unmatched(some: list[tuple[Any, ...]], others: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """What has no counterpart among the others, each of which is one's counterpart only."""
    left = list(others)
    without = []
    for scales, zero_points in some:
        for place, (other, zeros) in enumerate(left):
            if zeros == zero_points and len(other) == len(scales) and all(map(close, scales, other)):
                del left[place]
                break
        else:
            without.append((scales, zero_points))
    return without


_MASK = "theirs watches what is computed from the mask of attention; ours leaves it float"
# (model, side) -> how many observers only that side has, and why; all others must be the same.
DIFFERENCES = {
    ("bert", "theirs"): (10, _MASK),
    ("lstm", "ours"): (1, "theirs does not watch the result of a recurrent layer"),
}


@pytest.mark.parametrize("name", MODELS)
def test_scripted_model_is_that_of_the_oracle(name: str) -> None:
    torch.manual_seed(0)
    made = MODELS[name]()
    with quietly():
        traced = torch.jit.trace(made.model, made.batches[0])
    with engine(made.engine), torch.no_grad():
        other, their_output = side(theirs, traced, theirs.default_qconfig, made.batches)
        mine, our_output = side(zeropoint, traced, zeropoint.default_qconfig, made.batches)
        expected = made.model(*made.batches[0])
    found = Counter(ours=len(unmatched(mine, other)), theirs=len(unmatched(other, mine)))
    assert found == {which: DIFFERENCES.get((name, which), (0, ""))[0] for which in ("ours", "theirs")}
    figures = sqnr(expected, our_output), sqnr(expected, their_output)
    print(f"\n{name:10} TorchScript: ours {figures[0]:.2f} dB, theirs {figures[1]:.2f} dB, {len(mine)} observers")
    assert figures[0] >= figures[1] - LOSS
