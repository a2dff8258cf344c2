"""TorchScript models, quantized as they are: their control flow, state and other methods stay."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from zeropoint.context import CONTEXT
from zeropoint.described import described
from zeropoint.graph import torch_internals as internals
from zeropoint.graph.frontends.script import saved_plan
from zeropoint.graph.frontends.script.branches import join
from zeropoint.graph.frontends.script.inline import simplify
from zeropoint.graph.frontends.script.lower import lower
from zeropoint.graph.frontends.script.observers import Scripted, facts_of, scripted
from zeropoint.graph.frontends.script.script_module import (
    SCRIPT_OBSERVER,
    at_path,
    methods,
    modules,
    path_of,
    private_copy,
    result,
    unmark,
    walk,
)
from zeropoint.graph.frontends.script.uncalibrated import drop_uncalibrated
from zeropoint.graph.frontends.script.view import View, view_of
from zeropoint.graph.frontends.script.write import call_observer, write
from zeropoint.graph.lowering.integer import NotCalibrated
from zeropoint.graph.lowering.reference import reference
from zeropoint.graph.passes.annotate import PADDED, Choice, Precision, operator_name, plan
from zeropoint.graph.passes.canonicalize import make_plain
from zeropoint.graph.passes.fold_batch_norm import fold_batch_norm
from zeropoint.graph.passes.fold_linear import fold_linear
from zeropoint.graph.passes.insert_observers import OBSERVER, insert_observers
from zeropoint.graph.passes.qconfig_rules import modules_without_calls
from zeropoint.graph.provenance import origin
from zeropoint.nn.quantized.storage import has_observed
from zeropoint.observers import default_dynamic_quant_observer
from zeropoint.operators.node import arguments
from zeropoint.ops.rounding import linear_takes_7_bits
from zeropoint.qconfig import QConfig
from zeropoint.qconfig_mapping import QConfigMapping


def _at_run_time(qconfig: Any) -> Any:
    """A qconfig whose activations get their ranges at run time, if they were to be observed."""
    activation = None if qconfig is None else qconfig.activation()
    if (
        activation is None
        or getattr(activation, "is_dynamic", False)
        or activation.dtype in (torch.float16, torch.float32)
    ):
        return qconfig
    return QConfig(activation=default_dynamic_quant_observer, weight=qconfig.weight)


def _mapping(model: Any, qconfigs: Mapping[str, Any], dynamic: bool) -> QConfigMapping:
    if not isinstance(qconfigs, Mapping):
        raise TypeError(f"qconfig_dict must be a dictionary of module paths, got {type(qconfigs).__name__}")
    if dynamic:
        qconfigs = {name: _at_run_time(qconfig) for name, qconfig in qconfigs.items()}
    mapping = QConfigMapping().set_global(qconfigs.get(""))
    names = {name for name, _ in modules(model)}
    for name, qconfig in qconfigs.items():
        if not isinstance(name, str):
            raise TypeError(f"qconfig_dict: names of modules are strings, got {described(name)}")
        if name and name not in names:
            warnings.warn(f"qconfig_dict: the model has no module {name!r}", stacklevel=4)
        elif name:
            mapping.set_module_name(name, qconfig)
    return mapping


# ------------------------------------------------------------------------------------------------------------ prepare


def _prepare(model: Any, qconfigs: Mapping[str, Any], name: str, dynamic: bool = False) -> Any:
    module = private_copy(name, model)
    if module.hasattr(saved_plan.PLAN):
        raise ValueError(f"{name}: the model is already prepared: pass the original model")
    mapping = _mapping(module, qconfigs, dynamic)
    names = methods(module)
    plans: dict[str, Any] = {}
    observers: dict[str, Any] = {}
    summarized: list[Any] = []
    unused = {*mapping.module_name_qconfigs}
    for method in names:
        graph = simplify(module, module._get_method(method).graph, names)
        view = view_of(module, method)
        unused &= modules_without_calls(view, mapping)
        make_plain(view)
        fold_linear(view)
        fold_batch_norm(view)
        write(view)
        view = view_of(module, method)
        choices = plan(view, mapping, alone=True, join=join)
        if dynamic and CONTEXT.scripts_only_linear:
            choices = {node: _linear_or_float(choice) for node, choice in choices.items()}
        plans[method] = _watch(view, choices, observers)
        unmark(graph)
        summarized += [(choice, plans[method][node.name]) for node, choice in choices.items()]
    notes = _notes(qconfigs, mapping, unused)
    saved_plan.store(module, saved_plan.PLAN, {"methods": plans, "observers": observers, "notes": notes})
    saved_plan.store_summary(module, summarized, notes)
    return module


def _linear_or_float(choice: Choice) -> Choice:
    if choice.precision not in (Precision.DYNAMIC, Precision.HALF) or choice.operator.name == "linear":
        return choice
    if choice.operator.name.startswith("embedding"):
        return choice
    return Choice(Precision.FLOAT, "torch.ao quantizes linear layers only in TorchScript", choice.operator)


def _notes(qconfigs: Mapping[str, Any], mapping: QConfigMapping, unused: set[str]) -> list[str]:
    """What a summary says about rules for nothing in the model, which are warned of, too."""
    unknown = [name for name in qconfigs if name and name not in mapping.module_name_qconfigs]
    without = [name for name in mapping.module_name_qconfigs if name in unused]
    for name in without:
        warnings.warn(f"qconfig_dict: module {name!r} has no operators to quantize: remove the entry", stacklevel=5)
    return [f"this rule matches nothing in the model: {name!r}" for name in (*unknown, *without)]


def _watch(view: View, choices: dict[Any, Choice], observers: dict[str, Any]) -> dict[str, Any]:
    """Put observers into a method, and facts about them into `observers`; what to keep of the choices."""
    insert_observers(view, choices, first=len(observers), share=False)
    for target, observer in list(view.named_children()):
        if target.startswith(OBSERVER):
            _add(view.module, SCRIPT_OBSERVER + target.removeprefix(OBSERVER), observer, observers)
    write(view)
    kept = {}
    for node, choice in choices.items():
        kept[node.name] = saved_plan.choice_to(choice, origin(node).path, operator_name(node, choice))
        if choice.qconfig is not None:
            facts = facts_of(choice.qconfig.activation())
            facts["reduce_range"] |= choice.precision is Precision.DYNAMIC and linear_takes_7_bits()
            kept[node.name]["activation"] = facts
    weights = {node: _weight_observer(choice) for node, choice in choices.items() if _has_weight(choice)}
    names = {node: _free_name(view.module, owner) for node, owner in _owners(view, weights).items()}
    for node, observer in weights.items():
        name = names.get(node, f"{SCRIPT_OBSERVER}{len(observers)}")
        _add(view.module, name, observer, observers)
        kept[node.name]["weight"] = name
        if choices[node].operator.weights == ("weight",):
            index = list(arguments(node)).index("weight")
            call_observer(view.script, view.module, node.meta["script"], index, name)
    return kept


def _add(module: Any, path: str, observer: Any, observers: dict[str, Any]) -> None:
    made = scripted(observer)
    owner, _, name = path.rpartition(".")
    internals.add_attribute(at_path(module, owner), name, made._type(), made)
    observers[path] = facts_of(observer)


def _has_weight(choice: Choice) -> bool:
    return choice.qconfig is not None and choice.operator is not None and bool(choice.operator.weights)


def _weight_observer(choice: Choice) -> Any:
    """An observer for the weight of a layer; for layers with many, one that is the pattern for all."""
    observer = choice.qconfig.weight()
    if choice.operator.is_layer and "per_channel" in str(getattr(observer, "qscheme", "")):
        observer.ch_axis = choice.operator.weight_axis
    return observer


def _free_name(module: Any, owner: str) -> str:
    """A name for an observer in a module. (Once one module of a class has an attribute, `hasattr` finds it in all.)"""
    number = 0
    while at_path(module, owner).hasattr(f"{SCRIPT_OBSERVER}{number}"):
        number += 1
    return f"{owner}.{SCRIPT_OBSERVER}{number}"


def _owners(view: View, weights: dict[Any, Any]) -> dict[Any, str]:
    """The modules whose weights are watched and that can have the observers, by the nodes that read the weights.

    Modules of one class have the same attributes: so they must all have an observer, and of one class. Other observers
    stand in the model itself.
    """
    paths: dict[str, set[str]] = {}
    for path, part in modules(view.module):
        paths.setdefault(part._type().str(), set()).add(path)
    readers: dict[str, list[Any]] = {}
    for node in weights:
        weight = arguments(node).get("weight")
        if weight is not None and weight.op == "get_attr":
            readers.setdefault(str(weight.target).rpartition(".")[0], []).append(node)
    found = {}
    for owner, nodes in readers.items():
        alike = paths.get(at_path(view.module, owner)._type().str(), set()) if owner else set()
        kinds = {(type(weights[n]), str(facts_of(weights[n]))) for path in alike for n in readers.get(path, ())}
        if alike and len(kinds) == 1 and len(nodes) == 1 and all(len(readers.get(path, ())) == 1 for path in alike):
            found[nodes[0]] = owner
    return found


def prepare_jit(model: Any, qconfig_dict: Mapping[str, Any], inplace: bool = False) -> Any:
    """Insert observers into a ScriptModule. Run the result on calibration data, then call `convert_jit`.

    Args:
        model: a scripted, traced or loaded module, in evaluation mode.
        qconfig_dict: module paths and their qconfigs; ``""`` is the whole model. None keeps a module in float.
        inplace: change `model` instead of a copy.

    Raises:
        TypeError: if `model` is not a ScriptModule that can be saved.

    Example:
        >>> import zeropoint
        >>> model = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval())
        >>> prepared = prepare_jit(model, {"": zeropoint.get_default_qconfig("native")})
        >>> _ = prepared(torch.randn(16, 4))
        >>> print(zeropoint.summary(convert_jit(prepared)))
        module  operator  computed  why
        0       linear    int8
        1 int8
    """
    return result(model, _prepare(model, qconfig_dict, "prepare_jit"), inplace)


def prepare_dynamic_jit(model: Any, qconfig_dict: Mapping[str, Any], inplace: bool = False) -> Any:
    """Like `prepare_jit`, for dynamic quantization. The result needs no calibration.

    Example:
        >>> import zeropoint
        >>> model = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, 4)).eval())
        >>> made = convert_dynamic_jit(prepare_dynamic_jit(model, {"": zeropoint.default_dynamic_qconfig}))
        >>> zeropoint.summary(made).counts()
        Counter({'int8, dynamic': 1})
    """
    return result(model, _prepare(model, qconfig_dict, "prepare_dynamic_jit", dynamic=True), inplace)


# ------------------------------------------------------------------------------------------------------------ convert


def _convert(model: Any, debug: bool, name: str, preserved: Any = None) -> Any:
    module = private_copy(name, model)
    kept = saved_plan.load(module, saved_plan.PLAN)
    if kept is None:
        raise ValueError(f"{name} expects a model from prepare_jit or prepare_dynamic_jit")
    internals.torchscript_module(module).eval()  # as in torch.ao: what is converted is past training
    observers = {key: Scripted(facts, at_path(module, key)) for key, facts in kept["observers"].items()}
    summarized: list[Any] = []
    views = {}
    for method, plans in kept["methods"].items():
        weights = {value["weight"] for value in plans.values()}
        view = view_of(module, method, {key: value for key, value in observers.items() if key not in weights})
        _end_training(view)
        choices = _choices(view, plans, observers, name)
        views[method] = (view, choices, plans)
    _require_data([view for view, _, _ in views.values()])
    for view, choices, plans in views.values():
        drop_uncalibrated(view, choices)
        with torch.no_grad():
            write(view, (reference if debug else lower)(view, choices))
        rows = {node.name: choice for node, choice in choices.items()}
        floats = {key: saved_plan.choice_from(value, None, None) for key, value in plans.items() if key not in rows}
        summarized += [(rows.get(key, floats.get(key)), value) for key, value in plans.items()]
    saved_plan.store_summary(module, summarized, kept["notes"])
    _part_lists(module, [view for view, _, _ in views.values()])
    names = [method for method in module._method_names() if method != "forward"]
    names += ["training"] if module.hasattr("training") else []  # torch.jit.freeze asks for it
    return internals.freeze(module, [saved_plan.SUMMARY, *names, *(preserved or ())], True, debug)


def _end_training(view: View) -> None:
    """Let nothing be dropped any more, if the model was prepared in training."""
    for node in view.graph.nodes:
        given = arguments(node) if node.op == "call_function" and "dropout" in str(node.target) else {}
        if given.get("train") is True:
            node.args, node.kwargs = tuple(False if k == "train" else v for k, v in given.items()), {}
            for key in ("script", "value"):  # what it was read from: it is written anew
                node.meta.pop(key, None)


def _part_lists(module: Any, views: list[View]) -> None:
    """Empty the lists of parameters that nothing reads, and copy the others: freezing refuses tensors in two places."""
    read_still = {
        path_of(view.script, node.output())
        for view in views
        for node in walk(view.script)
        if node.kind() == "prim::GetAttr"
    }
    for path in {path for view in views for path in view.tensor_lists}:
        owner, _, name = path.rpartition(".")
        tensors = at_path(module, path) if path in read_still else []
        at_path(module, owner).setattr(name, [tensor.detach().clone() for tensor in tensors])


def _choices(view: View, plans: dict[str, Any], observers: dict[str, Any], name: str) -> dict[Any, Choice]:
    by_name = {node.name: node for node in view.graph.nodes}
    choices = {}
    for key, value in plans.items():
        if key in by_name:
            activation = Scripted(value["activation"]) if value["activation"] else None
            choices[by_name[key]] = saved_plan.choice_from(value, activation, observers.get(value["weight"]))
        elif value["precision"] != Precision.FLOAT.name:
            raise ValueError(f"{name}: the model was changed after it was prepared (it has no {key}): prepare it again")
    if any(choice.reason == PADDED for choice in choices.values()):
        raise NotImplementedError(
            "Expected aten::embedding_bag padding_idx input to be None: tables of 8 and 4 bits have no padding row."
            " Leave the embedding in float with the qconfig None, or build it without padding_idx"
        )
    return choices


def _require_data(views: list[View]) -> None:
    watches = [
        view.get_submodule(str(node.target)) for view in views for node in view.graph.nodes if node.op == "call_module"
    ]
    if watches and not any(has_observed(observer) for observer in watches):
        raise NotCalibrated("the observers saw no data: run the prepared model on some batches before you convert it")


def convert_jit(model: Any, inplace: bool = False, debug: bool = False, preserved_attrs: Any = None) -> Any:
    """Convert a calibrated model from `prepare_jit` to int8, in evaluation mode.

    Args:
        inplace: change `model` instead of a copy.
        debug: return the reference graph, with quantize and dequantize operators around float operators.
        preserved_attrs: names of attributes to keep although no method of the model reads them. Methods are kept.

    Raises:
        NotCalibrated: if no observer saw data. Parts that calibration did not reach stay in float; see
            `zeropoint.summary`.
        ValueError: if `model` was not prepared.
        NotImplementedError: for an embedding bag with a padding row.
    """
    return result(model, _convert(model, debug, "convert_jit", preserved_attrs), inplace)


def convert_dynamic_jit(model: Any, inplace: bool = False, debug: bool = False, preserved_attrs: Any = None) -> Any:
    """Like `convert_jit`, for the result of `prepare_dynamic_jit`."""
    return result(model, _convert(model, debug, "convert_dynamic_jit", preserved_attrs), inplace)


def quantize_jit(
    model: Any,
    qconfig_dict: Mapping[str, Any],
    run_fn: Callable[..., Any],
    run_args: Any,
    inplace: bool = False,
    debug: bool = False,
) -> Any:
    """Run `prepare_jit`, ``run_fn(prepared, *run_args)`` and `convert_jit`.

    Example:
        >>> import zeropoint
        >>> model = torch.jit.trace(torch.nn.Conv2d(1, 2, 3).eval(), torch.ones(1, 1, 4, 4))
        >>> data = torch.randn(8, 1, 4, 4)
        >>> made = quantize_jit(model, {"": zeropoint.get_default_qconfig("native")}, lambda m, x: m(x), (data,))
        >>> zeropoint.summary(made).counts()
        Counter({'int8': 1})
    """
    prepared = prepare_jit(model, qconfig_dict)
    run_fn(prepared, *run_args)
    return result(model, _convert(prepared, debug, "quantize_jit"), inplace)


def quantize_dynamic_jit(
    model: Any, qconfig_dict: Mapping[str, Any], inplace: bool = False, debug: bool = False
) -> Any:
    """`prepare_dynamic_jit` and `convert_dynamic_jit`.

    Example:
        >>> import zeropoint
        >>> model = torch.jit.script(torch.nn.Linear(4, 2).eval())
        >>> made = quantize_dynamic_jit(model, {"": zeropoint.float16_dynamic_qconfig})
        >>> zeropoint.summary(made).counts()
        Counter({'float16 weights': 1})
    """
    prepared = prepare_dynamic_jit(model, qconfig_dict)
    return result(model, _convert(prepared, debug, "quantize_dynamic_jit"), inplace)
