"""install and uninstall: in every order, without a trace, and on a PyTorch that has lost the old names.

Most tests run a program in a process of its own.
"""

from __future__ import annotations

import ast
import contextlib
import io
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from processes import WITHOUT_THE_OLD_STACK, run

import zeropoint.compat
from zeropoint.compat.__main__ import main

EVERYTHING = """
    import sys, torch, torch.ao.nn.quantized
    import zeropoint, zeropoint.compat, zeropoint.tensor.qtensor, zeropoint.compat.script
    from torch.jit import _builtins
    from zeropoint.nn.quantized.reference import weight

    OLD = ("torch.ao", "torch.quantization", "torch.nn.quantized", "torch.nn.qat", "torch.nn.intrinsic",
           "torch.nn.quantizable")

    def everything():
        places = [torch, torch.Tensor, torch.ops, torch.fx.Tracer, zeropoint.QTensor, weight]
        places += [sys.modules[m] for m in sorted(sys.modules) if m.startswith(OLD)]
        state = {f"{getattr(p, '__name__', p)}": dict(vars(p)) for p in places}
        for name in [n for n in state["torch.ops"] if n.startswith("zeropoint")]:
            del state["torch.ops"][name]  # ours, which importing zeropoint's modules registers
        state["modules"] = {m for m in sys.modules if m.startswith(OLD)}
        state["handlers"] = dict(zeropoint.tensor.qtensor.HANDLERS)
        ours = zeropoint.quantize_per_tensor, zeropoint.fake_quantize_per_tensor_affine, torch.save
        state["builtins"] = {f.__name__: _builtins._get_builtin_table().get(id(f)) for f in ours}
        state["finders"] = list(sys.meta_path)
        return state

    torch.quint8, torch.ops.quantized.add  # what torch keeps of a first look
    import torch.fx
"""


@pytest.mark.parametrize(
    "loaded", [pytest.param(False, marks=pytest.mark.thorough, id="not-loaded"), pytest.param(True, id="loaded")]
)
def test_uninstall_leaves_no_trace(loaded: bool) -> None:
    run(
        EVERYTHING,
        "import torch.ao.quantization, torch.ao.quantization.quantize_fx" if loaded else "",
        """
        before = everything()
        for _ in range(2):
            zeropoint.compat.install()
            zeropoint.compat.install()
            assert zeropoint.compat.is_installed()
            import torch.ao.quantization.fx.custom_config, torch.ao.quantization.observer
            assert torch.quantization.prepare is zeropoint.prepare
            q = torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.quint8)
            torch.ops.quantized.add(q, q, 1.0, 0)
            torch.ops.quantized_decomposed.quantize_per_tensor(torch.ones(2), 0.5, 0, 0, 255, torch.uint8)
            zeropoint.compat.uninstall()
            zeropoint.compat.uninstall()
            assert not zeropoint.compat.is_installed()
            after = everything()
            assert before.keys() == after.keys()
            for place in before:
                if isinstance(before[place], dict):
                    changed = {
                        k for k in {*before[place], *after[place]}
                        if before[place].get(k, before) is not after[place].get(k, before)
                    }
                    # an operator that was looked at stays known to torch.ops, as ever
                    assert changed <= {"quantized_decomposed"}, (place, changed)
                else:
                    assert before[place] == after[place], place
        q = torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.quint8)
        assert type(q) is torch.Tensor and q.is_quantized
        import torch.ao.quantization.fx._decomposed
        x = torch.ops.quantized_decomposed.quantize_per_tensor(torch.ones(2), 0.5, 0, 0, 255, torch.uint8)
        assert x.tolist() == [2, 2]
        assert torch.ao.quantization.MinMaxObserver.__module__ == "torch.ao.quantization.observer"
        """,
    )


