"""Static quantization in eager mode: fuse, calibrate, convert, save the state dict and load it into a new model."""

import io

import torch
import torch.ao.quantization as tq
from torch import nn
from torch.ao.nn.quantized import FloatFunctional


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        self.sum = FloatFunctional()

    def forward(self, x):
        return self.sum.add(x, self.relu(self.bn(self.conv(x))))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = tq.QuantStub(), tq.DeQuantStub()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.block = Block()
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = self.block(self.first(self.quant(x)))
        x = nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)
        return self.dequant(self.head(x))


def quantized(model, data):
    model = tq.fuse_modules(model, [["block.conv", "block.bn", "block.relu"]])
    model.qconfig = tq.get_default_qconfig("fbgemm")
    prepared = tq.prepare(model)
    prepared(data)
    return tq.convert(prepared)


torch.manual_seed(0)
images = torch.randn(16, 3, 16, 16)
network = Network().eval()
converted = quantized(network, images)
buffer = io.BytesIO()
torch.save(converted.state_dict(), buffer)
buffer.seek(0)
again = quantized(Network().eval(), torch.randn(2, 3, 16, 16))
again.load_state_dict(torch.load(buffer))
assert torch.equal(again(images), converted(images))
RESULT = converted(images)
STEP = float(converted.head.scale)
