"""Old code on new names: tensors, operators, TorchScript, tracing, files."""

from __future__ import annotations

import importlib
import io
from typing import Any

import pytest
import torch
from processes import run
from torch import Tensor, nn

import zeropoint
import zeropoint.compat
from zeropoint import QTensor

pytestmark = pytest.mark.usefixtures("installed")

X = torch.tensor([[-1.0, 0.0, 0.5, 2.0], [1.0, 3.0, -0.25, 0.75]])


def quantized(x: Tensor = X, scale: float = 0.05, zero_point: int = 20) -> Any:
    return torch.quantize_per_tensor(x, scale, zero_point, torch.quint8)


# ----------------------------------------------------------------------------------------------------------- tensors


def test_quantized_tensors_answer_with_torchs_own_dtypes_and_schemes() -> None:
    q = quantized()
    assert isinstance(q, QTensor)
    assert q.dtype is torch.quint8
    assert q.qscheme() is torch.per_tensor_affine
    assert "dtype=torch.quint8, quantization_scheme=torch.per_tensor_affine" in " ".join(repr(q).split())
    assert {torch.quint8: 1}[q.dtype] == {torch.quint8: 1}[zeropoint.quint8] == 1


def test_dtypes_of_both_are_equal() -> None:
    for name in ("qint8", "quint8", "qint32", "quint4x2", "quint2x4"):
        ours, theirs = getattr(zeropoint, name), getattr(torch, name)
        assert ours == theirs
        assert theirs == ours
        assert hash(ours) == hash(theirs)
        assert ours != torch.uint8
    assert zeropoint.qint8 != torch.quint8
    assert zeropoint.per_channel_affine == torch.per_channel_affine
    assert zeropoint.per_channel_affine != torch.per_channel_symmetric


def test_functions_that_read_a_tensor() -> None:
    q = quantized()
    assert (torch.q_scale(q), torch.q_zero_point(q)) == (0.05, 20)
    assert torch.equal(torch.int_repr(q), q.int_repr())
    per_channel = torch.quantize_per_channel(X, torch.tensor([0.1, 0.2]), torch.tensor([1, 2]), 0, torch.qint8)
    assert torch.q_per_channel_axis(per_channel) == 0
    assert torch.q_per_channel_scales(per_channel).tolist() == pytest.approx([0.1, 0.2])
    assert torch.q_per_channel_zero_points(per_channel).tolist() == [1, 2]


def test_integers_are_a_copy() -> None:
    q = torch.quantize_per_tensor(torch.ones(3), 0.5, 10, torch.quint8)
    for integers in (q.int_repr(), torch.int_repr(q)):
        integers += 1
        assert q.int_repr().tolist() == [12, 12, 12]


def test_methods_of_plain_tensors() -> None:
    assert X.half().dequantize().dtype is torch.float32
    assert not X.is_quantized
    with pytest.raises(RuntimeError, match="q_scale"):
        X.q_scale()


def test_empty_tensors_take_qparams_from_others() -> None:
    made = torch.empty_quantized([3, 2], quantized())
    assert (made.shape, made.q_scale(), made.dtype) == ((3, 2), 0.05, torch.quint8)


def test_max_pooling_under_its_own_name() -> None:
    image = quantized(torch.rand(1, 2, 4, 4))
    expected = nn.functional.max_pool2d(image, 2)
    assert torch.equal(torch.quantized_max_pool2d(image, [2, 2]).int_repr(), expected.int_repr())
    assert torch.equal(
        torch.ops.quantized.max_pool2d(image, [2, 2], [], [0, 0], [1, 1], False).int_repr(), expected.int_repr()
    )


# --------------------------------------------------------------------------------------------------------- operators


