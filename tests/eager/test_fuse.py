"""Fusing modules by name and by running the model: results, hooks, errors; torch.ao's as the oracle."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.ao.quantization as theirs
from eager_models import stir, twins
from few_layers import Layers
from torch import Tensor, nn

import zeropoint
from zeropoint.demo_digits import CHAINS, OURS, Cnn
from zeropoint.nn import intrinsic as nni
from zeropoint.operators import Fusion, fusions

INPUTS = {1: (2, 4, 9), 2: (2, 4, 7, 7), 3: (2, 4, 5, 5, 5)}


def dims_of(fusion: Fusion) -> int:
    first = fusion.parts[0].__name__
    return 0 if first == "Linear" else int(first[-2])


def part(kind: type[nn.Module], groups: int) -> nn.Module:
    name = kind.__name__
    if "Conv" in name:
        return kind(4, 6, 3, groups=groups)
    if name == "Linear":
        return nn.Linear(4, 6)
    return kind(6) if "BatchNorm" in name else kind()


def chain_of(fusion: Fusion, groups: int = 2) -> tuple[nn.Sequential, Tensor]:
    torch.manual_seed(0)
    parts = [part(kind, groups) for kind in fusion.parts]
    shape = (5, 4) if dims_of(fusion) == 0 else INPUTS[dims_of(fusion)]
    if "BatchNorm" in fusion.parts[0].__name__:
        shape = (shape[0], 6, *shape[2:])
    return stir(nn.Sequential(*parts)), torch.randn(shape)  # type: ignore[return-value]


def name_of(fusion: Fusion) -> str:
    return "+".join(t.__name__ for t in fusion.parts)


@pytest.mark.parametrize("fusion", fusions(), ids=name_of)
def test_fused_for_evaluation_computes_the_same(fusion: Fusion) -> None:
    model, x = chain_of(fusion)
    model.eval()
    names = [str(i) for i in range(len(model))]
    fused = zeropoint.fuse_modules(model, names)
    assert all(type(m) is nn.Identity for m in list(fused)[1:])
    assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in fused.modules() if fusion.folds)
    torch.testing.assert_close(fused(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fusion", [f for f in fusions() if f.training], ids=name_of)
def test_fused_for_training_computes_the_same_and_moves_the_same_statistics(fusion: Fusion) -> None:
    model, x = chain_of(fusion)
    names = [str(i) for i in range(len(model))]
    fused = zeropoint.fuse_modules_qat(model, names)
    assert isinstance(fused[0], nni.FusedModule)
    assert fused[0].training
    for mode in (True, False):
        torch.testing.assert_close(fused.train(mode)(x), model.train(mode)(x))
    statistics = [
        {k.rpartition(".")[2]: v for k, v in m.state_dict().items() if "running" in k} for m in (model, fused)
    ]
    torch.testing.assert_close(*statistics)


@pytest.mark.parametrize("fusion", fusions(), ids=name_of)
@pytest.mark.parametrize("is_qat", [False, True], ids=["eval", "train"])
def test_fused_like_torch(fusion: Fusion, is_qat: bool) -> None:
    model, x = chain_of(fusion, groups=1)  # torch.ao cannot fold batch norm into a transposed convolution with groups
    model.train(is_qat)
    names = [str(i) for i in range(len(model))]
    fuse = "fuse_modules_qat" if is_qat else "fuse_modules"
    try:
        peer = getattr(theirs, fuse)(model, names)
    except Exception as error:  # it raises plain ones, too
        pytest.skip(f"torch.ao does not fuse these: {error}")
    mine = getattr(zeropoint, fuse)(model, names)
    assert [type(m).__name__ for m in mine] == [type(m).__name__ for m in peer]
    assert list(mine.state_dict()) == list(peer.state_dict())
    torch.testing.assert_close(dict(mine.state_dict()), dict(peer.state_dict()), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(mine(x), peer(x), rtol=1e-5, atol=1e-6)


def test_everything_torch_fuses_can_be_fused() -> None:
    from torch.ao.quantization.fuser_method_mappings import _DEFAULT_OP_LIST_TO_FUSER_METHOD as known

    assert {parts for parts in known if all(isinstance(p, type) for p in parts)} <= {f.parts for f in fusions()}


def test_nested_names_and_lists_of_lists() -> None:
    model, peer = (m.eval() for m in twins(Cnn))
    x = torch.randn(3, 1, 8, 8)
    fused, expected = zeropoint.fuse_modules(model, CHAINS), theirs.fuse_modules(peer, CHAINS)
    assert [type(m).__name__ for m in fused.modules()] == [type(m).__name__ for m in expected.modules()]
    torch.testing.assert_close(fused(x), model(x), rtol=1e-4, atol=1e-5)


def test_a_copy_is_fused_unless_inplace() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).eval()
    assert type(zeropoint.fuse_modules(model, ["0", "1"])[0]) is nni.LinearReLU
    assert type(model[0]) is nn.Linear
    assert zeropoint.fuse_modules(model, ["0", "1"], inplace=True) is model
    assert type(model[0]) is nni.LinearReLU


@pytest.mark.parametrize("is_qat", [False, True])
def test_hooks_before_the_first_and_after_the_last_move_along(is_qat: bool) -> None:
    calls: list[str] = []
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.ReLU()).train(is_qat)
    model[0].register_forward_pre_hook(lambda m, args: calls.append("before"))
    model[2].register_forward_hook(lambda m, args, output: calls.append("after"))
    fuse = zeropoint.fuse_modules_qat if is_qat else zeropoint.fuse_modules
    fused = fuse(model, ["0", "1", "2"])
    fused(torch.ones(2, 1, 1, 1))
    assert calls == ["before", "after"]
    assert len(fused[0]._forward_pre_hooks) == len(fused[0]._forward_hooks) == 1


def test_hooks_that_take_keywords_stay_so() -> None:
    seen: list[Any] = []
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU()).eval()
    model[0].register_forward_pre_hook(lambda m, args, kwargs: seen.append(kwargs), with_kwargs=True)
    model[1].register_forward_hook(lambda m, args, kwargs, output: seen.append(kwargs), with_kwargs=True)
    zeropoint.fuse_modules(model, ["0", "1"])(torch.ones(1, 1))
    assert seen == [{}, {}]


def test_custom_fusers() -> None:
    def swap(is_qat: bool, linear: nn.Linear, act: nn.Module) -> nn.Module:
        return nn.Sequential(act, linear)

    config = {"additional_fuser_method_mapping": {(nn.Linear, nn.GELU): swap}}
    model = nn.Sequential(nn.Linear(1, 1), nn.GELU()).eval()
    fused = zeropoint.fuse_modules(model, ["0", "1"], fuse_custom_config_dict=config)
    assert [type(m) for m in fused[0]] == [nn.GELU, nn.Linear]

    def whole(modules: list[nn.Module], is_qat: bool, more: Any) -> list[nn.Module]:
        assert not is_qat
        return [nn.Sequential(*modules), nn.Identity()]

    assert type(zeropoint.fuse_modules(model, ["0", "1"], fuser_func=whole)[0]) is nn.Sequential


class TestErrors:
    def test_an_unknown_sequence_names_what_is_known(self) -> None:
        with pytest.raises(NotImplementedError, match=r"cannot fuse Linear \+ GELU.*Linear \+ ReLU"):
            zeropoint.fuse_modules(nn.Sequential(nn.Linear(1, 1), nn.GELU()), ["0", "1"])

    def test_an_unknown_name(self) -> None:
        with pytest.raises(ValueError, match="no module 'nope'"):
            zeropoint.fuse_modules(nn.Sequential(nn.Linear(1, 1), nn.ReLU()), ["0", "nope"])

    def test_mixed_modes(self) -> None:
        model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1).eval())
        with pytest.raises(ValueError, match="all must be in training mode"):
            zeropoint.fuse_modules_qat(model, ["0", "1"])

    def test_an_activation_in_another_mode_is_fused(self) -> None:
        model = nn.Sequential(nn.Linear(1, 1).eval(), nn.ReLU())
        assert type(zeropoint.fuse_modules(model, ["0", "1"])[0]) is zeropoint.nn.intrinsic.LinearReLU

    def test_folding_in_training_says_what_to_do(self) -> None:
        model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1))
        with pytest.raises(ValueError, match=r"\.eval\(\).*fuse_modules_qat"):
            zeropoint.fuse_modules(model, ["0", "1"])

    def test_batch_norm_without_statistics(self) -> None:
        model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1, track_running_stats=False)).eval()
        with pytest.raises(ValueError, match="without running statistics"):
            zeropoint.fuse_modules(model, ["0", "1"])

    def test_no_form_for_training(self) -> None:
        model = nn.Sequential(nn.Linear(1, 1), nn.Tanh())
        with pytest.raises(NotImplementedError, match="fuse the modules after training"):
            zeropoint.fuse_modules_qat(model, ["0", "1"])

    def test_a_model_is_left_alone_if_one_of_its_groups_fails(self) -> None:
        model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1), nn.GELU()).eval()
        with pytest.raises(NotImplementedError):
            zeropoint.fuse_modules(model, [["0", "1"], ["2", "3"]])
        assert type(model[0]) is nn.Linear


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d, nn.Linear])
def test_folding_without_bias_or_affine_parameters(kind: Any, bias: bool, affine: bool) -> None:
    layer = nn.Linear(4, 6, bias=bias) if kind is nn.Linear else kind(4, 6, 3, groups=2, bias=bias)
    bn = (nn.BatchNorm1d if kind is nn.Linear else nn.BatchNorm2d)(6, affine=affine)
    bn.running_mean.normal_()
    bn.running_var.uniform_(0.5, 2)
    model = nn.Sequential(layer, bn).eval()
    x = torch.randn((5, 4) if kind is nn.Linear else (2, 4, 7, 7))
    torch.testing.assert_close(zeropoint.fuse_modules(model, ["0", "1"])(x), model(x), rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------------------- auto_fuse


class TestAutoFuse:
    @pytest.mark.parametrize("fusion", fusions(), ids=name_of)
    def test_finds_every_fusion(self, fusion: Fusion) -> None:
        model, x = chain_of(fusion)
        model.eval()
        fused = zeropoint.auto_fuse(model, (x,))
        by_name = zeropoint.fuse_modules(model, [str(i) for i in range(len(model))])
        assert str(fused) == str(by_name)
        torch.testing.assert_close(fused(x), by_name(x))

    @pytest.mark.parametrize("training", [False, True])
    def test_finds_what_one_would_write_by_hand(self, training: bool) -> None:
        model = stir(Cnn(OURS)).train(training)
        fuse = zeropoint.fuse_modules_qat if training else zeropoint.fuse_modules
        before = copy.deepcopy(model.state_dict())
        fused = zeropoint.auto_fuse(model, (torch.randn(2, 1, 8, 8),))
        assert str(fused) == str(fuse(model, CHAINS))
        torch.testing.assert_close(dict(model.state_dict()), dict(before), rtol=0, atol=0)

    def test_a_result_that_goes_elsewhere_too_is_not_swallowed(self) -> None:
        class Two(Layers):
            def forward(self, x: Tensor) -> Tensor:
                y = self.fc(x)
                return self.relu(y) + y

        model = Two(fc=nn.Linear(2, 2), relu=nn.ReLU()).eval()
        assert type(zeropoint.auto_fuse(model, (torch.ones(1, 2),)).fc) is nn.Linear

    def test_a_result_that_is_returned_is_not_swallowed(self) -> None:
        class Both(Layers):
            def forward(self, x: Tensor) -> dict[str, Tensor]:
                y = self.fc(x)
                return {"before": y, "after": self.relu(y)}

        model = Both(fc=nn.Linear(2, 2), relu=nn.ReLU()).eval()
        assert type(zeropoint.auto_fuse(model, torch.ones(1, 2)).fc) is nn.Linear

    def test_a_module_that_runs_twice_is_left_alone(self) -> None:
        relu = nn.ReLU()
        model = nn.Sequential(nn.Linear(2, 2), relu, nn.Linear(2, 2), relu).eval()
        x = torch.randn(3, 2)
        fused = zeropoint.auto_fuse(model, (x,))
        assert [type(m) for m in fused] == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU]
        torch.testing.assert_close(fused(x), model(x))

    def test_asking_for_a_shape_is_no_use(self) -> None:
        class Asks(Layers):
            def forward(self, x: Tensor) -> Tensor:
                y = self.fc(x)
                assert y.shape[0] == x.size(0)
                return self.relu(y)

        model = Asks(fc=nn.Linear(2, 2), relu=nn.ReLU()).eval()
        assert type(zeropoint.auto_fuse(model, (torch.ones(1, 2),)).fc) is nni.LinearReLU

    def test_an_activation_in_place_is_found(self) -> None:
        model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.ReLU(inplace=True)).eval()
        assert type(zeropoint.auto_fuse(model, (torch.ones(1, 1, 2, 2),))[0]) is nni.ConvReLU2d

    def test_what_cannot_be_trained_is_not_fused_for_training(self) -> None:
        model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2), nn.ReLU()).train()
        fused = zeropoint.auto_fuse(model, (torch.ones(1, 2),))
        assert [type(m) for m in fused] == [nn.Linear, nn.Tanh, nni.LinearReLU, nn.Identity]

    def test_inplace(self) -> None:
        model = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).eval()
        assert zeropoint.auto_fuse(model, (torch.ones(1, 2),), inplace=True) is model
        assert type(model[0]) is nni.LinearReLU


@pytest.mark.parametrize(
    "groups", [torch.ones(2, 2), 3, [torch.ones(2, 2)], [["0", 1]]], ids=["tensor", "number", "tensors", "index"]
)
def test_what_names_no_modules_is_refused_without_being_printed(groups: Any) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with pytest.raises(TypeError, match="modules_to_fuse takes names of modules") as caught:
        zeropoint.fuse_modules(model.eval(), groups)
    assert "tensor(" not in str(caught.value)
