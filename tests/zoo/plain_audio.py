"""Sequences, speech and recurrent networks as people write them, small."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations


class MaskedTagger(nn.Module):
    """An LSTM tagger whose padding is masked afterwards; the last valid output is gathered by length."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(99, 16, padding_idx=0)
        self.rnn, self.tags = nn.LSTM(16, 12, bidirectional=True, batch_first=True), nn.Linear(24, 7)
        self.kind = nn.Linear(24, 3)

    def forward(self, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x, _ = self.rnn(self.embed(words))
        mask = torch.arange(words.size(1))[None, :] < lengths[:, None]
        x = x * mask.unsqueeze(-1)
        last = x.gather(1, (lengths - 1).view(-1, 1, 1).expand(-1, 1, x.size(2))).squeeze(1)
        mean = x.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        return self.tags(x).masked_fill(~mask.unsqueeze(-1), -1e4), self.kind(last + mean)


class GRUEncoder(nn.Module):
    """Bidirectional, two layers; the last states of both directions joined by a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rnn = nn.Embedding(99, 16), nn.GRU(16, 12, 2, bidirectional=True, dropout=0.2)
        self.join = nn.Linear(24, 16)

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor]:
        outputs, hidden = self.rnn(self.embed(words.t()))
        outputs = outputs[:, :, :12] + outputs[:, :, 12:]
        return outputs.transpose(0, 1), torch.tanh(self.join(torch.cat((hidden[-2], hidden[-1]), dim=1)))


class LSTMWithState(nn.Module):
    """States given and given back; the layer's first state is learned and repeated over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.h0, self.c0 = (nn.Parameter(torch.zeros(1, 1, 16)) for _ in range(2))
        self.rnn, self.last = nn.LSTM(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        n = x.size(1)
        y, (h, c) = self.rnn(x, (self.h0.repeat(1, n, 1), self.c0.expand(-1, n, -1).contiguous()))
        return x + self.last(y), (h.squeeze(0), c.squeeze(0))


class HandLSTM(nn.Module):
    """Cells written by hand in a loop over a fixed number of steps, with a layer norm."""

    def __init__(self, inputs: int = 8, hidden: int = 16, steps: int = 5) -> None:
        super().__init__()
        self.hidden, self.steps = hidden, steps
        self.gates, self.norm = nn.Linear(inputs + hidden, 4 * hidden), nn.LayerNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.size(0), self.hidden)
        every = []
        for t in range(self.steps):
            i, f, g, o = self.gates(torch.cat([x[:, t], h], dim=-1)).chunk(4, dim=-1)
            c = torch.sigmoid(f + 1.0) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(self.norm(c))
            every.append(h)
        return torch.stack(every, dim=1)


class ConvLSTM(nn.Module):
    """Gates by a convolution over image and state."""

    def __init__(self, channels: int = 8, frames: int = 3) -> None:
        super().__init__()
        self.frames, self.channels = frames, channels
        self.gates, self.last = nn.Conv2d(3 + channels, 4 * channels, 3, padding=1), nn.Conv2d(channels, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        n, _, _, h, w = x.shape
        state = torch.zeros(n, self.channels, h, w)
        cell = torch.zeros_like(state)
        for t in range(self.frames):
            i, f, o, g = torch.split(self.gates(torch.cat([x[:, t], state], 1)), self.channels, dim=1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            state = o.sigmoid() * cell.tanh()
        return self.last(state)


class GatedTCN(nn.Module):
    """Weight-normalized dilated convolutions, left padding cut off afterwards, gates, skips."""

    def __init__(self, channels: int = 12, layers: int = 3) -> None:
        super().__init__()
        normed = parametrizations.weight_norm
        self.first = nn.Conv1d(4, channels, 1)
        self.filters = nn.ModuleList(
            normed(nn.Conv1d(channels, channels, 2, padding=2**i, dilation=2**i)) for i in range(layers)
        )
        self.gates = nn.ModuleList(
            normed(nn.Conv1d(channels, channels, 2, padding=2**i, dilation=2**i)) for i in range(layers)
        )
        self.skips = nn.ModuleList(nn.Conv1d(channels, 16, 1) for _ in range(layers))
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(16, 4, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        skips: list[Tensor] = []
        for i, (one, gate, skip) in enumerate(zip(self.filters, self.gates, self.skips)):
            y = torch.tanh(one(x)[..., : -(2**i)]) * torch.sigmoid(gate(x)[..., : -(2**i)])
            skips.append(skip(y))
            x = (x + y) * math.sqrt(0.5)
        return self.last(sum(skips))


class Transducer(nn.Module):
    """RNN-T: an encoder, a prediction network and their joint over every pair of frames and labels."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.predictor = nn.LSTM(20, 16, batch_first=True), nn.GRU(12, 16, batch_first=True)
        self.embed, self.left, self.right = nn.Embedding(30, 12), nn.Linear(16, 24), nn.Linear(16, 24)
        self.out = nn.Linear(24, 30)

    def forward(self, frames: Tensor, labels: Tensor) -> Tensor:
        labels = F.pad(labels, (1, 0))
        a, b = self.left(self.encoder(frames)[0]), self.right(self.predictor(self.embed(labels))[0])
        return self.out(torch.tanh(a.unsqueeze(2) + b.unsqueeze(1))).log_softmax(dim=-1)


class DeepSpeech(nn.Module):
    """Convolutions over time and frequency, rows of recurrent layers, a CTC head, hard tanh, lengths after strides."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 4, (11, 5), (2, 2), (5, 2)), nn.BatchNorm2d(4), nn.Hardtanh(0, 20, inplace=True),
            nn.Conv2d(4, 4, (5, 5), (2, 1), (2, 2)), nn.BatchNorm2d(4), nn.Hardtanh(0, 20, inplace=True),
        )  # fmt: skip
        self.norm, self.rnn = nn.BatchNorm1d(40), nn.GRU(40, 16, bidirectional=True)
        self.head = nn.Linear(16, 12, bias=False)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x = self.conv(x)
        n, c, f, t = x.size()
        x = x.view(n, c * f, t).transpose(1, 2).transpose(0, 1).contiguous()
        x = self.norm(x.view(t * n, -1)).view(t, n, -1)
        y, _ = self.rnn(x)
        y = y.view(t, n, 2, -1).sum(2)
        return self.head(y).log_softmax(-1), torch.div(lengths + 1, 2, rounding_mode="floor")


class Spectrogram(nn.Module):
    """A short-time Fourier transform as a convolution with sines and cosines, mel filters, decibels, a CNN."""

    def __init__(self, window: int = 32, hop: int = 16, mels: int = 10) -> None:
        super().__init__()
        self.hop, bins = hop, window // 2 + 1
        angle = 2 * math.pi * torch.arange(bins)[:, None] * torch.arange(window)[None] / window
        basis = torch.cat([angle.cos(), -angle.sin()]) * torch.hann_window(window)
        self.basis: Tensor
        self.mel: Tensor
        self.register_buffer("basis", basis.unsqueeze(1))
        self.register_buffer("mel", torch.rand(mels, bins))
        self.layers = nn.Sequential(
            nn.Conv1d(mels, 16, 3, padding=1), nn.BatchNorm1d(16), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
            nn.Linear(16, 4),
        )  # fmt: skip

    def forward(self, wave: Tensor) -> Tensor:
        x = F.conv1d(F.pad(wave.unsqueeze(1), (16, 16), mode="reflect"), self.basis, stride=self.hop)
        real, imaginary = x.chunk(2, dim=1)
        power = real.pow(2) + imaginary.pow(2)
        decibels = 10 * torch.log10(torch.clamp(self.mel @ power, min=1e-10))
        decibels = torch.maximum(decibels, decibels.amax(dim=(1, 2), keepdim=True) - 80.0)
        return self.layers((decibels - decibels.mean(-1, keepdim=True)) / (decibels.std(-1, keepdim=True) + 1e-5))


class SpeakerEncoder(nn.Module):
    """A time-delay network with squeeze and excitation, attentive statistics and a normalized embedding."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv1d(20, channels, 5, padding=2), nn.ReLU(), nn.BatchNorm1d(channels))
        self.parts = nn.ModuleList(nn.Conv1d(4, 4, 3, padding=2, dilation=2) for _ in range(3))
        self.squeeze = nn.Sequential(nn.Conv1d(channels, 4, 1), nn.ReLU(), nn.Conv1d(4, channels, 1), nn.Sigmoid())
        self.attention = nn.Sequential(nn.Conv1d(3 * channels, 8, 1), nn.Tanh(), nn.Conv1d(8, channels, 1))
        self.last = nn.Linear(2 * channels, 12)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        head, *rest = x.split(4, dim=1)
        parts = [head]
        for part, layer in zip(rest, self.parts):
            parts.append(F.relu(layer(part + parts[-1])))
        y = torch.cat(parts, dim=1)
        y = x + y * self.squeeze(y.mean(dim=2, keepdim=True))
        spread = torch.sqrt(y.var(dim=2, keepdim=True).clamp(min=1e-9))
        context = torch.cat([y, y.mean(2, keepdim=True).expand_as(y), spread.expand_as(y)], dim=1)
        weights = self.attention(context).softmax(dim=2)
        mean = (weights * y).sum(2)
        deviation = ((weights * y**2).sum(2) - mean**2).clamp(min=1e-6).sqrt()
        return F.normalize(self.last(torch.cat([mean, deviation], 1)), p=2, dim=1)


class Vocoder(nn.Module):
    """HiFi-GAN: weight-normalized transposed convolutions, residual stacks averaged, Snake activations."""

    def __init__(self) -> None:
        super().__init__()
        normed = parametrizations.weight_norm
        self.first, self.up = normed(nn.Conv1d(8, 16, 7, padding=3)), normed(nn.ConvTranspose1d(16, 8, 8, 4, 2))
        self.stacks = nn.ModuleList(
            nn.ModuleList(normed(nn.Conv1d(8, 8, k, dilation=d, padding=d * (k - 1) // 2)) for d in (1, 3))
            for k in (3, 5)
        )
        self.alpha, self.last = nn.Parameter(torch.ones(1, 8, 1)), normed(nn.Conv1d(8, 1, 7, padding=3))

    def forward(self, mel: Tensor) -> Tensor:
        x = self.up(F.leaky_relu(self.first(mel), 0.1))
        total = None
        for stack in self.stacks:
            y = x
            for layer in stack:
                y = y + layer(y + torch.sin(self.alpha * y).pow(2) / (self.alpha + 1e-9))
            total = y if total is None else total + y
        return torch.tanh(self.last(F.leaky_relu(total / len(self.stacks))))


class Separator(nn.Module):
    """Dual-path: chunks by unfold, recurrent layers within and across them, overlap-add by fold."""

    def __init__(self, channels: int = 8, chunk: int = 8) -> None:
        super().__init__()
        self.chunk = chunk
        self.encode, self.decode = nn.Conv1d(1, channels, 4, 2), nn.ConvTranspose1d(channels, 1, 4, 2)
        self.within = nn.LSTM(channels, channels, batch_first=True, bidirectional=True)
        self.across = nn.LSTM(channels, channels, batch_first=True)
        self.join, self.norm = nn.Linear(2 * channels, channels), nn.GroupNorm(1, channels)

    def forward(self, wave: Tensor) -> Tensor:
        x = F.relu(self.encode(wave))
        n, c, t = x.shape
        s = self.chunk
        y = x.unfold(2, s, s // 2)
        k = y.size(2)
        rows = y.permute(0, 2, 3, 1).reshape(n * k, s, c)
        rows = rows + self.join(self.within(rows)[0])
        columns = rows.view(n, k, s, c).transpose(1, 2).reshape(n * s, k, c)
        columns = columns + self.across(columns)[0]
        y = columns.view(n, s, k, c).permute(0, 3, 1, 2).reshape(n, c * s, k)
        y = F.fold(y, output_size=(1, t), kernel_size=(1, s), stride=(1, s // 2)).view(n, c, t)
        return self.decode(x * torch.sigmoid(self.norm(y)))


class Forecaster(nn.Module):
    """Informer's way: series split into trend and season by a moving average, instance-normalized and back."""

    def __init__(self, length: int = 24, horizon: int = 8) -> None:
        super().__init__()
        self.season, self.trend = nn.Linear(length, horizon), nn.Linear(length, horizon)
        self.pool = nn.AvgPool1d(5, 1)

    def forward(self, x: Tensor) -> Tensor:
        mean, spread = x.mean(1, keepdim=True).detach(), (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        x = (x - mean) / spread
        padded = torch.cat([x[:, :1].repeat(1, 2, 1), x, x[:, -1:].repeat(1, 2, 1)], dim=1)
        trend = self.pool(padded.permute(0, 2, 1)).permute(0, 2, 1)
        season = self.season((x - trend).transpose(1, 2))
        return (season + self.trend(trend.transpose(1, 2))).transpose(1, 2) * spread + mean


class CharacterCNN(nn.Module):
    """Characters of words through convolutions, highways, an LSTM over words."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(60, 8)
        self.convs = nn.ModuleList(nn.Conv1d(8, 12, k) for k in (1, 2, 3))
        self.gate, self.turn = nn.Linear(36, 36), nn.Linear(36, 36)
        self.rnn, self.last = nn.LSTM(36, 16, batch_first=True), nn.Linear(16, 9)

    def forward(self, characters: Tensor) -> Tensor:
        n, t, c = characters.shape
        x = self.embed(characters.view(n * t, c)).transpose(1, 2)
        x = torch.cat([conv(x).max(dim=-1).values.relu() for conv in self.convs], dim=-1)
        gate = torch.sigmoid(self.gate(x))
        x = gate * F.relu(self.turn(x)) + (1 - gate) * x
        return self.last(self.rnn(x.view(n, t, -1))[0])


class Quasi(nn.Module):
    """An independently recurrent layer: an exponential average by cumulative sums of logarithms."""

    def __init__(self, dim: int = 8) -> None:
        super().__init__()
        self.value, self.gate, self.last = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, 3)

    def forward(self, x: Tensor) -> Tensor:
        keep = F.logsigmoid(self.gate(x))
        total = keep.cumsum(1)
        y = torch.cumsum(self.value(x) * torch.exp(-total.clamp(min=-8)), 1) * total.clamp(min=-8).exp()
        return self.last(y)
