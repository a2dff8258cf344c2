"""Mixtures of experts with sorted tokens: all experts together become one linear layer."""

from __future__ import annotations

import pytest
import torch
from few_layers import Layers
from torch import Tensor, nn

import zeropoint
from zeropoint.graph.passes.canonicalize import REWRITTEN
from zeropoint.graph.passes.decompose_experts import EXPERTS

# transformers registers such an operator when it is imported; torch._grouped_mm itself takes no float32 in what is
# exported. This one means the same.
_LIBRARY = torch.library.Library("experts_of_a_test", "DEF")
_LIBRARY.define("grouped(Tensor input, Tensor weight, Tensor offs) -> Tensor")


def _grouped(input: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    begins = [0, *offs.tolist()]
    return torch.cat([input[a:b] @ w for a, b, w in zip(begins, begins[1:], weight)])


_LIBRARY.impl("grouped", _grouped, "CompositeExplicitAutograd")
torch.library.register_fake(
    "experts_of_a_test::grouped", lambda x, w, offs: x.new_empty((x.shape[0], w.shape[2])), lib=_LIBRARY
)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    found = EXPERTS["transformers.grouped_mm_fallback.default"]
    monkeypatch.setitem(REWRITTEN, "experts_of_a_test.grouped.default", found)


class Experts(nn.Module):
    """Tokens sorted by expert, counted by histc, multiplied group by group, and put back."""

    def __init__(self, experts: int = 3) -> None:
        super().__init__()
        self.experts, self.router = experts, nn.Linear(16, experts)
        self.weight = nn.Parameter(torch.randn(experts, 16, 32) * 0.25)

    def forward(self, x: Tensor) -> Tensor:
        which, order = torch.sort(self.router(x).argmax(-1))
        counts = torch.histc(which.float(), bins=self.experts, min=0, max=self.experts - 1)
        ends = torch.cumsum(counts, 0, dtype=torch.int32)
        made = torch.ops.experts_of_a_test.grouped(x[order], self.weight, ends)
        return torch.zeros_like(made).index_copy(0, order, made)


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_the_experts_are_a_layer_on_integers_and_the_program_gives_the_same_bytes(mode: str) -> None:
    torch.manual_seed(0)
    model, batches = Experts().eval(), [torch.randn(9, 16) for _ in range(4)]
    data = {"calibration": batches} if mode == "static" else {}
    policy = {"widen_ranges": False}  # with coarser steps the router chooses another expert for one token
    quantized = zeropoint.to_int8(model, (batches[0],), mode=mode, policy=policy, progress=False, **data)
    layers = [row for row in quantized.summary().rows if row.operator == "linear"]
    assert len(layers) == 2  # the experts and the router
    assert all(row.precision.startswith("int8") for row in layers)
    program = zeropoint.compile(quantized, (batches[0],))
    for x in (batches[1], torch.cat(batches), batches[2][:1]):
        expected = model(x).detach()
        # Half a step of weights and of inputs for each of 16 products, and of the result.
        bound = float(expected.abs().max()) * (16**0.5 + 1) / 127
        assert float((quantized(x) - expected).abs().max()) < bound
        assert torch.equal(program(x), quantized(x))


def test_an_expert_that_nobody_asks_for_and_one_that_all_ask_for() -> None:
    torch.manual_seed(0)
    model, x = Experts().eval(), torch.randn(5, 16)
    with torch.no_grad():
        model.router.bias.copy_(torch.tensor([-50.0, 50.0, -50.0]))
    quantized = zeropoint.to_int8(model, (x,), mode="dynamic", progress=False)
    assert torch.allclose(quantized(x), x @ model.weight[1], atol=0.1)
    assert torch.equal(zeropoint.compile(quantized, (x,))(x), quantized(x))


def test_a_hundred_experts_make_a_graph_no_larger_than_three_do() -> None:
    """transformers has models with 256: with nodes for each of them, `to_int8` would take minutes."""
    x = torch.randn(5, 16)
    sizes = [len(zeropoint.to_int8(Experts(n).eval(), (x,), mode="dynamic").graph_module.graph.nodes) for n in (3, 100)]
    assert sizes[0] == sizes[1]


class Gathered(nn.Module):
    """The weights of each token's expert gathered, and of each place its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(16, 4)
        self.weight = nn.Parameter(torch.randn(4, 16, 24))
        self.places = nn.Parameter(torch.randn(50, 24))

    def forward(self, x: Tensor) -> Tensor:
        which = self.router(x).argmax(-1)
        return (x.unsqueeze(1) @ self.weight[which]).squeeze(1) + self.places[: x.shape[0]]


def test_the_range_of_what_is_chosen_from_a_parameter_is_that_of_the_parameter() -> None:
    torch.manual_seed(0)
    model = Gathered().eval()
    with torch.no_grad():
        model.router.bias.copy_(torch.tensor([9.0, 0.0, 0.0, 0.0]))  # calibration sees one expert
    batches = [torch.randn(6, 16) for _ in range(4)]
    quantized = zeropoint.to_int8(model, (batches[0],), batches, progress=False)
    scales = {
        node.args[0].target: node.args[1]
        for node in quantized.graph_module.graph.nodes
        if "quantize_per_tensor" in str(node.target) and node.args[0].op == "get_attr"
    }
    for name in ("weight", "places"):
        parameter = getattr(model, name).detach()
        # A histogram may cut a little off, and never leaves room for more.
        assert 0.8 < scales[name] * 255 / float(parameter.max() - parameter.min()) <= 1 + 1e-5
    x = 3 * torch.randn(6, 16)
    assert torch.equal(zeropoint.compile(quantized, (x,))(x), quantized(x))


class Router(Layers):
    """Which two of 64 experts, and with what weights."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        weights, which = self.scores(x).softmax(-1).topk(2)
        return weights / weights.sum(-1, keepdim=True), which


def test_scores_that_decide_which_experts_are_asked_are_not_rounded() -> None:
    """A probability of 64 is a few steps of 1/256: rounded ones are often equal."""
    torch.manual_seed(0)
    model, batches = Router(scores=nn.Linear(16, 64)).eval(), [torch.randn(64, 16) for _ in range(20)]
    quantized = zeropoint.to_int8(model, (batches[0],), batches, progress=False)
    x = torch.cat(batches)
    agree = float((quantized(x)[1][:, 0] == model(x)[1][:, 0]).float().mean())
    assert agree > 0.95  # with rounded probabilities 0.905
    assert next(row.precision for row in quantized.summary().rows if row.operator == "softmax") == "float32"
