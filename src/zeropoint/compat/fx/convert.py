"""A calibrated graph as a reference model: quantize and dequantize where observers were, weights quantized."""

from __future__ import annotations

import copy
import operator
import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from zeropoint.compat.fx.backend_config import BackendConfig
from zeropoint.compat.fx.constants import compute
from zeropoint.compat.fx.custom_config import ConvertCustomConfig, classes_of, swapped_class
from zeropoint.compat.fx.custom_recurrent import is_custom_lstm
from zeropoint.compat.fx.equalization.convert import equalize
from zeropoint.compat.fx.lower import lower
from zeropoint.compat.fx.modules import (
    add_buffer,
    is_activation_post_process,
    is_observer_call,
    set_module,
    unique_device,
)
from zeropoint.compat.fx.node_observers import OBSERVED_DTYPES
from zeropoint.compat.fx.observed import ATTRIBUTES, ObservedGraphModuleAttrs, observed_attributes
from zeropoint.compat.fx.qconfig_dtypes import activation_is_statically_quantized, get_quant_type, weight_is_quantized
from zeropoint.compat.fx.qconfigs import add_fused_types, add_trained_types, qconfigs_by_node, require_same_rules
from zeropoint.compat.fx.scriptable import ConvertedGraph
from zeropoint.compat.fx.support import weight_is_supported
from zeropoint.compat.fx.targets import DYNAMIC, PER_CHANNEL, PER_TENSOR, TARGETS, dtype_argument
from zeropoint.context import CONTEXT
from zeropoint.eager.convert import remove_observers
from zeropoint.graph.passes.nodes import producers
from zeropoint.nn import quantizable
from zeropoint.nn.intrinsic import FusedModule
from zeropoint.nn.quantized.reference.weight import get_qparam_dict
from zeropoint.nn.quantized.storage import found_qparams, has_observed
from zeropoint.nn.stubs import DeQuantStub
from zeropoint.numerics.schemes import qscheme
from zeropoint.qconfig import qconfig_equals
from zeropoint.qconfig_mapping import QConfigMapping


def convert(
    model: fx.GraphModule,
    is_reference: bool,
    custom: ConvertCustomConfig,
    backend_config: BackendConfig,
    qconfig_mapping: QConfigMapping | None = None,
    is_decomposed: bool = False,
    remove_qconfig: bool = True,
    keep_original_weights: bool = False,
) -> fx.GraphModule:
    """The quantized model of one that `prepare` made, in place; a reference model, or one on integers.

    Args:
        is_decomposed: quantize with operators on plain integers, not with quantized tensors.
    """
    attributes = observed_attributes(model)
    if attributes is None:
        raise ValueError("convert_fx expects a model from prepare_fx or prepare_qat_fx")
    if any(attributes.equalization_node_name_to_qconfig.values()):
        equalize(model)
    work = _Conversion(model, attributes, is_reference, is_decomposed, custom, backend_config)
    if qconfig_mapping is not None:
        work.use_rules(qconfig_mapping)
    work.observe_weights()
    work.run()
    model.graph.eliminate_dead_code()
    made: fx.GraphModule = ConvertedGraph(model, model.graph)
    if not is_reference:
        made = lower(made, work.qconfigs, attributes.node_name_to_scope, keep_original_weights)
    if remove_qconfig:
        remove_observers(made)
    made.delete_all_unused_submodules()
    made.meta.pop(ATTRIBUTES, None)
    return made


