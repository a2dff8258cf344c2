"""Names that modules of torch.ao take from each other: they can be imported from there, too."""

from __future__ import annotations

# module -> {module that defines them: names}
REEXPORTED = {
    "torch.ao.nn.intrinsic.qat.modules.linear_relu": {
        "torch.ao.nn.intrinsic.modules.fused": "_FusedModule",
    },
    "torch.ao.nn.intrinsic.quantized.modules.conv_add": {
        "torch.ao.nn.quantized.modules.conv": "_reverse_repeat_padding",
    },
    "torch.ao.nn.intrinsic.quantized.modules.conv_relu": {
        "torch.ao.nn.quantized.modules.conv": "_reverse_repeat_padding",
    },
    "torch.ao.nn.intrinsic.quantized.modules.linear_relu": {
        "torch.ao.nn.quantized.modules.utils": "_quantize_weight",
    },
    "torch.ao.nn.qat.modules.conv": {
        "torch.ao.nn.intrinsic.modules.fused": "_FusedModule",
    },
    "torch.ao.nn.qat.modules.linear": {
        "torch.ao.nn.intrinsic.modules.fused": "LinearReLU",
    },
    "torch.ao.nn.quantized.dynamic.modules.conv": {
        "torch.ao.nn.quantized.modules.conv": "_reverse_repeat_padding",
    },
    "torch.ao.nn.quantized.dynamic.modules.linear": {
        "torch.ao.nn.quantized.modules.utils": "_quantize_weight",
    },
    "torch.ao.nn.quantized.dynamic.modules.rnn": {
        "torch.ao.nn.quantized.modules.utils": "_quantize_weight",
    },
    "torch.ao.nn.quantized.functional": {
        "torch.ao.nn.quantized.modules.utils": "_pair_from_first",
    },
    "torch.ao.nn.quantized.modules.conv": {
        "torch.ao.nn.quantized.modules.utils": "WeightedQuantizedModule _quantize_weight",
    },
    "torch.ao.nn.quantized.modules.embedding_ops": {
        "torch.ao.nn.quantized.modules.utils": "_hide_packed_params_repr _quantize_weight",
    },
    "torch.ao.nn.quantized.modules.linear": {
        "torch.ao.nn.quantized.modules.utils": "WeightedQuantizedModule _hide_packed_params_repr _quantize_weight",
    },
    "torch.ao.nn.quantized.reference.modules.conv": {
        "torch.ao.nn.quantized.reference.modules.utils": "ReferenceQuantizedModule",
    },
    "torch.ao.nn.quantized.reference.modules.linear": {
        "torch.ao.nn.quantized.reference.modules.utils": "ReferenceQuantizedModule",
    },
    "torch.ao.nn.quantized.reference.modules.rnn": {
        "torch.ao.nn.quantized.reference.modules.utils": "_quantize_and_dequantize_weight _quantize_weight",
    },
    "torch.ao.nn.quantized.reference.modules.sparse": {
        "torch.ao.nn.quantized.reference.modules.utils": "ReferenceQuantizedModule",
    },
    "torch.ao.nn.sparse.quantized.dynamic.linear": {
        "torch.ao.nn.sparse.quantized.utils": "LinearBlockSparsePattern",
        "torch.ao.nn.quantized.modules.utils": "_hide_packed_params_repr _quantize_weight",
    },
    "torch.ao.nn.sparse.quantized.linear": {
        "torch.ao.nn.quantized.modules.utils": "_hide_packed_params_repr _quantize_weight",
    },
    "torch.ao.ns._numeric_suite": {
        "torch.ao.quantization.quantization_mappings": "get_default_compare_output_module_list",
        "torch.ao.quantization.quantize": "prepare",
    },
    "torch.ao.ns._numeric_suite_fx": {
        "torch.ao.quantization.backend_config.backend_config": "BackendConfig",
        "torch.ao.ns.fx.ns_types": "NSSingleResultValuesType",
        "torch.ao.quantization.qconfig_mapping": "QConfigMapping",
        "torch.ao.ns.fx.qconfig_multi_mapping": "QConfigMultiMapping",
        "torch.ao.quantization.fx.graph_module": "_get_observed_graph_module_attr",
        "torch.ao.quantization.fx.quantize_handler": "_get_pattern_to_quantize_handlers",
        "torch.ao.ns.fx.weight_utils": "extract_weight_from_node",
        "torch.ao.ns.fx.mappings": "get_base_name_to_sets_of_related_ops",
        "torch.ao.quantization.backend_config.utils": "get_fusion_pattern_to_root_node_getter",
        "torch.ao.ns.fx.graph_matcher": "get_matching_subgraph_pairs",
    },
    "torch.ao.ns.fx.graph_matcher": {
        "torch.ao.quantization.fake_quantize": "FakeQuantizeBase",
        "torch.ao.ns.fx.ns_types": "NSSubgraph",
        "torch.ao.quantization.observer": "ObserverBase",
        "torch.ao.ns.fx.mappings": "get_base_name_to_sets_of_related_ops get_unmatchable_types_map",
        "torch.ao.ns.fx.pattern_utils": "get_type_a_related_to_b",
        "torch.ao.quantization.utils": "getattr_from_fqn",
    },
    "torch.ao.ns.fx.graph_passes": {
        "torch.ao.ns.fx.ns_types": "NSSingleResultValuesType NSSubgraph",
        "torch.ao.quantization.observer": "_is_activation_post_process",
        "torch.ao.quantization.fx.utils": "get_new_attr_name_with_prefix",
        "torch.ao.ns.fx.mappings": "get_node_type_to_io_type_map",
        "torch.ao.quantization.utils": "getattr_from_fqn",
    },
    "torch.ao.ns.fx.mappings": {
        "torch.ao.quantization.backend_config.native": "get_native_backend_config",
    },
    "torch.ao.ns.fx.n_shadows_utils": {
        "torch.ao.ns.fx.ns_types": "NSSingleResultValuesType",
        "torch.ao.quantization.qconfig": "QConfigAny",
        "torch.ao.quantization.qconfig_mapping": "QConfigMapping",
        "torch.ao.quantization.utils": "getattr_from_fqn",
    },
    "torch.ao.ns.fx.pattern_utils": {
        "torch.ao.quantization.fake_quantize": "FakeQuantizeBase",
        "torch.ao.quantization.observer": "ObserverBase",
        "torch.ao.quantization.fx.quantize_handler": "_get_pattern_to_quantize_handlers",
        "torch.ao.quantization.backend_config.native": "get_native_backend_config",
        "torch.ao.quantization.utils": "getattr_from_fqn",
    },
    "torch.ao.ns.fx.qconfig_multi_mapping": {
        "torch.ao.quantization.qconfig_mapping": "QConfigMapping",
    },
    "torch.ao.ns.fx.utils": {
        "torch.ao.quantization.fake_quantize": "FakeQuantizeBase",
        "torch.ao.quantization.observer": "ObserverBase _is_activation_post_process",
        "torch.ao.quantization.utils": "getattr_from_fqn",
    },
    "torch.ao.ns.fx.weight_utils": {
        "torch.ao.ns.fx.ns_types": "NSSingleResultValuesType",
        "torch.ao.quantization.utils": "getattr_from_fqn",
    },
    "torch.ao.pruning._experimental.pruner.base_structured_sparsifier": {
        "torch.ao.quantization.utils": "MatchAllNode",
    },
    "torch.ao.pruning._experimental.pruner.match_utils": {
        "torch.ao.quantization.utils": "MatchAllNode",
    },
    "torch.ao.quantization.fake_quantize": {
        "torch.ao.quantization.observer": (
            "FixedQParamsObserver HistogramObserver MovingAverageMinMaxObserver "
            "MovingAveragePerChannelMinMaxObserver _with_args default_fixed_qparams_range_0to1_observer "
            "default_fixed_qparams_range_neg1to1_observer"
        ),
    },
    "torch.ao.quantization.fuser_method_mappings": {
        "torch.ao.quantization.utils": "MatchAllNode Pattern get_combined_dict",
    },
    "torch.ao.quantization.observer": {
        "torch.ao.quantization.utils": (
            "calculate_qmin_qmax check_min_max_valid is_per_channel is_per_tensor validate_qmin_qmax"
        ),
    },
    "torch.ao.quantization.qconfig": {
        "torch.ao.quantization.fake_quantize": (
            "FakeQuantize FakeQuantizeBase FusedMovingAvgObsFakeQuantize default_dynamic_fake_quant "
            "default_embedding_fake_quant default_embedding_fake_quant_4bit default_fake_quant "
            "default_fused_act_fake_quant default_fused_per_channel_wt_fake_quant default_fused_wt_fake_quant "
            "default_per_channel_weight_fake_quant default_weight_fake_quant "
            "fused_per_channel_wt_fake_quant_range_neg_127_to_127 fused_wt_fake_quant_range_neg_127_to_127"
        ),
        "torch.ao.quantization.observer": (
            "HistogramObserver MinMaxObserver MovingAverageMinMaxObserver NoopObserver ObserverBase "
            "PlaceholderObserver ReuseInputObserver _PartialWrapper default_debug_observer "
            "default_dynamic_quant_observer default_float_qparams_observer default_float_qparams_observer_4bit "
            "default_observer default_per_channel_weight_observer default_placeholder_observer "
            "default_reuse_input_observer default_weight_observer "
            "per_channel_weight_observer_range_neg_127_to_127 weight_observer_range_neg_127_to_127"
        ),
    },
    "torch.ao.quantization.qconfig_mapping": {
        "torch.ao.quantization.fake_quantize": "FixedQParamsFakeQuantize default_weight_fake_quant",
        "torch.ao.quantization.qconfig": (
            "QConfig QConfigAny default_quint8_weight_qconfig default_reuse_input_qconfig "
            "default_symmetric_qnnpack_qat_qconfig default_symmetric_qnnpack_qconfig get_default_qat_qconfig "
            "get_default_qconfig"
        ),
        "torch.ao.quantization.observer": (
            "_PartialWrapper default_fixed_qparams_range_0to1_observer "
            "default_fixed_qparams_range_neg1to1_observer default_placeholder_observer default_weight_observer"
        ),
    },
    "torch.ao.quantization.quantization_mappings": {
        "torch.ao.quantization.stubs": "DeQuantStub QuantStub",
        "torch.ao.quantization.fake_quantize": (
            "default_fixed_qparams_range_0to1_fake_quant default_fixed_qparams_range_neg1to1_fake_quant"
        ),
        "torch.ao.quantization.utils": "get_combined_dict",
    },
    "torch.ao.quantization.quantize": {
        "torch.ao.quantization.stubs": "DeQuantStub QuantWrapper",
        "torch.ao.nn.intrinsic.modules.fused": "_FusedModule",
        "torch.ao.quantization.qconfig": (
            "_add_module_to_qconfig_obs_ctr default_dynamic_qconfig float16_dynamic_qconfig "
            "float_qparams_weight_only_qconfig float_qparams_weight_only_qconfig_4bit"
        ),
        "torch.ao.quantization.quantization_mappings": (
            "_get_special_act_post_process _has_special_act_post_process "
            "get_default_dynamic_quant_module_mappings get_default_qat_module_mappings "
            "get_default_qconfig_propagation_list get_default_static_quant_module_mappings "
            "get_default_static_quant_reference_module_mappings no_observer_set"
        ),
        "torch.ao.quantization.utils": "get_qparam_dict has_no_children_ignoring_parametrizations",
    },
    "torch.ao.quantization.quantize_fx": {
        "torch.ao.quantization.backend_config.backend_config": "BackendConfig",
        "torch.ao.quantization.fx.custom_config": "ConvertCustomConfig FuseCustomConfig PrepareCustomConfig",
        "torch.ao.quantization.qconfig_mapping": "QConfigMapping",
        "torch.ao.quantization.fx.convert": "convert",
        "torch.ao.quantization.fx.fuse": "fuse",
        "torch.ao.quantization.backend_config.tensorrt": "get_tensorrt_backend_config",
        "torch.ao.quantization.fx.prepare": "prepare",
    },
    "torch.ao.quantization.quantize_jit": {
        "torch.ao.quantization.qconfig": "QConfig",
        "torch.ao.quantization.quant_type": "QuantType",
    },
    "torch.ao.quantization.stubs": {
        "torch.ao.quantization.qconfig": "QConfig",
    },
    "torch.ao.quantization.utils": {
        "torch.ao.quantization.quant_type": "QuantType",
    },
}
