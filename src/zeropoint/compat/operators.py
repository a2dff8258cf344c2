"""torch.ops.quantized and torch.ops.quantized_decomposed.

Operators on packed weights take Python objects here, which PyTorch's dispatcher would refuse: so `torch.ops.quantized`
is a namespace of zeropoint before PyTorch's. Those on tensors alone are known to QTensor too, by PyTorch's operator;
TorchScript has ours. The decomposed operators stay PyTorch's, with our kernels; or are defined, where PyTorch did not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Proxy

from zeropoint.compat import lookup, names, script, scripted
from zeropoint.compat.changes import Changes
from zeropoint.compat.fx.targets import TARGETS
from zeropoint.compat.modules import resolve
from zeropoint.tensor.qtensor import HANDLERS
from zeropoint.torch_versions import override_kernel

NAMESPACE, DECOMPOSED = "quantized", "quantized_decomposed"


# Overloads that are called as their operator is.
_OVERLOADS = ("default", "Scalar", "Scalar2", "Tensor", "new")


class Operator(torch._ops.OpOverloadPacket):
    """One operator of torch.ops.quantized: zeropoint's when it is called, PyTorch's in everything else."""

    def __init__(self, name: str, function: Any, theirs: Any) -> None:
        described = {k: v for k, v in vars(theirs).items() if k not in (*_OVERLOADS, "_op")} if theirs else {}
        self.__dict__.update(described, __name__=name, __doc__=function.__doc__, __wrapped__=function)
        self.__dict__.update(_function=function, _theirs=theirs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        first = next(iter(args), None)
        if isinstance(first, (list, tuple)):
            first = next(iter(first), None)
        if isinstance(first, Proxy):  # torch.fx traces, and wants a node
            return first.tracer.create_proxy("call_function", self, args, kwargs)
        if kwargs.get("out") is not None and not self.__name__.endswith("_out"):
            return resolve(f"zeropoint.qfunctions.{self.__name__}_out")(*args, **kwargs)
        return self._function(*args, **kwargs)

    @property
    def _op(self) -> Any:
        """What TorchScript compiles: our function on packed weights, our operator on tensors, else PyTorch's."""
        if self.__name__ in scripted.FUNCTIONS:
            return scripted.FUNCTIONS[self.__name__]
        known = self.__name__ in script.OPERATORS
        return (getattr(getattr(torch.ops, script.NAMESPACE), self.__name__) if known else self._theirs)._op

    def __getattr__(self, name: str) -> Any:
        """An overload: PyTorch's, which QTensor answers, unless it takes packed weights or is not there."""
        overload = getattr(self._theirs, name, None)
        if name not in _OVERLOADS or (overload is not None and _takes_tensors_only(overload)):
            return getattr(self._theirs, name)
        return Overload(self)

    def __hash__(self) -> int:
        return hash(self.__name__)

    def __repr__(self) -> str:
        return f"<zeropoint.compat operator {NAMESPACE}.{self.__name__}>"

    def __str__(self) -> str:
        return f"{NAMESPACE}.{self.__name__}"


class Overload:
    """The one overload of an operator that takes packed weights; it is no packet again, as torch looks into those."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self.__name__ = f"{operator.__name__}.default"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._operator(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)


class Namespace(torch._ops._OpNamespace):
    """torch.ops.quantized, with operators of zeropoint in front of PyTorch's."""

    def __init__(self, theirs: Any) -> None:
        super().__init__(NAMESPACE)
        self._theirs = theirs
        self._known = dict(lookup.entries(names.OPERATORS))

    def __getattr__(self, name: str) -> Any:
        found = self._known.get(name)
        theirs = getattr(self._theirs, name, None)
        if found is None or not found.path:
            if theirs is None:
                reason = f": {found.reason}" if found else ""
                raise AttributeError(f"torch.ops.{NAMESPACE} has no operator {name!r}{reason}")
            return theirs
        value = Operator(name, resolve(found.path), theirs)
        self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        return sorted({*self._known, *dir(self._theirs)})


def _takes_tensors_only(overload: Any) -> bool:
    return not any("__torch__" in str(a.type) for a in (*overload._schema.arguments, *overload._schema.returns))


def _teach_qtensor(changes: Changes, theirs: Any) -> None:
    """Let QTensors answer PyTorch's operators, as TorchScript calls them."""
    for name, found in lookup.entries(names.OPERATORS):
        packet = getattr(theirs, name, None)
        if packet is None or not found.path:
            continue
        for overload in packet.overloads():
            operator = getattr(packet, overload)
            if overload in _OVERLOADS and _takes_tensors_only(operator):
                changes.item(HANDLERS, operator, resolve(found.path))
            elif overload == "out" and hasattr(theirs, f"{name}_out"):
                changes.item(HANDLERS, operator, resolve(f"zeropoint.qfunctions.{name}_out"))


