"""What architectures of other people do, and capture, quantization and programs must stand."""

from __future__ import annotations

import math
import warnings
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from eight_bit_steps import steps_between
from few_layers import Layers
from torch import Tensor, nn

import zeropoint


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def seeded(model: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) / math.sqrt(parameter.shape[-1])
    return model.eval()


def equal_program(quantized: nn.Module, *inputs: Tensor) -> None:
    program = zeropoint.compile(quantized, inputs)
    assert torch.equal(program(*inputs), quantized(*inputs))


class Doubled(nn.Module):
    """A product with a number in front of a layer on integers."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.sin(self.norm(self.a(x))) * 2)


def test_product_with_a_number_before_an_equalized_layer() -> None:
    model, x = seeded(Doubled()), random(16, 8)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False, policy={"equalize": True})
    step = (model(x).max() - model(x).min()) / 255
    assert (quantized(x) - model(x)).abs().max() < 8 * step  # two layers of 8 roundings each


class Joined(nn.Module):
    """As U-Net: what is too small is padded by the difference of the sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down, self.up = (
            nn.Conv2d(3, 4, 3, padding=1),
            nn.Conv2d(4, 4, 2, 2),
            nn.ConvTranspose2d(4, 4, 2, 2),
        )
        self.last = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = F.relu(self.first(x))
        up = self.up(self.down(skip))
        dy, dx = skip.size(2) - up.size(2), skip.size(3) - up.size(3)
        return self.last(torch.cat([skip, F.pad(up, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])], 1))


@pytest.mark.parametrize("shapes", [None, "all"])
def test_pads_of_computed_sizes(shapes: str | None) -> None:
    model, x = seeded(Joined()), random(2, 3, 9, 11)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False, dynamic_shapes=shapes)
    assert quantized.summary().counts()["int8"] >= 4
    equal_program(quantized, x)
    if shapes == "all":
        other = random(1, 3, 12, 7)
        assert quantized(other).shape == model(other).shape


class Guarded(nn.Module):
    """With regions that autocast is switched off in, and gradients."""

    def __init__(self, **options: object) -> None:
        super().__init__()
        self.a, self.b, self.options = nn.Linear(8, 8), nn.Linear(8, 8), options

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.a(x))
        with torch.autocast("cpu", **self.options), torch.set_grad_enabled(True):
            y = self.b(x.float())
            z = y * 2
        return y + z


def test_layers_inside_an_autocast_region_are_quantized_and_compiled() -> None:
    model, x = seeded(Guarded(enabled=False)), random(16, 8)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert [(row.path, row.precision) for row in quantized.summary().of("linear")] == [("a", "int8"), ("b", "int8")]
    equal_program(quantized, x)


def test_a_region_in_another_dtype_is_computed_in_float32() -> None:
    model, x = seeded(Guarded(dtype=torch.bfloat16)), random(16, 8)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert [(row.path, row.precision) for row in quantized.summary().of("linear")] == [("a", "int8"), ("b", "int8")]
    equal_program(quantized, x)
    exact = seeded(Guarded(enabled=False))(x)
    assert (quantized(x) - exact).norm() < 0.03 * exact.norm()


