"""The commands that messages give to install what is missing."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from zeropoint.installation import install_command

PACKAGE = Path(__file__).parents[1] / "src" / "zeropoint"
EXTRAS = ("torch", "onnx", "cli", "tune", "migrate")


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_command_names_packages_that_are_on_pypi(extra: str) -> None:
    """A release of zeropoint may be nowhere, and a clone would compile again."""
    command = install_command(extra)
    assert command.startswith("pip install '")
    assert "zeropoint" not in command


def test_without_metadata_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    assert install_command("onnx") == "pip install 'zeropoint[onnx]'"


def test_no_message_has_a_command_of_its_own() -> None:
    own = [path.name for path in PACKAGE.rglob("*.py") if "install 'zeropoint[" in path.read_text()]
    assert own == []
