"""A quantized model as TorchScript, saved and loaded: the recipe for phones, up to the file."""

import io

import torch
from torch import nn
from torch.ao.quantization import QuantWrapper, convert, get_default_qconfig, prepare

torch.manual_seed(0)
model = QuantWrapper(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2))).eval()
model.qconfig = get_default_qconfig("qnnpack")
images = torch.rand(2, 3, 12, 12)
prepared = prepare(model)
prepared(images)
converted = convert(prepared)
buffer = io.BytesIO()
torch.jit.save(torch.jit.script(converted), buffer)
buffer.seek(0)
RESULT = torch.jit.load(buffer)(images)
assert torch.equal(RESULT, converted(images))
STEP = float(converted.module[0].scale)