class Reader(nn.Module):
    """As CRNN: needs a height that is one after some layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.rnn = nn.Conv2d(1, 4, (8, 3), padding=(0, 1)), nn.LSTM(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(F.relu(self.conv(x)).squeeze(2).permute(2, 0, 1))[0]


def test_a_height_that_must_vanish_is_not_left_free() -> None:
    model, x = seeded(Reader()), random(1, 1, 8, 10)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert quantized(random(3, 1, 8, 10)).shape == (10, 3, 4)


def test_sizes_of_images_are_fixed_and_the_error_says_how_to_free_them() -> None:
    model, x = nn.Conv2d(1, 2, 3).eval(), random(2, 1, 8, 8)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    with pytest.raises(ValueError, match='dynamic_shapes="all"'):
        quantized(random(2, 1, 9, 9))
    free = zeropoint.to_int8(model, (x,), [x], progress=False, dynamic_shapes="all")
    assert free(random(5, 1, 9, 12)).shape == (5, 2, 7, 10)


class Whole(Layers):
    """Cannot be captured with a free length, as what is left of it must vanish."""

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).squeeze(2).permute(1, 0)


def test_capture_goes_on_with_fewer_free_sizes_and_says_which() -> None:
    model, x = seeded(Whole(layer=nn.Conv1d(1, 4, 8))), random(2, 1, 8)
    with pytest.warns(
        UserWarning, match="size 8 of x along axis 2 is fixed: the model cannot be captured with a dynamic size there"
    ):
        quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert quantized(random(5, 1, 8)).shape == (4, 5)


class Pair(Layers):
    def forward(self, x: Tensor, *, other: Tensor) -> Tensor:
        return self.a(x) - self.b(other)


def test_example_inputs_may_be_keywords_all_the_way_to_a_program() -> None:
    model, given = seeded(Pair(a=nn.Linear(4, 4), b=nn.Linear(4, 4))), {"x": random(3, 4), "other": random(3, 4) * 2}
    quantized = zeropoint.to_int8(model, given, [given], progress=False)
    program = zeropoint.compile(quantized, dict(reversed(given.items())))
    assert torch.equal(program(**given), quantized(**given))
    dynamic = zeropoint.to_int8(model, given, mode="dynamic", progress=False)
    assert dynamic(**given).shape == (3, 4)
    with pytest.raises(ValueError, match="example_inputs must have x, other, got x"):
        zeropoint.compile(quantized, {"x": given["x"]})


def test_errors_can_be_caught_by_their_public_names() -> None:
    class Choosy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(zeropoint.CaptureError):
        zeropoint.to_int8(Choosy(), (random(2, 2),), progress=False)
    assert issubclass(zeropoint.Unsupported, Exception)
    assert issubclass(zeropoint.NotCalibrated, ValueError)


class Spelled(nn.Module):
    """RMSNorm and LayerNorm in the spellings of different authors, before a layer."""

    def __init__(self, spelling: str) -> None:
        super().__init__()
        self.spelling, self.last = spelling, nn.Linear(16, 8)
        self.weight, self.bias = nn.Parameter(torch.rand(16) + 0.5), nn.Parameter(torch.rand(16))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(getattr(self, self.spelling)(x))

    def rsqrt(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight

    def llama(self, x: Tensor) -> Tensor:
        h = x.to(torch.float32)
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * h.to(x.dtype)

    def gemma(self, x: Tensor) -> Tensor:
        y = x.float() * torch.pow(x.float().pow(2).mean(-1, keepdim=True) + 1e-6, -0.5)
        return y * (1.0 + self.weight.float())

    def divided(self, x: Tensor) -> Tensor:
        return x / torch.sqrt((x * x).mean(2, keepdim=True) + 1e-6) * self.weight

    def inverse(self, x: Tensor) -> Tensor:
        return self.weight * ((1 / torch.sqrt(x.square().mean(-1, True) + 1e-6)) * x)

    def functional(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (16,), self.weight, 1e-6)

    def layer_by_var(self, x: Tensor) -> Tensor:
        mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
        return (x - mean) / torch.sqrt(var + 1e-6) * self.weight + self.bias

    def layer_by_square(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        var = (x - mean).pow(2).mean(-1, keepdim=True)
        return (x - mean) * torch.rsqrt(var + 1e-6) * self.weight + self.bias


SPELLINGS = ("rsqrt", "llama", "gemma", "divided", "inverse", "functional", "layer_by_square", "layer_by_var")


def spread(rows: int = 12) -> Tensor:
    """Rows of very different size, one of them nearly zero, as that of a padding token."""
    sizes = torch.logspace(-1, 1, rows)
    sizes[3] = 1e-7
    return random(2, rows, 16) * sizes[:, None]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_norm_in_any_spelling_is_one_operator_in_float(spelling: str) -> None:
    torch.manual_seed(0)
    model, x = Spelled(spelling).eval(), spread()
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    name = "layer_norm" if spelling.startswith("layer") else "rms_norm"
    assert [(row.operator, row.precision) for row in quantized.summary().rows] == [
        (name, "float32"),
        ("linear", "int8"),
    ]
    error = (quantized(x) - model(x)).abs().max()
    assert error < 0.02 * model(x).abs().max()
    equal_program(quantized, x)


def test_what_looks_like_a_norm_and_is_none_stays_in_parts() -> None:
    class Other(Layers):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.last(x * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6))

    x, y = random(2, 5, 16), random(2, 5, 16).flip(0) * 3
    model = seeded(Other(last=nn.Linear(16, 8)))
    quantized = zeropoint.to_int8(model, (x, y), [(x, y)], progress=False)
    assert not quantized.summary().of("rms_norm")
    assert steps_between(quantized(x, y), model(x, y)) <= 4


class Inverse(nn.Module):
    """A product with a wide function, of values on integers: rounding it would leave zeros."""

    def __init__(self, function: str) -> None:
        super().__init__()
        self.a, self.b, self.function = nn.Linear(8, 8), nn.Linear(8, 8), function

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        wide = getattr(torch, self.function)(y.abs() + 1e-6)
        return F.relu(self.a(x)) * (wide * 2).unsqueeze(-1)


@pytest.mark.parametrize("function", ["rsqrt", "reciprocal"])
def test_sums_and_products_do_not_round_functions_with_wide_results(function: str) -> None:
    model, x, y = seeded(Inverse(function)), random(16, 8), random(16) + 3
    y[0] = 0
    quantized = zeropoint.to_int8(model, (x, y), [(x, y)], policy={"widen_ranges": False}, progress=False)
    wanted, given = model(x, y)[1:], quantized(x, y)[1:]
    assert steps_between(given, wanted) <= 4
    assert any(f"reads {function}" in row.reason for row in quantized.summary().of("mul"))


def test_an_operator_whose_values_are_lost_is_named_with_the_way_out() -> None:
    class Lost(Layers):
        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

    model, x = seeded(Lost(inner=nn.Linear(8, 8))), random(16, 8)
    x[0] *= 1e6
    with pytest.warns(UserWarning, match=r"lose nearly all.*linear in inner.*set_module_name"):
        zeropoint.to_int8(model, (x,), [x], policy={"float_outputs": False}, progress=False)


def test_small_values_among_the_channels_of_one_pixel_are_not_taken_for_lost() -> None:
    model, x = seeded(nn.Sequential(nn.Conv2d(3, 64, 1), nn.Conv2d(64, 8, 1))), random(2, 3, 1, 1)
    with torch.no_grad():  # more than half of the channels are less than half a step
        model[0].weight.mul_(torch.logspace(-4, 0, 64)[:, None, None, None])
        model[0].bias.zero_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        zeropoint.to_int8(model, (x,), [x], progress=False)


def test_of_values_with_one_scale_the_lost_one_is_named() -> None:
    class Joined(Layers):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(torch.cat([self.large(x), self.small(x) * 1e-6]))

    model, x = seeded(Joined(large=nn.Linear(8, 32), small=nn.Linear(8, 32))), random(16, 8)
    with pytest.warns(UserWarning, match=r"calibration data: linear in small \(0.0 dB\)"):
        zeropoint.to_int8(model, (x,), [x], progress=False)


class Capped(nn.Module):
    """Attention whose scores go through a tanh, as Gemma-2 has it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.RMSNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        scores = torch.tanh(q @ k.transpose(-2, -1) / math.sqrt(8) / 50) * 50
        return x + self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_capped_scores_belong_to_attention_and_stay_float() -> None:
    model, x = seeded(Capped()), random(2, 12, 32)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    ways = {row.operator: row.precision for row in quantized.summary().rows}
    assert ways["tanh"] == ways["softmax"] == "float32"
    assert ways["matmul"] == ways["linear"] == "int8"


