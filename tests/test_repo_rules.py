"""The rules of CONTRIBUTING.md that a machine can check. Code is read as syntax, so prose may name anything."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import zeropoint

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "zeropoint"
MODULES = sorted(PACKAGE.rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def project_files() -> list[Path]:
    """Every file git tracks or would track."""
    # safe.directory: CI may check out as one user and test as another.
    command = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / line for line in listed.splitlines() if (ROOT / line).is_file()]


def lines_matching(pattern: str) -> list[str]:
    found = []
    for path in project_files():
        data = path.read_bytes()
        if b"\0" in data:  # a picture
            continue
        text = data.decode("utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(pattern, line):
                found.append(f"{relative(path)}:{number}: {line.strip()}")
    return found


# ----------------------------------------------------------------------------------------------------- independence

# Dotted names of PyTorch's own quantization; each stands for everything under it.
DEPRECATED_MODULES = (
    "torch.ao",
    "torch.quantization",
    "torch.nn.intrinsic",
    "torch.nn.qat",
    "torch.nn.quantizable",
    "torch.nn.quantized",
    "torch.ops.onednn",
)
DEPRECATED_NAMES = re.compile(
    r"torch\.(ops\.quantized\w*|qscheme|(Tensor|_C\.TensorBase)\.(q_\w+|qscheme|int_repr|dequantize)"
    r"|ops\.aten\.(q_(scale|zero_point|per)\w*|qscheme|int_repr|_?empty_\w*quantized\w*|_make_per_\w+|_?de?quantize\w*"
    r"|quantize\w*|_?fake_quantize\w*|_?choose_qparams\w*|_?fused_moving_avg\w*)"
    r"|q(int8|uint8|int32|uint4x2|uint2x4)"
    r"|quantize_per_\w+|quantized_\w+|_?fake_quantize_\w+|_?choose_qparams_\w+|dequantize|per_(tensor|channel)_\w+)(\.|$)"
)


def is_deprecated(name: str) -> bool:
    return any(name == m or name.startswith(m + ".") for m in DEPRECATED_MODULES) or bool(DEPRECATED_NAMES.match(name))


def imported(tree: ast.AST, package: str) -> Iterator[tuple[ast.stmt, str, str]]:
    """(statement, local name, absolute dotted name) of every import; `package` is what relative ones start from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.asname or alias.name.split(".")[0], alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node, alias.asname or alias.name, f"{base}.{alias.name}"


def dotted(node: ast.AST) -> str | None:
    """``a.b.c`` for a chain of attributes, and for getattr(a.b, "c")."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted(node.value)):
        return f"{base}.{node.attr}"
    if isinstance(node, ast.Call) and len(node.args) > 1 and dotted(node.func) == "getattr":
        base, name = dotted(node.args[0]), node.args[1]
        if base and isinstance(name, ast.Constant):
            return f"{base}.{name.value}"
    return None


def deprecated_uses(source: str, package: str = "zeropoint") -> list[str]:
    """``line: name`` of every use of PyTorch's quantization."""
    tree = ast.parse(source)
    uses, local = [], {}
    for node, name, absolute in imported(tree, package):
        uses.append((node.lineno, absolute))
        # `import a.b` binds a; `import a.b as c` and `from a import b` bind the whole name.
        local[name] = absolute.split(".")[0] if absolute.startswith(name + ".") else absolute
    for node in tree.body:  # `aten = torch.ops.aten`
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and (chain := dotted(node.value)):
            head, *rest = chain.split(".")
            local[node.targets[0].id] = ".".join([local.get(head, head), *rest])
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (dotted(node.func) or "").endswith(("import_module", "__import__")):
            uses += [
                (node.lineno, a.value) for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)
            ]
        if chain := dotted(node):
            head, *rest = chain.split(".")
            uses.append((node.lineno, ".".join([local.get(head, head), *rest])))
    return sorted({f"{line}: {name}" for line, name in uses if is_deprecated(name)})


@pytest.mark.parametrize(
    "source",
    [
        "import torch.ao.quantization",
        "from torch import ao",
        "from torch.ao.nn import quantized",
        "import torch.nn as nn\nnn.quantized.Linear",
        "from torch.nn.intrinsic import qat",
        "import importlib\nimportlib.import_module('torch.quantization')",
        "import torch\ntorch.quint8",
        "import torch as t\nt.qint32",
        "from torch import quint4x2",
        "import torch\ngetattr(torch, 'quint2x4')",
        "import torch\ntorch.quantize_per_channel(x)",
        "import torch\ntorch._choose_qparams_per_tensor(x)",
        "import torch\ntorch.ops.quantized.linear",
        "import torch\ntorch.ops.quantized_decomposed.quantize_per_tensor.default(x)",
        "from torch import ops\nops.onednn.qlinear_pointwise",
        "import torch\naten = torch.ops.aten\naten.quantized_batch_norm.default",
        "import torch\ntorch.ops.aten.int_repr.default(q)",
        "import torch\ngetattr(torch.ops.aten, 'dequantize')",
        "import torch\ntorch.Tensor.q_scale(q)",
        "import torch\nisinstance(s, torch.qscheme)",
    ],
)
def test_the_checker_sees_a_use(source: str) -> None:
    assert deprecated_uses(source)


