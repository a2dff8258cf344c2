"""Complex numbers in graphs and programs: pairs of floats; Fourier transforms: products with cosines and sines."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import zeropoint


class Model(nn.Module):
    """A function of floats beside a layer that is quantized."""

    def __init__(self, function: Callable[[Tensor, nn.Module], Tensor]) -> None:
        super().__init__()
        self.function, self.last = function, nn.Linear(12, 4)
        turns = torch.arange(96.0).reshape(16, 6) / 7
        self.register_buffer("rotations", torch.polar(torch.ones_like(turns), turns))
        self.weight = nn.Parameter(torch.randn(4, 12, 2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.function(x, self), self.last(x)


def _rotary(x: Tensor, model: nn.Module) -> Tensor:
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * model.rotations[: x.shape[1]].unsqueeze(0)).flatten(2).type_as(x)


def _rotary_computed(x: Tensor, model: nn.Module) -> Tensor:
    turns = torch.polar(torch.ones_like(x[..., :6]), x[..., 6:]).to(x.device, torch.complex64)
    return torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * turns)


def _spectral(x: Tensor, model: nn.Module) -> Tensor:
    """A layer in the domain of frequencies, which keeps the lowest."""
    low = torch.fft.rfft(x, dim=2, norm="ortho")[..., :4] * torch.view_as_complex(model.weight)[:, 0]
    return torch.fft.irfft(low, n=12, dim=2, norm="ortho")


def _short_time(x: Tensor, model: nn.Module) -> Tensor:
    signal = x.flatten(1)[:, :48]
    return torch.stft(signal, 16, 4, window=torch.hann_window(16), return_complex=True).abs().square()


def _there_and_back(x: Tensor, model: nn.Module) -> Tensor:
    signal, window = x.flatten(1), torch.hann_window(12)
    spectrum = torch.stft(signal, 16, 4, 12, window, return_complex=True)
    mask = torch.sigmoid(spectrum.abs() - 1)
    return torch.istft(spectrum * mask, 16, 4, 12, window)


def _there_and_back_uncut(x: Tensor, model: nn.Module) -> Tensor:
    spectrum = torch.stft(x.flatten(), 8, normalized=True, center=False, return_complex=True)
    return torch.istft(spectrum, 8, normalized=True, center=False)


def _fourier_operator(x: Tensor, model: nn.Module) -> Tensor:
    """The lowest frequencies, of both signs, written to zeros."""
    spectrum = torch.fft.rfft2(torch.nn.functional.pad(x, (0, 2)), dim=(0, 2))
    weight = torch.view_as_complex(model.weight)[0, :3]
    kept = torch.zeros(*x.shape[:2], 8, dtype=torch.cfloat)
    kept[:1, :, :3] = spectrum[:1, :, :3] * weight
    kept[-1:, :, :3] = spectrum[-1:, :, :3] * weight.conj()
    kept = torch.where(kept.real[..., :1] > 0, kept, torch.zeros_like(kept))
    return torch.fft.irfft2(kept, s=(x.shape[0], 14), dim=(0, 2))[..., :12]


def _joined(x: Tensor, model: nn.Module) -> Tensor:
    return torch.view_as_real(torch.cat([torch.complex(x, x + 1), torch.complex(x, -x)], -1)[..., 1:])


FUNCTIONS: dict[str, Callable[[Tensor, nn.Module], Tensor]] = {
    "fft": lambda x, model: torch.fft.fft(x).real,
    "fft of another axis": lambda x, model: torch.fft.fft(x, dim=0).real,
    "fft2": lambda x, model: torch.fft.fft2(x).real,
    "fftn of outer axes": lambda x, model: torch.fft.fftn(x, dim=(0, 2), norm="forward").real,
    "fft of complex numbers and back": lambda x, model: torch.fft.ifft(torch.fft.fft(torch.complex(x, x + 1))).imag,
    "rfft and back": lambda x, model: torch.fft.irfft(torch.fft.rfft(x)),
    "rfft2 and back": lambda x, model: torch.fft.irfft2(torch.fft.rfft2(x), s=x.shape[-2:]),
    "rfft of a free axis": lambda x, model: torch.fft.rfft(x, dim=1, norm="ortho").abs(),
    "spectral layer": _spectral,
    "short-time transform": _short_time,
    "short-time transform with a short window": lambda x, model: torch.stft(
        x.flatten(1)[:, :48], 16, 4, win_length=9, window=torch.ones(9), return_complex=True
    ).abs(),
    "short-time transform without a window": lambda x, model: (
        torch.stft(x.flatten(1)[:, :48], 16, 4, win_length=8, onesided=False, return_complex=True).imag
    ),
    "short-time transform and back": _there_and_back,
    "short-time transform and back, not centered": _there_and_back_uncut,
    "written to zeros": _fourier_operator,
    "taken": lambda x, model: (
        (
            torch.fft.fft(x)[:, :, [0, 3, 2]] * torch.ones(3, dtype=torch.cfloat)
            + torch.fft.fft(x).gather(2, torch.zeros_like(x[..., :3]).long())
        ).imag
    ),
    "shifted": lambda x, model: torch.fft.ifftshift(torch.fft.fftshift(torch.fft.fft(x), dim=-1) * 2, dim=-1).abs(),
    "rotary embedding": _rotary,
    "rotary embedding that is computed": _rotary_computed,
    "sums": lambda x, model: ((torch.complex(x, x * 2) + x) * 2 - torch.complex(x, x).conj()).abs(),
    "quotient and angle": lambda x, model: (torch.complex(x.abs() + 1, x) / 3).angle(),
    "joined": _joined,
    "fft with zeros behind": lambda x, model: torch.fft.fft(x, n=16).real,
    "rfft of a part and of twice a free axis": lambda x, model: (
        torch.fft.irfft(
            torch.fft.rfft(x, n=2 * x.shape[1], dim=1) * torch.fft.rfft(x[..., :1], n=2 * x.shape[1], dim=1),
            n=2 * x.shape[1],
            dim=1,
        )[:, : x.shape[1]]
        + torch.fft.rfft(x, n=4).abs().sum()
    ),
    "exponential and logarithm": lambda x, model: torch.complex(x, x + 1).exp().log().real,
    "quotient of two": lambda x, model: (torch.complex(x, x + 1) / torch.complex(x.abs() + 1, x)).abs(),
    "number through it": lambda x, model: (1 / torch.complex(x, x.abs() + 1)).imag + (torch.complex(x, x) / 2j).real,
    "square": lambda x, model: (torch.complex(x, x + 1) ** 2 - torch.complex(x, x + 1).square().reciprocal()).real,
    "matrix product": lambda x, model: (torch.complex(x, x + 1) @ torch.complex(x, -x).mT).imag,
    "matrix product with floats": lambda x, model: (torch.complex(x, x + 1) @ x.mT.to(torch.complex64)).imag,
    "sum of products": lambda x, model: torch.einsum("bcl,bol->boc", torch.complex(x, -x), torch.complex(x, x)).real,
}


# Several axes are transformed one after the other, as in "fftn of outer axes".
SEVERAL_AXES = ("fft2", "rfft2 and back")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name in SEVERAL_AXES)) for name in FUNCTIONS]
)
def test_a_program_computes_with_complex_numbers(name: str) -> None:
    torch.manual_seed(0)
    model, x = Model(FUNCTIONS[name]).eval(), torch.randn(3, 10, 12)
    quantized = zeropoint.to_int8(model, (x,), mode="dynamic", progress=False)
    program = zeropoint.compile(quantized, (x,))
    for given in (x, torch.randn(2, 7, 12)):  # of another length
        expected = model(given)[0]
        # 120 products at most, each within a few units of float32 of the largest.
        assert torch.allclose(quantized(given)[0], expected, rtol=0, atol=120 * 2**-22 * float(expected.abs().max()))
        assert all(torch.equal(a, b) for a, b in zip(program(given), quantized(given), strict=True))


def test_a_length_that_a_call_fixes_is_the_only_one_that_a_graph_takes() -> None:
    """The graph gave results of another length than the model."""

    def there_and_back(x: Tensor, model: nn.Module) -> Tensor:
        signal = x.flatten(1)
        spectrum = torch.stft(signal, 16, 4, window=torch.hann_window(16), return_complex=True)
        return torch.istft(spectrum * 2, 16, 4, window=torch.hann_window(16), length=signal.shape[-1])

    torch.manual_seed(0)
    model, x = Model(there_and_back).eval(), torch.randn(3, 10, 12)
    quantized = zeropoint.to_int8(model, (x,), mode="dynamic", progress=False)
    program = zeropoint.compile(quantized, (x,))
    given = torch.randn(5, 10, 12)
    torch.testing.assert_close(quantized(given)[0], model(given)[0], rtol=1e-4, atol=1e-4)
    assert torch.equal(program(given)[0], quantized(given)[0])
    for called in (quantized, program):
        with pytest.raises(ValueError, match=r"x\.size\(1\)"):
            called(torch.randn(3, 7, 12))


def test_a_layer_with_complex_weights_is_four_on_integers() -> None:
    torch.manual_seed(0)

    def layer(x: Tensor, model: nn.Module) -> Tensor:
        weight = torch.view_as_complex(model.weight)
        return torch.view_as_real(nn.functional.linear(torch.complex(x, x + 1), weight, weight[:, 0]))

    model, x = Model(layer).eval(), torch.randn(3, 10, 12)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert quantized.summary().counts()["int8"] >= 5
    expected = model(x)[0]
    assert (quantized(x)[0] - expected).norm() < 0.03 * expected.norm()
    program = zeropoint.compile(quantized, (x,))
    assert all(torch.equal(a, b) for a, b in zip(program(x), quantized(x), strict=True))


LEFT: dict[str, Callable[[Tensor, nn.Module], Tensor]] = {
    "complex": lambda x, model: torch.complex(x, x).tanh().real,
    "view_as_real": lambda x, model: (torch.complex(x, x).tanh() * torch.full(x.shape, 2j)).real,
}


def _twice(x: Tensor, model: nn.Module) -> Tensor:
    return torch.view_as_real(torch.complex(x, x + 1) * torch.complex(x, x - 1).to(torch.complex128))


OTHERS: dict[str, Callable[[Tensor, nn.Module], Tensor]] = {
    "double precision": _twice,
    "bytes seen as floats": lambda x, model: torch.complex(x, x + 1).view(torch.float32),
    "a sum that repeats one operand": lambda x, model: (torch.complex(x[..., :1], x[..., :1] + 1) + x).imag,
    "parts of other shapes": lambda x, model: torch.view_as_real(torch.complex(x[:, :1], x)),
    "sizes without axes": lambda x, model: torch.fft.fftn(x, s=(10, 12)).real,
}


@pytest.mark.parametrize("name", OTHERS)
def test_graphs_compute_what_pytorch_does_whatever_pairs_can_do(name: str) -> None:
    torch.manual_seed(0)
    x, model = torch.randn(3, 10, 12), Model(OTHERS[name]).eval()
    quantized = zeropoint.to_int8(model, (x,), mode="dynamic", progress=False)
    expected, found = model(x)[0], quantized(x)[0]
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, rtol=0, atol=120 * 2**-22 * float(expected.abs().max()))


@pytest.mark.parametrize("name", LEFT)
def test_what_pairs_cannot_do_is_left_to_pytorch(name: str) -> None:
    x, model = torch.randn(3, 10, 12), Model(LEFT[name]).eval()
    quantized = zeropoint.to_int8(model, (x,), mode="dynamic", progress=False)
    assert torch.equal(quantized(x)[0], model(x)[0])
    for fallback in (False, True):
        with pytest.raises(NotImplementedError, match=name):
            zeropoint.compile(quantized, (x,), fallback=fallback)
