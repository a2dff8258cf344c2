"""Models of many fields as people write them, small: speech, detection, graphs, time series, scientific computing."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations


class DecodedDetector(nn.Module):
    """A one-stage detector that decodes its boxes and keeps the best by matrix NMS, without a Python loop."""

    def __init__(self, kinds: int = 4, kept: int = 10) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.SiLU(), nn.Conv2d(16, 24, 3, 2, 1), nn.SiLU())
        self.boxes, self.scores, self.kept = nn.Conv2d(24, 4, 1), nn.Conv2d(24, kinds, 1), kept
        self.register_buffer("stride", torch.tensor(4.0))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.body(image)
        h, w = x.shape[-2:]
        ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        centers = torch.stack((xs, ys), -1).flatten(0, 1).to(x.dtype) + 0.5
        raw = self.boxes(x).flatten(2).transpose(1, 2)
        middle = (centers + raw[..., :2].tanh()) * self.stride
        size = raw[..., 2:].clamp(-4, 4).exp() * self.stride
        boxes = torch.cat((middle - size / 2, middle + size / 2), -1)
        best, kind = self.scores(x).flatten(2).transpose(1, 2).sigmoid().max(-1)
        score, place = best.topk(self.kept, dim=1)
        boxes = boxes.gather(1, place.unsqueeze(-1).expand(-1, -1, 4))
        corner = torch.maximum(boxes[:, :, None, :2], boxes[:, None, :, :2])
        other = torch.minimum(boxes[:, :, None, 2:], boxes[:, None, :, 2:])
        shared = (other - corner).clamp(min=0).prod(-1)
        area = (boxes[..., 2:] - boxes[..., :2]).prod(-1)
        overlap = (shared / (area[:, :, None] + area[:, None] - shared + 1e-6)).triu(1)
        score = score * (1 - overlap.amax(1))
        return boxes, score, kind.gather(1, place)


class SelectiveScan(nn.Module):
    """Mamba's block by hand: a causal depthwise convolution, steps that depend on the input, a loop over time."""

    def __init__(self, width: int = 16, inner: int = 32, states: int = 4) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)
        self.conv = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
        self.choose, self.step = nn.Linear(inner, 2 * states + 2, bias=False), nn.Linear(2, inner)
        self.log_decay = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(inner, 1))
        self.skip, self.states = nn.Parameter(torch.ones(inner)), states

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        u, gate = self.into(x).chunk(2, -1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., :length].transpose(1, 2))
        size, b, c = self.choose(u).split((2, self.states, self.states), -1)
        size = F.softplus(self.step(size))
        decay = torch.exp(size.unsqueeze(-1) * -self.log_decay.exp())
        drive = size.unsqueeze(-1) * b.unsqueeze(2) * u.unsqueeze(-1)
        state = torch.zeros_like(drive[:, 0])
        given = []
        for t in range(length):
            state = decay[:, t] * state + drive[:, t]
            given.append((state * c[:, t, None]).sum(-1))
        y = torch.stack(given, 1) + u * self.skip
        return self.out(y * F.silu(gate))


