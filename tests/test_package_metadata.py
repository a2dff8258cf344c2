"""What PyPI shows: a page whose links work there, and the addresses of the project."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
URL = "https://host.example/owner/zeropoint"


def provider() -> Any:
    spec = importlib.util.spec_from_file_location("package_metadata", ROOT / "scripts" / "package_metadata.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("url", ["", URL])
def test_no_link_of_the_page_is_relative(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROPOINT_URL", url)
    text = provider().dynamic_metadata({}, {})["readme"]["text"]
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert [link for link in links if not link.startswith("https://")] == []
    assert bool(links) == bool(url)


def test_every_link_of_the_page_leads_to_a_file() -> None:
    text = provider().readme((ROOT / "README.md").read_text(), URL)
    for path in re.findall(rf"{re.escape(URL)}/(?:blob|raw)/main/([^)#]+)", text):
        assert (ROOT / path).is_file(), path


def test_without_an_address_the_page_is_text() -> None:
    made = provider().readme("a\n\n![b](c.svg)\n\n*d*\n\ne [f](g.md#h) [i](https://j)\n", "")
    assert made == "a\n\ne f [i](https://j)\n"


def test_addresses_are_those_of_the_repository() -> None:
    assert provider().urls("") == {}
    assert set(provider().urls(URL)) == {"Repository", "Documentation", "Changelog", "Issues"}


def test_the_readme_is_short_and_has_one_chart_and_one_table_of_numbers() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 150
    assert text.count("benchmarks_") == 1
    assert len(re.findall(r"^\| \w.*x \|$", text, re.MULTILINE)) == 10
