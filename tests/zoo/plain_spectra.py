"""Plain models on complex numbers and spectra, splines, bilinear forms, and losses in their results."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ComplexRotary(nn.Module):
    """Attention whose queries and keys are turned as complex numbers, as the first Llama did."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        turns = torch.outer(torch.arange(64.0), 10000 ** (-torch.arange(0, 8, 2) / 8))
        self.register_buffer("turns", torch.polar(torch.ones_like(turns), turns))

    def _turned(self, x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.turns[: x.shape[1], None]).flatten(3).type_as(x)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (4, 8)) for part in self.qkv(x).chunk(3, -1))
        q, k, v = (part.transpose(1, 2) for part in (self._turned(q), self._turned(k), v))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(seen.transpose(1, 2).flatten(2))


class FourierOperator(nn.Module):
    """A neural operator: layers in the domain of frequencies beside pointwise ones."""

    def __init__(self, width: int = 8, modes: int = 4) -> None:
        super().__init__()
        self.first, self.last, self.modes = nn.Conv1d(1, width, 1), nn.Conv1d(width, 1, 1), modes
        self.beside = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(2))
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(width, width, modes, 2) / width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for weight, beside in zip(self.weights, self.beside):
            low = torch.fft.rfft(x)[..., : self.modes]
            mixed = (low.unsqueeze(2) * torch.view_as_complex(weight)).sum(1)
            x = F.gelu(torch.fft.irfft(mixed, n=32) + beside(x))
        return self.last(x)


class LogMel(nn.Module):
    """Log-mel features from a short-time transform, and a small CNN."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(32))
        self.register_buffer("mel", torch.rand(17, 10))
        self.conv, self.out = nn.Conv2d(1, 6, 3), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.stft(x, 32, 16, window=self.window, return_complex=True).abs().square()
        db = 10 * torch.log10((spectrum.mT @ self.mel).clamp(min=1e-10))
        db = torch.maximum(db, db.amax((1, 2), keepdim=True) - 80) / 40
        return self.out(F.relu(self.conv(db.unsqueeze(1))).mean((2, 3)))


class Splines(nn.Module):
    """A Kolmogorov-Arnold layer: B-splines by their recursion."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("grid", (torch.arange(-3, 9) * 0.4 - 1).expand(9, -1).contiguous())
        self.splines, self.base = nn.Parameter(torch.randn(5, 9, 8) * 0.1), nn.Parameter(torch.randn(5, 9) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        base, grid = F.linear(F.silu(x), self.base), self.grid
        x = x.unsqueeze(-1)
        bases = ((x >= grid[:, :-1]) & (x < grid[:, 1:])).to(x.dtype)
        for k in range(1, 4):
            left = (x - grid[:, : -(k + 1)]) / (grid[:, k:-1] - grid[:, : -(k + 1)])
            right = (grid[:, k + 1 :] - x) / (grid[:, k + 1 :] - grid[:, 1:-k])
            bases = left * bases[:, :, :-1] + right * bases[:, :, 1:]
        return base + F.linear(bases.flatten(1), self.splines.flatten(1))


class ReturnsLosses(nn.Module):
    """A variational autoencoder that gives its losses beside its result."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.SELU(), nn.Flatten(), nn.Linear(128, 12))
        self.decoder = nn.Sequential(
            nn.Linear(6, 128), nn.Unflatten(1, (8, 4, 4)), nn.SELU(), nn.ConvTranspose2d(8, 1, 4, 2, 1)
        )

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
        mean, spread = self.encoder(x).chunk(2, 1)
        made = torch.sigmoid(self.decoder(mean + noise * torch.exp(0.5 * spread)))
        divergence = -0.5 * torch.sum(1 + spread - mean.pow(2) - spread.exp(), dim=1)
        error = F.binary_cross_entropy(made, torch.sigmoid(x), reduction="none").sum((1, 2, 3))
        return made, divergence, error, F.mse_loss(made, x)


class BilinearForms(nn.Module):
    """Gates of several kinds, and a bilinear form of the result with itself."""

    def __init__(self) -> None:
        super().__init__()
        self.gates, self.forms = nn.Linear(24, 48), nn.Bilinear(24, 24, 8)
        self.highway, self.mixed = nn.Linear(24, 48), nn.Parameter(torch.randn(3, 8, 4) * 0.2)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.gates(x).tensor_split(2, -1)
        x = x + F.gelu(first, approximate="tanh") * second
        carry, made = self.highway(x).chunk(2, -1)
        carry = torch.sigmoid(carry - 1)
        x = carry * F.softplus(made) + (1 - carry) * x
        return torch.tensordot(self.forms(x, x), self.mixed, dims=([2], [1]))


class FourierOperator2d(nn.Module):
    """A Fourier neural operator of images: the lowest frequencies, of both signs, are written to zeros."""

    def __init__(self, width: int = 8, modes: int = 4) -> None:
        super().__init__()
        self.modes, self.lift, self.last = modes, nn.Linear(3, width), nn.Linear(width, 1)
        shape = (2, width, width, modes, modes)
        self.weight = nn.Parameter(torch.randn(shape, dtype=torch.cfloat) / width)
        self.local = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = x.shape[1:3]
        places = torch.meshgrid(torch.linspace(0, 1, rows), torch.linspace(0, 1, columns), indexing="ij")
        grid = torch.stack(places, -1).expand(len(x), -1, -1, -1)
        h = F.pad(self.lift(torch.cat((x, grid), -1)).permute(0, 3, 1, 2), [0, 3, 0, 3])
        spectrum, m = torch.fft.rfft2(h), self.modes
        kept = torch.zeros_like(spectrum)
        kept[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :m, :m], self.weight[0])
        kept[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, -m:, :m], self.weight[1])
        h = F.gelu(torch.fft.irfft2(kept, s=h.shape[-2:]) + self.local(h))[..., :-3, :-3]
        return self.last(h.permute(0, 2, 3, 1))


class Enhancer(nn.Module):
    """Speech without noise: a mask for the short-time spectrum, and back to a signal of the same length."""

    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.size, bins = size, size // 2 + 1
        self.register_buffer("window", torch.hann_window(size - 16))
        self.gru, self.mask = nn.GRU(bins, 24, batch_first=True), nn.Linear(24, bins)

    def forward(self, x: Tensor) -> Tensor:
        options = {"n_fft": self.size, "hop_length": 16, "win_length": self.size - 16, "window": self.window}
        spectrum = torch.stft(x, return_complex=True, **options)
        h, _ = self.gru(torch.log1p(spectrum.abs()).transpose(1, 2))
        return torch.istft(spectrum * self.mask(h).sigmoid().transpose(1, 2), length=x.shape[-1], **options)
