"""Operators that draw random numbers stay random in quantized graphs, and programs refuse them."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import zeropoint


class Between(nn.Module):
    """Two layers with `function` between them."""

    def __init__(self, function):
        super().__init__()
        self.first, self.function, self.last = nn.Linear(8, 8), function, nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(self.first(x)))


def _attention(need_weights: bool):
    layer = nn.MultiheadAttention(8, 2, dropout=0.5).requires_grad_(False)

    def call(x: Tensor) -> Tensor:
        weights = (layer.in_proj_weight, layer.in_proj_bias, None, None, False, 0.5, layer.out_proj.weight)
        return F.multi_head_attention_forward(
            x, x, x, 8, 2, *weights, layer.out_proj.bias, training=True, need_weights=need_weights
        )[0]

    return call


RANDOM = {
    "dropout": lambda x: F.dropout(x, 0.5, True),
    "dropout_": lambda x: F.dropout(x, 0.5, True, inplace=True),
    "dropout1d": lambda x: F.dropout1d(x, 0.5, True),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, True),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.5, True),
    "rrelu": lambda x: F.rrelu(x, 0.1, 0.9, True),
    "native_dropout": lambda x: torch.native_dropout(x, 0.5, True)[0],
    "scaled_dot_product_attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
    "multi_head_attention": _attention(False),
    "multi_head_attention_with_weights": _attention(True),
    "bernoulli": lambda x: x * torch.bernoulli(torch.full_like(x, 0.5)),
    "rand_like": lambda x: x * torch.rand_like(x),
    "randn": lambda x: x + torch.randn(8),
}


def _spread(model, x: Tensor) -> float:
    return torch.stack([model(x) for _ in range(40)]).std(0).mean().item()


@pytest.mark.parametrize("name", RANDOM)
def test_what_is_random_in_evaluation_is_random_in_graphs_and_refused_by_programs(name):
    torch.manual_seed(0)
    model, x = Between(RANDOM[name]).eval(), torch.randn(6, 20, 8)
    graph = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert _spread(graph, x) == pytest.approx(_spread(model, x), rel=0.2)
    with pytest.raises(NotImplementedError, match="fallback=True"):
        zeropoint.compile(graph, (x,))
    program = zeropoint.compile(graph, (x,), fallback=True)
    assert _spread(program, x) == pytest.approx(_spread(model, x), rel=0.2)


@pytest.mark.parametrize(("p", "training"), [(0.0, True), (0.5, False)])
def test_dropout_that_drops_nothing_is_compiled(p, training):
    model, x = Between(lambda x: F.dropout(x, p, training)).eval(), torch.randn(6, 8)
    graph = zeropoint.to_int8(model, (x,), [x], progress=False)
    torch.testing.assert_close(zeropoint.compile(graph, (x,))(x), graph(x), rtol=0, atol=0)


def test_dropout_of_all_gives_zeros():
    model, x = Between(lambda x: F.dropout(x, 1.0, True)).eval(), torch.randn(6, 8)
    graph = zeropoint.to_int8(model, (x,), [x], progress=False)
    torch.testing.assert_close(graph(x), model(x), rtol=0, atol=1e-6)