@pytest.mark.parametrize(
    "source",
    [
        '"""As torch.ao.quantization and torch.quint8 do."""',
        "import torch\ntorch.ops.zeropoint.quantize_per_tensor(x)",
        "import torch\ntorch.int8, torch.permute, torch.float8_e4m3fn",
        "from zeropoint.numerics.dtypes import quint8",
        "import torch\n'torch.qint8'",
    ],
)
def test_the_checker_leaves_the_rest_alone(source: str) -> None:
    assert not deprecated_uses(source)


INDEPENDENT = [p for p in MODULES if p.relative_to(PACKAGE).parts[0] not in ("compat", "interop")]


@pytest.mark.parametrize("path", INDEPENDENT, ids=relative)
def test_module_does_not_use_pytorchs_quantization(path: Path) -> None:
    package = ".".join(path.relative_to(PACKAGE.parent).parent.parts)
    uses = deprecated_uses(path.read_text(), package)
    assert not uses, f"{relative(path)}: only compat/ and interop/ may use PyTorch's quantization; found {uses}"


# ------------------------------------------------------------------------------------------------------------ layers

# docs/architecture.md: a layer may import itself and those before it.
LAYERS = (
    "_native",
    "cpu",
    "progress",
    "atomic_file",
    "described",
    "mistakes",
    "terminal_text",
    "regular_file",
    "safetensors_header",
    "table",
    "html_table",
    "installation",
    "torch_versions",
    "context",
    "numerics",
    "ops",
    "tensor",
    "qfunctions",
    "observers",
    "fake_quant",
    "qconfig",
    "distributed",
    "nn",
    "operators",
    "qconfig_mapping",
    "qconfig_propagation",
    "graph",
    "eager",
    "runtime",
    "tokenizer_json",
    "generation",
    "sentence_encoder",
    "compiler",
    "interop",
    "comparison",
    "report",
    "accuracy",
    "integrations",
    "compat",
    "fx",
    "numeric_suite",
    "cli",
    "demo_digits",
    "demo_minilm",
    "demo_smollm2",
    "demo",
)


def layer_of(name: str) -> str | None:
    """The layer of an absolute name such as zeropoint.numerics.affine.quantize or zeropoint.qint8."""
    head, _, rest = name.partition(".")
    if head != "zeropoint" or not rest:
        return None
    first = rest.split(".")[0]
    return first if first in LAYERS else zeropoint._EXPORTS.get(first, first).split(".")[0]


def test_every_module_has_a_layer() -> None:
    found = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES} - {"__init__"}
    assert found <= set(LAYERS), f"give {found - set(LAYERS)} a place in LAYERS and in docs/architecture.md"


def test_layers_are_documented_in_their_order() -> None:
    table = (
        (ROOT / "docs" / "architecture.md").read_text().split("| layer | content |\n|---|---|\n")[1].split("\n\n")[0]
    )
    names = [n for row in table.splitlines() for n in re.findall(r"`([^`]+)`", row.split("|")[1])]
    documented = [n.removeprefix("src/zeropoint/").rstrip("/").removesuffix(".py") for n in names]
    assert documented == ["native", *LAYERS[1:]]


