"""A page in headless Chromium: what it looks like after its scripts ran, and what they complained about."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--virtual-time-budget=2000",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("needs Chromium (Debian: apt-get install chromium) to look at the page")
    return subprocess.run([found, *FLAGS, *arguments], capture_output=True, text=True, timeout=120, check=False)


def seen(page: Path, fragment: str = "") -> tuple[str, list[str]]:
    """The document when its scripts have run, and what was written to the console."""
    ran = _run("--enable-logging=stderr", "--v=0", "--dump-dom", f"{page.as_uri()}{fragment}")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, [line for line in ran.stderr.splitlines() if "CONSOLE" in line]


def opened(page: Path, fragment: str = "") -> str:
    """The document when its scripts have run."""
    return seen(page, fragment)[0]


def console(page: Path, fragment: str = "") -> list[str]:
    """What was written to the console: errors, refused requests."""
    return seen(page, fragment)[1]


def photographed(page: Path, picture: Path, width: int, height: int, dark: bool = False) -> Path:
    """A picture of the page."""
    options = ["--blink-settings=preferredColorScheme=0"] if dark else []
    ran = _run(*options, f"--window-size={width},{height}", f"--screenshot={picture}", page.as_uri())
    assert picture.exists(), ran.stderr
    return picture
