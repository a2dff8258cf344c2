"""What could be better in a model, and input-weight equalization of the layers that lose most."""

import copy

import torch
from torch import nn
from torch.ao.quantization import default_qconfig
from torch.ao.quantization.fx._equalize import get_equalization_qconfig_dict, get_layer_sqnr_dict
from torch.ao.quantization.fx._model_report.detector import OutlierDetector, PerChannelDetector
from torch.ao.quantization.fx._model_report.model_report import ModelReport
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 4)).eval()
data = torch.randn(32, 8) * torch.tensor([30.0, 1, 1, 1, 1, 1, 1, 1])
mapping = {"": default_qconfig}
prepared = prepare_fx(copy.deepcopy(model), mapping, (data,))
report = ModelReport(prepared, {OutlierDetector(), PerChannelDetector("fbgemm")})
report.prepare_detailed_calibration()(data)
_, per_channel = report.generate_model_report(remove_inserted_observers=True)["per_channel_detector"]
assert [found["per_channel_quantization_used"] for found in per_channel.values()] == [False, False]
quantized = convert_fx(copy.deepcopy(prepared))
sqnr = get_layer_sqnr_dict(copy.deepcopy(prepared), quantized, data)
assert "0" in sqnr
equalized = prepare_fx(
    copy.deepcopy(model), mapping, (data,), _equalization_config=get_equalization_qconfig_dict({"0": 0.0}, 1)
)
equalized(data)
converted = convert_fx(equalized)
RESULT = converted(data)
STEP = 0.02
assert (RESULT - model(data)).square().mean() <= (quantized(data) - model(data)).square().mean()
