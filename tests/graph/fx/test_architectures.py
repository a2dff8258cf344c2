"""What architectures of other people do, and capture, quantization and programs must stand."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
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
    assert [(row.path, row.way) for row in quantized.summary().of("linear")] == [("a", "int8"), ("b", "int8")]
    equal_program(quantized, x)


def test_a_region_in_another_dtype_is_refused_in_words() -> None:
    with pytest.raises(NotImplementedError, match="switches autocast to torch.bfloat16 on"):
        zeropoint.to_int8(seeded(Guarded(dtype=torch.bfloat16)), (random(4, 8),), progress=False)


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


class Whole(nn.Module):
    """Cannot be captured with a free length, as what is left of it must vanish."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(1, 4, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).squeeze(2).permute(1, 0)


def test_capture_goes_on_with_fewer_free_sizes_and_says_which() -> None:
    model, x = seeded(Whole()), random(2, 1, 8)
    with pytest.warns(
        UserWarning, match="size 8 of x along axis 2 is fixed: the model cannot be captured with it free"
    ):
        quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert quantized(random(5, 1, 8)).shape == (4, 5)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor, *, other: Tensor) -> Tensor:
        return self.a(x) - self.b(other)


def test_example_inputs_may_be_keywords_all_the_way_to_a_program() -> None:
    model, given = seeded(Pair()), {"x": random(3, 4), "other": random(3, 4) * 2}
    quantized = zeropoint.to_int8(model, given, [given], progress=False)
    program = zeropoint.compile(quantized, dict(reversed(given.items())))
    assert torch.equal(program(**given), quantized(**given))
    dynamic = zeropoint.to_int8(model, given, mode="dynamic", progress=False)
    assert dynamic(**given).shape == (3, 4)
    with pytest.raises(ValueError, match="the model takes x, other; example_inputs has x"):
        zeropoint.compile(quantized, {"x": given["x"]})


def test_errors_can_be_caught_by_their_public_names() -> None:
    class Choosy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(zeropoint.CaptureError):
        zeropoint.to_int8(Choosy(), (random(2, 2),), progress=False)
    assert issubclass(zeropoint.Unsupported, Exception)
    assert issubclass(zeropoint.NotCalibrated, ValueError)
