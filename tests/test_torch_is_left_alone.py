"""Importing zeropoint changes nothing in torch: attributes, functions and kernels of others stay what they are."""

from __future__ import annotations

import textwrap
from pathlib import Path

from forked import run_forked

ROOT = Path(__file__).parents[1]

PROGRAM = textwrap.dedent(
    """
    import importlib, pkgutil, sys, types
    import torch
    import torch.export, torch.fx, torch.jit, torch._dynamo, torch.testing, torch.ao.quantization, torch.nn.quantized
    import torch.ao.nn.quantized.dynamic, torch.ao.ns.fx.utils, torch.onnx, torch.utils.data, torch._inductor.compile_fx

    OURS = ("zeropoint", "zeropoint_capture")
    ATTRIBUTES_OF = (types.ModuleType, type)


    def attributes():
        \"\"\"Every attribute of every module of torch, and of every class in them, by identity.\"\"\"
        found = {}
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] != "torch" or not isinstance(module, types.ModuleType):
                continue
            for key, value in list(vars(module).items()):
                if isinstance(value, types.ModuleType) or key in ("__warningregistry__", "_marked_safe_globals_set"):
                    continue
                found[f"{name}.{key}"] = id(value)
                if isinstance(value, type) and value.__module__.startswith("torch"):
                    for inner, member in list(vars(value).items()):
                        if callable(member) or isinstance(member, (property, classmethod, staticmethod)):
                            found[f"{name}.{key}.{inner}"] = id(member)
        return found


    def kernels():
        \"\"\"What the dispatcher and the Python dispatcher have for the operators of others.\"\"\"
        found = {}
        for name in torch._C._dispatch_get_all_op_names():
            space, _, rest = name.partition("::")
            if space in OURS:
                continue
            found[name] = torch._C._dispatch_dump(name)
            packet, _, overload = rest.partition(".")
            try:
                operator = getattr(getattr(getattr(torch.ops, space), packet), overload or "default")
            except (AttributeError, RuntimeError):
                continue
            found[name, "py"] = {str(key): id(kernel) for key, kernel in operator.py_kernels.items()}
        return found


    def changed(before, after):
        return sorted(str(key) for key in before if after.get(key) != before[key])


    safe = torch.serialization.get_safe_globals()
    was = attributes(), kernels()
    import zeropoint
    for module in pkgutil.walk_packages(zeropoint.__path__, "zeropoint."):
        others = ("zeropoint.compat", "zeropoint.interop", "zeropoint.integrations")
        if not module.name.startswith(others) and "__main__" not in module.name:
            importlib.import_module(module.name)
    now = attributes(), kernels()
    difference = changed(was[0], now[0]) + changed(was[1], now[1])
    added = sorted(set(map(str, now[1])) - set(map(str, was[1])))
    safe = [f for f in torch.serialization.get_safe_globals() if f not in safe]
    functions = [f[0] if isinstance(f, tuple) else f for f in safe]
    safe = [f for f in functions if "zeropoint" not in str(f.__module__) + str(getattr(f, "__code__", ""))]
    print(len(was[0]) > 10000, len(was[1]) > 1000, difference, added, safe)
    """
)


def test_importing_every_module_leaves_torch_as_it_was() -> None:
    ran = run_forked(PROGRAM, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "True True [] [] []"