@pytest.mark.parametrize("path", [p for p in MODULES if p != PACKAGE / "__init__.py"], ids=relative)
def test_imports_go_one_way(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    package = ".".join(path.relative_to(PACKAGE.parent).parent.parts)
    for node, _, name in imported(ast.parse(path.read_text()), package):
        layer = layer_of(name)
        assert layer is None or LAYERS.index(layer) <= LAYERS.index(own), (
            f"{relative(path)}:{node.lineno}: {own} may not import {name}; layers go one way, see docs/architecture.md"
        )


# ---------------------------------------------------------------------------------------------------- native systems

# Where the code may differ between systems, compilers and instruction sets; the C header tells who includes it.
DIFFERS = ("native/cpu/", "native/kernels/simd/", "native/c_api/include/")


def test_conditional_compilation_has_its_places() -> None:
    conditions = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b.*", re.MULTILINE)
    found = {
        relative(path): lines
        for path in sorted((ROOT / "native").rglob("*"))
        if path.suffix in (".h", ".hpp", ".cpp", ".inc") and not relative(path).startswith(DIFFERS)
        if (lines := conditions.findall(path.read_text()))
    }
    assert not found, f"systems differ in native/cpu, instruction sets in native/kernels/simd; move {found}"


# ------------------------------------------------------------------------------------------------------------ import


def run_python(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_import_is_quiet() -> None:
    ran = run_python("import zeropoint; zeropoint.cpu_info()", "-W", "error")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_registering_the_operators_is_quiet() -> None:
    ran = run_python("import zeropoint.ops")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_torch_free_names_do_not_import_torch() -> None:
    ran = run_python(
        "import sys, zeropoint\n"
        "zeropoint.cpu_info(), zeropoint.get_num_threads(), zeropoint.use_isa\n"
        "zeropoint.qint8, zeropoint.quint4x2, zeropoint.per_tensor_affine, zeropoint.QScheme\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    assert ran.returncode == 0, ran.stderr


def test_without_torch_what_needs_it_says_so_in_one_sentence() -> None:
    ran = run_python(
        "import sys\n"
        "sys.modules['torch'] = None  # importing torch now raises ModuleNotFoundError\n"
        "import zeropoint\n"
        "print(zeropoint.qint8.qmax)\n"
        "for name in ('ops', 'choose_qparams', 'fake_quantize_per_tensor_affine'):\n"
        "    try:\n"
        "        getattr(zeropoint, name)\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "127",
        "zeropoint.ops needs PyTorch: pip install 'torch>=2.6'",
        "zeropoint.choose_qparams needs PyTorch: pip install 'torch>=2.6'",
        "zeropoint.fake_quantize_per_tensor_affine needs PyTorch: pip install 'torch>=2.6'",
    ]


# ------------------------------------------------------------------------------------------------------------- files

# A path of somebody's machine, not part of a URL or of a longer path. The bare temporary directory is everywhere.
MACHINE_PATH = r"(?<![\w.~/}\-])/(?:(?:work|root|home|Users|mnt|scratch)\b|tmp/\w)"
# Where packages come from is the machine's business (pip's configuration), not the project's.
REGISTRY = (
    r"(?i)(?:--(?:extra-)?index-url|index_url=[\w'$]|\.pytorch\.org/whl|//\d+\.\d+\.\d+\.\d+"
    r"|//(?:\w+[.\-])*(?:pypi|pythonhosted|artifactory|nexus|jfrog|registry|mirrors?)\b)"
)
UNOWNED = r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b(?!\(\w)"


@pytest.mark.parametrize("text", ["cd /{}/main", "'/{}'", "path=/{}/x"])
@pytest.mark.parametrize("folder", ["work", "root", "home"])
def test_machine_paths_are_recognized(text: str, folder: str) -> None:
    assert re.search(MACHINE_PATH, text.format(folder))


@pytest.mark.parametrize("text", ["https://a.org/{}/x", "frame/{}/x", "${{TMPDIR:-/tmp}}", "/path/to/c++", "/{}ers"])
def test_other_paths_are_left_alone(text: str) -> None:
    assert not re.search(MACHINE_PATH, text.format("work"))


def test_no_path_of_a_machine_is_written_down() -> None:
    assert not lines_matching(MACHINE_PATH)


def test_no_package_registry_is_written_down() -> None:
    assert not lines_matching(REGISTRY)


def test_every_todo_has_an_owner() -> None:
    assert not lines_matching(UNOWNED), "write TO" + "DO(name): ..."


def test_no_file_is_named_for_nothing() -> None:
    vague = re.compile(r"(^|_)(utils?|helpers|misc|new|old|do_not_use)$")
    named = [relative(path) for path in project_files() if vague.search(path.stem)]
    assert not named, f"name a file for the one idea in it: {named}"


# ----------------------------------------------------------------------------------------------------- supply chain


def test_security_page_gives_a_reason_for_everything_that_users_install() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    rows = (ROOT / "SECURITY.md").read_text().split("| package | when | why |")[1]
    explained = {name for row in rows.splitlines() if row.startswith("|") for name in row.split("|")[1].split(", ")}
    explained = {name.strip() for name in explained}

    def packages(key: str) -> set[str]:
        listed = re.search(rf"^{key} = \[([^\]]*)\]", project, re.MULTILINE)
        assert listed is not None, key
        return set(re.findall(r'"([A-Za-z0-9_-]+)', listed.group(1)))

    for key in ("requires", "dependencies", "torch", "cli"):
        assert packages(key) <= explained, f"say in SECURITY.md why {packages(key) - explained} is needed"


def test_names_of_test_files_are_unique() -> None:
    """pytest imports them by their bare names: two of one name cannot be run together."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


# --------------------------------------------------------------------------------------------------- deliberate bugs


def test_deliberate_bugs_can_be_put_into_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """`scripts/mutation.py` replaces text, which must be there, once, and runs tests, which must be there."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    bugs = importlib.import_module("mutation").BUGS
    assert {bug.name: (ROOT / bug.file).read_text().count(bug.text) for bug in bugs} == {bug.name: 1 for bug in bugs}
    assert [path for bug in bugs for path in bug.tests.split() if not (ROOT / path).exists()] == []