# ------------------------------------------------------------------------------------------------------- decomposed

# Dispatch keys with a kernel, where they are not these two.
_KEYS = ("CompositeExplicitAutograd", "Meta")
_OTHER_KEYS = {
    "_choose_qparams_per_token_asymmetric_impl": ("CompositeImplicitAutograd",),
    "fake_quant_per_channel": ("Autograd", "Meta"),
}
_NOT_OURS = "convert_element_type.no_fuse(Tensor input, ScalarType dtype) -> Tensor"


def _convert_element_type(input: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.ops.prims.convert_element_type.default(input, dtype)


def _kernel(name: str, overload: str) -> Any:
    operator = getattr(getattr(torch.ops.zeropoint, name), overload or "default")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return operator(*args, **kwargs)

    return kernel


def _decomposed(changes: Changes) -> None:
    """Our kernels for the operators of quantized_decomposed."""
    schemas = [s for s in torch._C._jit_get_all_schemas() if s.name.split("::")[1] in names.DECOMPOSED.split()]
    defined = {(s.name, s.overload_name) for s in schemas}
    ours = [s for s in schemas if s.name.startswith("zeropoint::")]
    library = torch.library.Library(DECOMPOSED, "FRAGMENT")
    changes.later(library._destroy)
    for schema in ours:
        name, overload = schema.name.split("::")[1], schema.overload_name
        qualified = f"{name}.{overload}" if overload else name
        if (f"{DECOMPOSED}::{name}", overload) not in defined:
            library.define(str(schema).removeprefix("zeropoint::"))
        for key in _OTHER_KEYS.get(name, _KEYS):
            override_kernel(library, qualified, _kernel(name, overload), key)
    if not hasattr(getattr(torch.ops, DECOMPOSED), "convert_element_type"):
        library.define(_NOT_OURS)
    for key in _KEYS:
        override_kernel(library, "convert_element_type.no_fuse", _convert_element_type, key)


def _private(changes: Changes) -> None:
    """Our kernels for operators on plain tensors that PyTorch keeps for itself."""
    known = set(torch._C._dispatch_get_all_op_names())
    libraries: dict[str, torch.library.Library] = {}
    for schema, path in names.PRIVATE_OPERATORS.items():
        namespace, rest = schema.split("::")
        name = rest.split("(")[0]
        if namespace not in libraries:
            libraries[namespace] = torch.library.Library(namespace, "FRAGMENT")
            changes.later(libraries[namespace]._destroy)
        library = libraries[namespace]
        if f"{namespace}::{name}" not in known:
            library.define(rest)
        override_kernel(library, name, _called_when_used(path), "CPU")
        if name in _SHAPES:
            override_kernel(library, name, _SHAPES[name], "Meta")


# What compilers have to know of their results.
_SHAPES: dict[str, Any] = {
    "wrapped_fbgemm_pack_gemm_matrix_fp16": lambda W: torch.empty_like(W, dtype=torch.float16),
    "wrapped_fbgemm_linear_fp16_weight": lambda X, W, B, out_channel: X.new_empty((*X.shape[:-1], out_channel)),
    "linear_dynamic_fp16_unpacked_weight": lambda X, weight, bias: X.new_empty((*X.shape[:-1], weight.shape[0])),
}


def _called_when_used(path: str) -> Any:
    def kernel(*args: Any) -> Any:
        return resolve(path)(*args)

    return kernel


def replace_operators(changes: Changes) -> None:
    """Put our operators under the old names."""
    theirs = getattr(torch.ops, NAMESPACE)
    changes.attribute(torch.ops, NAMESPACE, Namespace(theirs))
    _teach_qtensor(changes, theirs)
    _decomposed(changes)
    _private(changes)
    _name_in_graphs(changes)


def _name_in_graphs(changes: Changes) -> None:
    """Let graphs of FX mode call the old operators, and name torch's dtypes, as old code looks for them."""
    for name, found in lookup.entries(names.OPERATORS):
        if found.path:
            changes.item(TARGETS.functions, name, getattr(getattr(torch.ops, NAMESPACE), name))
    changes.attribute(TARGETS, "dtype", lambda dtype: getattr(torch, dtype.name))
    changes.attribute(TARGETS, "dequantize", ("call_method", "dequantize"))
    changes.attribute(TARGETS, "decomposed", getattr(torch.ops, DECOMPOSED))
    changes.attribute(TARGETS, "reduces_range", lambda: torch.backends.quantized.engine in ("fbgemm", "x86"))
