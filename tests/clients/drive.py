"""One client in one way, in a process of its own: ``python tests/clients/drive.py easyocr compat result.pt``.

The ways are "stock", "compat" and "removed": `zeropoint.compat` on a PyTorch that has lost quantization. A client is a
module beside this one with `PACKAGES`, what pip installs for it, and `CASES`: name -> a function that drives the
package's own entry points and gives the model they made and a function that runs it. `INT8` counts what is int8 in
a model, where that is no module of torch.ao. What is written is plain data.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WAYS = ("stock", "compat", "removed")


def _prepare(way: str) -> None:
    if way == "removed":
        sys.path.insert(0, str(HERE.parent / "future"))
        importlib.import_module("removal").remove()
    if way != "stock":
        importlib.import_module("zeropoint.compat").install()
    _stand_in_for_torchvision()


def _stand_in_for_torchvision() -> None:
    """torchvision's library is for another build of torch; its Python code wants these operators to be there."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _KEPT.append(library)


_KEPT: list[Any] = []


def int8_modules(model: Any) -> int:
    """How many modules compute with integers. What such a module consists of is not counted again."""
    kind = type(model)
    if "quantized" in kind.__module__:
        return kind.__name__ not in _NOT_LAYERS
    return sum(int8_modules(child) for child in model.children())


_NOT_LAYERS = ("Quantize", "DeQuantize", "QFunctional", "FloatFunctional", "FXFloatFunctional")


def _tensors(value: Any) -> list[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        return [value.detach().dequantize() if value.is_quantized else value.detach().clone()]
    if isinstance(value, dict):
        return [t for part in value.values() for t in _tensors(part)]
    if isinstance(value, (list, tuple)):
        return [t for part in value for t in _tensors(part)]
    return []


def _run(make: Any, count: Any) -> dict[str, Any]:
    import torch

    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model, run = make()
            with torch.no_grad():
                outputs = _tensors(run())
            found: dict[str, Any] = {
                "int8": count(model), "outputs": outputs,
                "keys": sorted(model.state_dict()),
            }  # fmt: skip
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
    found["warnings"] = sorted({str(w.message) for w in caught if "zeropoint" in w.filename})
    return found


def main(client: str, way: str, path: str) -> None:
    _prepare(way)
    import torch

    torch.set_num_threads(1)
    try:
        spec: Any = importlib.util.spec_from_file_location(f"client_{client}", HERE / f"{client}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        torch.save({"import": {"error": text, "traceback": traceback.format_exc(), "warnings": []}}, path)
        return
    count = getattr(module, "INT8", int8_modules)
    torch.save({name: _run(make, count) for name, make in module.CASES.items()}, path)


if __name__ == "__main__":
    sys.path.remove(str(HERE))  # the clients there have the names of their packages
    main(*sys.argv[1:])
