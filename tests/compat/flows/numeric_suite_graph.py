"""The numeric suite on graphs: weights, results side by side, shadows, and several qconfigs for each layer."""

import copy

import torch
import torch.ao.ns._numeric_suite_fx as ns
from torch import nn
from torch.ao.ns.fx.qconfig_multi_mapping import QConfigMultiMapping
from torch.ao.ns.fx.utils import compute_sqnr
from torch.ao.quantization import default_dynamic_qconfig, default_qconfig, get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_native_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
data = torch.randn(32, 8)
prepared = prepare_fx(copy.deepcopy(model), get_default_qconfig_mapping("fbgemm"), (data,))
prepared(data)
quantized = convert_fx(copy.deepcopy(prepared))
weights = ns.extract_weights("float", copy.deepcopy(prepared), "int8", copy.deepcopy(quantized))
ns.extend_logger_results_with_comparison(weights, "float", "int8", compute_sqnr, "sqnr")
assert [float(found["weight"]["int8"][0]["sqnr"][0]) > 30 for found in weights.values()] == [True, True]
logged = ns.add_loggers("float", copy.deepcopy(prepared), "int8", copy.deepcopy(quantized), ns.OutputLogger)
for each in logged:
    each(data)
results = ns.extract_logger_info(*logged, ns.OutputLogger, "int8")
assert len(results) == 2
shadowed = ns.add_shadow_loggers("float", copy.deepcopy(prepared), "int8", copy.deepcopy(quantized), ns.OutputLogger)
shadowed(data)
assert len(ns.extract_shadow_logger_info(shadowed, ns.OutputLogger, "int8")) == 2
mappings = QConfigMultiMapping().set_global([default_qconfig, default_dynamic_qconfig])
shadows = ns.prepare_n_shadows_model(model, (data,), mappings, get_native_backend_config())
shadows(data)
shadows = ns.convert_n_shadows_model(shadows)
ns.loggers_set_enabled(shadows, True)
shadows(data)
found = ns.extract_results_n_shadows_model(shadows)["model"]["node_output"]
assert sorted(found) == [f"subgraph_{layer}_{k}" for layer in (0, 1) for k in (0, 1, 2)]
RESULT = found["subgraph_1_1"][0]["values"][0].detach()
STEP = 0.02
