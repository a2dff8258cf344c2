"""TorchScript that was saved under compat: what a process needs to run it."""

from __future__ import annotations

import pytest
from processes import run

SAVING = """
    import torch, zeropoint.compat
    zeropoint.compat.install()
    import torch.ao.quantization as tq

    torch.manual_seed(0)
    model = tq.QuantWrapper(torch.nn.Sequential(torch.nn.Linear(4, 2))).eval()
    model.qconfig = tq.get_default_qconfig("x86")
    prepared = tq.prepare(model)
    prepared(torch.ones(1, 4))
    converted = tq.convert(prepared)
    torch.jit.save(torch.jit.script(converted), {path!r})
    print(converted(torch.ones(1, 4)).tolist())
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    path = str(tmp_path_factory.mktemp("script") / "model.pt")
    return path, run(SAVING.format(path=path))


@pytest.mark.parametrize("imported", ["zeropoint", pytest.param("zeropoint.nn", marks=pytest.mark.thorough)])
def test_a_process_that_has_zeropoint_runs_it(saved: tuple[str, str], imported: str) -> None:
    path, expected = saved
    assert run(f"import torch, {imported}\nprint(torch.jit.load({path!r})(torch.ones(1, 4)).tolist())") == expected


def test_a_process_without_zeropoint_is_told_which_operators_are_missing(saved: tuple[str, str]) -> None:
    path, _ = saved
    said = run(
        f"""
        import torch
        try:
            torch.jit.load({path!r})
        except RuntimeError as error:
            print(error)
        """
    )
    assert "zeropoint::" in said