@pytest.mark.parametrize(
    "first", ["torch.ao.quantization.fx._decomposed", pytest.param("zeropoint", marks=pytest.mark.thorough)]
)
def test_whatever_was_imported_first(first: str) -> None:
    run(
        f"import {first}",
        """
        import zeropoint.compat
        zeropoint.compat.install()
        import torch
        import torch.ao.quantization as tq
        import torch.ao.nn.quantized.dynamic as nnqd
        from torch.ao.quantization import get_default_qconfig, QConfig
        from torch.quantization import quantize_dynamic
        from torch.nn.quantized import FloatFunctional
        import zeropoint
        assert tq.prepare is zeropoint.prepare and nnqd.Linear is zeropoint.nn.quantized.dynamic.Linear
        assert QConfig is zeropoint.QConfig and quantize_dynamic is zeropoint.quantize_dynamic
        assert FloatFunctional is zeropoint.nn.quantized.FloatFunctional
        x = torch.ops.quantized_decomposed.quantize_per_tensor(torch.ones(2), 0.5, 0, 0, 255, torch.uint8)
        assert x.tolist() == [2, 2]
        """,
        # registers what it knows of quantized_decomposed
        "import torch._inductor.lowering" if first == "zeropoint" else "",
        torch_first=False,
    )


def test_importing_changes_nothing_and_installing_in_threads_reaches_modules_held_before() -> None:
    run(
        """
        import concurrent.futures, torch, torch.ao.quantization as before
        first = torch.quantize_per_tensor, torch.ao.nn.quantized.Linear, torch.Tensor.dequantize
        import zeropoint, zeropoint.compat, zeropoint.nn
        assert first == (torch.quantize_per_tensor, torch.ao.nn.quantized.Linear, torch.Tensor.dequantize)
        assert not zeropoint.compat.is_installed()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: zeropoint.compat.install(), range(32)))
        assert before.convert is zeropoint.convert
        zeropoint.compat.uninstall()
        assert before.convert.__module__ == "torch.ao.quantization.quantize"
        assert not isinstance(torch.quantize_per_tensor(torch.ones(1), 1.0, 0, torch.qint8), zeropoint.QTensor)
        """
    )


def test_functions_with_the_name_of_a_module_are_found_where_both_modules_were_loaded_before() -> None:
    run(
        """
        import torch, torch.ao.quantization.fx, torch.quantization.fx.prepare, torch.quantization.fx.convert
        import torch.quantization.fx.fuse, zeropoint.compat
        zeropoint.compat.install()
        for name in ("prepare", "convert", "fuse"):
            found = getattr(torch.quantization.fx, name)
            assert found is getattr(torch.ao.quantization.fx, name), name
            assert found.__module__.startswith("zeropoint.compat.fx."), found
        """
    )


def test_what_asks_every_module_for_a_name_loads_nothing_of_the_old_stack() -> None:
    run(
        """
        import io, sys, torch, torch.ao.nn, zeropoint.compat
        lazy = torch.ao.nn.__getattr__
        zeropoint.compat.install()
        assert torch.ao.nn.__getattr__ is not lazy
        before = set(sys.modules)
        torch.save({"scheme": torch.per_tensor_symmetric}, io.BytesIO())  # pickle looks for it in all modules
        assert not [name for name in set(sys.modules) - before if name.startswith("torch.ao.nn")]
        zeropoint.compat.uninstall()
        assert torch.ao.nn.__getattr__ is lazy
        """
    )


# -------------------------------------------------------------------------------------- a PyTorch without the old stack

