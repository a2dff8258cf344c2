"""Quantization-aware training in eager mode: fuse, train, freeze, convert.

With all 8 bits: a range of 7 bits is trained otherwise, as docs/migration.md says.
"""

import torch
import torch.ao.quantization
from torch import nn

torch.manual_seed(0)
images, labels = torch.randn(8, 3, 8, 8), torch.randint(0, 2, (8,))
layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 2))
model = torch.ao.quantization.QuantWrapper(layers).train()
model = torch.ao.quantization.fuse_modules_qat(model, ["module.0", "module.1", "module.2"])
model.qconfig = torch.ao.quantization.get_default_qat_qconfig("qnnpack")
torch.ao.quantization.prepare_qat(model, inplace=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    if step == 2:
        model.apply(torch.ao.quantization.disable_observer)
        model.apply(torch.ao.nn.intrinsic.qat.freeze_bn_stats)
model.eval()
converted = torch.ao.quantization.convert(model)
RESULT = converted(images)
STEP = float(converted.module[4].scale)
