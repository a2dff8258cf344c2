"""Files that PyTorch's own stack wrote, in another process: whole models, state dictionaries, packed weights."""

from __future__ import annotations

import copy
import importlib.util
import io
import pickle
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import run_script
from processes import WITHOUT_THE_OLD_STACK, run
from torch import nn
from torch.utils._pytree import tree_leaves

import zeropoint
import zeropoint.compat
from zeropoint.compat import objects

pytestmark = pytest.mark.oracle  # of a program that makes the files, in a process of its own
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
    ran = run_script(PROGRAM, directory)
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


def test_a_whole_model_of_classes_that_are_allowed_loads_with_weights_only(files: Path, models: Any) -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"old_models\.Network was not an allowed global"):
        torch.load(files / "static.pt", weights_only=True)
    mine = [models.Network, nn.Identity, nn.MaxPool2d, nn.AdaptiveAvgPool2d]
    with torch.serialization.safe_globals(mine):
        model = torch.load(files / "static.pt", weights_only=True)
    assert_same(model(models.IMAGES), torch.load(files / "static.state.pt")["result"])


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


# ------------------------------------------------------------------------------------------------ TorchScript files


def scripted_result(files: Path, name: str) -> Any:
    return torch.load(files / f"{name}.state.pt", weights_only=False)["result"]


@pytest.mark.parametrize(
    "name", ["static", "functions", "static_lstm", "cells", "graph", "script_mode", "dynamic_lstm", "dynamic_gru"]
)
def test_a_torchscript_file_runs_on_our_operators_and_can_be_saved(files: Path, models: Any, name: str) -> None:
    assert name in models.SCRIPTED
    inputs = (models.IMAGES,) if name == "script_mode" else models.MODELS[name][1]
    module = zeropoint.compat.load_script(files / f"{name}.script.pt")
    expected = scripted_result(files, name)
    buffer = io.BytesIO()
    torch.jit.save(module, buffer)
    buffer.seek(0)
    for loaded in (module, torch.jit.load(buffer)):
        graph = str(loaded.inlined_graph)
        assert "quantized::" not in graph
        assert "torch.classes" not in graph
        with torch.no_grad():
            assert_same(loaded(*inputs), expected)


@pytest.mark.parametrize(
    "name",
    ["static", *(pytest.param(n, marks=pytest.mark.thorough) for n in ("functions", "graph")), "cells", "script_mode"],
)
def test_program_of_a_torchscript_file_gives_the_bytes_of_the_script(files: Path, models: Any, name: str) -> None:
    inputs = (models.IMAGES,) if name == "script_mode" else models.MODELS[name][1]
    module = zeropoint.compat.load_script(files / f"{name}.script.pt")
    program = zeropoint.compile(module, inputs)
    with torch.no_grad():
        assert_same(program(*inputs), module(*inputs), 0.0)


def test_a_torchscript_file_with_a_loop_over_the_sequence_is_refused_with_its_line(files: Path, models: Any) -> None:
    module = zeropoint.compat.load_script(files / "static_lstm.script.pt")
    with pytest.raises(NotImplementedError, match=r"line \d+.*a loop over a dynamic size of an input"):
        zeropoint.compile(module, models.MODELS["static_lstm"][1])


def test_what_was_made_of_a_torchscript_file_runs_without_installing(files: Path, models: Any, tmp_path: Path) -> None:
    path = tmp_path / "ours.pt"
    torch.jit.save(zeropoint.compat.load_script(files / "static.script.pt"), path)
    printed = run(
        f"""
        import torch, zeropoint.compat.script
        x = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
        print(torch.jit.load({str(path)!r})(x).tolist())
        """
    )
    assert_same(torch.tensor(eval(printed)), scripted_result(files, "static"), 1e-6)


@pytest.mark.parametrize("name", ["static", "script_mode", "dynamic_lstm"])
def test_torch_jit_load_puts_a_file_of_the_old_stack_on_our_operators(files: Path, models: Any, name: str) -> None:
    inputs = (models.IMAGES,) if name == "script_mode" else models.MODELS[name][1]
    with (files / f"{name}.script.pt").open("rb") as file:
        for source in (files / f"{name}.script.pt", str(files / f"{name}.script.pt"), file):
            module = torch.jit.load(source)
            assert "quantized::" not in str(module.inlined_graph)
            with torch.no_grad():
                assert_same(module(*inputs), scripted_result(files, name))


def test_torch_jit_load_leaves_other_files_to_pytorch() -> None:
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.ReLU()), file, _extra_files={"note": "kept"})
    file.seek(0)
    extra = {"note": ""}
    module = torch.jit.load(file, "cpu", _extra_files=extra)
    assert extra["note"] == b"kept"
    assert module(torch.tensor([-1.0, 1.0])).tolist() == [0.0, 1.0]


def test_a_torchscript_file_with_other_packed_weights_is_refused(files: Path, models: Any) -> None:
    sparse = changed(files / "static.script.pt", b"quantized.LinearPackedParamsBase", b"sparse.LinearPackedParamsBase")
    with pytest.raises(NotImplementedError, match=r"sparse\.LinearPackedParamsBase; load_script knows .*LinearPacked"):
        zeropoint.compat.load_script(sparse)


def changed(path: Path, old: bytes, new: bytes) -> io.BytesIO:
    """A file with other words in it."""
    made = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(made, "w") as written:
        for name in archive.namelist():
            written.writestr(name, archive.read(name).replace(old, new))
    made.seek(0)
    return made


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(ValueError, match=r"text\.pt is not a TorchScript file"):
        zeropoint.compat.load_script(tmp_path / "text.pt")


def test_an_operator_that_nobody_has_is_explained(files: Path, models: Any) -> None:
    lost = changed(files / "script_mode.script.pt", b"ops.quantized.linear(", b"ops.quantized.lost(")
    with pytest.raises(NotImplementedError, match=r"(?s)that zeropoint does not have.*quantized.{1,2}lost"):
        torch.jit.load(lost)
    with pytest.raises(RuntimeError, match="reader"):
        torch.jit.load(io.BytesIO(b"hello"))


# ---------------------------------------------------------------------------------------------------- other PyTorches


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
