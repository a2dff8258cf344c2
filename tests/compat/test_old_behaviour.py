"""Single behaviours of the old stack that programs rely on."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import zeropoint
import zeropoint.nn.intrinsic.quantized as nniq
import zeropoint.nn.intrinsic.quantized.dynamic as nniqd
import zeropoint.nn.qat as nnqat
import zeropoint.nn.qat.dynamic as nnqatd
import zeropoint.nn.quantized as nnq
import zeropoint.nn.quantized.functional as qF

STEP = 0.1


def quantized(*shape: int, dtype: object = zeropoint.quint8, seed: int = 0) -> zeropoint.QTensor:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 2
    return zeropoint.quantize_per_tensor(x, STEP, 10, dtype)


def test_fused_linear_layers_take_the_argument_bias() -> None:
    for layer in (nniq.LinearReLU(3, 2, bias=False), nniq.LinearTanh(3, 2, bias=False)):
        assert layer.bias() is None
    assert nniq.LinearReLU(3, 2, bias=True, dtype=zeropoint.qint8).bias().shape == (2,)
    assert nniqd.LinearReLU(3, 2, bias=False).bias() is None


@pytest.mark.usefixtures("installed")
def test_packed_weights_give_their_bias_by_a_method() -> None:
    weight, bias = quantized(2, 2, dtype=zeropoint.qint8), torch.ones(2)
    assert torch.equal(torch.ops.quantized.linear_prepack(weight, bias).bias(), bias)
    assert torch.equal(torch.ops.quantized.linear_prepack_fp16(torch.ones(2, 2), bias).bias(), bias)


def test_activations_among_non_leaf_modules_get_the_observer_of_the_qconfig() -> None:
    fixed = zeropoint.FixedQParamsObserver.with_args(scale=123.0, zero_point=0)
    model = nn.Sequential(zeropoint.QuantStub(), nn.Sigmoid(), nn.Softmax(1), nn.Tanh(), zeropoint.DeQuantStub())
    model.qconfig = zeropoint.QConfig(activation=fixed, weight=zeropoint.default_weight_observer)
    kinds = [nn.Sigmoid, nn.Softmax, nn.Tanh]
    prepared = zeropoint.prepare(model, observer_non_leaf_module_list=kinds)
    for layer in prepared[1:4]:
        assert type(layer.activation_post_process) is zeropoint.FixedQParamsObserver
        assert float(layer.activation_post_process.scale) == 123.0


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["add", "add_relu", "mul", "mul_relu"])
def test_arithmetic_writes_into_out(name: str) -> None:
    a, b = quantized(4, 5), quantized(4, 5, seed=1)
    out = zeropoint.empty_affine_quantized([4, 5], scale=0.3, zero_point=7, dtype=zeropoint.quint8)
    operator = getattr(torch.ops.quantized, name)
    assert operator(a, b, out=out) is out
    assert torch.equal(out.int_repr(), operator(a, b, 0.3, 7).int_repr())


@pytest.mark.parametrize("spatial", [1, 2])
def test_reflection_padding_writes_into_out(spatial: int) -> None:
    q = quantized(*(2, 3, 6, 6)[: spatial + 2])
    pad = [1] * (2 * spatial)
    expected = F.pad(q, pad, mode="reflect")
    function = getattr(torch._C._nn, f"reflection_pad{spatial}d")
    out = zeropoint.empty_affine_quantized(expected.shape, scale=STEP, zero_point=10, dtype=zeropoint.quint8)
    assert torch.equal(function(q, pad, out=out).int_repr(), expected.int_repr())
    other = zeropoint.empty_affine_quantized(expected.shape, scale=2.0, zero_point=10, dtype=zeropoint.quint8)
    with pytest.raises(ValueError, match="out must be quantized as the input is"):
        function(q, pad, out=other)


def test_functions_that_pass_values_on_take_32_bits() -> None:
    q, narrow = quantized(2, 3, 8, 8, dtype=zeropoint.qint32), quantized(2, 3, 8, 8, dtype=zeropoint.qint8)
    for function in (
        lambda x: qF.max_pool2d(x, 2),
        lambda x: qF.interpolate(x, size=(5, 4)),
        lambda x: qF.interpolate(x, size=(5, 4), mode="bilinear", align_corners=True),
    ):
        assert function(q).int_repr().tolist() == function(narrow).int_repr().tolist()


@pytest.mark.parametrize("dim", [None, 1, (0, 2)])
@pytest.mark.parametrize("correction", [0, 1])
def test_standard_deviation_is_quantized_as_its_input(dim: object, correction: int) -> None:
    q = quantized(4, 5, 6)
    found = torch.std(q, dim, correction=correction)
    expected = torch.std(q.dequantize(), dim, correction=correction)
    assert torch.equal(found.int_repr(), zeropoint.quantize_per_tensor(expected, STEP, 10, zeropoint.quint8).int_repr())


def test_grid_sample_is_within_half_a_step_of_floats_and_pads_with_zero() -> None:
    q = quantized(2, 3, 8, 8)
    grid = torch.rand(2, 5, 5, 2, generator=torch.Generator().manual_seed(2)) * 3 - 1.5
    found, expected = (
        F.grid_sample(q, grid, align_corners=False),
        F.grid_sample(q.dequantize(), grid, align_corners=False),
    )
    assert (found.dequantize() - expected).abs().max() <= STEP * 0.5001
    outside = F.grid_sample(q, torch.full((2, 1, 1, 2), 5.0), align_corners=False)
    assert outside.int_repr().unique().tolist() == [10]


def test_a_transposed_convolution_without_outputs_is_refused() -> None:
    for kind in (nnq.ConvTranspose1d, nnq.ConvTranspose2d, nnq.ConvTranspose3d):
        with pytest.raises(ValueError, match="out_channels must be greater than 0, got 0"):
            kind(3, 0, 3)


def test_weights_beyond_what_a_moving_average_saw_stay_in_the_range_of_the_observer() -> None:
    observer = zeropoint.MovingAverageMinMaxObserver(
        averaging_constant=1.0, dtype=zeropoint.qint8, quant_min=-10, quant_max=10, qscheme="per_tensor_symmetric"
    )
    observer(torch.tensor([-1.0, 1.0]))
    made = nnq.storage.quantize_weight(torch.tensor([-1.5, 0.5, 2.0]), observer)
    assert made.int_repr().tolist() == [-10, 5, 10]


class _Powers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant, self.conv = zeropoint.QuantStub(), nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(self.quant(x)).view(1, -1).pow(2).mean()


@pytest.mark.usefixtures("installed")
def test_models_that_could_not_be_converted_are_prepared_and_trained_with_a_warning() -> None:
    model = _Powers().train()
    model.qconfig = torch.ao.quantization.get_default_qat_qconfig("x86")
    prepared = torch.ao.quantization.prepare_qat(model)
    with pytest.warns(UserWarning, match="the converted model would fail"):
        loss = prepared(torch.randn(1, 3, 8, 8))
    loss.backward()
    assert prepared.conv.weight.grad.abs().max() > 0


@pytest.mark.usefixtures("installed")
def test_observers_put_in_directly_are_those_of_prepare() -> None:
    model = nn.Sequential(zeropoint.QuantStub(), nn.Conv2d(3, 4, 3), nn.ReLU(), zeropoint.DeQuantStub()).eval()
    model = torch.ao.quantization.fuse_modules(model, [["1", "2"]])
    model.qconfig = torch.ao.quantization.get_default_qconfig("x86")
    torch.ao.quantization.propagate_qconfig_(model)
    prepared = torch.ao.quantization.prepare(model)
    sys.modules["torch.ao.quantization.quantize"]._add_observer_(model, {zeropoint.QuantStub, type(model[1])})
    x = torch.randn(1, 3, 8, 8)
    assert torch.equal(model(x), prepared(x))
    assert [name for name, _ in model.named_modules()] == [name for name, _ in prepared.named_modules()]


# ----------------------------------------------------------------------------------------- what programs look for


def test_tables_in_training_refuse_in_the_words_and_with_the_errors_of_both() -> None:
    bag, other = nn.EmbeddingBag(4, 2), nn.Embedding(4, 2)
    with pytest.raises(AssertionError, match="qconfig must be provided for QAT module") as error:
        nnqat.EmbeddingBag(4, 2)
    assert isinstance(error.value, ValueError)
    for table, name in ((nnqat.EmbeddingBag, "Embedding Bag"), (nnqat.Embedding, "Embedding")):
        with pytest.raises(
            AssertionError, match=f"^{name} weights requires a qscheme of torch.per_channel_affine_float_qparams, got "
        ):
            table(4, 2, qconfig=zeropoint.default_qat_qconfig)
    with pytest.raises(
        AssertionError, match=r"qat\.EmbeddingBag\.from_float only works for EmbeddingBag, got"
    ) as error:
        nnqat.EmbeddingBag.from_float(other)
    assert isinstance(error.value, TypeError)
    with pytest.raises(AssertionError, match="Input float module must have qconfig defined"):
        nnqat.EmbeddingBag.from_float(bag)
    bag.qconfig = None  # type: ignore[assignment]
    with pytest.raises(ValueError, match=r"Input float module must have a valid qconfig, .* is None"):
        nnqat.EmbeddingBag.from_float(bag)


def test_dynamic_training_refuses_observers_that_remember() -> None:
    with pytest.raises(ValueError, match=r"Dynamic QAT requires a memoryless observer\.This means .* got "):
        nnqatd.Linear(2, 2, qconfig=zeropoint.default_qat_qconfig)


def test_an_operator_that_quantized_tensors_lack_is_named_as_pytorch_names_it(request: pytest.FixtureRequest) -> None:
    q, more = quantized(2, 3, 4, 4), (torch.zeros(3), torch.ones(3))
    with pytest.raises(NotImplementedError, match=r"^aten.*batch_norm.* is not defined for quantized tensors"):
        F.batch_norm(q, *more)
    request.getfixturevalue("installed")
    words = "^Could not run 'aten::native_batch_norm' with arguments from the 'QuantizedCPU' backend: aten.*: call "
    with pytest.raises(RuntimeError, match=words):
        F.batch_norm(q, *more)


@pytest.mark.parametrize("numel", [-1, 5])
def test_a_number_of_elements_that_is_not_there_is_a_runtime_error_too(numel: int) -> None:
    with pytest.raises(RuntimeError, match=r"numel is out of the bound of input tensor: .*between 1 and 4") as error:
        zeropoint.choose_qparams_optimized(torch.ones(4), numel)
    assert isinstance(error.value, ValueError)


def test_a_transposed_layer_with_a_large_output_padding_can_be_packed_and_unpacked() -> None:
    weight = quantized(2, 3, 3, 3, dtype=zeropoint.qint8)
    packed = zeropoint.qfunctions.conv_transpose_prepack(weight, None, [1, 2], [0, 0], [1, 1], [1, 1], 1)
    assert packed.unpack()[0] is packed._weight
    assert packed.output_padding() == [1, 1]
    with pytest.raises(ValueError, match="output_padding 1 must be smaller than stride or dilation along the height"):
        zeropoint.qfunctions.packed.conv(quantized(1, 2, 4, 4), packed, 0.1, 0)
