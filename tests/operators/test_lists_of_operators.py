"""Lists of operators follow from the records: outside `operators/` a list of three or more has a reason to be there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zeropoint
from zeropoint.operators import module_forms, operators

PACKAGE = Path(zeropoint.__file__).parent
MOST = 2  # operators in one literal that need no reason

# Where a literal names more operators, and why that is no fact of a record.
REASONS = {
    "graph/expressions.py: ARITHMETIC": "arithmetic that changes scale and zero point, if one operand is a number",
    "graph/policy.py: _CONDITIONS": "what computes a condition of one tensor: a fact of this policy",
    "graph/policy.py: _LAST": "what costs little on the results of a model: a fact of this policy",
    "graph/passes/fold_affine.py: _FOLDED": "arithmetic that weights and biases of a layer can take over",
    "accuracy/cross_layer.py: _LAYERS": "layers whose channels the algorithm can scale",
    "accuracy/cross_layer.py: _CUTS": "what a positive factor passes through: mathematics of this algorithm",
    "accuracy/cross_layer.py: _SCALES": "what a positive factor passes through: mathematics of this algorithm",
    "accuracy/equalize.py: _LAYERS": "the layers that torch.ao's function of the same name takes",
    "accuracy/smoothing.py: _LAYERS": "layers whose channels the algorithm can scale",
    "compat/script.py: _OPERATORS": "the schemas of an API that does not change any more",
    "compiler/attention.py: _IN_ORDER": "steps that copy in the order of axes: a fact of memory",
    "compiler/early_quantize.py: _VIEWS": "steps that move values without reading them: a fact of memory",
    "compiler/float_stages.py: _FUNCTIONS": "the functions that a native kernel has",
    "compiler/fusion.py: FUSIONS": "steps of programs, which are not operators",
    "compiler/sizes.py: CALCULATIONS": "arithmetic on sizes, not on tensors",
    "compat/fx/backends.py: _EXECUTORCH": "what another runtime observes",
    "compat/fx/backends.py: get_onednn_backend_config": "one pattern of one backend",
    "compat/fx/functions.py: _OTHERS": "what graphs of torch.ao call, by the names of torch.ops.quantized",
    "compat/fx/scriptable.py: _OTHERS": "functions of this file, by the name of what each calls",
    "compat/fx/non_tensors.py: _PLAIN": "which arguments of a method torch.ao does not observe",
    "graph/frontends/export_recurrent.py: _ONE_STATE": "what torch.export would take apart, by PyTorch's names",
    "graph/passes/canonicalize.py: SHAPES": "what ATen's views do with memory",
    "graph/passes/canonicalize.py: COPIES": "what ATen's views do with memory",
    "graph/passes/canonicalize.py: _ORDERS": "what ATen's views do with memory",
    "graph/passes/canonicalize.py: REWRITTEN": "functions of this file, by the spelling that each rewrites",
    "graph/passes/canonicalize.py: _drop_other_names": "what ATen's views do with memory",
    "graph/passes/compositions/elements.py: <module>": "functions of floats, which PyTorch gives integers to",
    "graph/passes/decompose_complex.py: _ALIKE": "what acts on both parts of a complex number alike: mathematics",
    "graph/passes/decompose_complex.py: _READS": "the formulas of complex numbers",
    "graph/passes/decompose_scatter.py: _MODES": "modes of one operator",
    "graph/passes/fold_linear.py: _PRODUCTS": "the spellings of a linear layer that this pass reads",
    "graph/passes/fold_linear.py: _TRANSPOSED": "the spellings of a transposed weight that this pass reads",
    "graph/passes/fuse_norms.py: _same": "the calls inside a norm in parts that this pass looks through",
    "graph/passes/qconfig_rules.py: _OTHER_NAMES": "what PyTorch and Python call one call of ATen",
    "graph/policy.py: _WIDE": "a choice of the policy, which users may change",
    "graph/policy.py: _BETWEEN": "a choice of the policy, which users may change",
    "graph/policy.py: _HANDS_ON": "what stands between the parts of attention",
    "graph/policy.py: _SCORES": "what stands between the parts of attention",
    "graph/policy.py: _CHOOSES": "what tells which values it takes: a meaning that no record needs",
    "graph/policy.py: _DECIDES": "what stands between a layer and a choice",
    "interop/onnx/sizes.py: _CALCULATIONS": "arithmetic on sizes, not on tensors",
    "interop/torch_ao.py: dynamic": "what torch.ao's dynamic mode is asked for in benchmarks",
    "nn/intrinsic/qat/batch_norm.py: _RELUS": "classes of modules; the records are made of them",
    "nn/quantized/embedding.py: _MODES": "modes of one operator",
    "compat/numeric_suite/graph/matching.py: _chains": "one chain that torch.ao's numeric suite takes for a layer",
    "compat/numeric_suite/graph/related.py: _RELATED_TOO": "what torch.ao's numeric suite relates too",
    "compat/numeric_suite/graph/related.py: io_types": "what torch.ao's numeric suite relates too",
    "compat/numeric_suite/graph/related.py: related_sets": "what torch.ao's numeric suite does not relate",
    "compat/numeric_suite/graph/related.py: _MOVING": "methods that torch.ao's numeric suite does not log",
    "numerics/functions.py: FUNCTIONS": "the formulas; operators and records are made of them",
    "ops/float_maps.py: UNARY": "the functions that a native kernel has",
    "ops/float_maps.py: BINARY": "the functions that a native kernel has",
    "tensor/compare.py: <module>": "the methods that this file gives to quantized tensors",
    "tensor/elementwise.py: FIXED_QPARAMS": "what quantized tensors give; compared with the records in test_records.py",
    "tensor/qtensor.py: <module>": "the methods that this file gives to quantized tensors",
}
TABLES = {"compat/names.py": "names of an API that does not change any more, with the place of each here"}


def names_of_records() -> dict[str, str]:
    """Everything that names an operator -> the record; functions by their names, overloads with and without theirs."""
    found: dict[str, str] = {}
    for record in operators():
        spelled = {record.name, *record.aten, *record.called, *(module.__name__ for module in record.modules)}
        found |= dict.fromkeys(spelled, record.name)
    return found | {forms.module.__name__: record.name for record, forms in module_forms()}


NAMES = names_of_records()


def named(node: ast.AST | None) -> Iterator[str]:
    """The operators that an element of a literal names."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        for word in node.value.split():
            for spelled in (word, word.removeprefix("aten."), word.rstrip("_"), word.removesuffix("_relu")):
                if spelled in NAMES:
                    yield NAMES[spelled]
                    break
    elif isinstance(node, ast.Attribute):
        root, *path = ast.unparse(node).split(".")
        if root in ("F", "nn", "torch", "aten", "operator", "python"):
            yield from (NAMES[part] for part in path if part in NAMES)
    elif isinstance(node, ast.Tuple):
        for part in node.elts:
            yield from named(part)


