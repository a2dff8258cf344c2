"""More networks for images as people write them, small."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .plain_images import conv_bn


class SqueezeExcite(nn.Module):
    """Three spellings of weights for channels: linear layers and views, 1x1 convolutions, ECA's 1D convolution."""

    def __init__(self, kind: str, channels: int = 16) -> None:
        super().__init__()
        self.kind, self.stem, self.last = kind, conv_bn(3, channels, 3, 2), nn.Linear(channels, 10)
        self.down, self.up = nn.Linear(channels, 4), nn.Linear(4, channels)
        self.reduce, self.expand = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)
        self.across = nn.Conv1d(1, 1, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        if self.kind == "linear":
            n, c, _, _ = x.size()
            weights = torch.sigmoid(self.up(F.relu(self.down(x.view(n, c, -1).mean(-1))))).view(n, c, 1, 1)
            x = x * weights.expand_as(x)
        elif self.kind == "conv":
            x = x * F.hardsigmoid(self.expand(F.relu6(self.reduce(F.adaptive_avg_pool2d(x, 1)))))
        else:
            y = x.mean((-2, -1), keepdim=True)
            y = self.across(y.squeeze(-1).transpose(-1, -2)).transpose(-1, -2).unsqueeze(-1)
            x = x * y.sigmoid()
        return self.last(x.flatten(2).mean(-1))


class Autoencoder(nn.Module):
    """Strided convolutions down, transposed ones up with output padding, max pools with indices."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ELU(), nn.Conv2d(8, 12, 3, 2, 1), nn.ELU())
        self.code, self.back = nn.Linear(12 * 16, 6), nn.Linear(6, 12 * 16)
        self.up = nn.Sequential(
            nn.Unflatten(1, (12, 4, 4)), nn.ConvTranspose2d(12, 8, 3, 2, 1, output_padding=1), nn.ELU(),
            nn.ConvTranspose2d(8, 1, 3, 2, 1, output_padding=1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        code = self.code(torch.flatten(self.down(x), start_dim=1))
        return self.up(F.elu(self.back(code))), code


class SegNet(nn.Module):
    """Max pools that give their places, and unpooling by them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = conv_bn(3, 8), conv_bn(8, 8), conv_bn(8, 8)
        self.last = nn.Conv2d(8, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        a, where = F.max_pool2d(self.first(x), 2, return_indices=True)
        return self.last(self.third(F.max_unpool2d(self.second(a), where, 2)))


class Capsules(nn.Module):
    """Routing by agreement for three rounds, with squashed vectors."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.conv, self.primary = nn.Conv2d(1, 8, 5), nn.Conv2d(8, 16, 5, 2)
        self.weight = nn.Parameter(torch.randn(1, 64, classes, 6, 4) * 0.2)

    @staticmethod
    def _squash(x: Tensor) -> Tensor:
        norm = (x**2).sum(-1, keepdim=True)
        return norm / (1 + norm) * x / torch.sqrt(norm + 1e-8)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        u = self._squash(self.primary(F.relu(self.conv(x))).view(n, 4, 4, -1).permute(0, 1, 3, 2).reshape(n, -1, 4))
        votes = (self.weight @ u[:, :, None, :, None]).squeeze(-1)
        b = torch.zeros(n, u.size(1), self.weight.size(2), 1)
        v = votes.sum(1, keepdim=True)
        for _ in range(3):
            v = self._squash((F.softmax(b, dim=2) * votes).sum(1, keepdim=True))
            b = b + (votes * v).sum(-1, keepdim=True)
        return v.squeeze(1).norm(dim=-1)


class StyleGenerator(nn.Module):
    """StyleGAN2: weights modulated for each sample, demodulated, grouped; bilinear upsampling, noise given."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.mapping = nn.Sequential(nn.Linear(16, 16), nn.LeakyReLU(0.2), nn.Linear(16, width))
        self.constant = nn.Parameter(torch.randn(1, width, 4, 4))
        self.weight, self.to_rgb = nn.Parameter(torch.randn(1, width, width, 3, 3) * 0.1), nn.Conv2d(width, 3, 1)
        self.strength = nn.Parameter(torch.full((1,), 0.1))

    def forward(self, z: Tensor, noise: Tensor) -> Tensor:
        style = self.mapping(z * torch.rsqrt(z.square().mean(1, keepdim=True) + 1e-8)) + 1
        n = z.size(0)
        x = F.interpolate(self.constant.repeat(n, 1, 1, 1), scale_factor=2, mode="bilinear", align_corners=False)
        weight = self.weight * style.view(n, 1, -1, 1, 1)
        weight = weight * torch.rsqrt(weight.pow(2).sum([2, 3, 4], keepdim=True) + 1e-8)
        _, _, c, k, _ = weight.shape
        x = F.conv2d(x.view(1, -1, 8, 8), weight.reshape(n * c, c, k, k), padding=1, groups=n).view(n, c, 8, 8)
        return torch.tanh(self.to_rgb(F.leaky_relu(x + self.strength * noise, 0.2) * 2**0.5))


class ResidualGenerator(nn.Module):
    """CycleGAN's: reflection padding, instance norms, residual blocks, pixel shuffles."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.head = nn.Sequential(
            nn.ReflectionPad2d(3), nn.Conv2d(3, width, 7), nn.InstanceNorm2d(width), nn.ReLU(True)
        )
        self.down = nn.Sequential(
            nn.Conv2d(width, 2 * width, 3, 2, 1), nn.InstanceNorm2d(2 * width, affine=True), nn.ReLU(True)
        )
        self.block = nn.Sequential(
            nn.ReplicationPad2d(1), nn.Conv2d(2 * width, 2 * width, 3), nn.InstanceNorm2d(2 * width), nn.ReLU(True),
            nn.ZeroPad2d(1), nn.Conv2d(2 * width, 2 * width, 3), nn.InstanceNorm2d(2 * width),
        )  # fmt: skip
        self.up = nn.Sequential(nn.Conv2d(2 * width, 4 * width, 3, padding=1), nn.PixelShuffle(2), nn.ReLU(True))
        self.tail = nn.Sequential(nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        x = self.down(self.head(x))
        return self.tail(self.up(x + self.block(x)))


class NonLocal(nn.Module):
    """A non-local block: pairwise softmax over places with subsampled keys."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.stem = conv_bn(3, channels, 3, 2)
        self.theta, self.phi, self.g = (nn.Conv2d(channels, channels // 2, 1) for _ in range(3))
        self.out, self.pool = nn.Conv2d(channels // 2, channels, 1), nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        n, c, h, w = x.shape
        q = self.theta(x).view(n, c // 2, -1).permute(0, 2, 1)
        k, v = (self.pool(f(x)).view(n, c // 2, -1) for f in (self.phi, self.g))
        y = torch.matmul(F.softmax(torch.matmul(q, k), dim=-1), v.permute(0, 2, 1))
        return x + self.out(y.permute(0, 2, 1).contiguous().view(n, c // 2, h, w))


class Pyramid(nn.Module):
    """PSPNet's pooling at four sizes, dilated convolutions, a result resized to the input."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, channels, 3, 2), nn.Conv2d(channels, channels, 3, padding=2, dilation=2))
        self.stages = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(s), nn.Conv2d(channels, 4, 1, bias=False), nn.ReLU()) for s in (1, 2, 3)
        )
        self.last = nn.Sequential(nn.Conv2d(channels + 12, 8, 3, padding=1), nn.Dropout2d(0.1), nn.Conv2d(8, 5, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x)
        size = y.shape[-2:]
        pools = [F.interpolate(s(y), size=size, mode="bilinear", align_corners=True) for s in self.stages]
        return F.interpolate(
            self.last(torch.cat([y, *pools], 1)), size=x.shape[-2:], mode="bilinear", align_corners=False
        )


class Shuffled(nn.Module):
    """ShuffleNet by hand: channels split, a grouped convolution, channels shuffled by views."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        half = channels // 2
        self.stem, self.last = conv_bn(3, channels, 3, 2), nn.Linear(channels, 4)
        self.branch = nn.Sequential(
            conv_bn(half, half, 1),
            nn.Conv2d(half, half, 3, padding=1, groups=half),
            nn.BatchNorm2d(half),
            conv_bn(half, half, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        a, b = x[:, ::2], x[:, 1::2]
        x = torch.cat((a, self.branch(b)), dim=1)
        n, c, h, w = x.shape
        x = x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, -1, h, w)
        return self.last(x.mean([2, 3]))


class CornerPools(nn.Module):
    """CornerNet: running maxima over rows and columns by flips, a soft-argmax, peaks by a max pool."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.heat = conv_bn(3, 8, 3, 2), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(x)
        top = torch.flip(torch.cummax(torch.flip(x, [2]), dim=2)[0], [2])
        left = torch.cummax(x.flip(3), dim=3).values.flip(3)
        heat = self.heat(top + left)
        n, c, h, w = heat.shape
        soft = heat.view(n, c, -1).softmax(-1).view(n, c, h, w)
        column = (soft.sum(2) * torch.linspace(0, 1, w)).sum(-1)
        row = (soft.sum(3) * torch.linspace(0, 1, h)).sum(-1)
        peaks = heat.sigmoid()
        peaks = peaks * (F.max_pool2d(peaks, 3, 1, 1) == peaks).float()
        return torch.stack([column, row], -1), peaks.flatten(1).topk(5).values


class OpticalFlow(nn.Module):
    """A correlation of two images over displacements, and a warp by the flow found."""

    def __init__(self, reach: int = 1) -> None:
        super().__init__()
        self.reach, self.features = reach, conv_bn(3, 8, 3, 2)
        self.flow = nn.Conv2d((2 * reach + 1) ** 2, 2, 3, padding=1)

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self.features(a), self.features(b)
        h, w = a.shape[2:]
        padded, r = F.pad(b, [self.reach] * 4), self.reach
        cost = [
            (a * padded[:, :, dy : dy + h, dx : dx + w]).mean(1) for dy in range(2 * r + 1) for dx in range(2 * r + 1)
        ]
        flow = self.flow(F.leaky_relu(torch.stack(cost, 1), 0.1))
        ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack((xs, ys), 0).float().unsqueeze(0) + flow
        grid = 2 * grid / torch.tensor([w - 1, h - 1]).view(1, 2, 1, 1) - 1
        return flow, F.grid_sample(b, grid.permute(0, 2, 3, 1), align_corners=True, padding_mode="border")


class Involution(nn.Module):
    """Kernels made at every place, applied to unfolded neighbourhoods."""

    def __init__(self, channels: int = 8, kernel: int = 3, groups: int = 2) -> None:
        super().__init__()
        self.kernel, self.groups, self.stem = kernel, groups, conv_bn(3, channels)
        self.reduce, self.span = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, kernel**2 * groups, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        n, c, h, w = x.shape
        weight = self.span(F.relu(self.reduce(x))).view(n, self.groups, self.kernel**2, h, w).unsqueeze(2)
        patches = F.unfold(x, self.kernel, padding=1).view(n, self.groups, c // self.groups, self.kernel**2, h, w)
        return (weight * patches).sum(dim=3).view(n, c, h, w)


class PointCloud(nn.Module):
    """Neighbours by distances and topk, features of edges gathered, DGCNN's maximum over them."""

    def __init__(self, near: int = 4) -> None:
        super().__init__()
        self.near = near
        self.edge = nn.Sequential(nn.Conv2d(6, 16, 1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(0.2))
        self.last = nn.Sequential(nn.Conv1d(16, 24, 1), nn.ReLU())
        self.head = nn.Linear(48, 5)

    def forward(self, x: Tensor) -> Tensor:
        n, c, p = x.shape
        inner = -2 * torch.matmul(x.transpose(2, 1), x)
        size = torch.sum(x**2, dim=1, keepdim=True)
        which = (-size - inner - size.transpose(2, 1)).topk(k=self.near, dim=-1)[1]
        which = (which + torch.arange(0, n).view(-1, 1, 1) * p).view(-1)
        points = x.transpose(2, 1).contiguous()
        near = points.view(n * p, -1)[which, :].view(n, p, self.near, c)
        here = points.view(n, p, 1, c).repeat(1, 1, self.near, 1)
        edges = torch.cat((near - here, here), dim=3).permute(0, 3, 1, 2).contiguous()
        y = self.last(self.edge(edges).max(dim=-1, keepdim=False)[0])
        return self.head(torch.cat([y.amax(-1), y.mean(-1)], dim=1))


class Video(nn.Module):
    """(2+1)D convolutions, frames folded into the batch, a shift of channels along time."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.space, self.time = (
            nn.Conv3d(3, channels, (1, 3, 3), padding=(0, 1, 1)),
            nn.Conv3d(channels, channels, (3, 1, 1), padding=(1, 0, 0)),
        )
        self.norm, self.frame, self.last = nn.BatchNorm3d(channels), nn.Conv2d(channels, 8, 3, 2), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.time(self.space(x))))
        n, c, t, h, w = x.shape
        fold = c // 4
        shifted = torch.zeros_like(x)
        shifted[:, :fold, :-1] = x[:, :fold, 1:]
        shifted[:, fold : 2 * fold, 1:] = x[:, fold : 2 * fold, :-1]
        shifted[:, 2 * fold :] = x[:, 2 * fold :]
        y = self.frame(shifted.permute(0, 2, 1, 3, 4).reshape(n * t, c, h, w))
        return self.last(F.adaptive_avg_pool2d(y, 1).view(n, t, -1).mean(1))