class TimeMix(nn.Module):
    """RWKV's time mixing: a token shift, and a weighted sum over the past, kept stable by its largest exponent."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.decay, self.first = nn.Parameter(torch.randn(width)), nn.Parameter(torch.randn(width))
        self.mix = nn.ParameterList(nn.Parameter(torch.rand(width)) for _ in range(3))
        self.key, self.value, self.gate, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.shift = nn.ZeroPad2d((0, 0, 1, -1))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        before = self.shift(x)
        k, v, r = (x * mix + before * (1 - mix) for mix in self.mix)
        k, v, r = self.key(k), self.value(v), torch.sigmoid(self.gate(r))
        top, below = torch.zeros_like(k[:, 0]), torch.zeros_like(k[:, 0])
        most = torch.full_like(top, -1e30)
        decay = -torch.exp(self.decay)
        given = []
        for t in range(x.shape[1]):
            now = self.first + k[:, t]
            high = torch.maximum(most, now)
            old, new = torch.exp(most - high), torch.exp(now - high)
            given.append((old * top + new * v[:, t]) / (old * below + new))
            high = torch.maximum(most + decay, k[:, t])
            old, new = torch.exp(most + decay - high), torch.exp(k[:, t] - high)
            top, below, most = old * top + new * v[:, t], old * below + new, high
        return self.out(r * torch.stack(given, 1))


class HiFiGAN(nn.Module):
    """A vocoder: weight-normalized transposed convolutions, residual blocks of several dilations that are averaged."""

    def __init__(self, bands: int = 10, width: int = 16) -> None:
        super().__init__()
        norm = parametrizations.weight_norm
        self.first = norm(nn.Conv1d(bands, width, 7, padding=3))
        self.ups = nn.ModuleList(
            norm(nn.ConvTranspose1d(width >> i, width >> (i + 1), 8, 4, padding=2)) for i in range(2)
        )
        self.blocks = nn.ModuleList(
            nn.ModuleList(norm(nn.Conv1d(width >> (i + 1), width >> (i + 1), 3, dilation=d, padding=d)) for d in (1, 3))
            for i in range(2)
        )
        self.last = norm(nn.Conv1d(width >> 2, 1, 7, padding=3))

    def forward(self, mel: Tensor) -> Tensor:
        x = self.first(mel)
        for up, block in zip(self.ups, self.blocks):
            x = up(F.leaky_relu(x, 0.1))
            total = None
            for conv in block:
                y = x + conv(F.leaky_relu(x, 0.1))
                total = y if total is None else total + y
            x = total / len(block)
        return torch.tanh(self.last(F.leaky_relu(x)))


class PriorEncoder(nn.Module):
    """VITS's text encoder: masked attention with relative positions in a window, a mean and a log variance."""

    def __init__(self, width: int = 16, window: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, width)
        self.qkv, self.out = nn.Conv1d(width, 3 * width, 1), nn.Conv1d(width, width, 1)
        self.relative = nn.Parameter(torch.randn(2 * window + 1, width) * width**-0.5)
        self.stats, self.window, self.width = nn.Conv1d(width, 2 * width, 1), window, width

    def forward(self, text: Tensor, lengths: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embed(text).transpose(1, 2) * math.sqrt(self.width)
        length = x.shape[-1]
        mask = (torch.arange(length) < lengths[:, None]).unsqueeze(1).to(x.dtype)
        q, k, v = self.qkv(x * mask).transpose(1, 2).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / math.sqrt(self.width)
        apart = torch.arange(length)[None, :] - torch.arange(length)[:, None]
        near = apart.abs() <= self.window
        to_relative = q @ self.relative.t()
        place = (apart.clamp(-self.window, self.window) + self.window).expand(len(q), -1, -1)
        scores = scores + to_relative.gather(2, place) * near
        scores = scores.masked_fill(mask == 0, -1e4)
        x = self.out((scores.softmax(-1) @ v).transpose(1, 2)) * mask
        mean, log_scale = (self.stats(x) * mask).split(self.width, 1)
        return mean + noise * torch.exp(log_scale) * mask, log_scale


class TextToUnits(nn.Module):
    """A CTC head that decodes greedily: blanks and repeats are masked, the score is summed."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(20, 32, 3, 2, 1), nn.GELU(), nn.Conv1d(32, 32, 3, padding=1, groups=4))
        self.head = nn.Linear(32, 12)

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        log_p = self.head(self.conv(features.mT).mT).log_softmax(-1)
        best, units = log_p.max(-1)
        repeats = torch.cat((torch.zeros_like(units[:, :1], dtype=torch.bool), units[:, 1:] == units[:, :-1]), 1)
        keep = ~repeats & (units != 0)
        return {"log_p": log_p, "units": torch.where(keep, units, -1), "score": best.sum(1), "count": keep.sum(1)}


class PointerNetwork(nn.Module):
    """An encoder and a decoder that points at its inputs, one after the other, each once."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.encoder, self.cell = nn.LSTM(2, width, batch_first=True), nn.LSTMCell(2, width)
        self.of_input, self.of_state = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.score, self.start = nn.Linear(width, 1, bias=False), nn.Parameter(torch.zeros(2))

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor]:
        seen, (h, c) = self.encoder(points)
        h, c, given = h[0], c[0], self.start.expand(len(points), -1)
        keys = self.of_input(seen)
        taken = torch.zeros(points.shape[:2], dtype=torch.bool)
        scores, places = [], []
        for _ in range(points.shape[1]):
            h, c = self.cell(given, (h, c))
            score = self.score(torch.tanh(keys + self.of_state(h)[:, None])).squeeze(-1)
            score = score.masked_fill(taken, float("-inf"))
            place = score.argmax(-1)
            taken = taken | F.one_hot(place, points.shape[1]).bool()
            given = points[torch.arange(len(points)), place]
            scores.append(score.log_softmax(-1).amax(-1))
            places.append(place)
        return torch.stack(scores, 1), torch.stack(places, 1)


