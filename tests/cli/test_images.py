"""Folders of images as data: in the size, the channels and the range of the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import run
from PIL import Image
from torch import nn

import zeropoint
from zeropoint.cli.images import MARGIN, RANGES, images

IMAGE = (1, 3, 32, 32)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of four images: a gradient from black to white, left to right, of other sizes and formats."""
    folder = tmp_path_factory.mktemp("photos")
    for kind, (width, height) in {"cats": (80, 60), "dogs": (48, 96)}.items():
        (folder / kind).mkdir()
        for number, suffix in enumerate(("png", "PNG", "bmp", "jpg")):
            rows = np.tile(np.linspace(0, 255, width, dtype=np.uint8), (height, 1))
            Image.fromarray(rows).convert("RGB").save(folder / kind / f"{number}.{suffix}")
    (folder / "labels.txt").write_text("not an image")
    return folder


def test_the_center_of_an_image_is_cut_out_with_a_margin(photos: Path) -> None:
    found = images(f"{photos},pixels=byte", ["x"], [IMAGE], 8)
    assert (found.shape, found.dtype) == ((8, 3, 32, 32), np.float32)
    for sample, (width, height) in zip(found, [(80, 60)] * 4 + [(48, 96)] * 4):
        shown = 32 / (MARGIN * max(32 / width, 32 / height) * width)  # of the width of the image
        place = width * (0.5 + shown * (np.arange(32) - 15.5) / 32)
        wanted = 255 * (place - 0.5) / (width - 1)
        assert np.abs(sample - wanted).max() < 6  # bilinear, and what JPEG changes
        assert np.array_equal(sample[0], sample[2])


@pytest.mark.parametrize("name", list(RANGES))
def test_pixels_have_the_range_that_is_asked_for(name: str, photos: Path) -> None:
    byte = images(f"{photos},pixels=byte", ["x"], [IMAGE], 2)
    means, deviations = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    wanted = {
        "imagenet": (byte / 255 - means[:, None, None]) / deviations[:, None, None],
        "unit": byte / 255,
        "signed": byte / 127.5 - 1,
        "byte": byte,
    }
    assert np.abs(images(f"{photos},pixels={name}", ["x"], [IMAGE], 2) - wanted[name]).max() < 1e-5
    assert np.array_equal(
        images(str(photos), ["x"], [IMAGE], 2), images(f"{photos},pixels=imagenet", ["x"], [IMAGE], 2)
    )


@pytest.mark.parametrize(
    ("shape", "option", "wanted"),
    [
        (("", 1, 20, 30), "", (1, 20, 30)),
        ((1, 24, 24, 3), "", (24, 24, 3)),
        (("", 3, "", ""), ",size=40", (3, 40, 40)),
        ((), ",size=64", (3, 64, 64)),
        ((), "", (3, 224, 224)),
    ],
)
def test_the_model_says_channels_and_size(shape: tuple, option: str, wanted: tuple, photos: Path) -> None:
    assert images(f"{photos}{option}", ["x"], [shape] if shape else [], 2).shape == (2, *wanted)


def test_few_samples_are_from_all_of_the_folder(photos: Path) -> None:
    both = images(f"{photos},pixels=byte", ["x"], [IMAGE], 2)
    assert np.array_equal(both[0], images(f"{photos / 'cats'},pixels=byte", ["x"], [IMAGE], 1)[0])
    assert np.array_equal(both[1], images(f"{photos / 'dogs'},pixels=byte", ["x"], [IMAGE], 1)[0])


def test_quantize_takes_a_folder_of_images(photos: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 30 * 30, 4)).eval()
    example = (torch.randn(2, 3, 32, 32),)
    free = ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(model, example, dynamic_shapes=free), "classifier.pt2")
    ran = run("quantize", "classifier.pt2", "-d", str(photos), "-o", "classifier.zpt")
    assert ran.code == 0, ran.err
    assert "8 of 8 images, 32x32, pixels=imagenet" in ran.err
    ran = run("run", "classifier.zpt", "-d", f"{photos},pixels=imagenet", "-o", "results.npy")
    assert ran.code == 0, ran.err
    given = images(str(photos), ["x"], [IMAGE], 8)
    assert np.array_equal(np.load("results.npy"), zeropoint.runtime.load("classifier.zpt")(given))


def test_what_is_wrong_is_said_before_the_work(photos: Path, tmp_path: Path) -> None:
    def message(data: str) -> str:
        ran = run("quantize", "model.pt2", "-d", data, "-o", "x.zpt")
        assert ran.code == 2
        return " ".join(ran.err.replace("│", " ").split())

    assert "'pixels=float' is not an option of a folder of images" in message(f"{photos},pixels=float")
    assert "'size=0' is not an option of a folder of images" in message(f"{photos},size=0")
    assert "has no images: their names end in .jpg" in message(str(tmp_path))


def test_images_that_do_not_fit_are_refused_in_words(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="for models of one input; this one has ids, mask"):
        images(str(photos), ["ids", "mask"], [], 2)
    with pytest.raises(ValueError, match="size=64: the model has the fixed size 32"):
        images(f"{photos},size=64", ["x"], [IMAGE], 2)
    with pytest.raises(ValueError, match="x has 4 channels"):
        images(str(photos), ["x"], [(1, 4, 32, 32)], 2)
    with pytest.raises(ValueError, match="x has 2 axes"):
        images(str(photos), ["x"], [(1, 32)], 2)
    (tmp_path / "cut.png").write_bytes((photos / "cats" / "0.png").read_bytes()[:60])
    with pytest.raises(ValueError, match=r"cut\.png is not an image that can be read"):
        images(str(tmp_path), ["x"], [IMAGE], 2)


def test_images_of_too_many_pixels_are_refused(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(ValueError, match="decompression bomb"):
        images(str(photos), ["x"], [IMAGE], 2)
