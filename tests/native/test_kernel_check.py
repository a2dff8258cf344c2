"""Builds and runs kernel_check, the C++ comparison of every kernel with its reference (native/check)."""

from __future__ import annotations

import re

import pytest
from native_checks import built, run

from zeropoint import _native


@pytest.mark.slow
@pytest.mark.timeout(1800)  # the first build takes a minute or two on a small machine
def test_every_kernel_equals_its_reference() -> None:
    output = run(built("kernel_check"), timeout=300)
    closing = re.fullmatch(r"(\d+) passed, (\d+) failed, (\d+) skipped", output.strip().splitlines()[-1])
    assert closing is not None, output[-2000:]
    assert int(closing[1]) > 0
    assert int(closing[2]) == 0

    # Each listed kernel was compared or is said to be missing here.
    lines = [line.split() for line in output.splitlines() if line.startswith(("ok ", "skip "))]
    verdicts = {(subject, aspect): verdict for verdict, subject, aspect, *_ in lines}
    offered, needs = set(_native.cpu_features()["features"]), dict(_native.levels())
    for operation, isa in _native.kernel_list():
        expected = "ok" if offered.issuperset(needs[isa]) else "skip"
        assert verdicts.get((operation, isa)) == expected, f"{operation} {isa}"
    assert sum(v == "skip" for v in verdicts.values()) == int(closing[3])
