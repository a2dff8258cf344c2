"""Fake-quantize modules that learn their steps, and their operators, against PyTorch's; and alone."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import torch
from hypothesis import given
from observer_pairs import (
    KINDS,
    MANY_RANGES,
    ONE_RANGE,
    PER_CHANNEL_SCHEMES,
    PER_TENSOR_SCHEMES,
    assert_equal,
    assert_same_qparams,
    assert_same_settings,
    assert_same_state,
    pair,
    quietly,
)
from strategies import generator, seeds

from zeropoint.fake_quant import (
    _LearnableFakeQuantize,
)
from zeropoint.observers import (
    MovingAverageMinMaxObserver,
)


def learned(module: Any, x: torch.Tensor) -> dict[str, torch.Tensor]:
    leaf = x.detach().clone().requires_grad_()
    module.zero_grad()
    with quietly():
        y = module(leaf)
        if y.requires_grad and y is not leaf:
            (y * torch.randn(x.shape, generator=generator(1))).sum().backward()
    found = {"value": y.detach(), "dx": leaf.grad, "dscale": module.scale.grad, "dzero": module.zero_point.grad}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


# Gradients of a scale are sums over the tensor: their order is ours.
SUMS = {"rtol": 1e-5, "atol": 1e-5}


def assert_learns_alike(both: tuple[Any, Any], x: torch.Tensor) -> None:
    mine, other = (learned(module, x) for module in both)
    assert set(mine) == set(other)
    for name in other:
        if name in ("value", "dx"):
            assert_equal(mine[name], other[name], name)
        else:
            torch.testing.assert_close(mine[name], other[name], **SUMS)
    assert_same_state(*both)


@given(data=st.data())
def test_learnable_modules_equal_the_oracle_in_every_state(data):
    per_channel = data.draw(st.booleans())
    schemes = PER_CHANNEL_SCHEMES[:2] if per_channel else PER_TENSOR_SCHEMES
    both = pair(
        "_LearnableFakeQuantize",
        observer=(MANY_RANGES if per_channel else ONE_RANGE)[data.draw(st.integers(0, 1))],
        qscheme=data.draw(st.sampled_from(schemes)),
        quant_min=0,
        quant_max=data.draw(st.sampled_from([255, 15, 3])),
        channel_len=5 if per_channel else -1,
        use_grad_scaling=data.draw(st.booleans()),
        scale=0.2,
        zero_point=1.0,
        **({"ch_axis": 1} if per_channel else {}),
    )
    assert_same_settings(*both)
    for _ in range(data.draw(st.integers(1, 4))):
        name = data.draw(
            st.sampled_from(
                ["enable_param_learning", "enable_static_estimate", "enable_static_observation", "zero_grad"]
            )
        )
        for module in both:
            getattr(module, name)()
        x = KINDS[data.draw(st.sampled_from(["normal", "positive", "outlier", "zeros"]))](
            generator(data.draw(seeds)), (4, 5, 3)
        )
        assert_learns_alike(both, x.to(torch.float32))
        assert_same_qparams(*both)


def test_learnable_state_dicts_move_to_the_oracle_and_back():
    options = {"observer": "MovingAverageMinMaxObserver", "quant_min": 0, "quant_max": 15}
    mine, other = pair("_LearnableFakeQuantize", **options)
    for module in (mine, other):
        module(torch.randn(30, generator=generator(0)))
        module.enable_param_learning()
    again = pair("_LearnableFakeQuantize", **options)
    again[0].load_state_dict(other.state_dict())
    again[1].load_state_dict(mine.state_dict())
    assert_same_state(*again)
    for module in again:
        module.toggle_qparam_learning(True)
    assert_learns_alike(again, torch.randn(30, generator=generator(1)))


def test_learning_lowers_the_error_of_quantization():
    x = torch.randn(4000, generator=generator(0))
    module = _LearnableFakeQuantize(MovingAverageMinMaxObserver, quant_min=0, quant_max=15)
    before = (module(x) - x).square().mean().item()
    module.enable_param_learning()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.02)
    for _ in range(80):
        optimizer.zero_grad()
        (module(x) - x).square().mean().backward()
        optimizer.step()
    assert (module(x) - x).square().mean().item() < 0.9 * before


def test_scales_that_training_drives_below_zero_come_back_to_eps(capsys):
    module = _LearnableFakeQuantize(MovingAverageMinMaxObserver).enable_param_learning()
    with torch.no_grad():
        module.scale.fill_(-1.0)
        module.zero_point.fill_(300.7)
    scale, zero_point = module.calculate_qparams()
    assert scale.item() == module.eps.item()
    assert (zero_point.item(), zero_point.dtype) == (255, torch.int64)
    module.observe_quant_params()
    assert "scale" in capsys.readouterr().out


RANGES = [(0, 255), (-128, 127), (0, 3), (-8, 7)]


@given(data=st.data())
def test_learnable_operator_per_tensor_equals_the_oracle(data):
    qmin, qmax = data.draw(st.sampled_from(RANGES))
    g = generator(data.draw(seeds))
    x = torch.randn(4, 9, generator=g) * data.draw(st.sampled_from([0.1, 1.0, 30.0]))
    scale = torch.rand(1, generator=g) * 0.3 + 1e-3
    zero_point = torch.rand(1, generator=g) * (qmax - qmin + 4) + qmin - 2
    arguments = (qmin, qmax, data.draw(st.sampled_from([1.0, 0.1])))
    compare_learnable(
        torch.ops.zeropoint.fake_quantize_learnable_per_tensor_affine,
        torch._fake_quantize_learnable_per_tensor_affine,
        (x, scale, zero_point),
        arguments,
    )


@given(data=st.data())
def test_learnable_operator_per_channel_equals_the_oracle(data):
    qmin, qmax = data.draw(st.sampled_from(RANGES))
    g = generator(data.draw(seeds))
    shape = data.draw(st.sampled_from([(4, 9), (3, 4, 5), (2, 3, 4, 5)]))
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = torch.randn(shape, generator=g) * data.draw(st.sampled_from([0.1, 1.0, 30.0]))
    scale = torch.rand(shape[axis], generator=g) * 0.3 + 1e-3
    zero_point = torch.rand(shape[axis], generator=g) * (qmax - qmin + 4) + qmin - 2
    compare_learnable(
        torch.ops.zeropoint.fake_quantize_learnable_per_channel_affine,
        torch._fake_quantize_learnable_per_channel_affine,
        (x, scale, zero_point),
        (axis, qmin, qmax, data.draw(st.sampled_from([1.0, 0.1]))),
    )


def test_learnable_operator_takes_a_vector_of_channels():
    """PyTorch cannot sum over no axes."""
    x, scale, zero_point = (torch.tensor(v, requires_grad=True) for v in ([0.3, 9.0], [0.25, 1.0], [0.0, 0.0]))
    y = torch.ops.zeropoint.fake_quantize_learnable_per_channel_affine(x, scale, zero_point, 0, 0, 7)
    y.sum().backward()
    assert y.tolist() == [0.25, 7.0]
    torch.testing.assert_close(scale.grad, torch.tensor([-0.2, 7.0]))
    torch.testing.assert_close(zero_point.grad, torch.tensor([0.0, -1.0]))


def compare_learnable(mine: Any, other: Any, leaves: tuple[torch.Tensor, ...], rest: tuple[Any, ...]) -> None:
    upstream = torch.randn(leaves[0].shape, generator=generator(3))
    found = []
    for function in (mine, other):
        own = [leaf.clone().requires_grad_() for leaf in leaves]
        y = function(*own, *rest)
        found.append((y.detach(), *torch.autograd.grad(y, own, upstream)))
    (y, dx, *sums), (expected, expected_dx, *expected_sums) = found
    assert_equal(y, expected, "value")
    assert_equal(dx, expected_dx, "dx")
    for a, b, what in zip(sums, expected_sums, ("scale", "zero_point")):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-3, msg=lambda m, what=what: f"gradient of {what}: {m}")
