"""Files of torch.export (.pt2), read without running code from them.

`torch.export.load` unpickles tensors, evaluates expressions of sizes, and makes Python code of names. `load_exported`
checks every string of the file first, writes tensors anew from their data alone, and gives PyTorch's reader that copy.
"""

from __future__ import annotations

import ast
import io
import json
import math
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from zeropoint.graph import torch_internals as internals
from zeropoint.graph.code_names import is_plain

# The records that make up a model. Compiled code and files beside it are left out.
_RECORDS = re.compile(
    r"([^/]*/)?"
    r"(models/\w+\.json|data/(weights|constants|sample_inputs)/\w+(\.json|\.pt)?|archive_format|archive_version|byteorder"
    r"|version|\.data/\w+|serialized_\w+\.(json|pt))"
)
# Operators of these namespaces reach no files and no network, but for those that are named so.
_OPERATOR = re.compile(
    r"torch\.ops\.(aten|prims|zeropoint|quantized|quantized_decomposed|torchao|pt2e_quant|torchvision)\.(\w+)\.(\w+)"
)
_FUNCTION = re.compile(
    r"torch\.ops\.higher_order\.(cond|map_impl|scan|while_loop|wrap_with_set_grad_enabled|wrap_with_autocast)"
    r"|_operator\.(getitem|add|sub|mul|floordiv|truediv|mod|neg|pow|eq|ne|lt|le|gt|ge|and_|or_|not_|pos|abs)"
    r"|math\.(ceil|floor|trunc|sqrt)|torch\.(sym_[a-z]+|_sym_sqrt)"
)
# Sympy functions and values that sizes are written with.
_OF_SIZES = re.compile(
    r"[su]\d+|Symbol|Integer|Float|Rational|Add|Mul|Pow|Max|Min|Mod|Abs|floor|ceiling|PythonMod|FloorDiv|CleanDiv|CeilDiv"
    r"|ModularIndexing|IntTrueDiv|FloatTrueDiv|ToFloat|TruncToInt|FloorToInt|CeilToInt|RoundToInt|PowByNatural|FloatPow"
    r"|Identity|Where|Piecewise|ExprCondPair|And|Or|Not|Eq|Ne|Equality|Unequality|StrictLessThan|LessThan"
    r"|StrictGreaterThan|GreaterThan|BooleanTrue|BooleanFalse|true|false|oo|int_oo"
)
_POWERS = ("Pow", "PowByNatural", "FloatPow")
_SYNTAX = (
    ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Load, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare,
    ast.Tuple, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.unaryop, ast.cmpop,
)  # fmt: skip
_LONGEST_EXPRESSION = 4096
_LARGEST_POWER = 16
_LARGEST_NUMBER = 2**64
# Where a node comes from: module paths and classes.
_STACK = re.compile(r"[\w.,;:<>@\[\]()'$/ -]*")
_MOST_BYTES_OF_RECORDS = 64 << 20  # of all records, and 64 for each byte of the file


def load_exported(path: Path) -> Any:
    """The `torch.export.ExportedProgram` that a file holds.

    Raises:
        ValueError: if the file is none of torch.export, or could run code when PyTorch reads it.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            clean = _copied(archive, path)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path} is no file of torch.export, or it is cut off: {error}") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.export.load(clean)
        except Exception as error:  # whatever PyTorch raises for a graph that makes no sense
            raise ValueError(f"torch.export cannot read {path}: {type(error).__name__}: {str(error)[:300]}") from error


def _copied(archive: zipfile.ZipFile, path: Path) -> io.BytesIO:
    """The same archive, with what was checked."""
    listed = archive.infolist()
    if sum(info.file_size for info in listed) > _MOST_BYTES_OF_RECORDS + 64 * path.stat().st_size:
        raise ValueError(
            f"{path} is damaged: its records take far more memory than the file has bytes; export the model again"
        )
    names = [info.filename for info in listed]
    if len(set(names)) != len(names):
        raise ValueError(f"{path} is damaged: a record has the name of another one; export the model again")
    refused = _refusal(path)
    records = {name: archive.read(name) for name in names if _RECORDS.fullmatch(name)}
    if not any(name.endswith(".json") for name in records):
        raise ValueError(f"{path} is no file of torch.export, or it is cut off: it has no model")
    pickled = _pickled_tensors(records, refused)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as copy:
        for name, data in records.items():
            if name.endswith(".json"):
                data = json.dumps(_checked(_json(data, refused), "", refused)).encode()
            elif name.endswith(".pt") or name in pickled:
                data = _only_tensors(data, refused)
            copy.writestr(name, data)
    made.seek(0)
    return made


def _refusal(path: Path) -> Callable[[str], ValueError]:
    return lambda what: ValueError(
        f"{path} has {what}. PyTorch could execute code when it reads that, so zeropoint does not load it. "
        "If you trust the file, pass --pickle"
    )


def _json(data: bytes, refused: Callable[[str], ValueError]) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise refused(f"a record that is no JSON ({type(error).__name__})") from error


def _pickled_tensors(records: dict[str, bytes], refused: Callable[[str], ValueError]) -> set[str]:
    """The records that PyTorch unpickles: those of tensors that are not plain memory."""
    found = set()
    for name, data in records.items():
        if not name.endswith("_config.json"):
            continue
        config = _json(data, refused)
        config = config.get("config") if isinstance(config, dict) else None
        for tensor in config.values() if isinstance(config, dict) else ():
            kept = tensor.get("path_name") if isinstance(tensor, dict) else None
            if not isinstance(kept, str) or not re.fullmatch(r"(weight|tensor)_\d+", kept):
                raise refused("an object that is no tensor")
            place = f"{name.rpartition('/')[0]}/{kept}"
            if tensor.get("use_pickle"):
                found.add(place)
            elif _elements(tensor) > 64 * (len(records.get(place, b"")) + 1024):
                raise ValueError(f"{kept} is damaged: its tensor needs far more elements than there are bytes")
    return found


def _elements(tensor: dict[str, Any]) -> int:
    """How many elements a tensor has by its description."""
    sizes = (tensor.get("tensor_meta") or {}).get("sizes") or []
    return math.prod(int(size.get("as_int", 0)) for size in sizes)


def _only_tensors(data: bytes, refused: Callable[[str], ValueError]) -> bytes:
    """Tensors, numbers, strings, lists and dictionaries, pickled anew; nothing else is left of a pickle."""
    if not data:
        return data
    try:
        read = torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, LookupError, TypeError) as error:
        raise refused("a pickled object that is more than tensors") from error
    made = io.BytesIO()
    torch.save(read, made)
    return made.getvalue()


def _checked(value: Any, key: str, refused: Callable[[str], ValueError]) -> Any:
    """A value of the file's JSON at `key`, with every string of it checked."""
    if key == "metadata":  # PyTorch writes lines of source into code as comments
        kept = value.get("nn_module_stack") if isinstance(value, dict) else None
        return {"nn_module_stack": kept} if isinstance(kept, str) and _STACK.fullmatch(kept) else {}
    if key == "guards_code":
        return []
    if isinstance(value, dict):
        for name in value:
            _require_name(name, refused)
        return {name: _checked(part, name, refused) for name, part in value.items()}
    if isinstance(value, list):
        return [_checked(part, key, refused) for part in value]
    if not isinstance(value, str):
        return value
    if key == "expr_str":
        _require_size(value, refused)
    elif key in ("target", "as_operator"):
        _require_function(value, refused)
    elif key in ("in_spec", "out_spec"):
        _require_nesting(_json(value.encode(), refused), refused)
    elif key not in ("as_string", "as_strings"):  # arguments, which are escaped
        _require_name(value, refused)
    return value


