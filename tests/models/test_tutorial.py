"""The commands of docs/tutorials/image_classifier.md: torchvision's networks from export to an answer over HTTP."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch

import zeropoint

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorials" / "image_classifier.md").read_text()
FOLDERS = re.findall(r"export_torchvision\.py \w+ (build/\w+)", PAGE)


def commands(folder: str) -> list[str]:
    """The page's lines about `folder`: export, quantize, serve."""
    lines = [line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()]
    return [line for line in lines if f"{folder}/model" in line or line.endswith(f" {folder}")]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def answer(url: str, array: np.ndarray, patience: float = 60) -> np.ndarray:
    body, end = io.BytesIO(), time.monotonic() + patience
    np.save(body, array)
    while True:
        try:
            with urllib.request.urlopen(url, data=body.getvalue()) as response:
                return np.load(io.BytesIO(response.read()))
        except urllib.error.URLError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


@pytest.mark.thorough
@pytest.mark.parametrize("folder", FOLDERS)
def test_commands_of_the_tutorial_serve_a_torchvision_network(folder: str, tmp_path: Path) -> None:
    for package in ("torchvision", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: run `make test-models`")
    scripts, port = Path(sys.executable).parent, free_port()
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "TORCH_HOME": str(tmp_path)}
    export, quantize, serve = (line.replace("build/", f"{tmp_path}/") for line in commands(folder))
    for line in (export, quantize):
        subprocess.run(shlex.split(line), cwd=ROOT, env=environment, check=True)

    setting, *command = shlex.split(serve.replace("--port 8000", f"--port {port}"))
    name, _, value = setting.partition("=")
    server = subprocess.Popen(command, cwd=ROOT, env={**environment, name: value})
    try:
        images = np.load(f"{tmp_path}/{Path(folder).name}/images.npy")[:2]
        found = answer(f"http://localhost:{port}/predict", images)
    finally:
        server.terminate()
        server.wait()

    model = tmp_path / Path(folder).name
    assert np.array_equal(found, zeropoint.runtime.load(model / "model.zpt")(images))
    with torch.no_grad():
        expected = torch.export.load(model / "model.pt2").module()(torch.from_numpy(images)).flatten()
    # Weights are random and images are noise: the layers amplify each rounding, and little tells two images apart.
    assert torch.nn.functional.cosine_similarity(torch.from_numpy(found).flatten(), expected, dim=0) > 0.95
    assert (model / "model.zpt").stat().st_size < (model / "model.pt2").stat().st_size / 3


def test_tutorial_has_both_networks() -> None:
    assert FOLDERS == ["build/resnet50", "build/mobilenet"]
    assert all(len(commands(folder)) == 3 for folder in FOLDERS)
