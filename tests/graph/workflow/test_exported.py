"""Files of torch.export: quantized with their module paths, and written again."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from graph_models import Bert, ResNet, with_statistics
from torch import nn
from torch.export import Dim

import zeropoint


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def loaded(images: torch.Tensor, tmp_path_factory: pytest.TempPathFactory) -> nn.Module:
    torch.manual_seed(0)
    model = with_statistics(ResNet((8, 16), 1, 10), images)
    path = tmp_path_factory.mktemp("exported") / "model.pt2"
    torch.export.save(torch.export.export(model, (images,), dynamic_shapes=({0: Dim.AUTO},)), path)
    return torch.export.load(path).module()


def test_paths_of_modules_are_kept(loaded: nn.Module, images: torch.Tensor) -> None:
    quantized = zeropoint.to_int8(loaded, (images,), [images], progress=False)
    assert "layer2.0.downsample.0" in {row.path for row in quantized.summary().rows}
    assert quantized.summary().counts() == {"int8": 9}
    assert quantized(images[:2]).shape == (2, 10)
    found = zeropoint.compare(loaded, quantized, [images])
    assert found.sqnr > 20


def test_layers_are_chosen_by_path_and_by_class(loaded: nn.Module, images: torch.Tensor) -> None:
    mapping = zeropoint.get_default_qconfig_mapping("native")
    mapping.set_module_name("layer1.0.conv1", None).set_object_type(nn.Linear, None)
    quantized = zeropoint.to_int8(loaded, (images,), [images], mapping, progress=False)
    floats = {row.path for row in quantized.summary().rows if row.precision == "float32"}
    assert floats == {"layer1.0.conv1", "fc"}


def test_sizes_that_were_fixed_stay_fixed(images: torch.Tensor) -> None:
    model = torch.export.export(nn.Sequential(nn.Flatten(), nn.Linear(3072, 4)).eval(), (images,)).module()
    quantized = zeropoint.to_int8(model, (images,), [images], progress=False)
    with pytest.raises(ValueError, match="size 2 along axis 0, but the model needs 4"):
        quantized(images[:2])


def test_transformers_keep_their_norms_in_float() -> None:
    torch.manual_seed(0)
    ids = torch.randint(0, 50, (2, 12))
    model = torch.export.export(Bert().eval(), (ids,)).module()
    quantized = zeropoint.to_int8(model, (ids,), [ids], progress=False)
    assert {row.precision for row in quantized.summary().of("layer_norm")} == {"float32"}


def test_a_quantized_model_is_written_and_read(loaded: nn.Module, images: torch.Tensor, tmp_path: Path) -> None:
    quantized = zeropoint.to_int8(loaded, (images,), [images], progress=False)
    exported = torch.export.export(quantized.graph_module, (images,), dynamic_shapes=({0: Dim.AUTO},))
    torch.export.save(exported, tmp_path / "quantized.pt2")
    read = torch.export.load(tmp_path / "quantized.pt2").module()
    assert torch.equal(read(images[:3]), quantized(images[:3]))


def test_a_quantized_model_becomes_torchscript(loaded: nn.Module, images: torch.Tensor) -> None:
    quantized = zeropoint.to_int8(loaded, (images,), [images], progress=False)
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(quantized, (images,)), file)
    file.seek(0)
    assert torch.equal(torch.jit.load(file)(images), quantized(images))