def _require_function(path: str, refused: Callable[[str], ValueError]) -> None:
    """What a node calls, and what an operator of control flow is given to call."""
    if found := _OPERATOR.fullmatch(path):
        namespace, name, overload = found.groups()
        packet = getattr(getattr(torch.ops, namespace), name, None)
        if internals.is_operator(getattr(packet, overload, None)) and "from_file" not in name:
            return
    elif _FUNCTION.fullmatch(path):
        return
    raise refused(f"a call of {ascii(path)[:80]}")


def _require_name(name: str, refused: Callable[[str], ValueError]) -> None:
    """Names of values, tensors and modules, versions and devices."""
    if not all(is_plain(part) for part in re.split(r"[.+:/]", name) if part):
        raise refused(f"the name {ascii(name)[:80]}")


def _require_nesting(value: Any, refused: Callable[[str], ValueError]) -> None:
    """How inputs and results are nested: types by their names, keys of dictionaries. Enumerations name a module."""
    if isinstance(value, dict):
        if set(value) != {"type", "context", "children_spec"}:
            raise refused("nested inputs of an unknown kind")
        if isinstance(value["context"], str):
            keys = _json(value["context"].encode(), refused)
            if isinstance(keys, dict):
                raise refused("nested inputs of an unknown kind")
            _require_nesting(keys, refused)
        _require_nesting([value["type"], value["children_spec"]], refused)
    elif isinstance(value, list):
        for part in value:
            _require_nesting(part, refused)
    elif isinstance(value, str):
        _require_name(value, refused)


def _require_size(text: str, refused: Callable[[str], ValueError]) -> None:
    """Refuse what is no expression of sizes: sympy evaluates it as Python."""
    try:
        tree = ast.parse(text if len(text) <= _LONGEST_EXPRESSION else "", mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise refused(f"the size {ascii(text)[:80]}") from error
    if not all(map(_is_of_sizes, ast.walk(tree))):
        raise refused(f"the size {ascii(text)[:80]}")


def _is_of_sizes(part: ast.AST) -> bool:
    if isinstance(part, ast.Call):
        called = part.func.id if isinstance(part.func, ast.Name) else ""
        return called != "" and (called not in _POWERS or (len(part.args) == 2 and _is_small(part.args[1])))
    if isinstance(part, ast.Name):
        return _OF_SIZES.fullmatch(part.id) is not None
    if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Pow):
        return _is_small(part.right)
    if isinstance(part, ast.Constant) and isinstance(part.value, str):
        return re.fullmatch(r"\w{1,40}", part.value) is not None
    if isinstance(part, ast.Constant):
        return part.value is None or (isinstance(part.value, (int, float)) and abs(part.value) <= _LARGEST_NUMBER)
    return isinstance(part, _SYNTAX)


def _is_small(power: ast.expr) -> bool:
    """Whether an exponent is a small number: larger ones take all memory."""
    if isinstance(power, ast.UnaryOp) and isinstance(power.op, ast.USub):
        power = power.operand
    if isinstance(power, ast.Call) and getattr(power.func, "id", "") == "Integer" and len(power.args) == 1:
        return _is_small(power.args[0])
    return isinstance(power, ast.Constant) and isinstance(power.value, int) and abs(power.value) <= _LARGEST_POWER
