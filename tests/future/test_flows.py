"""The main flows on a PyTorch that has lost quantization, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BEGIN = textwrap.dedent(
    """
    import io, torch, zeropoint
    from torch import nn

    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 8)

    def model():
        layers = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 5)
        return zeropoint.QuantWrapper(nn.Sequential(*layers)).eval()

    def converted():
        m = model()
        m.qconfig = zeropoint.get_default_qconfig("native")
        prepared = zeropoint.prepare(m)
        prepared(x)
        return zeropoint.convert(prepared)

    def same(a, b):
        assert torch.equal(a, b), (a - b).abs().max()
    """
)
FLOWS = {
    "tensor": """
        q = zeropoint.quantize_per_tensor(x, 0.05, 100, zeropoint.quint8)
        assert (q.dequantize().clamp(-4, 4) - x.clamp(-4, 4)).abs().max() <= 0.025 + 1e-6
        same(torch.relu(q).dequantize(), q.dequantize().relu())
        file = io.BytesIO(); torch.save(q, file); file.seek(0)
        assert torch.equal(torch.load(file, weights_only=True), q)
    """,
    "compiled tensor code": """
        q = zeropoint.quantize_per_tensor(x, 0.05, 100, zeropoint.quint8)
        f = lambda q: zeropoint.quantize_per_tensor(q[:, 1:].dequantize() * q.q_scale() + 1, 0.1, 3, zeropoint.quint8)
        assert torch.equal(torch.compile(f, backend="aot_eager", fullgraph=True)(q), f(q))
    """,
    "FX graph mode": """
        from zeropoint import fx
        m = model().module
        prepared = fx.prepare_fx(m, zeropoint.get_default_qconfig_mapping("native"), (x,))
        prepared(x)
        c = fx.convert_fx(prepared)
        same(zeropoint.compile(c, (x,))(x), c(x))
        again = fx.convert_fx(fx.prepare_fx(model().module, zeropoint.get_default_qconfig_mapping("native"), (x,)))
        again.load_state_dict(c.state_dict())
        same(again(x), c(x))
        halves = zeropoint.QConfigMapping().set_global(zeropoint.float16_static_qconfig)
        backend = fx.backends.get_test_only_legacy_native_backend_config()
        h = fx.prepare_fx(nn.Sequential(nn.Linear(8, 4)).eval(), halves, (x,), backend_config=backend)
        assert fx.convert_to_reference_fx(h, backend_config=backend)(x).shape == (2, 3, 8, 4)
    """,
    "FX training": """
        from zeropoint import fx
        p = fx.prepare_qat_fx(model().module.train(), zeropoint.get_default_qat_qconfig_mapping("native"), (x,))
        p(x).sum().backward()
        p.eval().apply(zeropoint.disable_observer)
        expected = p(x)
        c = fx.convert_fx(p)
        assert type(c.get_submodule("0")) is zeropoint.nn.intrinsic.quantized.ConvReLU2d
        assert (c(x) - expected).abs().max() <= float(c.get_submodule("4").scale)
    """,
    "FX checkpoint": """
        from zeropoint import fx
        mapping = zeropoint.get_default_qconfig_mapping("native")
        p = fx.prepare_fx(model().module, mapping, (x,))
        p(x)
        c = fx.convert_fx(p)
        file = io.BytesIO(); torch.save(c.state_dict(), file); file.seek(0)
        again = fx.convert_fx(fx.prepare_fx(model().module, mapping, (x,)))
        again.load_state_dict(torch.load(file, weights_only=True))
        same(again(x), c(x))
        file = io.BytesIO(); torch.jit.save(torch.jit.trace(c, (x,)), file); file.seek(0)
        same(torch.jit.load(file)(x), c(x))
    """,
    "FX equalization and report": """
        from zeropoint.compat.fx import convert_fx, equalization, model_report, prepare_fx
        mapping = zeropoint.get_default_qconfig_mapping("native")
        detectors = {model_report.OutlierDetector(), model_report.InputWeightEqualizationDetector(0.4)}
        report = model_report.ModelReport(prepare_fx(model().module, mapping, (x,)), detectors)
        report.prepare_detailed_calibration()(x)
        equalized = zeropoint.QConfigMapping().set_global(equalization.default_equalization_qconfig)
        assert set(report.generate_equalization_mapping().module_name_qconfigs) <= {"0", "4"}
        assert len(report.generate_model_report(True)) == 2
        m = model().module
        expected = m(x)
        p = prepare_fx(m, mapping, (x,), _equalization_config=equalized)
        p(x)
        assert (convert_fx(p)(x) - expected).abs().max() < 0.1
    """,
    "numeric suite": """
        from zeropoint import numeric_suite
        torch.manual_seed(1)
        m = model()
        m.qconfig = zeropoint.get_default_qconfig("native")
        p = zeropoint.prepare(m)
        p(x)
        c = zeropoint.convert(p)
        found = numeric_suite.compare_model_outputs(m, c, x)
        pair = found["module.4.stats"]
        assert (pair["float"][0] - pair["quantized"][0].dequantize()).abs().max() < 0.5
        assert len(numeric_suite.compare_weights(m.state_dict(), c.state_dict())) == 2
    """,
    "numeric suite of graphs": """
        from zeropoint import fx
        from zeropoint.compat.numeric_suite.graph import compare, loggers, multi_mapping, n_shadows, n_shadows_results
        mapping = zeropoint.get_default_qconfig_mapping("native")
        p = fx.prepare_fx(model().module, mapping, (x,))
        p(x)
        import copy
        c = fx.convert_fx(copy.deepcopy(p))
        a, b = compare.add_loggers("float", copy.deepcopy(p), "int8", copy.deepcopy(c), loggers.OutputLogger)
        a(x), b(x)
        assert "_4" in compare.extract_logger_info(a, b, loggers.OutputLogger, "int8")
        assert len(compare.extract_weights("float", p, "int8", c)) == 2
        shadowed = compare.add_shadow_loggers("float", p, "int8", c, loggers.OutputLogger)
        shadowed(x)
        assert compare.extract_shadow_logger_info(shadowed, loggers.OutputLogger, "int8")
        tried = multi_mapping.QConfigMultiMapping().set_global(
            [zeropoint.default_qconfig, zeropoint.default_dynamic_qconfig])
        shadows = n_shadows.prepare_n_shadows_model(model().module, (x,), tried, fx.get_native_backend_config())
        shadows(x)
        n_shadows.convert_n_shadows_model(shadows)
        n_shadows.loggers_set_enabled(shadows, True)
        shadows(x)
        assert n_shadows_results.summarized(n_shadows_results.extract_results_n_shadows_model(shadows))
    """,
    "compat FX checkpoint": """
        import zeropoint.compat
        zeropoint.compat.install()
        from torch.ao.quantization import get_default_qconfig_mapping
        from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx
        p = prepare_fx(model().module, get_default_qconfig_mapping("x86"), (x,))
        p(x)
        c = convert_fx(p)
        file = io.BytesIO(); torch.save(c.state_dict(), file); file.seek(0)
        again = convert_fx(prepare_fx(model().module, get_default_qconfig_mapping("x86"), (x,)))
        again.load_state_dict(torch.load(file, weights_only=False))
        same(again(x), c(x))
        file = io.BytesIO(); torch.jit.save(torch.jit.script(c), file); file.seek(0)
        same(torch.jit.load(file)(x), c(x))
    """,
    "compat numeric suite": """
        import copy
        import zeropoint.compat
        zeropoint.compat.install()
        import torch.ao.ns._numeric_suite as ns
        import torch.ao.ns._numeric_suite_fx as nsfx
        import torch.ao.quantization as tq
        from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx
        m = tq.QuantWrapper(model().module)
        m.qconfig = tq.get_default_qconfig("x86")
        p = tq.prepare(m)
        p(x)
        c = tq.convert(p)
        assert ns.compare_model_stub(copy.deepcopy(m), copy.deepcopy(c), {nn.Linear}, x)
        p = prepare_fx(model().module, tq.get_default_qconfig_mapping("x86"), (x,))
        p(x)
        c = convert_fx(copy.deepcopy(p))
        found = nsfx.extract_weights("float", p, "int8", c)
        nsfx.extend_logger_results_with_comparison(found, "float", "int8", torch.ao.ns.fx.utils.compute_sqnr, "sqnr")
        assert all(entry["weight"]["int8"][0]["sqnr"][0] > 20 for entry in found.values())
    """,
    "compat FX training and custom configuration": """
        import zeropoint.compat
        zeropoint.compat.install()
        import torch.ao.quantization as tq
        from torch.ao.quantization.fx.custom_config import ConvertCustomConfig, FuseCustomConfig, PrepareCustomConfig
        from torch.ao.quantization.quantize_fx import convert_fx, fuse_fx, prepare_fx, prepare_qat_fx
        p = prepare_qat_fx(model().module.train(), tq.get_default_qat_qconfig_mapping("x86"), (x,))
        p(x).sum().backward()
        trained = convert_fx(p.eval())
        assert type(trained.get_submodule("0")) is torch.ao.nn.intrinsic.quantized.ConvReLU2d
        m = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
        m.note = "kept"
        keeps = PrepareCustomConfig().set_preserved_attributes(["note"]).set_output_quantized_indexes([0])
        fused = fuse_fx(m, FuseCustomConfig().set_preserved_attributes(["note"]))
        p = prepare_fx(fused, tq.get_default_qconfig_mapping("x86"), (x,), prepare_custom_config=keeps)
        p(x)
        c = convert_fx(p, convert_custom_config=ConvertCustomConfig().set_preserved_attributes(["note"]))
        assert c.note == "kept" and isinstance(c(x), zeropoint.QTensor)
    """,
    "compat eager checkpoint": """
        import zeropoint.compat
        zeropoint.compat.install()
        import torch.ao.quantization as tq
        def quantized(seed):
            torch.manual_seed(seed)
            m = model()
            m.qconfig = tq.get_default_qconfig("x86")
            p = tq.prepare(m)
            p(torch.randn(2, 3, 8, 8))
            return tq.convert(p)
        c, again = quantized(0), quantized(1)
        file = io.BytesIO(); torch.save(c.state_dict(), file); file.seek(0)
        again.load_state_dict(torch.load(file, weights_only=True))
        same(again(x), c(x))
        file = io.BytesIO(); torch.save(c, file); file.seek(0)
        same(torch.load(file, weights_only=False)(x), c(x))
    """,
    "compat engine": """
        import zeropoint.compat
        zeropoint.compat.install()
        a = torch.quantize_per_tensor(torch.tensor([0.5, 1.0]), 0.5, 0, torch.quint8)
        sums = {}
        for engine in ("x86", "qnnpack"):
            torch.backends.quantized.engine = engine
            sums[engine] = torch.ops.quantized.add(a, a, 2.0, 0).int_repr().tolist()  # 0.5 and 1 step
        torch.backends.quantized.engine = "x86"
        assert sums == {"x86": [0, 1], "qnnpack": [1, 1]}
    """,
    "compat FX graph mode": """
        import zeropoint.compat
        zeropoint.compat.install()
        from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx
        prepared = prepare_fx(model().module, zeropoint.get_default_qconfig_mapping("native"), (x,))
        prepared(x)
        assert convert_fx(prepared)(x).shape == (2, 5)
    """,
    "eager static": "assert converted()(x).shape == (2, 5)",
    "eager QAT": """
        m = model().train()
        m.qconfig = zeropoint.get_default_qat_qconfig("native")
        trained = zeropoint.prepare_qat(m)
        trained(x).sum().backward()
        c = zeropoint.convert(trained.eval())
        assert c(x).shape == (2, 5)
    """,
    "script": """
        c = converted()
        file = io.BytesIO(); torch.jit.save(torch.jit.script(c), file); file.seek(0)
        same(torch.jit.load(file)(x), c(x))
    """,
    "trace": "c = converted(); same(torch.jit.trace(c, (x,))(x), c(x))",
    "export": "c = converted(); same(torch.export.export(c, (x,)).module()(x), c(x))",
    "compile": "c = converted(); same(torch.compile(c, backend='aot_eager', fullgraph=True)(x), c(x))",
    "dynamic": """
        m = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
        c = zeropoint.quantize_dynamic(m)
        assert (c(x) - m(x)).abs().max() < 0.1
        same(torch.jit.script(c)(x), c(x))
    """,
    "to_int8 and compile": """
        m = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).eval()
        q = zeropoint.to_int8(m, (x,), [x], progress=False)
        program = zeropoint.compile(q, (x,))
        assert (torch.as_tensor(program(x)) - q(x)).abs().max() <= 1e-5
    """,
    "graph QAT": """
        m = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).train()
        p = zeropoint.prepare_qat_graph(m, zeropoint.get_default_qat_qconfig_mapping("native"), (x,))
        p(x).sum().backward()
        assert zeropoint.convert_graph(p.eval())(x).shape == (2, 5)
    """,
    "TorchScript mode": """
        m = torch.jit.script(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).eval())
        q = zeropoint.quantize_jit(m, {"": zeropoint.get_default_qconfig("native")}, lambda m, data: m(data), [x])
        assert q(x).shape == (2, 5)
    """,
    "compat in scripted code": """
        import zeropoint.compat
        zeropoint.compat.install()

        def f(x: torch.Tensor) -> torch.Tensor:
            q = torch.quantize_per_tensor(x, 0.05, 100, torch.quint8)
            return q.dequantize() + q.q_scale()

        def g(x: torch.Tensor, weight: torch.Tensor):
            q = torch.quantize_per_tensor(x, 0.05, 100, torch.quint8)
            y = torch.ops.quantized.linear(q, torch.ops.quantized.linear_prepack(weight, None), 0.1, 3)
            return y.int_repr() + weight.q_per_channel_axis() + torch.q_zero_point(q), weight.q_per_channel_scales()

        same(torch.jit.script(f)(x), f(x))
        w = torch.quantize_per_channel(torch.randn(4, 8), torch.full((4,), 0.1), torch.zeros(4).long(), 0, torch.qint8)
        for scripted, eager in zip(torch.jit.script(g)(x, w), g(x, w)):
            same(scripted, eager)
    """,
    "compat eager": """
        import zeropoint.compat
        zeropoint.compat.install()
        from torch.ao.quantization import QuantWrapper, convert, get_default_qconfig, prepare

        m = QuantWrapper(nn.Sequential(nn.Linear(8, 4), nn.ReLU())).eval()
        m.qconfig = get_default_qconfig("x86")
        p = prepare(m)
        p(x)
        assert convert(p)(x).shape == (2, 3, 8, 4)
        assert torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dtype == torch.qint8
    """,
}


# Runs the files that it is given, one after the other, and prints what went wrong in each.
RUN_ALL = """
import json, runpy, sys, traceback
import removal
removal.remove()
errors = {}
for path in sys.argv[1:]:
    try:
        runpy.run_path(path, run_name="__main__")
        errors[path] = ""
    except BaseException:
        errors[path] = traceback.format_exc()
print(json.dumps(errors))
"""


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each flow raised, or nothing. Two processes for all of them: compat changes torch for those after it."""
    directory = tmp_path_factory.mktemp("flows")
    paths = {flow: directory / f"flow{i}.py" for i, flow in enumerate(FLOWS)}  # TorchScript reads its source
    for flow, path in paths.items():
        path.write_text(BEGIN + textwrap.dedent(FLOWS[flow]))
    raised: dict[str, str] = {}
    for old_names in (False, True):
        some = [str(path) for flow, path in paths.items() if flow.startswith("compat") == old_names]
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", RUN_ALL, *some],
            env={**os.environ, "PYTHONPATH": str(HERE)}, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr[-3000:]
        raised |= json.loads(ran.stdout.splitlines()[-1])
    return {flow: raised[str(path)] for flow, path in paths.items()}


@pytest.mark.parametrize("flow", FLOWS)
def test_flow_without_pytorchs_quantization(flow: str, errors: dict[str, str]) -> None:
    assert not errors[flow], errors[flow]
