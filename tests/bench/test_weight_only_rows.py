"""The suite `weight_only` says how fast weights can be read."""

from __future__ import annotations

import re

import pytest

from bench.weight_only import _print_reading


def test_the_speed_of_reading_is_a_number_for_each_format(capsys: pytest.CaptureFixture[str]) -> None:
    _print_reading(64, 256)
    found = re.findall(r"of (\w+) 64x256: ([\d.]+) GB/s read", capsys.readouterr().out)
    assert [kind for kind, _ in found] == ["int4", "int8", "float16"]
    assert all(float(speed) > 0 for _, speed in found)
