"""Source code with the old names, rewritten to zeropoint's own: what `zeropoint migrate` does.

The table of `zeropoint.compat.names` says what each name is called now. Imports and dotted names are rewritten; all
else of the file, its layout and its comments, stays. What has no counterpart is left as it is and named with its line.
"""

from __future__ import annotations

import ast
import difflib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libcst as cst
import libcst.helpers
from libcst import metadata
from libcst.codemod import CodemodContext
from libcst.codemod.visitors import AddImportsVisitor

from zeropoint.compat import lookup, names
from zeropoint.regular_file import require_regular

_OPERATORS, _DECOMPOSED = "torch.ops.quantized", "torch.ops.quantized_decomposed"
_DEEPEST = 400  # parts of an expression inside each other
# Settings of the old stack that mean nothing to zeropoint, and are gone with it.
_SETTINGS = {"torch.backends.quantized.engine": "there is one set of kernels: take this line out"}


@dataclass(frozen=True)
class Finding:
    """A line that stays as it is, and why."""

    line: int
    name: str
    reason: str


@dataclass(frozen=True)
class Migrated:
    """A file before and after."""

    path: str
    before: str
    after: str
    left: tuple[Finding, ...]

    def diff(self) -> str:
        """What changes, as a unified diff; "" if nothing does."""
        lines = self.before.splitlines(keepends=True), self.after.splitlines(keepends=True)
        return "".join(difflib.unified_diff(*lines, fromfile=self.path, tofile=self.path))


def python_files(path: Path) -> Iterator[Path]:
    """The file itself, or the Python files below a directory, hidden ones excepted."""
    if not path.is_dir():
        require_regular(path)
        yield path
        return
    for found in sorted(path.rglob("*.py")):
        if found.is_file() and not any(part.startswith(".") for part in found.relative_to(path).parts):
            yield found


def migrate(source: str, path: str = "<source>") -> Migrated:
    """Rewrite the old names in a source file.

    Raises:
        ValueError: if it is not Python, or nested too deeply.

    Example:
        >>> print(migrate("from torch.ao.quantization import prepare\\nprepare(model)").after)
        from zeropoint import prepare
        prepare(model)
    """
    _require_shallow(source, path)
    try:
        wrapper = metadata.MetadataWrapper(cst.parse_module(source))
        context = CodemodContext(wrapper=wrapper)
        rewriting = _Rewriting(context)
        changed = wrapper.visit(rewriting)
        after = AddImportsVisitor(context).transform_module(changed).code
    except cst.ParserSyntaxError as error:
        raise _not_python(path, error.raw_line) from None
    except RecursionError:
        raise _too_deep(path) from None
    left = sorted(rewriting.left, key=lambda finding: finding.line)
    return Migrated(path, source, after, tuple(left))


def _require_shallow(source: str, path: str) -> None:
    """Refuse code that libcst would end the process for. Python's own parser counts how deep it goes."""
    try:
        layer: list[ast.AST] = [ast.parse(source)]
    except (RecursionError, MemoryError):
        raise _too_deep(path) from None
    except (SyntaxError, ValueError) as error:  # the latter for null bytes
        raise _too_deep(path) if "too many" in str(error) else _not_python(path, getattr(error, "lineno", 1)) from None
    for _ in range(_DEEPEST):
        # What Python has side by side, libcst has inside each other.
        if any(isinstance(node, ast.BoolOp) and len(node.values) > _DEEPEST for node in layer):
            break
        layer = [part for node in layer for part in ast.iter_child_nodes(node)]
        if not layer:
            return
    raise _too_deep(path)


def _too_deep(path: str) -> ValueError:
    return ValueError(f"{path} cannot be rewritten: an expression in it is nested too deeply. Split it into parts")


def _not_python(path: str, line: int | None) -> ValueError:
    return ValueError(f"{path} cannot be parsed as Python: fix the syntax of line {line}")


def _counterpart(qualified: str) -> lookup.Counterpart | None:
    """What a full name is now; None for a name that is not of the old stack, or that the table does not have."""
    module, _, name = qualified.rpartition(".")
    if module == "torch":
        return _TORCH.get(name)
    if module == _OPERATORS:
        return _QUANTIZED.get(name)
    if module == _DECOMPOSED and name in names.DECOMPOSED.split():
        return lookup.Counterpart(f"torch.ops.zeropoint.{name}")
    if module in _MODULES:
        return lookup.reachable_from(module).get(name)
    return None


_TORCH = {**dict(lookup.entries(names.FUNCTIONS)), **dict(lookup.entries(names.VALUES))}
_QUANTIZED = dict(lookup.entries(names.OPERATORS))
_MODULES = {path for path in lookup.old_modules() if path not in names.CONTAINERS}


def _is_old(qualified: str) -> bool:
    return any(qualified == m or qualified.startswith(m + ".") for m in (*_MODULES, _OPERATORS, _DECOMPOSED))


def _dotted(node: Any) -> str:
    return cst.helpers.get_full_name_for_node(node) or ""


