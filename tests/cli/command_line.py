"""Runs commands as a user does, in a folder with a model, data and code of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from typer.testing import CliRunner

from zeropoint.cli.app import app

CODE = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))

class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, first, second):
        return self.fc(first) - second

def batches():
    for seed in range(3):
        yield torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(seed))

not_a_model = 3
"""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


def make_folder(folder: Path) -> None:
    """A float model as .pt2 with a free batch size, as .pt2 with a fixed one, as TorchScript; images; code."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)).eval()
    x = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    free = ({0: torch.export.Dim.AUTO},)
    torch.export.save(torch.export.export(model, (x,), dynamic_shapes=free), folder / "model.pt2")
    torch.export.save(torch.export.export(model, (x,)), folder / "fixed.pt2")
    torch.jit.save(torch.jit.trace(model, (x,)), str(folder / "script.pt"))
    torch.save(model.state_dict(), folder / "checkpoint.pth")
    torch.save(model, folder / "pickled.pth")
    images = np.random.RandomState(0).randn(10, 1, 8, 8)  # float64, as people have it
    np.save(folder / "images.npy", images)
    np.savez(folder / "images.npz", input=images)
    (folder / "my_code.py").write_text(CODE)


def run(*arguments: str) -> Ran:
    """In this process, in the working directory."""
    found = CliRunner().invoke(app, list(arguments))
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return Ran(found.exit_code, found.stdout, found.stderr)


def run_process(folder: Path, *arguments: str, **environment: str) -> Ran:
    """In a process of its own."""
    command = [sys.executable, "-m", "zeropoint.cli", *arguments]
    ran = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **environment}
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)
