"""Files that PyTorch's own stack wrote, in another process: whole models, state dictionaries, packed weights."""

from __future__ import annotations

import copy
import importlib.util
import io
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import WITHOUT_THE_OLD_STACK, run
from torch import nn
from torch.utils._pytree import tree_leaves

import zeropoint
import zeropoint.compat
from zeropoint.compat import objects

pytestmark = [pytest.mark.oracle]
PROGRAM = Path(__file__).parent / "old_models.py"
NAMES = [
    "static", "observed", "trained", "trained_and_converted", "functions", "static_lstm", "tables", "dynamic_lstm",
    "dynamic_gru", "dynamic_float16", "cells", "graph", "reference_graph",
]  # fmt: skip
# Sums of floats, in another order: the recurrent layers add two float32 products.
ROUNDING = 2e-7


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the old stack wrote."""
    directory = tmp_path_factory.mktemp("old")
    command = [sys.executable, "-W", "ignore", str(PROGRAM), str(directory)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    return directory


@pytest.fixture
def models() -> Iterator[Any]:
    """The module with the models, on zeropoint."""
    zeropoint.compat.install()
    spec = importlib.util.spec_from_file_location("old_models", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["old_models"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["old_models"]
    zeropoint.compat.uninstall()


def load(files: Path, name: str) -> tuple[Any, Any]:
    model = torch.load(files / f"{name}.pt", weights_only=False)
    return model, torch.load(files / f"{name}.state.pt", weights_only=False)["result"]


def assert_same(result: Any, expected: Any, most: float = ROUNDING) -> None:
    ours, theirs = tree_leaves(result), tree_leaves(expected)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert float((a - b).detach().abs().max()) <= most


def test_every_model_is_in_the_list(models: Any) -> None:
    assert list(models.MODELS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_model_runs_on_our_modules(files: Path, models: Any, name: str) -> None:
    model, expected = load(files, name)
    kinds = {type(m).__module__ for m in model.modules()}
    assert not [k for k in kinds if k.startswith("torch.ao")]
    assert any(k.startswith("zeropoint.nn.") for k in kinds)
    inputs = models.MODELS[name][1]
    with torch.no_grad():
        assert_same(model(*inputs), expected)
        assert_same(copy.deepcopy(model)(*inputs), expected)
    assert type(model).__name__ in repr(model)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_loaded_can_be_saved_again(files: Path, models: Any, name: str) -> None:
    model, expected = load(files, name)
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    with torch.no_grad():
        assert_same(torch.load(buffer, weights_only=False)(*models.MODELS[name][1]), expected)


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("name", [n for n in NAMES if "graph" not in n])
def test_a_state_dictionary_loads_into_the_model_built_anew(
    files: Path, models: Any, name: str, weights_only: bool
) -> None:
    make, inputs = models.MODELS[name]
    saved = torch.load(files / f"{name}.state.pt", weights_only=weights_only)
    torch.manual_seed(0 if name == "functions" else 7)  # its state_dict lacks the scales of ELU
    model = make()
    model.load_state_dict(saved["state"])
    for module in model.modules():
        if isinstance(module, zeropoint.nn.quantized.dynamic.Linear):
            module.reduce_range = True  # a state_dict does not say that torch.ao uses 7 bits
    # In training ours round results to 8 bits where torch.ao rounds to 7, as the deployed layer has 8.
    step = float(model.fc2.activation_post_process.scale) if name == "trained" else 0.0
    with torch.no_grad():
        assert_same(model(*inputs), saved["result"], step + ROUNDING)


def test_what_was_loaded_can_be_scripted(files: Path, models: Any) -> None:
    model, expected = load(files, "static")
    assert_same(torch.jit.script(model)(models.IMAGES), expected)


def test_a_trained_model_goes_on_training(files: Path, models: Any) -> None:
    model, _ = load(files, "trained")
    model.train()(models.IMAGES).sum().backward()
    assert model.conv1.weight.grad is not None


def test_modules_of_the_users_that_inherit_from_old_ones(models: Any) -> None:
    class Mine(nn.Module):
        pass

    mine = type("Mine", (zeropoint.nn.quantized.Sigmoid, Mine), {})
    made = mine.__new__(mine)
    made.__setstate__({**vars(nn.Module()), "output_scale": 0.5, "output_zero_point": 3})
    assert (made.scale, made.zero_point) == (0.5, 3)


def test_our_own_pickles_are_as_ever(models: Any) -> None:
    layer = zeropoint.nn.quantized.Linear(3, 2)
    layer.scale, layer.zero_point = 0.25, 7
    for again in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        assert (again.scale, again.zero_point) == (0.25, 7)
        assert torch.equal(again.weight().int_repr(), layer.weight().int_repr())
    assert not hasattr(copy.deepcopy(zeropoint.MinMaxObserver()), "prepared_elsewhere")


def test_objects_that_nobody_knows_are_named() -> None:
    with pytest.raises(NotImplementedError, match=r"sparse\.LinearPackedParamsBase.*the PyTorch that wrote it"):
        objects.packed_weight((), "__torch__.torch.classes.sparse.LinearPackedParamsBase")
    with pytest.raises(ValueError, match="version '1'"):
        objects.packed_weight(("1", [], []), "__torch__.torch.classes.quantized.Conv2dPackedParamsBase")


def test_without_compat_a_file_stays_with_pytorch(files: Path) -> None:
    printed = run(
        f"""
        import torch, zeropoint, old_models
        print(type(torch.load({str(files / "static.pt")!r}, weights_only=False).fc2).__module__)
        """
    )
    assert printed == "torch.ao.nn.quantized.modules.linear\n"


def test_every_file_loads_on_a_pytorch_without_the_old_stack(files: Path) -> None:
    printed = run(
        WITHOUT_THE_OLD_STACK,
        f"""
        import zeropoint.compat
        zeropoint.compat.install()
        import old_models
        from torch.utils._pytree import tree_leaves
        for name, (make, inputs) in old_models.MODELS.items():
            path = {str(files)!r} + "/" + name
            saved = torch.load(path + ".state.pt", weights_only=True)
            again = torch.load(path + ".state.pt", weights_only=False)
            assert saved["state"].keys() == again["state"].keys()
            with torch.no_grad():
                result = torch.load(path + ".pt", weights_only=False)(*inputs)
            pairs = zip(tree_leaves(result), tree_leaves(saved["result"]), strict=True)
            assert all((a - b).abs().max() <= {ROUNDING} for a, b in pairs), name
            print(name)
        """,
    )
    assert printed.split() == NAMES