def test_packed_weights_go_through_the_old_operators() -> None:
    weight = torch.quantize_per_tensor(torch.eye(4), 0.01, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(weight, torch.ones(4))
    for linear in (torch.ops.quantized.linear, torch.ops.quantized.linear.default):
        assert (linear(quantized(), packed, 0.05, 40).dequantize() - (X + 1)).abs().max() < 0.03
    floats = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(X, 0.05, 20, packed)
    assert torch.allclose(floats, X + 1, atol=1e-6)
    relu = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_relu_output_fp32(X - 2, 0.05, 60, packed)
    assert torch.allclose(relu, (X - 1).relu(), atol=1e-6)
    assert torch.ops.quantized.linear_unpack(packed)[1].tolist() == [1.0] * 4
    half = torch.ops.quantized.linear_dynamic_fp16_unpacked_weight(X, torch.eye(4), torch.ones(4))
    assert torch.allclose(half, X + 1)


def test_packed_convolutions_tell_their_geometry() -> None:
    weight = torch.quantize_per_tensor(torch.ones(4, 2, 3, 3), 0.1, 0, torch.qint8)
    packed = torch.ops.quantized.conv2d_prepack(weight, None, [2, 2], [1, 0], [1, 1], 1)
    ops = torch.ops.quantized
    assert (ops.conv2d_stride(packed), ops.conv2d_padding(packed), ops.conv2d_dilation(packed)) == (
        [2, 2],
        [1, 0],
        [1, 1],
    )
    assert (ops.conv2d_groups(packed), ops.conv2d_transpose(packed)) == (1, 0)
    assert ops.conv2d_unpack(packed)[0].shape == (4, 2, 3, 3)
    assert ops.conv2d(quantized(torch.rand(1, 2, 5, 5)), packed, 0.5, 0).shape == (1, 4, 3, 2)


def test_overloads_of_operators() -> None:
    q, ops = quantized(), torch.ops.quantized
    total = ops.add(q, q, 0.1, 30)
    assert torch.equal(ops.add.default(q, q, 0.1, 30).int_repr(), total.int_repr())
    out = torch._empty_affine_quantized(X.shape, scale=0.1, zero_point=30, dtype=torch.quint8)
    ops.add.out(q, q, out)
    assert torch.equal(out.int_repr(), total.int_repr())
    assert torch.equal(ops.mul.Scalar(q, 2.0).int_repr(), ops.mul_scalar(q, 2.0).int_repr())


def test_an_unknown_operator_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_operator"):
        _ = torch.ops.quantized.no_such_operator
    assert "linear_prepack" in dir(torch.ops.quantized)


@pytest.mark.parametrize(
    "name", ["quantize_per_tensor", "choose_qparams_per_token_asymmetric", "fake_quant_per_channel"]
)
def test_decomposed_operators_are_ours(name: str) -> None:
    old, ours = getattr(torch.ops.quantized_decomposed, name), getattr(torch.ops.zeropoint, name)
    arguments: dict[str, tuple[Any, ...]] = {
        "quantize_per_tensor": (X, 0.1, 3, 0, 255, torch.uint8),
        "choose_qparams_per_token_asymmetric": (X, torch.int8),
        "fake_quant_per_channel": (X, torch.ones(2), torch.zeros(2, dtype=torch.int64), 0, 0, 255),
    }
    got, expected = old(*arguments[name]), ours(*arguments[name])
    for a, b in zip(torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(expected)):
        assert torch.equal(a, b)


def test_decomposed_fake_quantization_has_a_gradient() -> None:
    x = X.clone().requires_grad_()
    scales, zero_points = torch.tensor([0.01, 1.0]), torch.zeros(2, dtype=torch.int64)
    torch.ops.quantized_decomposed.fake_quant_per_channel(x, scales, zero_points, 0, 0, 127).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0]]


def test_exported_graphs_keep_the_decomposed_operators() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.quantized_decomposed.quantize_per_tensor(x, 0.1, 0, 0, 255, torch.uint8)

    targets = [str(n.target) for n in torch.export.export(Model(), (X,)).graph.nodes if n.op == "call_function"]
    assert targets == ["quantized_decomposed.quantize_per_tensor.default"]


# ------------------------------------------------------------------------------------------------- TorchScript and fx


class Functions(nn.Module):
    """What scripted code says."""

    def forward(self, x: Tensor) -> tuple[Tensor, float, Tensor, Tensor, Tensor]:
        q = torch.quantize_per_tensor(x, 0.05, 20, torch.quint8)
        scale, zero_point = torch._choose_qparams_per_tensor(x, False)
        scales, zero_points = torch.ones(2, dtype=torch.float64), torch.zeros(2, dtype=torch.int64)
        channels = torch.quantize_per_channel(x, scales, zero_points, 0, torch.qint8)
        dynamic = torch.quantize_per_tensor_dynamic(x, torch.qint8, False)
        fake = torch.fake_quantize_per_tensor_affine(x, scale, zero_point, 0, 255)
        total = torch.ops.quantized.add(q, q, 0.1, 30)
        return total, q.q_scale(), torch.dequantize(channels), dynamic.dequantize(), fake


