"""The old names, zeropoint's for the time of a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import zeropoint.compat


@pytest.fixture
def installed() -> Iterator[None]:
    zeropoint.compat.install()
    yield
    zeropoint.compat.uninstall()