class ChebyshevKAN(nn.Module):
    """A Kolmogorov-Arnold network with Chebyshev polynomials: einsum of a basis with learned coefficients."""

    def __init__(self, widths: tuple[int, ...] = (6, 12, 3), degree: int = 3) -> None:
        super().__init__()
        self.coefficients = nn.ParameterList(
            nn.Parameter(torch.randn(i, o, degree + 1) / math.sqrt(i * (degree + 1)))
            for i, o in itertools.pairwise(widths)
        )
        self.register_buffer("orders", torch.arange(0, degree + 1))

    def forward(self, x: Tensor) -> Tensor:
        for c in self.coefficients:
            t = torch.tanh(x).unsqueeze(-1).expand(*x.shape, len(self.orders)).clamp(-1 + 1e-6, 1 - 1e-6)
            x = torch.einsum("bid,iod->bo", (t.acos() * self.orders).cos(), c)
        return x


class DiagonalStateSpace(nn.Module):
    """S4D: a convolution with a kernel that is a sum of complex exponentials, by Fourier transforms."""

    def __init__(self, width: int = 8, states: int = 4) -> None:
        super().__init__()
        self.log_real = nn.Parameter(torch.log(0.5 * torch.ones(width, states)))
        self.imaginary = nn.Parameter(math.pi * torch.arange(states).repeat(width, 1).float())
        self.c = nn.Parameter(torch.view_as_real(torch.randn(width, states, dtype=torch.cfloat)))
        self.log_step, self.skip = nn.Parameter(torch.rand(width) - 3), nn.Parameter(torch.randn(width))
        self.mix = nn.Conv1d(width, 2 * width, 1)

    def forward(self, u: Tensor) -> Tensor:
        length = u.shape[-1]
        a = -torch.exp(self.log_real) + 1j * self.imaginary
        step = a * torch.exp(self.log_step)[:, None]
        powers = torch.exp(step[..., None] * torch.arange(length))
        c = torch.view_as_complex(self.c) * (torch.exp(step) - 1) / a
        kernel = 2 * torch.einsum("hn,hnl->hl", c, powers).real
        y = torch.fft.irfft(torch.fft.rfft(u, n=2 * length) * torch.fft.rfft(kernel, n=2 * length), n=2 * length)
        return F.glu(self.mix(F.gelu(y[..., :length] + u * self.skip[:, None])), dim=1)


