"""The numeric suite in eager mode: weights, results side by side, and every layer on the same inputs."""

import copy

import torch
import torch.ao.ns._numeric_suite as ns
import torch.ao.quantization as tq
from torch import nn

torch.manual_seed(0)
model = tq.QuantWrapper(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))).eval()
model.qconfig = tq.default_qconfig
data = torch.randn(32, 8)
quantized = tq.quantize(model, lambda prepared, batch: prepared(batch), [data])
weights = ns.compare_weights(model.state_dict(), quantized.state_dict())
assert sorted(weights) == ["module.0._packed_params._packed_params", "module.2._packed_params._packed_params"]
for pair in weights.values():
    assert (pair["float"] - pair["quantized"].dequantize()).abs().max() < 0.01
shadows = ns.compare_model_stub(copy.deepcopy(model), copy.deepcopy(quantized), {nn.Linear}, data)
assert sorted(shadows) == ["module.0.stats", "module.2.stats"]
outputs = ns.compare_model_outputs(model, quantized, data)
assert {"quant.stats", "module.0.stats", "module.2.stats"} <= set(outputs)
RESULT = outputs["module.2.stats"]["quantized"][0].dequantize()
STEP = float(outputs["module.2.stats"]["quantized"][0].q_scale())
assert (RESULT - outputs["module.2.stats"]["float"][0]).abs().max() < 3 * STEP
