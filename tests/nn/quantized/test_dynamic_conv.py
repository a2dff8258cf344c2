"""Convolutions on floats, next to torch.ao's, and all ways to copy them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.ao.quantization as oracle
from module_copies import assert_copies_compute_the_same, assert_equal, largest_difference, tensors
from torch import nn

import zeropoint
import zeropoint.nn.quantized.dynamic as nnqd
import zeropoint.nn.quantized.reference as nnqr

pytestmark = pytest.mark.filterwarnings("ignore:.*poor numerical accuracy")  # torch.ao of its own

KINDS = [f"Conv{transposed}{d}d" for transposed in ("", "Transpose") for d in (1, 2, 3)]
SIZES = {1: (11,), 2: (9, 8), 3: (5, 6, 7)}
QCONFIGS = ["default_dynamic_qconfig", "per_channel_dynamic_qconfig"]


def dims(kind: str) -> int:
    return int(kind[-2])


def made(kind: str, qconfig: str, **options: Any) -> tuple[Any, Any, torch.Tensor]:
    """A float layer as ours and as torch.ao's, and an input."""
    torch.manual_seed(5)
    layer = getattr(nn, kind)(4, 6, 3, **options).eval()
    theirs = copy.deepcopy(layer)
    layer.qconfig, theirs.qconfig = getattr(zeropoint, qconfig), getattr(oracle, qconfig)
    ours = getattr(nnqd, kind).from_float(layer)
    x = torch.randn(2, 4, *SIZES[dims(kind)])
    if "Transpose" in kind and "per_channel" in qconfig:
        return ours, None, x  # torch.ao has them per tensor only
    return ours, getattr(torch.ao.nn.quantized.dynamic, kind).from_float(theirs), x


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("kind", "qconfig"),
    [(k, q) for k in KINDS for q in QCONFIGS if "Transpose" not in k or "per_channel" not in q],  # what torch.ao has
)
def test_weights_equal_the_oracle_and_results_are_closer_to_those_of_floats(kind, bias, qconfig):
    ours, theirs, x = made(kind, qconfig, bias=bias, stride=2, padding=1)
    assert torch.equal(ours.weight().int_repr(), theirs.weight().int_repr())
    assert repr(ours) == repr(theirs)
    torch.manual_seed(5)
    wanted = getattr(nn, kind)(4, 6, 3, bias=bias, stride=2, padding=1)(x)
    # torch.ao rounds its results to 8 bits on the way, for which it warns of its accuracy; ours stay float.
    assert largest_difference(ours(x), wanted) < largest_difference(theirs(x), wanted)


@pytest.mark.parametrize("qconfig", QCONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_results_are_those_of_the_integers(kind, qconfig):
    ours, _, x = made(kind, qconfig, groups=2, padding=1)
    q = zeropoint.quantize_per_tensor_dynamic(x, zeropoint.quint8, reduce_range=True).dequantize()
    function = getattr(nn.functional, kind.replace("ConvTranspose", "conv_transpose").replace("Conv", "conv"))
    wanted = function(q, ours.weight().dequantize(), ours.bias(), padding=1, groups=2)
    torch.testing.assert_close(ours(x), wanted, rtol=1e-5, atol=1e-5)


def test_reflected_padding_happens_before_quantization():
    ours, _, x = made("Conv2d", "default_dynamic_qconfig", padding=2, padding_mode="reflect")
    plain, _, _ = made("Conv2d", "default_dynamic_qconfig")
    assert_equal(ours(x), plain(nn.functional.pad(x, (2, 2, 2, 2), mode="reflect")))


def test_reduce_range_can_be_chosen_for_the_layer_and_for_a_call():
    ours, _, x = made("Conv2d", "default_dynamic_qconfig")
    eight_bits = ours(x, reduce_range=False)
    assert not torch.equal(ours(x), eight_bits)
    ours.reduce_range = False
    assert_equal(ours(x), eight_bits)


@pytest.mark.parametrize("kind", KINDS)
def test_copies_compute_the_same(kind):
    ours, _, x = made(kind, "per_channel_dynamic_qconfig", padding=1)
    assert_copies_compute_the_same(ours, getattr(nnqd, kind)(4, 6, 3, padding=1), (x,))


@pytest.mark.parametrize("kind", KINDS)
def test_state_dict_of_torch_ao_loads(kind):
    ours, theirs, x = made(kind, "default_dynamic_qconfig")
    assert set(ours.state_dict()) == set(theirs.state_dict())
    blank = getattr(nnqd, kind)(4, 6, 3)
    blank.load_state_dict(theirs.state_dict())
    assert_equal(blank(x), ours(x))


@pytest.mark.parametrize("kind", KINDS)
def test_layer_of_a_reference_is_the_layer_of_the_float_layer(kind):
    ours, _, x = made(kind, "per_channel_dynamic_qconfig")
    torch.manual_seed(5)
    layer = getattr(nn, kind)(4, 6, 3)
    layer.qconfig = zeropoint.per_channel_dynamic_qconfig
    again = getattr(nnqd, kind).from_reference(getattr(nnqr, kind).from_float(layer))
    assert_equal(tensors(again(x)), ours(x))
