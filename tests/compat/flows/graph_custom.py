"""FX graph mode with a configuration of one's own: a module that is not traced, attributes that stay, and a backend."""

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, default_dynamic_qconfig, get_default_qconfig
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.fx.custom_config import ConvertCustomConfig, PrepareCustomConfig
from torch.ao.quantization.quantize_fx import convert_fx, fuse_fx, prepare_fx


class Branching(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()
        self.branching = Branching()
        self.flatten, self.fc, self.classes = nn.Flatten(), nn.Linear(288, 4), ["a", "b", "c", "d"]

    def forward(self, x):
        x = self.branching(self.relu(self.bn(self.conv(x))))
        return self.fc(self.flatten(x))


torch.manual_seed(0)
images = torch.randn(8, 3, 8, 8)
model = Network().eval()
expected = model(images)
mapping = QConfigMapping().set_global(get_default_qconfig("fbgemm")).set_module_name("fc", default_dynamic_qconfig)
custom = PrepareCustomConfig().set_non_traceable_module_names(["branching"]).set_preserved_attributes(["classes"])
prepared = prepare_fx(model, mapping, (images,), custom, backend_config=get_fbgemm_backend_config())
assert prepared.classes == ["a", "b", "c", "d"]
prepared(images)
converted = convert_fx(
    prepared, ConvertCustomConfig().set_preserved_attributes(["classes"]), backend_config=get_fbgemm_backend_config()
)
assert converted.classes == ["a", "b", "c", "d"]
RESULT = converted(images)
STEP = 0.05
assert (RESULT - expected).abs().max() < 2 * STEP
fused = fuse_fx(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU()).eval())
assert len(list(fused.graph.nodes)) == 3