def listed(tree: ast.Module) -> Iterator[tuple[str, ast.AST, set[str]]]:
    """Literals with several elements: what they belong to, and the operators that they name."""
    for statement in tree.body:
        targets: list[Any] = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
        target = None if isinstance(statement, ast.For) else getattr(targets[0], "id", None)
        owner: str = target or getattr(statement, "name", "<module>")
        if owner == "__all__":
            continue
        for node in ast.walk(statement):
            parts: list[Any] = getattr(node, "elts", []) or (node.keys if isinstance(node, ast.Dict) else [])
            if isinstance(node, ast.Constant) and len(str(node.value).split()) < 40 and "\n" not in str(node.value):
                parts = [node] if isinstance(statement, (ast.Assign, ast.AnnAssign)) else []
            yield owner, node, {name for part in parts for name in named(part)}


def found_lists() -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        if relative.parts[0] == "operators" or relative.as_posix() in TABLES:
            continue
        for owner, node, names in listed(ast.parse(path.read_text())):
            if len(names) > MOST:
                at = f"{relative.as_posix()}: {owner}"
                found[at] = f"line {getattr(node, 'lineno', 0)}: {', '.join(sorted(names))}"
    return found


def test_lists_of_operators_follow_from_the_records() -> None:
    new = {at: what for at, what in found_lists().items() if at not in REASONS}
    assert not new, f"derive these from zeropoint.operators, or say in REASONS why no record has the fact: {new}"


def test_reasons_are_for_lists_that_exist() -> None:
    assert not REASONS.keys() - found_lists().keys()
    assert all((PACKAGE / path).is_file() for path in TABLES)


def test_a_list_is_found_however_it_is_spelled() -> None:
    for text in (
        "X = (nn.Conv2d, nn.Linear, nn.LSTM)",
        "X = {F.relu: 1, torch.sigmoid: 2, operator.add: 3}",
        'X: set[str] = frozenset(("relu", "conv2d.default", "mean"))',
        'X = "relu conv2d mean"',
        'def f(x): return x in {"relu", "sigmoid_", "aten.mean.dim"}',
    ):
        assert any(len(names) > MOST for _, _, names in listed(ast.parse(text))), text
    for text in ("X = (nn.ReLU, F.relu, torch.relu)", '__all__ = ["relu", "sigmoid", "mean"]', "X = (1, 2, 3)"):
        assert not any(len(names) > MOST for _, _, names in listed(ast.parse(text))), text
