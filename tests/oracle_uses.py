"""Which tests use PyTorch's own quantization, as the oracle: found in their source, so that no mark is forgotten."""

from __future__ import annotations

import ast
import copy
import functools
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
USES = re.compile(
    r"\btorch\.(ao|quantization|nn\.(quantized|qat|intrinsic|quantizable)|backends\.quantized|ops\.(quantized\w*|onednn))\b"
    r"|\btorch\.(qu?int\d+(x\d+)?|per_(tensor|channel)_\w+|_?quantize\w*|dequantize|_make_per_\w+|_empty_\w*|q_\w+|int_repr"
    r"|_?choose_qparams\w*|_?fake_quantize\w*|_?fused_moving_avg\w*|_saturate_weight_to_fp16|fbgemm_\w+)\b"
    r"|from torch import (ao|quantization|quantize\w*|qu?int\w+)\b"
)
_SPELLED = re.compile(rf"{USES.pattern}|import_module")
_HELPERS = {path.stem: path for path in ROOT.rglob("*.py") if not path.stem.startswith("test_")}


def _names(node: ast.AST) -> set[str]:
    """Names that stand in the code, and those of arguments, which may be fixtures."""
    return {n.id if isinstance(n, ast.Name) else n.arg for n in ast.walk(node) if isinstance(n, (ast.Name, ast.arg))}


class _WithoutWords(ast.NodeTransformer):
    """Code without docstrings, and without strings of one word, which may be names; longer ones may be programs."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.Pass() if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        is_word = isinstance(node.value, str) and not any(c.isspace() for c in node.value)
        return ast.Constant("") if is_word else node


def _uses(node: ast.AST, lines: list[str]) -> bool:
    if not isinstance(node, (ast.Import, ast.ImportFrom)):  # whose names may be on lines of their own
        first = min(part.lineno for part in (node, *getattr(node, "decorator_list", ())))
        if not _SPELLED.search("\n".join(lines[first - 1 : node.end_lineno])):
            return False  # most: quickly, as every test session asks for all of them
    is_table = isinstance(node, ast.Assign)  # of names that something looks up
    code = ast.unparse(node if is_table else _WithoutWords().visit(copy.deepcopy(node)))
    return bool(_SPELLED.search(code))


@functools.cache
def oracle_names(path: Path) -> frozenset[str]:
    """Names of a module that use PyTorch's quantization, in themselves or through others; "*": importing it does."""
    defined: dict[str, list[ast.AST]] = {}
    tainted: set[str] = set()
    source = path.read_text()
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            helper = _HELPERS.get(getattr(node, "module", None) or "")
            theirs = oracle_names(helper) if helper is not None and helper != path else frozenset()
            tainted |= (theirs & {"*"}) | {a.asname or a.name for a in node.names if a.name in theirs}
            on_import: list[ast.AST] = [node]
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined.setdefault(node.name, []).append(node)
            on_import = list(node.decorator_list)
        else:
            for name in _names(node) if isinstance(node, ast.Assign) else ():
                defined.setdefault(name, []).append(node)
            on_import = [node]
        if any(_uses(part, lines) for part in on_import):
            tainted.add("*")
    users = {node for node in set().union(*defined.values()) if _uses(node, lines)}  # a table has many names
    tainted |= {name for name, nodes in defined.items() if not users.isdisjoint(nodes)}
    uses = {name: set().union(*map(_names, nodes)) for name, nodes in defined.items() if name not in tainted}
    while more := {name for name, used in uses.items() if name not in tainted and used & tainted}:
        tainted |= more
    return frozenset(tainted)


def mark_oracle(items: Iterable[pytest.Item]) -> None:
    """Mark the tests that use PyTorch's quantization: `make test-future` leaves them out."""
    for item in items:
        names = {"*", getattr(item, "originalname", item.name), getattr(getattr(item, "cls", None), "__name__", "")}
        if names & oracle_names(item.path):
            item.add_marker("oracle")
