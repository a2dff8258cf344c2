"""A network of inverted residuals in eager mode: fused, calibrated, converted, scripted and saved."""

import io

import torch
import torch.ao.quantization as tq
from torch import nn
from torch.ao.nn.quantized import FloatFunctional


def layer(inputs, outputs, size=1, stride=1, groups=1):
    padding = size // 2
    conv = nn.Conv2d(inputs, outputs, size, stride, padding, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU())


class InvertedResidual(nn.Module):
    def __init__(self, inputs, outputs, stride) -> None:
        super().__init__()
        wide = 2 * inputs
        self.conv = nn.Sequential(
            layer(inputs, wide),
            layer(wide, wide, 3, stride, groups=wide),
            nn.Conv2d(wide, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.sum = FloatFunctional() if stride == 1 and inputs == outputs else None

    def forward(self, x):
        return self.conv(x) if self.sum is None else self.sum.add(x, self.conv(x))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = tq.QuantStub(), tq.DeQuantStub()
        self.features = nn.Sequential(
            layer(3, 8, 3, 2), InvertedResidual(8, 16, 2), InvertedResidual(16, 16, 1), layer(16, 32)
        )
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(32, 5))

    def forward(self, x):
        x = self.features(self.quant(x))
        x = nn.functional.adaptive_avg_pool2d(x, (1, 1)).reshape(x.shape[0], -1)
        return self.dequant(self.classifier(x))

    def fuse(self, fuse_modules):
        for module in self.modules():
            if type(module) is nn.Sequential and isinstance(module[0], nn.Conv2d):
                fuse_modules(module, ["0", "1", "2"], inplace=True)
            if isinstance(module, InvertedResidual):
                fuse_modules(module.conv, ["2", "3"], inplace=True)


torch.manual_seed(0)
model = Network()
images = torch.randn(16, 3, 24, 24)
with torch.no_grad():
    for _ in range(3):  # statistics of the batch norms
        model(images)
model.eval()
expected = model(images)
model.fuse(tq.fuse_modules)
assert (model(images) - expected).abs().max() < 1e-4
model.qconfig = tq.get_default_qconfig("fbgemm")
tq.prepare(model, inplace=True)
with torch.no_grad():
    model(images)
tq.convert(model, inplace=True)
RESULT = model(images)
STEP = float(model.classifier[1].scale)
assert (RESULT - expected).abs().max() < 8 * STEP
buffer = io.BytesIO()
torch.jit.save(torch.jit.script(model), buffer)
buffer.seek(0)
assert torch.equal(torch.jit.load(buffer)(images), RESULT)
