"""prepare, convert and relatives: which modules are observed and swapped, what stays, what is refused."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from eager_models import THEIRS, Mlp, seven_bits, stir, twins
from eight_bit_steps import steps_between
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

import zeropoint
from zeropoint.demo_digits import OURS, Cnn
from zeropoint.nn import intrinsic as nni, qat as nnqat, quantized as nnq
from zeropoint.nn.intrinsic import qat as nniqat, quantized as nniq
from zeropoint.nn.quantized import dynamic as nnqd


def mlp(**qconfigs: Any) -> Mlp:
    torch.manual_seed(0)
    model = Mlp(OURS).eval()
    model.qconfig = zeropoint.default_qconfig
    for name, qconfig in qconfigs.items():
        getattr(model, name).qconfig = qconfig
    return model


def calibrated(model: nn.Module, x: Tensor) -> nn.Module:
    prepared = zeropoint.prepare(model)
    prepared(x)
    return prepared


class TestPrepare:
    def test_observes_layers_and_stubs_and_nothing_else(self) -> None:
        prepared = zeropoint.prepare(mlp())
        observed = {n for n, m in prepared.named_children() if hasattr(m, "activation_post_process")}
        assert observed == {"quant", "fc1", "fc2"}

    def test_results_are_those_of_the_float_model(self) -> None:
        model, x = mlp(), torch.randn(8, 32)
        result = zeropoint.prepare(model)(x)
        assert type(result) is Tensor
        torch.testing.assert_close(result, model(x), rtol=0, atol=0)

    def test_a_copy_is_prepared_unless_inplace(self) -> None:
        model = mlp()
        assert zeropoint.prepare(model) is not model
        assert not hasattr(model.fc1, "activation_post_process")
        assert zeropoint.prepare(model, inplace=True) is model
        assert hasattr(model.fc1, "activation_post_process")

    def test_allow_list_replaces_what_is_observed(self) -> None:
        prepared = zeropoint.prepare(mlp(), allow_list={nn.ReLU})
        observed = {n for n, m in prepared.named_children() if hasattr(m, "activation_post_process")}
        assert observed == {"relu"}

    def test_non_leaf_modules_on_request(self) -> None:
        class Block(nn.Sequential):
            pass

        model = zeropoint.QuantWrapper(Block(nn.Linear(2, 2)))
        model.qconfig = zeropoint.default_qconfig
        prepared = zeropoint.prepare(model.eval(), observer_non_leaf_module_list=[Block])
        assert isinstance(prepared.module.activation_post_process, zeropoint.MinMaxObserver)
        assert not hasattr(prepared.module[0], "activation_post_process")

    def test_warns_if_nothing_has_a_qconfig(self) -> None:
        with pytest.warns(UserWarning, match=r"no module has a qconfig.*set model\.qconfig"):
            zeropoint.prepare(Mlp(OURS).eval())

    def test_dropout_is_left_alone(self) -> None:
        model = zeropoint.QuantWrapper(nn.Sequential(nn.Linear(2, 2), nn.Dropout()))
        model.qconfig = zeropoint.default_qconfig
        assert not hasattr(zeropoint.prepare(model.eval()).module[1], "activation_post_process")

    def test_several_devices_in_one_module_are_refused(self) -> None:
        model = mlp()
        model.fc2.to("meta")
        with pytest.raises(ValueError, match=r"must be on one device.*cpu.*meta"):
            zeropoint.prepare(model)

    def test_a_float_functional_gets_its_observer(self) -> None:
        model = zeropoint.auto_fuse(Cnn(OURS).eval(), (torch.randn(2, 1, 8, 8),))
        model.qconfig = zeropoint.default_qconfig
        prepared = zeropoint.prepare(model)
        assert isinstance(prepared.block1.add.activation_post_process, zeropoint.MinMaxObserver)
        prepared(torch.randn(2, 1, 8, 8))
        assert prepared.block1.add.activation_post_process.min_val == 0

    def test_the_qconfig_class_decides_what_observes(self) -> None:
        prepared = zeropoint.prepare(mlp(fc2=zeropoint.per_channel_dynamic_qconfig))
        assert type(prepared.fc2.activation_post_process) is zeropoint.PlaceholderObserver


class TestPrepareErrors:
    def test_a_missing_stub_is_named_with_its_path(self) -> None:
        model = nn.Sequential(nn.Sequential(nn.Linear(2, 2))).eval()
        model.qconfig = zeropoint.default_qconfig
        with pytest.raises(ValueError, match=r"float tensors: 0\.0 \(Linear\).*QuantStub.*qconfig to None"):
            zeropoint.prepare(model, example_inputs=(torch.ones(1, 2),))

    def test_a_function_that_cannot_be_quantized_is_named_with_its_place(self) -> None:
        class Lgamma(Mlp):
            def forward(self, x: Tensor) -> Tensor:
                return self.dequant(torch.lgamma(self.fc1(self.quant(x))))

        model = Lgamma(OURS).eval()
        model.qconfig = zeropoint.default_qconfig
        with pytest.raises(NotImplementedError, match=r"lgamma.*test_workflows\.py:\d+.*DeQuantStub"):
            zeropoint.prepare(model, example_inputs=(torch.ones(1, 32),))

    def test_a_model_that_is_fine_is_prepared_and_has_seen_nothing(self) -> None:
        prepared = zeropoint.prepare(mlp(), example_inputs=(torch.ones(1, 32),))
        assert prepared.fc1.activation_post_process.min_val == float("inf")


class TestConvert:
    def test_swaps_what_was_observed(self) -> None:
        converted = zeropoint.convert(calibrated(mlp(), torch.randn(8, 32)))
        kinds = {n: type(m) for n, m in converted.named_children()}
        assert kinds == {
            "quant": nnq.Quantize, "dequant": nnq.DeQuantize, "fc1": nnq.Linear, "relu": nn.ReLU, "fc2": nnq.Linear,
        }  # fmt: skip

    def test_takes_qconfigs_observers_and_their_hooks_away(self) -> None:
        converted = zeropoint.convert(calibrated(mlp(), torch.randn(8, 32)))
        for m in converted.modules():
            assert not hasattr(m, "qconfig")
            assert "activation_post_process" not in m._modules
            assert not m._forward_hooks
            assert not m._forward_pre_hooks

    def test_remove_qconfig_false_keeps_them(self) -> None:
        converted = zeropoint.convert(calibrated(mlp(), torch.randn(8, 32)), remove_qconfig=False)
        assert converted.relu.qconfig is not None

    def test_a_copy_is_converted_unless_inplace(self) -> None:
        prepared = calibrated(mlp(), torch.randn(8, 32))
        assert zeropoint.convert(prepared) is not prepared
        assert type(prepared.fc1) is nn.Linear
        assert zeropoint.convert(prepared, inplace=True) is prepared
        assert type(prepared.fc1) is nnq.Linear

    def test_a_mapping_of_ones_own(self) -> None:
        class Mine(nn.Module):
            @classmethod
            def from_float(cls, mod: nn.Module) -> Mine:
                return cls()

        converted = zeropoint.convert(calibrated(mlp(), torch.randn(8, 32)), mapping={nn.Linear: Mine})
        assert type(converted.fc1) is Mine
        assert type(converted.quant) is zeropoint.QuantStub

    def test_none_skips_a_module(self) -> None:
        model = mlp(fc1=None)
        model.quant = nn.Identity()
        model.fc2 = zeropoint.QuantWrapper(model.fc2)
        x = torch.randn(8, 32)
        converted = zeropoint.convert(calibrated(model, x))
        assert type(converted.fc1) is nn.Linear
        assert type(converted.fc2.module) is nnq.Linear

    def test_hooks_of_the_user_survive(self) -> None:
        calls: list[str] = []
        model = mlp()
        model.fc1.register_forward_pre_hook(lambda m, args: calls.append("before"))
        model.fc1.register_forward_hook(lambda m, args, output: calls.append("after"))
        x = torch.randn(8, 32)
        prepared = calibrated(model, x)
        assert calls == ["before", "after"]
        zeropoint.convert(prepared)(x)
        assert calls == ["before", "after"] * 2

    def test_hooks_that_take_keywords_survive_as_such(self) -> None:
        seen: list[Any] = []
        model = mlp()
        model.fc1.register_forward_pre_hook(lambda m, args, kwargs: seen.append(kwargs), with_kwargs=True)
        model.fc1.register_forward_hook(lambda m, args, kwargs, output: seen.append(kwargs), with_kwargs=True)
        x = torch.randn(8, 32)
        prepared = calibrated(model, x)
        seen.clear()
        zeropoint.convert(prepared)(x)
        assert seen == [{}, {}]

    def test_a_functional_that_stays_float_still_works(self) -> None:
        model = Cnn(OURS).eval()
        x = torch.randn(2, 1, 8, 8)
        for prepared in (model, zeropoint.prepare(zeropoint.auto_fuse(model, (x,)), allow_list=[])):
            converted = zeropoint.convert(prepared, mapping={})
            torch.testing.assert_close(converted(x), model(x), rtol=1e-4, atol=1e-5)

    def test_before_calibration_it_is_refused(self) -> None:
        model = mlp()
        zeropoint.propagate_qconfig_(model)
        with pytest.raises(ValueError, match=r"no activation_post_process.*zeropoint\.prepare"):
            zeropoint.convert(model)

    def test_parametrized_modules(self) -> None:
        class Double(nn.Module):
            def forward(self, w: Tensor) -> Tensor:
                return 2 * w

        model, plain = mlp(), mlp()
        parametrize.register_parametrization(model.fc1, "weight", Double())
        with torch.no_grad():
            plain.fc1.weight.mul_(2)
        x = torch.randn(8, 32)
        mine, expected = (zeropoint.convert(calibrated(m, x)) for m in (model, plain))
        assert type(mine.fc1) is nnq.Linear
        assert torch.equal(mine(x), expected(x))

    def test_swap_module_leaves_what_has_no_qconfig(self) -> None:
        layer = nn.Linear(1, 1)
        assert zeropoint.swap_module(layer, {nn.Linear: nnq.Linear}) is layer
        layer.qconfig = zeropoint.default_qconfig
        assert zeropoint.swap_module(layer, {}) is layer


class TestOneCall:
    def test_quantize(self) -> None:
        model, x = mlp().train(), torch.randn(8, 32)
        got = zeropoint.quantize(model, lambda m, data: m(data), [x])
        assert model.training
        expected = zeropoint.convert(calibrated(mlp(), x))
        assert torch.equal(got(x), expected(x))
        assert zeropoint.quantize(model, lambda m, data: m(data), [x], inplace=True) is model

    def test_quantize_qat(self) -> None:
        model, x = mlp(), torch.randn(8, 32)
        model.qconfig = zeropoint.default_qat_qconfig
        got = zeropoint.quantize_qat(model, lambda m, data: m(data), [x])
        assert type(got.fc1) is nnq.Linear
        assert type(model.fc1) is nn.Linear
        assert steps_between(got(x), model(x)) <= 3

    def test_quantize_dynamic_by_name_type_and_dictionary(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4)))
        everything = [nnqd.Linear, nn.ReLU, nnqd.Linear]
        for spec in (None, {nn.Linear}, {nn.Linear: zeropoint.default_dynamic_qconfig}):
            q = zeropoint.quantize_dynamic(model, spec)
            assert [type(q[0]), type(q[1]), type(q[2][0])] == everything
        q = zeropoint.quantize_dynamic(model, {"2.0"})
        assert [type(q[0]), type(q[2][0])] == [nn.Linear, nnqd.Linear]
        q = zeropoint.quantize_dynamic(model, {"0": zeropoint.float16_dynamic_qconfig})
        assert q[0]._packed_params.dtype == torch.float16
        with pytest.raises(ValueError, match="no module 'nope'"):
            zeropoint.quantize_dynamic(model, {"nope"})
        with pytest.raises(ValueError, match="dtype must be"):
            zeropoint.quantize_dynamic(model, dtype=zeropoint.qint32)


class TestQat:
    def test_needs_training_mode(self) -> None:
        with pytest.raises(ValueError, match=r"model\.train\(\)"):
            zeropoint.prepare_qat(mlp())

    def test_layers_are_swapped_and_share_parameters(self) -> None:
        model = mlp().train()
        model.qconfig = zeropoint.default_qat_qconfig
        prepared = zeropoint.prepare_qat(model, inplace=True)
        assert type(prepared.fc1) is nnqat.Linear
        assert isinstance(prepared.fc1.activation_post_process, zeropoint.FakeQuantizeBase)

    def test_inplace_keeps_the_parameters_that_an_optimizer_has(self) -> None:
        model = mlp().train()
        model.qconfig = zeropoint.default_qat_qconfig
        before = {id(p) for p in model.parameters()}
        zeropoint.prepare_qat(model, inplace=True)
        assert {id(p) for p in model.parameters()} == before

    def test_results_in_a_known_interval_have_fixed_parameters(self) -> None:
        model = zeropoint.QuantWrapper(nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Tanh())).train()
        model.qconfig = zeropoint.default_qat_qconfig
        prepared = zeropoint.prepare_qat(model)
        assert float(prepared.module[1].activation_post_process.scale) == 1 / 256
        assert float(prepared.module[2].activation_post_process.scale) == 2 / 256

    def test_parametrized_layers_train_with_their_parametrization(self) -> None:
        model = mlp().train()
        parametrizations.weight_norm(model.fc1)
        model.qconfig = zeropoint.default_qat_qconfig
        x = torch.randn(8, 32)
        expected = model(x)
        prepared = zeropoint.prepare_qat(model)
        assert parametrize.is_parametrized(prepared.fc1, "weight")
        assert steps_between(prepared(x), expected) <= 3
        assert type(zeropoint.convert(prepared.eval()).fc1) is nnq.Linear

    def test_the_prepared_model_is_stored_and_loaded(self) -> None:
        x = torch.randn(8, 32)

        def fresh() -> nn.Module:
            model = mlp().train()
            model.qconfig = zeropoint.default_qat_qconfig
            return zeropoint.prepare_qat(model)

        prepared = fresh()
        prepared(x)
        file = io.BytesIO()
        torch.save(prepared.state_dict(), file)
        file.seek(0)
        other = fresh()
        other.load_state_dict(torch.load(file, weights_only=True))
        assert torch.equal(other.eval()(x), prepared.eval()(x))
        assert torch.equal(zeropoint.convert(other)(x), zeropoint.convert(prepared)(x))

    @pytest.mark.parametrize("engine", ["fbgemm", "qnnpack"])
    def test_the_default_qconfig_is_fused(self, engine: str) -> None:
        model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        model.qconfig = zeropoint.get_default_qat_qconfig(engine, version=1)
        prepared = zeropoint.prepare_qat(zeropoint.QuantWrapper(model))
        prepared(torch.randn(2, 2))
        fused = zeropoint.FusedMovingAvgObsFakeQuantize
        assert sum(type(m) is fused for m in prepared.modules()) == 3
        inner = prepared.quant.activation_post_process.activation_post_process
        assert (inner.quant_min, inner.quant_max) == (0, 127 if engine == "fbgemm" else 255)
        of_weight = type(prepared.module[0].weight_fake_quant.activation_post_process).__name__
        assert of_weight == f"MovingAverage{'PerChannel' if engine == 'fbgemm' else ''}MinMaxObserver"


class TestBatchNormAcrossProcesses:
    def test_the_batch_norm_of_a_fused_layer_is_replaced(self) -> None:
        model = zeropoint.fuse_modules_qat(nn.Sequential(nn.Conv2d(4, 1, 3, padding=1), nn.BatchNorm2d(1)), ["0", "1"])
        model.qconfig = zeropoint.get_default_qat_qconfig("fbgemm")
        prepared = nn.SyncBatchNorm.convert_sync_batchnorm(zeropoint.prepare_qat(model))
        assert isinstance(prepared[0].bn, nn.SyncBatchNorm)
        x = torch.randn(2, 4, 5, 5)
        prepared.eval()(x)  # without processes it runs in evaluation

    def test_the_qconfig_stays(self) -> None:
        model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1))
        model[1].qconfig = zeropoint.default_qconfig
        assert nn.SyncBatchNorm.convert_sync_batchnorm(model)[1].qconfig is zeropoint.default_qconfig

    def test_data_parallel(self) -> None:
        model = nn.Sequential(
            zeropoint.QuantStub(), nn.Conv2d(3, 1, 1, bias=False), nn.BatchNorm2d(1), nn.ReLU(),
            nn.Conv2d(1, 2, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(2), nn.AvgPool2d(14), nn.Sigmoid(),
            zeropoint.DeQuantStub(),
        )  # fmt: skip
        zeropoint.fuse_modules_qat(model, [["1", "2", "3"], ["4", "5"]], inplace=True)
        model.qconfig = zeropoint.get_default_qat_qconfig("fbgemm")
        parallel = nn.DataParallel(zeropoint.prepare_qat(model)).train()
        for epoch in range(3):
            parallel(torch.rand(2, 3, 28, 28))
            if epoch >= 1:
                parallel.apply(zeropoint.disable_observer)
            if epoch >= 2:
                parallel.apply(nniqat.freeze_bn_stats)
            converted = zeropoint.convert(copy.deepcopy(parallel.module).eval())
            assert [type(converted[i]) for i in (1, 4)] == [nniq.ConvReLU2d, nnq.Conv2d]
            assert converted(torch.rand(1, 3, 28, 28)).shape == (1, 2, 1, 1)


class TestDevices:
    def test_everything_that_is_added_is_where_the_model_is(self) -> None:
        model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.ReLU()).to("meta")
        model.qconfig = zeropoint.get_default_qat_qconfig("fbgemm")
        prepared = zeropoint.prepare_qat(model)
        assert {t.device.type for t in (*prepared.parameters(), *prepared.buffers())} == {"meta"}


class TestAddQuantDequant:
    def test_leaves_with_a_qconfig_are_wrapped(self) -> None:
        model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.ReLU())).eval()
        model[1].qconfig = zeropoint.default_qconfig
        zeropoint.propagate_qconfig_(model)
        wrapped = zeropoint.add_quant_dequant(model)
        assert type(wrapped[0]) is nn.Linear
        assert type(wrapped[1][0]) is zeropoint.QuantWrapper
        x = torch.randn(4, 2)
        converted = zeropoint.convert(calibrated(wrapped, x))
        assert type(converted[1][0].module) is nnq.Linear
        assert converted(x).dtype == torch.float32


class TestCustomModules:
    class Float(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x)

    class Observed(Float):
        @classmethod
        def from_float(cls, mod: Any) -> Any:
            made = cls()
            made.fc, made.qconfig = mod.fc, mod.qconfig
            return made

    class Quantized(nn.Module):
        @classmethod
        def from_observed(cls, mod: Any) -> Any:
            made = cls()
            made.seen = mod.activation_post_process.calculate_qparams()
            return made

        def forward(self, x: Tensor) -> Tensor:
            return x

    def test_float_observed_quantized(self) -> None:
        model = zeropoint.QuantWrapper(self.Float()).eval()
        model.qconfig = zeropoint.default_qconfig
        prepared = zeropoint.prepare(
            model,
            prepare_custom_config_dict={"float_to_observed_custom_module_class": {self.Float: self.Observed}},
        )
        assert type(prepared.module) is self.Observed
        prepared(torch.randn(4, 2))
        converted = zeropoint.convert(
            prepared,
            convert_custom_config_dict={"observed_to_quantized_custom_module_class": {self.Observed: self.Quantized}},
        )
        assert type(converted.module) is self.Quantized
        assert float(converted.module.seen[0]) > 0

    def test_modules_that_are_left_alone(self) -> None:
        model = mlp()
        zeropoint.propagate_qconfig_(model, None, {"non_traceable_module_name": ["fc1"]})
        assert not hasattr(model.fc1, "qconfig")


class TestState:
    def test_a_prepared_model_is_stored_and_loaded(self) -> None:
        x = torch.randn(8, 32)
        prepared, other = calibrated(mlp(), x), zeropoint.prepare(mlp())
        file = io.BytesIO()
        torch.save(prepared.state_dict(), file)
        file.seek(0)
        other.load_state_dict(torch.load(file, weights_only=True))
        assert torch.equal(zeropoint.convert(other)(x), zeropoint.convert(prepared)(x))

    @pytest.mark.parametrize("how", ["deepcopy", "pickle"])
    def test_prepared_and_converted_models_are_copied(self, how: str) -> None:
        x = torch.randn(8, 32)
        prepared = calibrated(mlp(), x)
        for model in (prepared, zeropoint.convert(prepared)):
            other = copy.deepcopy(model) if how == "deepcopy" else pickle.loads(pickle.dumps(model))
            assert torch.equal(other(x), model(x))

    def test_the_keys_of_a_prepared_model_are_those_of_torch(self) -> None:
        mine, peer = twins(Mlp)
        for side, model in ((OURS, mine), (THEIRS, peer)):
            model.eval().qconfig = seven_bits(side)
        keys = [list(s.quantization.prepare(m).state_dict()) for s, m in ((OURS, mine), (THEIRS, peer))]
        assert set(keys[0]) == set(keys[1])


def test_fused_models_are_quantized_as_such() -> None:
    model = stir(Cnn(OURS)).eval()
    fused = zeropoint.auto_fuse(model, (torch.randn(2, 1, 8, 8),))
    fused.qconfig = zeropoint.default_qconfig
    prepared = zeropoint.prepare(fused)
    assert type(prepared.conv) is nni.ConvReLU2d
    assert not hasattr(prepared.conv[0], "activation_post_process")


TRAINED = {
    "Conv1d": lambda q: nnqat.Conv1d(3, 4, 3, qconfig=q),
    "Conv2d": lambda q: nnqat.Conv2d(3, 4, 3, padding=1, padding_mode="circular", qconfig=q),
    "ConvReLU2d": lambda q: nniqat.ConvReLU2d(3, 4, 3, qconfig=q),
    "ConvBn2d": lambda q: nniqat.ConvBn2d(3, 4, 3, bias=True, qconfig=q),
    "ConvBnReLU1d": lambda q: nniqat.ConvBnReLU1d(3, 4, 3, qconfig=q),
    "ConvBnReLU3d": lambda q: nniqat.ConvBnReLU3d(3, 4, 3, freeze_bn=True, qconfig=q),
    "Linear": lambda q: nnqat.Linear(3, 4, qconfig=q),
    "LinearReLU": lambda q: nniqat.LinearReLU(3, 4, qconfig=q),
    "LinearBn1d": lambda q: nniqat.LinearBn1d(3, 4, qconfig=q),
}


@pytest.mark.parametrize("name", TRAINED)
def test_layers_in_training_can_be_scripted(name: str) -> None:
    torch.manual_seed(0)
    layer = TRAINED[name](zeropoint.get_default_qat_qconfig("x86"))
    dims = int(name[-2]) if "Conv" in name else 0
    batches = [torch.randn(5, 3, *[6] * dims) for _ in range(3)]
    scripted = torch.jit.script(copy.deepcopy(layer))
    for x in batches:
        assert torch.equal(scripted(x), layer(x))
    scripted.eval(), layer.eval()
    assert torch.equal(scripted(batches[0]), layer(batches[0]))
