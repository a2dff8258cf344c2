"""Graphs that torchao quantized, as programs; and our choices as a quantizer of torchao."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from interchange_models import case, step_of
from torch import nn
from ways import converted, x86_dynamic_quantizer, x86_quantizer, xnnpack_quantizer

import zeropoint

TIES = 3.0  # steps: a sum that falls between two steps may fall otherwise, and the layers behind spread it


# A ReLU that is used twice in a block is more than torchao's quantizer for x86 takes, so it has no ResNet. Of its
# layers only those between two others have results on integers.
LEAST_INT8 = {
    ("MobileNetV2", x86_quantizer): 14, ("U-Net", x86_quantizer): 6, ("MiniLM, static", x86_quantizer): 13,
    ("ResNet", xnnpack_quantizer): 22, ("MobileNetV2", xnnpack_quantizer): 20, ("U-Net", xnnpack_quantizer): 11,
    ("MiniLM, static", xnnpack_quantizer): 24,
    ("EmbeddingBag", xnnpack_quantizer): 1, ("EmbeddingBag", x86_quantizer): 1,
}  # fmt: skip


@pytest.mark.parametrize(("name", "quantizer"), LEAST_INT8, ids=lambda v: getattr(v, "__name__", v))
def test_graphs_of_torchao_become_programs_with_their_scales(name: str, quantizer: Any) -> None:
    given = case(name)
    theirs = converted(given, quantizer())
    model = zeropoint.from_pt2e(theirs)
    assert model.summary().counts()["int8"] >= LEAST_INT8[name, quantizer]
    with torch.no_grad():
        expected, found = theirs(*given.example), model(*given.example)
        assert (found - expected).abs().max() <= TIES * step_of(expected)
        assert torch.equal(zeropoint.compile(model, given.example)(*given.example), found)


def test_exported_programs_are_taken_too() -> None:
    given = case("U-Net")
    theirs = converted(given, xnnpack_quantizer())
    exported = torch.export.export(theirs, given.example)
    with torch.no_grad():
        assert torch.equal(zeropoint.from_pt2e(exported)(*given.example), zeropoint.from_pt2e(theirs)(*given.example))


def test_what_is_no_graph_and_what_is_not_quantized_is_refused() -> None:
    with pytest.raises(TypeError, match="takes the output of convert_pt2e"):
        zeropoint.from_pt2e(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="nothing in this model would run in int8"):
        zeropoint.from_pt2e(torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),)))


def test_dynamic_quantization_of_torchao_is_named() -> None:
    given = case("MiniLM, dynamic")
    theirs = converted(given, x86_dynamic_quantizer())
    with pytest.raises(NotImplementedError, match="choose_qparams"):
        zeropoint.from_pt2e(theirs)


@pytest.mark.parametrize("name", ["ResNet", "MobileNetV2", "U-Net", "MiniLM, static"])
def test_our_quantizer_in_pt2e_chooses_what_to_int8_does(name: str) -> None:
    from zeropoint.interop.pt2e_quantizer import ZeropointQuantizer

    given = case(name)
    theirs = converted(given, ZeropointQuantizer())
    model = zeropoint.from_pt2e(theirs)
    ours = given.quantized().summary().counts()
    assert model.summary().counts()["int8"] >= ours["int8"]
    with torch.no_grad():
        expected, found = theirs(*given.example), model(*given.example)
        assert (found - expected).abs().max() <= TIES * step_of(expected)
        assert torch.equal(zeropoint.compile(model, given.example)(*given.example), found)
