"""FX graph mode under the old names: old operators in graphs, scripting, files."""

import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import zeropoint

pytestmark = pytest.mark.usefixtures("installed")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.weight = nn.Conv2d(3, 4, 3), nn.Parameter(torch.randn(2, 4))

    def forward(self, x):
        y = self.conv(x)
        y = F.relu(y + y).mean([2, 3])
        return F.linear(y, self.weight)


def converted(x: torch.Tensor) -> torch.fx.GraphModule:
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    torch.manual_seed(0)
    prepared = prepare_fx(Model().eval(), get_default_qconfig_mapping("fbgemm"), (x,))
    prepared(x)
    return convert_fx(prepared)


def test_graphs_call_the_old_operators_and_name_torchs_dtypes() -> None:
    graph = converted(torch.randn(2, 3, 8, 8)).graph
    targets = [node.target for node in graph.nodes]
    assert torch.quantize_per_tensor in targets
    assert torch.ops.quantized.add_relu in targets
    assert torch.ops.quantized.linear in targets
    quantize = next(node for node in graph.nodes if node.target is torch.quantize_per_tensor)
    assert quantize.args[-1] == torch.quint8


def test_a_converted_graph_is_scripted_and_saved() -> None:
    x = torch.randn(2, 3, 8, 8)
    model = converted(x)
    scripted = torch.jit.script(model)
    assert torch.equal(scripted(x), model(x))
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    file.seek(0)
    assert torch.equal(torch.jit.load(file)(x), model(x))


def test_a_backend_of_old_code_is_ours() -> None:
    from torch.ao.quantization.backend_config import BackendConfig, get_native_backend_config

    assert isinstance(get_native_backend_config(), BackendConfig)
    assert BackendConfig is zeropoint.compat.fx.BackendConfig