def test_scripted_code_calls_the_old_functions() -> None:
    module = Functions()
    scripted = torch.jit.script(module)
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    buffer.seek(0)
    expected = module(X)
    for result in (scripted(X), torch.jit.load(buffer)(X)):
        assert isinstance(result[0], QTensor)
        assert torch.equal(result[0].int_repr(), expected[0].int_repr())
        assert result[1] == expected[1]
        for got, wanted in zip(result[2:], expected[2:]):
            assert torch.equal(got, wanted)


@pytest.mark.parametrize("debug", [False, True])
def test_models_of_graph_mode_can_be_frozen(debug: bool) -> None:
    scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Dropout()).eval())
    qconfig = torch.ao.quantization.default_qconfig
    made = torch.ao.quantization.quantize_jit(scripted, {"": qconfig}, lambda m, x: m(x), [X], debug=debug)
    frozen = torch.jit.freeze(made)
    assert torch.equal(frozen(X), made(X))


def test_fx_leaves_quantized_modules_whole() -> None:
    converted, _ = old_model()
    traced = torch.fx.symbolic_trace(converted)
    assert [n.target for n in traced.graph.nodes if n.op == "call_module"] == ["0", "1", "2", "3", "4"]
    assert torch.equal(traced(X), converted(X))


# ------------------------------------------------------------------------------------------------------------- files


def written_by_pytorch(make: Any) -> io.BytesIO:
    """A file as the old stack writes it."""
    zeropoint.compat.uninstall()
    buffer = io.BytesIO()
    torch.save(make(), buffer)
    zeropoint.compat.install()
    buffer.seek(0)
    return buffer


def old_tensors() -> dict[str, Any]:
    scales, zero_points = torch.tensor([0.1, 0.2]), torch.tensor([3, 4])
    made = {
        "byte": torch.quantize_per_tensor(X, 0.05, 20, torch.quint8),
        "word": torch.quantize_per_tensor(X, 0.001, 0, torch.qint32),
        "transposed": torch.quantize_per_tensor(X, 0.05, 0, torch.qint8).t(),
        "part": torch.quantize_per_tensor(X, 0.05, 0, torch.qint8)[1, 1:],
        "channels": torch.quantize_per_channel(X, scales, zero_points, 0, torch.qint8),
        "packed": torch.quantize_per_channel(X, scales, torch.tensor([0.5, 1.5]), 0, torch.quint4x2),
    }
    return {**made, "floats": {name: q.dequantize() for name, q in made.items()}}


@pytest.mark.parametrize("weights_only", [True, False])
def test_quantized_tensors_of_old_files_become_qtensors(weights_only: bool) -> None:
    loaded = torch.load(written_by_pytorch(old_tensors), weights_only=weights_only)
    floats = loaded.pop("floats")
    for name, q in loaded.items():
        assert isinstance(q, QTensor), name
        assert torch.equal(q.dequantize(), floats[name]), name
    assert loaded["byte"].dtype is torch.quint8


def old_model() -> tuple[Any, Tensor]:
    import torch.ao.quantization as tq

    torch.manual_seed(0)
    model = nn.Sequential(tq.QuantStub(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2), tq.DeQuantStub()).eval()
    model.qconfig = tq.get_default_qconfig("x86")
    prepared = tq.prepare(model)
    prepared(X)
    converted = tq.convert(prepared)
    return converted, converted(X)


def test_old_state_dictionaries_load_into_new_modules() -> None:
    def state() -> Any:
        converted, result = old_model()
        return {"state": converted.state_dict(), "result": result}

    loaded = torch.load(written_by_pytorch(state), weights_only=True)
    model, result = old_model()
    assert type(model[1]).__module__.startswith("zeropoint.")
    for module in model:
        if hasattr(module, "scale") and isinstance(module.scale, float):
            module.scale = 123.0
    model.load_state_dict(loaded["state"])
    assert torch.equal(model(X), loaded["result"])
    assert torch.equal(result, loaded["result"])


# ---------------------------------------------------------------------------------------------------- small functions


def by_torch(function: str, *arguments: Any) -> Any:
    zeropoint.compat.uninstall()
    try:
        return getattr(importlib.import_module("torch.ao.quantization.utils"), function)(*arguments)
    finally:
        zeropoint.compat.install()