class _Rewriting(cst.CSTTransformer):
    """Finds all uses in a pass of its own, as imports stand before them, then replaces both."""

    METADATA_DEPENDENCIES = (metadata.QualifiedNameProvider, metadata.PositionProvider)

    def __init__(self, context: CodemodContext) -> None:
        super().__init__()
        self._context = context
        self._replacements: dict[cst.CSTNode, str] = {}
        self._imports: set[str] = set()
        self._kept: set[str] = set()  # old modules and names that are still used under their old name
        self.left: list[Finding] = []

    # ------------------------------------------------------------------------------------------------------------- uses

    def _qualified(self, node: cst.CSTNode) -> str | None:
        found = self.get_metadata(metadata.QualifiedNameProvider, node, set())
        imported = [n.name for n in found if n.source is metadata.QualifiedNameSource.IMPORT]
        return imported[0] if len(imported) == 1 else None

    def _leave_alone(self, node: cst.CSTNode, name: str, reason: str) -> None:
        line = self.get_metadata(metadata.PositionProvider, node).start.line
        self.left.append(Finding(line, name, reason))

    def attribute(self, node: cst.Attribute) -> bool:
        """Decide on a dotted name; whether its parts are to be looked at."""
        qualified = self._qualified(node)
        if qualified is None:
            return True
        if qualified in _SETTINGS:
            self._leave_alone(node, qualified, _SETTINGS[qualified])
            return False
        found = _counterpart(qualified)
        if found is None:
            return not self._is_unknown(node, qualified)
        if found.path is None:
            self._leave_alone(node, qualified, found.reason)
            self._kept.add(qualified)
        else:
            self._replacements[node] = found.path
            self._imports.add(_module_of(found.path))
        return False

    def _is_unknown(self, node: cst.Attribute, qualified: str) -> bool:
        """Whether a name of an old module is in no table; its parts would not be, either."""
        module, _, name = qualified.rpartition(".")
        if module not in _MODULES or qualified in _MODULES:
            return False
        reason = next((r for path, r in names.GONE.items() if lookup.current_path(module).startswith(path)), None)
        self._leave_alone(node, qualified, reason or f"zeropoint has no {name} there")
        self._kept.add(qualified)
        return True

    def name(self, node: cst.Name) -> None:
        """Decide on a name that stands alone."""
        qualified = self._qualified(node)
        if qualified in _MODULES:
            self._leave_alone(node, qualified, "a whole module is passed on, and its names are in several places now")
            self._kept.add(qualified)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        path = self._replacements.get(original_node)
        return updated_node if path is None else cst.parse_expression(path)

    # ---------------------------------------------------------------------------------------------------------- imports

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> Any:
        module = _dotted(original_node.module) if original_node.module else ""
        if original_node.relative or not (_is_old(module) or module in (*names.CONTAINERS, "torch", "torch.nn")):
            return updated_node
        if isinstance(original_node.names, cst.ImportStar):
            if module in _MODULES:
                self._leave_alone(original_node, f"{module}.*", "it is unknown which names this brings: list them")
            return updated_node
        kept, moved = [], defaultdict(list)
        for alias in original_node.names:
            name = _dotted(alias.name)
            found = _counterpart(f"{module}.{name}")
            if f"{module}.{name}" in _MODULES and (found is None or not found.path):
                if any(used.startswith(f"{module}.{name}") for used in self._kept):
                    kept.append(alias)
                continue  # a module: its uses were rewritten
            if found is None or not found.path:
                if _is_old(module):
                    reason = found.reason if found else f"zeropoint has no {name} there"
                    self._leave_alone(original_node, f"{module}.{name}", reason)
                kept.append(alias)
                continue
            ours = found.path.rpartition(".")[2]
            renamed = alias.with_changes(name=cst.Name(ours))
            if ours != name and alias.asname is None:  # the code goes on with the old name
                renamed = renamed.with_changes(asname=cst.AsName(cst.Name(name)))
            moved[_module_of(found.path)].append(renamed)
        if not moved and len(kept) == len(original_node.names):
            return updated_node
        made = [_from(where, aliases) for where, aliases in sorted(moved.items())]
        if kept:
            made.insert(0, updated_node.with_changes(names=_commas(kept)))
        return cst.FlattenSentinel(made) if made else cst.RemoveFromParent()

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> Any:
        kept = []
        for alias in original_node.names:
            module = _dotted(alias.name)
            is_used = any(used == module or used.startswith(module + ".") for used in self._kept)
            if module not in _MODULES or is_used:
                kept.append(alias)
        if len(kept) == len(original_node.names):
            return updated_node
        if not kept and not any(alias.asname for alias in original_node.names):
            # ``import torch.ao.quantization`` also gave the name torch.
            return updated_node.with_changes(names=[cst.ImportAlias(cst.Name("torch"))])
        return updated_node.with_changes(names=_commas(kept)) if kept else cst.RemoveFromParent()

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> Any:
        if len(updated_node.body) <= len(original_node.body):
            return updated_node
        first, *others = updated_node.body  # one import became several: a line for each
        lines = [cst.SimpleStatementLine([other]) for other in others]
        return cst.FlattenSentinel([updated_node.with_changes(body=[first]), *lines])

    def visit_Module(self, node: cst.Module) -> bool:
        node.visit(_Uses(self))
        return True

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        for module in sorted(self._imports):
            AddImportsVisitor.add_needed_import(self._context, module)
        return updated_node


class _Uses(cst.CSTVisitor):
    """Finds what is still used under its old name, before the imports are rewritten."""

    def __init__(self, rewriting: _Rewriting) -> None:
        super().__init__()
        self._rewriting = rewriting

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        return self._rewriting.attribute(node)

    def visit_Name(self, node: cst.Name) -> None:
        self._rewriting.name(node)


def _module_of(path: str) -> str:
    module = path.rpartition(".")[0]
    return "torch" if module.startswith("torch.") else module


def _from(module: str, aliases: list[cst.ImportAlias]) -> cst.ImportFrom:
    parsed = cst.parse_statement(f"from {module} import x")
    statement = cst.ensure_type(cst.ensure_type(parsed, cst.SimpleStatementLine).body[0], cst.ImportFrom)
    return statement.with_changes(names=_commas(aliases))


def _commas(aliases: list[cst.ImportAlias]) -> list[cst.ImportAlias]:
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    return [
        *(alias.with_changes(comma=comma) for alias in aliases[:-1]),
        aliases[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT),
    ]
