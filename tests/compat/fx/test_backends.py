"""The shipped backends against those of torch.ao, and BackendConfig as a dictionary."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.ao.quantization.backend_config.utils
import torch.ao.quantization.fx.quantize_handler
from torch import nn
from torch.ao.quantization.backend_config import executorch, fbgemm, native, onednn, qnnpack, tensorrt, x86

import zeropoint
from zeropoint import fx
from zeropoint.compat.fx import backends
from zeropoint.compat.fx_old_functions import get_pattern_to_quantize_handlers

THEIRS = {
    "get_native_backend_config": native,
    "get_test_only_legacy_native_backend_config": native,
    "get_fbgemm_backend_config": fbgemm,
    "get_x86_backend_config": x86,
    "get_qnnpack_backend_config": qnnpack,
    "get_onednn_backend_config": onednn,
    "get_executorch_backend_config": executorch,
    "get_tensorrt_backend_config": tensorrt,
}


def shown(pattern: Any) -> Any:
    """A pattern with names for classes, as those of torch.ao.nn and zeropoint.nn are not the same."""
    if isinstance(pattern, tuple):
        return tuple(map(shown, pattern))
    if isinstance(pattern, type):
        parts = [part for part in pattern.__module__.split(".") if part in ("qat", "intrinsic", "dynamic", "reference")]
        return ".".join([*parts, pattern.__name__])
    return pattern


def dtypes(config: Any) -> Any:
    return [
        (d.input_dtype, d.output_dtype, d.weight_dtype, d.bias_dtype, bool(d.is_dynamic)) for d in config.dtype_configs
    ]


@pytest.mark.parametrize("getter", THEIRS)
def test_shipped_backends_have_the_patterns_and_dtypes_of_torch_ao(getter: str) -> None:
    theirs = {shown(k): v for k, v in getattr(THEIRS[getter], getter)()._pattern_complex_format_to_config.items()}
    ours = {shown(k): v for k, v in getattr(backends, getter)().by_pattern.items()}
    assert set(ours) == set(theirs)
    for pattern, config in theirs.items():
        mine = ours[pattern]
        assert dtypes(mine) == dtypes(config), pattern
        assert mine.observation_type.name == config.observation_type.name, pattern
        assert shown(mine.qat_module) == shown(config.qat_module), pattern
        assert shown(mine.fused_module) == shown(config.fused_module), pattern
        assert mine._input_type_to_index == config._input_type_to_index, pattern
        assert (mine.fuser_method is None) == (config.fuser_method is None), pattern


def test_a_backend_survives_its_dictionary() -> None:
    config = fx.get_native_backend_config()
    again = fx.BackendConfig.from_dict(config.to_dict())
    assert again.to_dict() == config.to_dict()


def test_a_pattern_has_one_form_only() -> None:
    with pytest.raises(ValueError, match="already"):
        fx.BackendPatternConfig(nn.Linear)._set_pattern_complex_format((nn.ReLU, nn.Linear))
    with pytest.raises(ValueError, match="two or three"):
        fx.BackendConfig().set_backend_pattern_config(fx.BackendPatternConfig((1, 2, 3, 4)))


def test_a_users_backend_quantizes_what_it_names_and_nothing_else() -> None:
    static = fx.DTypeConfig(zeropoint.quint8, zeropoint.quint8, zeropoint.qint8, torch.float32)
    linear = (
        fx.BackendPatternConfig(nn.Linear)
        .add_dtype_config(static)
        .set_root_module(nn.Linear)
        .set_reference_quantized_module(zeropoint.nn.quantized.reference.Linear)
    )
    backend = fx.BackendConfig("mine").set_backend_pattern_config(linear)
    model = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Linear(4, 4)).eval()
    x = torch.randn(8, 4)
    prepared = fx.prepare_fx(model, zeropoint.get_default_qconfig_mapping(), (x,), backend_config=backend)
    prepared(x)
    reference = fx.convert_to_reference_fx(prepared, backend_config=backend)
    assert type(reference.get_submodule("0")) is zeropoint.nn.quantized.reference.Linear
    assert type(reference.get_submodule("1")) is nn.Sigmoid
    quantized = [node for node in reference.graph.nodes if "quantize_per_tensor" in node.name]
    assert len(quantized) == 4  # before and after each layer


def test_a_handler_of_a_pattern_says_whether_results_have_the_scale_of_what_came_in() -> None:
    theirs = torch.ao.quantization.fx.quantize_handler._get_pattern_to_quantize_handlers(
        native.get_native_backend_config()
    )
    handlers = get_pattern_to_quantize_handlers(backends.get_native_backend_config())
    common = [pattern for pattern in handlers if pattern in theirs]
    assert len(common) > 150
    for pattern in (nn.ReLU, nn.MaxPool2d, torch.cat, nn.Linear, nn.Conv2d, torch.nn.functional.relu):
        ours = handlers[pattern](None, {})
        assert ours.is_general_tensor_value_op() == theirs[pattern](None, {}).is_general_tensor_value_op(), pattern
        assert not ours.is_custom_module()
        assert not ours.is_standalone_module()
