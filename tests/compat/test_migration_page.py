"""docs/migration.md shows the table as it is."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from zeropoint.compat import names

SCRIPT = Path(__file__).parents[2] / "scripts" / "write_migration.py"


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_migration", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_table_of_today(writer: ModuleType) -> None:
    page = writer.PAGE.read_text()
    assert page == writer.with_tables(page), "run  .venv/bin/python scripts/write_migration.py"


def test_every_name_and_every_reason_is_on_the_page(writer: ModuleType) -> None:
    text = writer.rendered()
    for reason in names.GONE.values():
        assert reason in text
    for module, part in names.MODULES.items():
        assert f"`{module}" in text
        for listed in part.values():
            for name in listed.split():
                old = name.partition("=")[0]
                assert f"`{old}`" in text or f".{old}`" in text, name
