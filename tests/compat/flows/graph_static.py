"""FX graph mode: prepare, calibrate, convert; save the state dict and load it into a model without calibration."""

import copy
import io

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, get_default_qconfig
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = torch.relu(self.bn(self.conv(x)))
        x = x + 1.0
        return self.fc(x.mean((2, 3)))


torch.manual_seed(0)
model = Network().eval()
images = torch.randn(8, 3, 8, 8)
mapping = QConfigMapping().set_global(get_default_qconfig("fbgemm")).set_module_name("fc", None)
prepared = prepare_fx(copy.deepcopy(model), mapping, (images,))
prepared(images)
converted = convert_fx(prepared)
buffer = io.BytesIO()
torch.save(converted.state_dict(), buffer)
buffer.seek(0)
empty = convert_fx(prepare_fx(copy.deepcopy(model), mapping, (images,)))
empty.load_state_dict(torch.load(buffer))
assert torch.equal(empty(images), converted(images))
RESULT = converted(images)
STEP = 0.05
assert (RESULT - model(images)).abs().max() < STEP
