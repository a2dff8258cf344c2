"""Training of inverted residuals with rounding: stop observing, freeze batch norms, convert a copy in each epoch.

With all 8 bits: a range of 7 bits is trained otherwise, as docs/migration.md says.
"""

import copy

import torch
import torch.ao.nn.intrinsic as nni
import torch.ao.quantization as tq
from torch import nn
from torch.ao.nn.quantized import FloatFunctional


class InvertedResidual(nn.Module):
    def __init__(self, channels) -> None:
        super().__init__()
        wide = 2 * channels
        self.conv = nn.Sequential(
            *(nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU()),
            *(nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU()),
            *(nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels)),
        )
        self.sum = FloatFunctional()

    def forward(self, x):
        return self.sum.add(x, self.conv(x))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = tq.QuantStub(), tq.DeQuantStub()
        self.stem, self.block, self.head = nn.Conv2d(3, 4, 3, stride=2), InvertedResidual(4), nn.Linear(4 * 25, 3)

    def forward(self, x):
        x = self.block(self.stem(self.quant(x)))
        return self.dequant(self.head(x.flatten(1)))


torch.manual_seed(0)
images, labels = torch.randn(8, 3, 11, 11), torch.randint(0, 3, (8,))
model = Network().train()
tq.fuse_modules_qat(model.block.conv, [["0", "1", "2"], ["3", "4", "5"], ["6", "7"]], inplace=True)
model.qconfig = tq.get_default_qat_qconfig("qnnpack")
tq.prepare_qat(model, inplace=True)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for epoch in range(3):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    if epoch == 1:
        model.apply(tq.disable_observer)
        model.apply(nni.qat.freeze_bn_stats)
    converted = tq.convert(copy.deepcopy(model).eval())
RESULT = converted(images)
# A value on the other side of a border in an early layer moves results of the last one by two steps at most here.
STEP = 2 * float(converted.head.scale)
