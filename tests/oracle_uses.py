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
    r"|\btorchao\b"  # imports torch.ao
    r"|from torch import (ao|quantization|quantize\w*|qu?int\w+)\b"
)
# Tests of what stands in files: the names they look for are text.
_TEXT = {"test_repo_rules.py"}
_HELPERS = {path.stem: path for path in ROOT.rglob("*.py") if not path.stem.startswith("test_")}


def _names(node: ast.AST) -> set[str]:
    """Names that stand in the code, and those of arguments, which may be fixtures."""
    found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return found | {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}


class _WithoutWords(ast.NodeTransformer):
    """Code without docstrings, and without strings of one word, which may be names; longer ones may be programs."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.Pass() if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        is_word = isinstance(node.value, str) and not any(c.isspace() for c in node.value)
        return ast.Constant("") if is_word else node


def _uses(node: ast.AST, lines: list[str] | None = None) -> bool:
    """Whether code uses it; `lines` are those of its file, in which most code is found not to, quickly."""
    if lines is not None:
        first = min(part.lineno for part in (node, *getattr(node, "decorator_list", ())))
        if not USES.search("\n".join(lines[first - 1 : node.end_lineno])):
            return False
    is_table = isinstance(node, (ast.Assign, ast.AnnAssign))  # of names that something looks up
    return bool(USES.search(ast.unparse(node if is_table else _WithoutWords().visit(copy.deepcopy(node)))))


def _imported(node: ast.Import | ast.ImportFrom, path: Path) -> set[str]:
    """The names that an import binds to PyTorch's quantization, or to what a helper makes of it."""
    helper = _HELPERS.get(getattr(node, "module", None) or "")
    theirs = oracle_names(helper) if helper is not None and helper != path else frozenset()
    bound = {alias.asname or alias.name.partition(".")[0]: alias for alias in node.names}
    uses = {name for name, alias in bound.items() if _uses(_alone(node, alias)) and name != "torch"}
    return uses | {name for name, alias in bound.items() if alias.name in theirs}


def _alone(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> ast.AST:
    return ast.Import([alias]) if isinstance(node, ast.Import) else ast.ImportFrom(node.module, [alias], node.level)


def _targets(node: ast.AST) -> set[str]:
    """The names that a statement of a module sets or changes."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return set().union(*(_names(t) for t in getattr(node, "targets", None) or [node.target]))  # type: ignore[union-attr]
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


@functools.cache
def oracle_names(path: Path) -> frozenset[str]:
    """Names of a module that use PyTorch's quantization, in themselves or through others."""
    if path.name in _TEXT:
        return frozenset()
    defined: dict[str, list[ast.AST]] = {}
    tainted: set[str] = set()
    source = path.read_text()
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            tainted |= _imported(node, path)
        for name in _targets(node):
            defined.setdefault(name, []).append(node)
    users = {node for node in set().union(*defined.values()) if _uses(node, lines)}  # a table has many names
    tainted |= {name for name, nodes in defined.items() if not users.isdisjoint(nodes)}
    uses = {name: set().union(*map(_names, nodes)) for name, nodes in defined.items() if name not in tainted}
    while more := {name for name, used in uses.items() if name not in tainted and used & tainted}:
        tainted |= more
    return frozenset(tainted)


def mark_oracle(items: Iterable[pytest.Item]) -> None:
    """Mark the tests that use PyTorch's quantization: `make test-future` leaves them out."""
    for item in items:
        names = {getattr(item, "originalname", item.name), getattr(getattr(item, "cls", None), "__name__", "")}
        if names & oracle_names(item.path):
            item.add_marker("oracle")