QCONFIGS = (
    "default_qconfig",
    "default_dynamic_qconfig",
    "float16_dynamic_qconfig",
    "float16_static_qconfig",
    "default_per_channel_qconfig",
    "float_qparams_weight_only_qconfig_4bit",
)
ABOUT_QCONFIGS = (
    "activation_dtype",
    "weight_dtype",
    "activation_is_dynamically_quantized",
    "activation_is_int32_quantized",
    "activation_is_int8_quantized",
    "activation_is_statically_quantized",
    "weight_is_quantized",
    "weight_is_statically_quantized",
    "op_is_int8_dynamically_quantized",
    "get_qconfig_dtypes",
    "get_quant_type",
)


def about_qconfigs() -> dict[tuple[str, str], Any]:
    """What each function says of each qconfig."""
    from torch.ao.quantization import utils

    return {
        (function, qconfig): getattr(utils, function)(getattr(torch.ao.quantization, qconfig))
        for function in ABOUT_QCONFIGS
        for qconfig in QCONFIGS
    }


def test_what_is_said_about_qconfigs() -> None:
    ours = about_qconfigs()
    zeropoint.compat.uninstall()
    theirs = about_qconfigs()
    zeropoint.compat.install()
    assert ours == theirs
    assert ours["activation_dtype", "default_qconfig"] is not ours["activation_dtype", "float16_static_qconfig"]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("calculate_qmin_qmax", (0, 0, False, torch.qint8, True)),
        ("calculate_qmin_qmax", (0, 0, False, torch.quint8, False)),
        ("calculate_qmin_qmax", (-3, 12, True, torch.qint8, False)),
        ("calculate_qmin_qmax", (0, 0, False, torch.quint4x2, False)),
        ("to_underlying_dtype", (torch.quint4x2,)),
        ("to_underlying_dtype", (torch.qint32,)),
        ("is_per_tensor", (torch.per_tensor_symmetric,)),
        ("is_per_tensor", (torch.per_channel_affine,)),
        ("is_per_channel", (torch.per_channel_affine_float_qparams,)),
        ("get_combined_dict", ({1: 2}, {1: 3, 4: 5})),
        ("check_min_max_valid", (torch.tensor(-1.0), torch.tensor(1.0))),
        ("has_no_children_ignoring_parametrizations", (nn.Linear(1, 1),)),
        ("has_no_children_ignoring_parametrizations", (nn.Sequential(nn.ReLU()),)),
    ],
)
def test_small_functions_answer_as_before(function: str, arguments: tuple[Any, ...]) -> None:
    from torch.ao.quantization import utils

    assert getattr(utils, function)(*arguments) == by_torch(function, *arguments)


def test_small_functions_refuse_mistakes() -> None:
    from torch.ao.quantization import utils

    with pytest.raises(ValueError, match="include 0"):
        utils.validate_qmin_qmax(1, 5)
    with pytest.raises(ValueError, match="below quant_max"):
        utils.validate_qmin_qmax(0, 0)
    with pytest.warns(UserWarning, match="saw no data"):
        assert not utils.check_min_max_valid(torch.tensor([]), torch.tensor([]))
    with pytest.raises(ValueError, match="above"):
        utils.check_min_max_valid(torch.tensor(2.0), torch.tensor(1.0))


# ------------------------------------------------------------------------------------------------------ what is absent


def test_a_name_without_counterpart_can_be_imported_and_says_why_when_used() -> None:
    from torch.ao.nn.quantized.dynamic.modules.rnn import pack_weight_bias
    from torch.ao.quantization.utils import check_node

    assert not isinstance(3, check_node)
    for name, use in {
        "torch.ao.nn.quantized.dynamic.modules.rnn.pack_weight_bias": pack_weight_bias,
        "torch.ao.quantization.utils.check_node": lambda: check_node.anything,
    }.items():
        with pytest.raises(NotImplementedError, match=f"^{name} has no counterpart in zeropoint: .* "):
            use()
    with pytest.raises(AttributeError, match=r"'torch\.ao\.quantization' has no attribute 'no_such_name'"):
        _ = torch.ao.quantization.no_such_name


def test_a_traced_model_is_fused_by_the_old_name() -> None:
    said = run(
        """
        import torch, zeropoint.compat
        zeropoint.compat.install()
        from torch.quantization.quantize_fx import QuantizationTracer, _fuse_fx
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()).eval()
        graph = torch.fx.GraphModule(model, QuantizationTracer([], []).trace(model))
        print([type(child).__name__ for child in _fuse_fx(graph, False, fuse_custom_config={}).children()])
        """
    )
    assert "ConvReLU2d" in said