OLD_PROGRAM = """
    import torch
    import torch.ao.quantization as tq
    import torch.nn.quantized as nnq
    from torch.ao.nn.intrinsic import ConvReLU2d
    from torch.ao.quantization.observer import MinMaxObserver, HistogramObserver

    torch.manual_seed(0)
    torch.backends.quantized.engine = "x86"
    q = torch.quantize_per_tensor(torch.tensor([0.0, 1.0]), 0.5, 10, torch.quint8)
    assert q.dtype == torch.quint8 and q.is_quantized and q.int_repr().tolist() == [10, 12]
    assert q.qscheme() == torch.per_tensor_affine and isinstance(q.qscheme(), torch.qscheme)
    assert not torch.ones(1).is_quantized
    assert torch.ops.quantized.add(q, q, 1.0, 0).dequantize().tolist() == [0.0, 2.0]
    model = torch.nn.Sequential(
        tq.QuantStub(), torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(16, 2),
        tq.DeQuantStub(),
    ).eval()
    model = tq.fuse_modules(model, [["1", "2"]])
    assert isinstance(model[1], ConvReLU2d)
    model.qconfig = tq.get_default_qconfig("x86")
    prepared = tq.prepare(model)
    x = torch.rand(2, 3, 4, 4)
    prepared(x)
    converted = tq.convert(prepared)
    assert isinstance(converted[4], nnq.Linear)
    print([*converted(x).flatten().tolist(), converted[4].scale])
    dynamic = tq.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(4, 2)), {torch.nn.Linear}, dtype=torch.qint8)
    print(dynamic(torch.ones(1, 4)).flatten().tolist())
"""
INSTALL = "import zeropoint.compat\nzeropoint.compat.install()"
AFTERWARDS = """
    import io
    buffer = io.BytesIO()
    torch.save(converted.state_dict(), buffer)
    buffer.seek(0)
    converted.load_state_dict(torch.load(buffer, weights_only=True))
    import torch.ao.quantization.fx.convert
    zeropoint.compat.uninstall()
    for name in ("ao", "quantization", "quint8", "quantize_per_tensor", "per_tensor_affine"):
        assert not hasattr(torch, name), name
    assert not hasattr(torch.nn, "quantized") and not [m for m in sys.modules if m.startswith("torch.ao")]
"""


@pytest.mark.usefixtures("installed")
def test_old_code_runs_on_a_pytorch_without_the_old_stack() -> None:
    gone = run(WITHOUT_THE_OLD_STACK, INSTALL, OLD_PROGRAM, AFTERWARDS)
    there = io.StringIO()
    with contextlib.redirect_stdout(there):
        exec(textwrap.dedent(OLD_PROGRAM), {"__name__": "__main__"})
    assert there.getvalue() == gone
    static, dynamic = (ast.literal_eval(line) for line in gone.splitlines())
    their_static, their_dynamic = (ast.literal_eval(line) for line in run(OLD_PROGRAM).splitlines())  # not installed
    assert static == pytest.approx(their_static, rel=1e-6, abs=1.01 * static[-1])  # one step of the last layer
    assert static[-1] == pytest.approx(their_static[-1], rel=1e-6)
    assert dynamic == pytest.approx(their_dynamic, abs=1e-6)


# ------------------------------------------------------------------------------------------------------- command line


def test_a_program_is_run_with_its_arguments_and_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("WORD = 'hello'\n")
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, neighbour, torch.ao.quantization as tq\n"
        "if __name__ == '__main__':\n"
        "    print(neighbour.WORD, sys.argv[1:], tq.prepare.__module__)\n"
        "    sys.exit(3)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", "zeropoint.compat", str(program), "a", "--b"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "hello ['a', '--b'] zeropoint.eager.prepare\n", "")


@pytest.mark.usefixtures("installed")  # uninstalls afterwards
def test_a_module_is_run_with_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tool.py").write_text("import sys, torch\nprint(sys.argv[1:], torch.quantize_per_tensor.__module__)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    main(["-m", "tool", "x"])
    assert capsys.readouterr().out == "['x'] zeropoint.tensor.create\n"


@pytest.mark.parametrize("arguments", [[], ["-m"], ["nowhere.py"], ["--help"]])
def test_a_wrong_command_says_what_is_right(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match=r"usage: python -m zeropoint\.compat \(program\.py \| -m module\)"):
        main(arguments)
    assert not zeropoint.compat.is_installed()


@pytest.mark.parametrize("before", ["", WITHOUT_THE_OLD_STACK])
def test_operators_can_be_printed_before_and_after_the_removal(before: str) -> None:
    run(
        before,
        """
        import torch, zeropoint.compat
        zeropoint.compat.install()
        assert str(torch.ops.quantized.add) == "quantized.add", str(torch.ops.quantized.add)
        import torch.ao.quantization as tq, torch.ao.quantization.quantize_fx as fx
        class Sum(torch.nn.Module):
            def forward(self, x):
                return x + x
        prepared = fx.prepare_fx(Sum().eval(), tq.get_default_qconfig_mapping("x86"), (torch.ones(2, 2),))
        prepared(torch.ones(2, 2))
        text = [str(node.target) for node in fx.convert_fx(prepared).graph.nodes]
        assert "quantized.add" in text, text
        """,
    )