class EquivariantGraph(nn.Module):
    """EGNN: messages from distances, sums over neighbours by index_add, positions that move along differences."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * width + 1, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.move = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1, bias=False))
        self.update = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))
        self.into = nn.Linear(5, width)

    def forward(self, features: Tensor, places: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        h, (source, target) = self.into(features), edges
        apart = places[source] - places[target]
        far = apart.square().sum(-1, keepdim=True)
        m = self.message(torch.cat((h[source], h[target], far), -1))
        moved = torch.zeros_like(places).index_add(0, target, apart / (far.sqrt() + 1) * self.move(m))
        count = torch.zeros(len(places), 1).index_add(0, target, torch.ones_like(far)).clamp(min=1)
        gathered = torch.zeros_like(h).index_add_(0, target, m)
        return h + self.update(torch.cat((h, gathered), -1)), places + moved / count


class GraphTransformer(nn.Module):
    """Attention over the edges of a graph: a softmax for each target by scatter_reduce, then a readout per graph."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, width) for _ in range(3))
        self.heads, self.readout = heads, nn.Linear(2 * width, 3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        (source, target), shape = edges, (-1, self.heads, 8)
        q, k, v = self.q(x).view(shape), self.k(x).view(shape), self.v(x).view(shape)
        score = (q[target] * k[source]).sum(-1) / 8**0.5
        place = target[:, None].expand_as(score)
        most = score.new_full((len(x), self.heads), -1e9).scatter_reduce(0, place, score, "amax")
        weight = (score - most[target]).exp()
        total = torch.zeros_like(most).scatter_add(0, place, weight)
        sent = (weight / total[target].clamp(min=1e-9))[..., None] * v[source]
        h = torch.zeros_like(v).index_add(0, target, sent).flatten(1)
        return self.readout(torch.cat((h.mean(0), h.amax(0))))


class AttentionUNet(nn.Module):
    """A U-Net for diffusion: group norms, a time embedding by sines, attention in the middle, skips that are joined."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, 2 * width))
        self.first, self.down = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.norm, self.qkv = nn.GroupNorm(4, 2 * width), nn.Conv2d(2 * width, 6 * width, 1)
        self.proj, self.shift = nn.Conv2d(2 * width, 2 * width, 1), nn.Linear(2 * width, 4 * width)
        self.up, self.last = nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.Conv2d(2 * width, 3, 3, padding=1)
        self.width = width

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        rates = torch.exp(-math.log(10000) * torch.arange(self.width // 2) / (self.width // 2))
        angle = t.float()[:, None] * rates
        time = self.time(torch.cat((angle.sin(), angle.cos()), -1))
        skip = F.silu(self.first(x))
        y = self.down(skip)
        scale, shift = self.shift(F.silu(time))[..., None, None].chunk(2, 1)
        z = self.norm(y) * (1 + scale) + shift
        b, c, h, w = z.shape
        q, k, v = self.qkv(z).reshape(b, 3, 4, c // 4, h * w).transpose(-1, -2).unbind(1)
        z = F.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(b, c, h, w)
        y = y + self.proj(z)
        return self.last(torch.cat((self.up(y), skip), 1))


class ReversibleSeries(nn.Module):
    """A forecaster that takes mean and deviation off each series and puts them back; patches by unfold."""

    def __init__(self, length: int = 32, ahead: int = 8) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(3))
        self.embed, self.head = nn.Linear(8, 16), nn.Linear(7 * 16, ahead)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True, activation="gelu")

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True).detach()
        std = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5).detach()
        x = (x - mean) / std * self.weight + self.bias
        patches = x.transpose(1, 2).unfold(-1, 8, 4)
        y = self.layer(self.embed(patches).flatten(0, 1)).view(len(x), 3, -1)
        y = self.head(y).transpose(1, 2)
        return (y - self.bias) / (self.weight + 1e-10) * std + mean


class DeepOperator(nn.Module):
    """DeepONet: a network of a function's samples times a network of places; with periodic features."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(20, 32), nn.Softplus(), nn.Linear(32, 16))
        self.trunk = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 16), nn.Tanh())
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, samples: Tensor, places: Tensor) -> Tensor:
        angle = 2 * math.pi * places
        features = torch.cat((torch.sin(angle), torch.cos(angle), places**2, places.abs().sqrt()), -1)
        return torch.einsum("bi,bni->bn", self.branch(samples), self.trunk(features)) + self.bias