class _Conversion:
    """A graph while its observers are replaced."""

    def __init__(
        self,
        model: fx.GraphModule,
        attributes: ObservedGraphModuleAttrs,
        is_reference: bool,
        is_decomposed: bool,
        custom: ConvertCustomConfig,
        backend_config: BackendConfig,
    ) -> None:
        self.model, self.graph, self.attributes = model, model.graph, attributes
        self.qconfigs = attributes.node_name_to_qconfig
        self.scopes = attributes.node_name_to_scope
        self.is_reference, self.is_decomposed = is_reference, is_decomposed
        self.custom, self.backend_config = custom, backend_config
        self.modules = dict(model.named_modules(remove_duplicate=False))
        self.device = unique_device(model)
        self.references = backend_config.reference_modules()
        self.trained = set(backend_config.training_modules().values())
        self.fused = backend_config.fused_modules()
        self._quantized_custom: set[fx.Node] = set()

    def use_rules(self, mapping: QConfigMapping) -> None:
        """Leave in float what these rules leave in float; the others have to be those of `prepare`."""
        mapping = copy.deepcopy(mapping)
        if self.attributes.is_qat:
            add_trained_types(mapping, self.backend_config)
        add_fused_types(self.model, mapping)
        require_same_rules(self.attributes.qconfig_mapping, mapping)
        found = qconfigs_by_node(copy.deepcopy(self.modules), self.graph, mapping, self.scopes)
        for name, qconfig in self.qconfigs.items():
            if found[name] is not None and not qconfig_equals(qconfig, found[name]):
                raise ValueError(f"convert_fx: the qconfig of {name} must be that of prepare_fx or None")
        self.qconfigs = found

    def observe_weights(self) -> None:
        """Run the observers of weights that are arguments of functions: nothing else may have."""
        for node in self.graph.nodes:
            config = self.backend_config.by_pattern.get(node.target) if node.op == "call_function" else None
            index = None if config is None else config._input_type_to_index.get("weight")
            weight = node.kwargs.get("weight")
            if weight is None and index is not None and index < len(node.args):
                weight = node.args[index]
            if isinstance(weight, fx.Node) and producers(weight) is not None:
                compute(self.model, weight)

    def run(self) -> None:
        """Replace observers and modules, node by node."""
        inputs = 0
        for node in list(self.graph.nodes):
            if node.op == "placeholder":
                if inputs in self.attributes.prepare_custom_config.input_quantized_indexes:
                    self._dequantize_behind(node)
                inputs += 1
            elif node.op == "output":
                self._keep_quantized(node)
            elif node.op == "call_module":
                self._convert_module(node, self.modules[str(node.target)])

    def _convert_module(self, node: fx.Node, module: nn.Module) -> None:
        kind: Any = type_before_parametrizations(module)
        attributes = observed_attributes(module)
        if is_activation_post_process(module):
            if node.args[0] in self._quantized_custom:
                self._replace_by_dequantize(node)
            else:
                self._replace_observer(node, module)
        elif isinstance(module, DeQuantStub):
            self._replace_by_dequantize(node)
        elif attributes is not None and attributes.is_observed_standalone_module:
            self._convert_standalone(node, module, attributes)
        elif kind in self.references or kind in self.trained or kind in self.fused:
            inner = type_before_parametrizations(module[0]) if kind in self.fused else None
            if inner is None or inner in self.references:
                self._convert_weighted(node, module)
        elif kind in classes_of(self.custom.observed_to_quantized_mapping):
            self._convert_custom(node, module)

    # ------------------------------------------------------------------------------------------------------- observers

    def _has_none(self, node: Any) -> bool:
        return isinstance(node, fx.Node) and self.qconfigs.get(node.name, self) is None

    def _replace_observer(self, node: fx.Node, observer: Any) -> None:
        is_dynamic = bool(getattr(observer, "is_dynamic", False))
        left_float = all(self._has_none(n) for n in (*node.args, *node.users))
        if left_float or not (is_dynamic or observer.dtype in OBSERVED_DTYPES):
            node.replace_all_uses_with(node.args[0])
        else:
            with self.graph.inserting_before(node):
                node.replace_all_uses_with(self._rounded(node, observer, is_dynamic))
        self.graph.erase_node(node)

    def _rounded(self, node: fx.Node, observer: Any, is_dynamic: bool) -> fx.Node:
        """The value that `observer` saw, quantized and dequantized."""
        if self.is_decomposed:
            return self._rounded_decomposed(node, observer, is_dynamic)
        x, graph = node.args[0], self.graph
        if is_dynamic:
            args = (x, dtype_argument(observer.dtype), TARGETS.reduces_range())
            found = graph.call_function(DYNAMIC, args)
            if observer.dtype != torch.float16:
                return graph.call_method("dequantize", (found,))
            return graph.create_node(*TARGETS.dequantize, (found,))
        if observer.dtype == torch.float16:
            half = graph.call_method("to", (x, torch.float16))
            return graph.create_node(*TARGETS.dequantize, (half,))
        place = self._place(node)
        scale, zero_point = found_qparams(observer)
        if qscheme(observer.qscheme).per_channel:
            numbers: tuple[Any, ...] = (int(observer.ch_axis),)
        else:
            scale, zero_point, numbers = float(scale), int(zero_point), ()
        buffers = [
            add_buffer(self.model, graph, f"{place}_{name}_", value, self.device)
            for name, value in (("scale", scale), ("zero_point", zero_point))
        ]
        quantize = PER_CHANNEL if numbers else PER_TENSOR
        q = graph.call_function(quantize, (x, *buffers, *numbers, dtype_argument(observer.dtype)))
        return graph.call_method("dequantize", (q,))

    def _rounded_decomposed(self, node: fx.Node, observer: Any, is_dynamic: bool) -> fx.Node:
        x, graph, ours = node.args[0], self.graph, TARGETS.decomposed
        if not is_dynamic and observer.dtype == torch.float16:
            half = graph.call_method("to", (x, torch.float16))
            return graph.call_method("to", (half, torch.float32))
        dtype = getattr(observer.dtype, "torch_storage", observer.dtype)
        numbers = (observer.quant_min, observer.quant_max, dtype)
        if is_dynamic:
            symmetric = qscheme(observer.qscheme).symmetric
            choose = ours.choose_qparams_symmetric.tensor if symmetric else ours.choose_qparams.tensor
            eps = float(getattr(observer, "eps", torch.finfo(torch.float32).eps))
            chosen = graph.call_function(choose, (x, observer.quant_min, observer.quant_max, eps, dtype))
            pair = [graph.call_function(operator.getitem, (chosen, i)) for i in (0, 1)]
            q = graph.call_function(ours.quantize_per_tensor.tensor, (x, *pair, *numbers))
            return graph.call_function(ours.dequantize_per_tensor.tensor, (q, *pair, *numbers))
        scale, zero_point = found_qparams(observer)
        if qscheme(observer.qscheme).per_channel:
            stored = [
                add_buffer(self.model, graph, f"{self._place(node)}_{name}_", value, self.device)
                for name, value in (("scale", scale), ("zero_point", zero_point))
            ]
            rest = (*stored, int(observer.ch_axis), *numbers)
            q = graph.call_function(ours.quantize_per_channel.default, (x, *rest))
            return graph.call_function(ours.dequantize_per_channel.default, (q, *rest))
        rest = (float(scale), int(zero_point), *numbers)
        q = graph.call_function(ours.quantize_per_tensor.default, (x, *rest))
        return graph.call_function(ours.dequantize_per_tensor.default, (q, *rest))

    def _place(self, node: fx.Node) -> str:
        """What the buffers of an observer are named by: the module of what it observes.

        If that is not quantized itself, the observer is for those who take its value: then it is their module, with
        ``_input`` behind it.
        """
        observed: Any = node.args[0]
        source, suffix = observed, ""
        if self._has_none(observed):
            users = list(node.users)
            linear = (n for n in users if n.op == "call_function" and n.target is F.linear)
            source, suffix = next(linear, users[0] if users else None), "_input"
        path = "" if source is None else self.scopes.get(source.name, ("", None))[0]
        return path + suffix

    def _dequantize_behind(self, node: fx.Node) -> None:
        with self.graph.inserting_after(node):
            made = self.graph.call_method("dequantize", (node,))
        node.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made)

    def _replace_by_dequantize(self, node: fx.Node) -> None:
        """What is behind a module that gives quantized tensors already."""
        source: Any = node.args[0]
        node.replace_all_uses_with(source)
        self.graph.erase_node(node)
        self._dequantize_behind(source)

    def _keep_quantized(self, node: fx.Node) -> None:
        """Let the results that are to stay quantized go out before they are dequantized."""
        indices = self.attributes.prepare_custom_config.output_quantized_indexes
        result = node.args[0]
        if isinstance(result, (list, tuple)):
            for index in indices:
                _skip_dequantize(result[index], node)
        elif indices and 0 in indices:
            _skip_dequantize(result, node)

    # --------------------------------------------------------------------------------------------------------- modules

    def _convert_weighted(self, node: fx.Node, module: Any) -> None:
        qconfig, target = module.qconfig, str(node.target)
        trained = None
        if type_before_parametrizations(module) in self.trained:
            trained = module.weight_fake_quant
            module = module.to_float()
            self._set(target, module)
        observed = node.name in self.attributes.observed_node_names
        dtypes = self.backend_config.dtype_configs(type(module))
        if qconfig is None or self._has_none(node) or not observed or not weight_is_supported(qconfig, dtypes):
            return
        if not weight_is_quantized(qconfig):
            return
        fused = module if isinstance(module, FusedModule) else None
        layer: Any = module if fused is None else fused[0]
        qparams = {"is_decomposed": self.is_decomposed, **self._weight_qparams(layer, qconfig, trained)}
        made = self.references[type_before_parametrizations(layer)].from_float(layer, qparams)
        if fused is None:
            self._set(target, made)
        else:
            fused[0] = made

    def _weight_qparams(self, layer: Any, qconfig: Any, trained: Any) -> dict[str, Any]:
        """What the weights of a layer will be quantized with."""

        def seen(weight: Any, observer: Any = None) -> dict[str, Any]:
            if observer is None:
                observer = qconfig.weight()
                if self.device is not None:
                    observer.to(self.device)
            again = CONTEXT.asks_observers_again and not self.is_decomposed
            if trained is None or again or not has_observed(observer):
                observer(weight)
            return get_qparam_dict(observer)

        if isinstance(layer, nn.RNNCellBase):
            return {name: seen(getattr(layer, name)) for name in ("weight_ih", "weight_hh")}
        if isinstance(layer, (nn.LSTM, nn.GRU)):
            return {n: seen(getattr(layer, n)) for n in layer._flat_weights_names if n.startswith("weight")}
        return seen(layer.weight, trained)

    def _convert_standalone(self, node: fx.Node, module: Any, attributes: ObservedGraphModuleAttrs) -> None:
        from zeropoint.compat.fx.quantize_fx import convert_fx, convert_to_reference_fx

        for index in attributes.standalone_module_input_quantized_idxs or ():
            if index < len(node.args):
                _skip_dequantize(node.args[index], node)
        if attributes.standalone_module_output_quantized_idxs:
            if attributes.standalone_module_output_quantized_idxs[0] != 0:
                raise NotImplementedError(f"{node.target}: a standalone module supports a quantized result 0 only")
            self._dequantize_behind(node)
        convert_inside = convert_to_reference_fx if self.is_reference else convert_fx
        self._set(str(node.target), convert_inside(module, backend_config=self.backend_config))

    def _convert_custom(self, node: fx.Node, module: Any) -> None:
        qconfig = module.qconfig
        if activation_is_statically_quantized(qconfig):
            self._quantized_custom.add(node)
            if is_custom_lstm(node, self.modules):
                taken = [node.args[0], *(node.args[1] if len(node.args) > 1 else ())]
            elif isinstance(module, quantizable.MultiheadAttention):
                taken = list(node.args[:3])
            else:
                taken = [node.args[0]]
                module.activation_post_process = next(
                    self.modules[str(user.target)] for user in node.users if is_observer_call(user, self.modules)
                )
            for value in taken:
                _skip_dequantize(value, node)
        made = swapped_class(module, self.custom.observed_to_quantized_mapping, get_quant_type(qconfig))
        # Not `_set`: another call of the same module converts it again, with what it is called with.
        set_module(self.model, str(node.target), made.from_observed(module))  # type: ignore[attr-defined]

    def _set(self, target: str, module: nn.Module) -> None:
        set_module(self.model, target, module)
        self.modules[target] = module


def _skip_dequantize(value: Any, user: fx.Node) -> None:
    """Let `user` take the quantized tensor behind a value, or behind each value of a list or dictionary."""
    if isinstance(value, fx.Node):
        if value.op == "call_method" and value.target == "dequantize":
            user.replace_input_with(value, value.args[0])
    elif isinstance(value, (list, tuple)):
        for part in value:
            _skip_dequantize(part, user)
    elif isinstance(value, dict):
        for part in value.values():
            _skip_dequantize(part, user)
    else:
        warnings.warn(
            f"a result of type {type(value).__name__} cannot stay quantized: only tensors in lists, "
            "tuples and dictionaries are supported",
            stacklevel=2,
        )