class Elman(nn.Module):
    def __init__(self, **options: object) -> None:
        super().__init__()
        self.rnn, self.last = nn.RNN(8, 16, batch_first=True, **options), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.rnn(x)[0])


@pytest.mark.parametrize("mode", ["static", "dynamic"])
@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_simple_recurrent_layers_are_quantized_for_any_length(nonlinearity: str, mode: str) -> None:
    model, x = seeded(Elman(nonlinearity=nonlinearity)), random(2, 6, 8)
    quantized = zeropoint.to_int8(model, (x,), [x] if mode == "static" else None, mode=mode, progress=False)
    (row,) = quantized.summary().of(f"quantized_rnn_{nonlinearity}")
    assert row.precision == "int8, dynamic"
    longer = random(3, 9, 8)
    assert steps_between(quantized(x), model(x)) <= 4
    program = zeropoint.compile(quantized, (x,))
    assert torch.equal(program(longer), quantized(longer))


class Worded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(20, 8), nn.Linear(8, 4)

    def forward(self, words: Tensor) -> Tensor:
        return self.last(self.table(words))


@pytest.mark.parametrize(
    ("mode", "policy", "way"),
    [
        ("dynamic", None, "float32"),
        ("dynamic", {"embedding_bits": 8}, "int8, dynamic"),
        ("static", None, "int8, dynamic"),
        ("static", {"embedding_bits": 0}, "float32"),
    ],
)
def test_tables_stay_float_in_dynamic_mode_unless_asked(mode: str, policy: dict | None, way: str) -> None:
    words = torch.arange(6).reshape(2, 3)
    data = [words] if mode == "static" else None
    quantized = zeropoint.to_int8(seeded(Worded()), (words,), data, mode=mode, policy=policy, progress=False)
    assert [row.precision for row in quantized.summary().of("embedding")] == [way]


class Cache:
    """As what models of transformers give to the next call."""


class Caching(Worded):
    def __init__(self, use_cache: bool | None) -> None:
        super().__init__()
        if use_cache is not None:
            self.config = SimpleNamespace(use_cache=use_cache)

    def forward(self, words: Tensor) -> dict[str, object]:  # type: ignore[override]
        return {"logits": super().forward(words), "past_key_values": Cache()}


@pytest.mark.parametrize(
    ("use_cache", "advice"), [(True, r"model\.config\.use_cache = False"), (None, "wrap the model")]
)
def test_a_result_that_is_no_tensor_is_named_with_the_way_out(use_cache: bool | None, advice: str) -> None:
    with pytest.raises(zeropoint.CaptureError, match=f"Caching returns a Cache.*{advice}"):
        zeropoint.to_int8(Caching(use_cache).eval(), (torch.zeros(1, 2, dtype=torch.int64),), progress=False)
