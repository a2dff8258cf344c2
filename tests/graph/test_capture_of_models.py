"""Recurrent layers, pads and masks in captured graphs."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from eight_bit_steps import steps_between
from few_layers import Layers
from torch import Tensor, nn

import zeropoint
from zeropoint.graph.frontends.export import capture


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (nn.LSTM(5, 4, 2, batch_first=True), "aten.lstm.input"),
        (nn.LSTM(5, 4, bidirectional=True), "aten.lstm.input"),
        (nn.LSTM(5, 4, proj_size=3), "aten.lstm.input"),
        (nn.GRU(5, 4, 2, bidirectional=True), "aten.gru.input"),
    ],
)
def test_recurrent_layer_is_one_node_and_takes_any_length(layer, name):
    graph = capture(layer.eval(), (torch.randn(2, 3, 5),))
    assert [str(n.target) for n in graph.graph.nodes if n.op == "call_function"].count(name) == 1
    x = torch.randn(7, 6, 5)
    with torch.no_grad():
        torch.testing.assert_close(graph(x)[0], layer(x)[0])


class Padded(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.first, self.second, self.value = nn.Conv2d(2, 3, 3), nn.Conv2d(3, 2, 3), value

    def forward(self, x):
        return self.second(F.pad(self.first(x), (1, 2, 0, 1), value=self.value))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_only_zero_pads_stay_integers(value):
    torch.manual_seed(0)
    model, x = Padded(value).eval(), torch.randn(2, 2, 8, 8)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert bool(quantized.summary().of("pad")) == (value != 0)
    with torch.no_grad():
        assert steps_between(quantized(x), model(x)) <= 4


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x, mask):
        scores = self.query(x) @ self.key(x).transpose(1, 2) + mask
        return torch.tanh(torch.exp(self.out(torch.softmax(scores, -1) @ self.value(x))))


def test_mask_does_not_take_the_steps_of_the_scores():
    torch.manual_seed(0)
    model, x = Masked().eval(), torch.randn(2, 6, 8)
    mask = torch.zeros(2, 6, 6)
    mask[:, :, 4:] = -1e4
    quantized = zeropoint.to_int8(model, (x, mask), [(x, mask)], progress=False)
    assert quantized.summary().of("add")[0].precision == "float32"
    with torch.no_grad():
        assert steps_between(quantized(x, mask), model(x, mask)) <= 4


def test_linear_layer_that_only_floats_read_is_not_rounded():
    torch.manual_seed(0)
    model, x = Masked().eval(), torch.randn(2, 6, 8)
    quantized = zeropoint.to_int8(model, (x, torch.zeros(2, 6, 6)), progress=False)
    targets = [str(n.target) for n in quantized.graph_module.graph.nodes]
    assert targets.count("zeropoint.linear_to_float.default") == 1


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_a_model_takes_keywords_that_its_forward_does_not_name(mode: str) -> None:
    class Keywords(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x: Tensor, **more: Tensor) -> Tensor:
            return self.first(x) + self.second(more["y"])

    torch.manual_seed(0)
    inputs = {"x": torch.randn(2, 4), "y": torch.randn(2, 4)}
    data = {"calibration": [inputs]} if mode == "static" else {}
    quantized = zeropoint.to_int8(Keywords().eval(), inputs, mode=mode, progress=False, **data)
    longer = {name: torch.randn(5, 4) for name in inputs}
    program = zeropoint.compile(quantized, inputs)
    assert torch.equal(program(**longer), quantized(**longer))


class OtherFloats(nn.Module):
    """Weights in other floats, a conversion to the input's, the lowest number of the type, and a float32 between."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3)
        self.to(dtype)
        self.register_buffer("shift", torch.ones(3, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        h = nn.functional.gelu(self.first(x.to(self.first.weight.dtype)))
        h = h.masked_fill(h < -0.1, torch.finfo(h.dtype).min).clamp(min=-1)
        h = self.norm(h.float().to(h.dtype) if h.dtype != torch.float64 else h)
        return self.last(h) + self.shift


@pytest.mark.parametrize("mode", ["static", "dynamic"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_a_model_in_other_floats_computes_in_float32(dtype: torch.dtype, mode: str) -> None:
    torch.manual_seed(0)
    model, x = OtherFloats(dtype).eval(), torch.randn(32, 4)
    exact = copy.deepcopy(model).float()
    for given in (x, x.to(dtype)):  # weights, or inputs too
        data = {"calibration": [given]} if mode == "static" else {}
        quantized = zeropoint.to_int8(model, (given,), mode=mode, progress=False, **data)
        assert [row.precision[:4] for row in quantized.summary().of("linear")] == ["int8", "int8"]
        assert (quantized(given) - exact(x)).norm() < 0.03 * exact(x).norm()
        assert quantized(given).dtype == torch.float32
        program = zeropoint.compile(quantized, (x,))
        assert torch.equal(program(x), quantized(x))
    assert model.first.weight.dtype == dtype


def test_vmap_is_operators_on_batches() -> None:
    """What torch.export takes of it fails when it is run."""

    class Mapped(Layers):
        def forward(self, x: Tensor) -> Tensor:
            return torch.vmap(lambda v: self.layer(v) * v.sum())(x)

    torch.manual_seed(0)
    model, x, other = Mapped(layer=nn.Linear(8, 8)).eval(), torch.randn(3, 5, 8), torch.randn(4, 5, 8)
    quantized = zeropoint.to_int8(model, (x,), mode="dynamic", progress=False)
    assert quantized.summary().counts()["int8, dynamic"] == 1
    assert (quantized(other) - model(other)).norm() < 0.02 * model(other).norm()
    program = zeropoint.compile(quantized, (x,))
    assert torch.equal(program(other), quantized(other))


class Condition(Layers):
    """One of two layers, by a condition on the data."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.large(x).relu(), lambda x: self.small(x) - 1, (x,))


def test_both_sides_of_a_condition_are_quantized_and_compiled() -> None:
    torch.manual_seed(0)
    model, x = Condition(large=nn.Linear(8, 6), small=nn.Linear(8, 6)).eval(), torch.randn(16, 8)
    quantized = zeropoint.to_int8(model, (x,), [x, x + 1, x - 1], progress=False)
    assert sum(row.operator == "linear" and row.precision == "int8" for row in quantized.summary().rows) == 2
    program = zeropoint.compile(quantized, (x,))
    for given in (x + 1, x - 1):
        expected = model(given)
        assert (quantized(given) - expected).norm() < 0.03 * expected.norm()
        assert torch.equal(program(given), quantized(given))


def test_a_count_of_calls_is_a_state_without_axes() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)
            self.register_buffer("calls", torch.tensor(5))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            self.calls += 1
            return self.layer(x), self.calls * 2

    model, x = Counts().eval(), torch.randn(2, 4)
    program = zeropoint.compile(zeropoint.to_int8(model, (x,), mode="dynamic", progress=False), (x,))
    assert [program(x)[1].tolist() for _ in range(2)] == [12, 14]


def test_a_dataclass_is_a_dictionary_in_a_program() -> None:
    from tests.zoo.plain_habits import DataclassOutput

    model, inputs = DataclassOutput().eval(), {"features": torch.randn(4, 10)}
    quantized = zeropoint.to_int8(model, inputs, mode="dynamic", progress=False)
    given, expected = zeropoint.compile(quantized, inputs)(**inputs), quantized(**inputs)
    assert list(given) == ["logits", "hidden", "loss"]
    assert torch.equal(given["logits"], expected.logits)
    assert torch.equal(given["hidden"], expected.hidden)
    assert given["loss"] is None


def test_what_a_float32_model_computes_in_float64_stays_so() -> None:
    class Phase(Layers):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(torch.sin((x.double() * 1e9).cumsum(-1)).float())

    torch.manual_seed(0)
    model, x = Phase(layer=nn.Linear(4, 4)).eval(), torch.rand(8, 4)
    quantized = zeropoint.to_int8(model, (x,), mode="dynamic", progress=False)
    expected = model(x)
    assert (quantized(x) - expected).norm() < 0.02 * expected.norm()  # sines of phases in float32 are random numbers


def test_a_model_may_take_more_inputs_than_it_is_called_with() -> None:
    class Open(Layers):
        def forward(self, x: Tensor, *others: Tensor, **named: Tensor) -> Tensor:
            return sum((*others, *named.values()), self.layer(x))

    graph = capture(Open(layer=nn.Linear(4, 2)).eval(), (torch.randn(3, 4),))
    assert graph(torch.randn(7, 4)).shape == (7, 2)


@pytest.mark.parametrize("mode", ["static", "dynamic"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolutions_take_one_image_without_a_batch(dims: int, mode: str) -> None:
    """They were captured, and the quantized graph refused its input."""
    torch.manual_seed(0)
    conv, turned = getattr(nn, f"Conv{dims}d"), getattr(nn, f"ConvTranspose{dims}d")
    model = nn.Sequential(conv(2, 4, 3, padding=1), nn.ReLU(), conv(4, 4, 2, padding="same"), turned(4, 3, 2, 2)).eval()
    x = torch.randn(2, *[6] * dims)
    quantized = zeropoint.to_int8(model, (x,), [x] if mode == "static" else None, mode=mode, progress=False)
    assert quantized.summary().counts() == {"int8" if mode == "static" else "int8, dynamic": 3}
    assert steps_between(quantized(x), model(x)) <= 4
    assert torch.equal(zeropoint.compile(quantized, (x,))(x), quantized(x))


class Gaussian(Layers):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log = self.layer(x).chunk(2, -1)
        spread = torch.distributions.Normal(mean, log.exp())
        return spread.log_prob(x[:, :4]).sum(-1), torch.distributions.Categorical(logits=mean).entropy()


def test_distributions_are_captured_and_check_their_values_again_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    model, x = Gaussian(layer=nn.Linear(6, 8)).eval(), torch.randn(3, 6)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert all(torch.equal(a, b) for a, b in zip(zeropoint.compile(quantized, (x,))(x), quantized(x)))
    with torch.no_grad():
        torch.testing.assert_close(capture(model, (x,))(x), model(x))
    with pytest.raises(ValueError, match="scale"):
        torch.distributions.Normal(0.0, -1.0)
