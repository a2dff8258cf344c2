"""Which tests use PyTorch's own quantization, as the oracle: found in their source, so that no mark is forgotten."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parent
USES = re.compile(
    r"\btorch\.(ao|quantization|nn\.(quantized|qat|intrinsic|quantizable)|backends\.quantized|ops\.(quantized\w*|onednn))\b"
    r"|\btorch\.(qu?int\d+(x\d+)?|per_(tensor|channel)_\w+|_?quantize\w*|dequantize|_make_per_\w+|_empty_\w*|q_\w+|int_repr"
    r"|_?choose_qparams\w*|_?fake_quantize\w*|_?fused_moving_avg\w*|_saturate_weight_to_fp16|fbgemm_\w+)\b"
)
_HELPERS = {path.stem: path for path in ROOT.rglob("*.py") if not path.stem.startswith("test_")}


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


@functools.cache
def oracle_names(path: Path) -> frozenset[str]:
    """The names of a module that use PyTorch's quantization, by themselves or through others; "*" if importing it does."""
    defined: dict[str, list[ast.AST]] = {}
    tainted: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            if USES.search(ast.unparse(node)) or re.search(
                r"from torch\.?(ao|quantization| import ao)", ast.unparse(node)
            ):
                tainted.add("*")
            helper = _HELPERS.get(getattr(node, "module", None) or "")
            if helper is not None and helper != path:
                theirs = oracle_names(helper)
                tainted |= theirs & {"*"} | {a.asname or a.name for a in node.names if a.name in theirs}
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node]
        for target in targets:
            for name in _names(target) if isinstance(node, ast.Assign) else {getattr(node, "name", "")}:
                defined.setdefault(name, []).append(node)
        if isinstance(node, (ast.Assign, ast.Expr, ast.For)) and USES.search(ast.unparse(node)):
            tainted.add("*")  # it runs on import
    tainted |= {name for name, nodes in defined.items() if any(USES.search(ast.unparse(n)) for n in nodes)}
    while more := {
        name
        for name, nodes in defined.items()
        if name not in tainted
        and any((_names(n) | {a.arg for a in ast.walk(n) if isinstance(a, ast.arg)}) & tainted for n in nodes)
    }:
        tainted |= more
    return frozenset(tainted)
