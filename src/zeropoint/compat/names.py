"""The table of old names: what each is called now, or why it is gone.

`MODULES` has the modules of torch.ao that define names: module -> {where: names}. `where` is the module here that has
these names, or, with a space in it, the reason why there is none. ``old=new`` is a name that changed. `PACKAGES` has
those that gather the names of others, `MOVED` the older paths of the same modules, `GONE` modules without a
counterpart. What stands directly in `torch` and in torch.Tensor is `FUNCTIONS` and `METHODS`, the operators are
`OPERATORS`; `VALUES` are its dtypes and schemes.
"""

from __future__ import annotations

# ------------------------------------------------------------------------------------------------------------ reasons

FX = "internal to torch.ao's FX mode; zeropoint.fx creates the same graphs"
INSIDE = "internal helper of a torch.ao module; the module itself is supported"
BACKEND = "internal to torch.ao's backends; zeropoint.fx generates backends from zeropoint.operators"
EQUALIZE = "internal to equalize; use the weight and the bias of the layer"
NOT_OLD = "not part of the deprecated stack: PyTorch keeps it"
REFUSED = "PyTorch rejects it too; load models that call it with zeropoint.compat.load_script and save them again"

# ------------------------------------------------------------------------------------------------------------ modules

MODULES = {
    "torch.ao.quantization": {
        "zeropoint.compat.old_functions": "default_eval_fn get_combined_dict",
        "zeropoint.compat.fx_old_functions": "ObserverOrFakeQuantize Pattern",
        "zeropoint.compat.fx.patterns": "MatchAllNode",
    },
    "torch.ao.quantization._learnable_fake_quantize": {
        "zeropoint.fake_quant.learnable": "_LearnableFakeQuantize",
    },
    "torch.ao.quantization.fake_quantize": {
        "zeropoint.compat.old_functions": "_is_per_channel=is_per_channel _is_per_tensor=is_per_tensor",
        "zeropoint.compat.eager_names": "_is_fake_quant_script_module _is_symmetric_quant",
        "zeropoint": (
            "FakeQuantize FakeQuantizeBase FixedQParamsFakeQuantize FusedMovingAvgObsFakeQuantize "
            "default_affine_fixed_qparams_fake_quant default_dynamic_fake_quant default_embedding_fake_quant "
            "default_embedding_fake_quant_4bit default_fake_quant default_fixed_qparams_range_0to1_fake_quant "
            "default_fixed_qparams_range_neg1to1_fake_quant default_fused_act_fake_quant "
            "default_fused_per_channel_wt_fake_quant default_fused_wt_fake_quant default_histogram_fake_quant "
            "default_per_channel_weight_fake_quant default_symmetric_fixed_qparams_fake_quant "
            "default_weight_fake_quant disable_fake_quant disable_observer enable_fake_quant enable_observer "
            "fused_per_channel_wt_fake_quant_range_neg_127_to_127 fused_wt_fake_quant_range_neg_127_to_127"
        ),
    },
    "torch.ao.quantization.fuse_modules": {
        "zeropoint": "fuse_known_modules fuse_modules fuse_modules_qat",
        "zeropoint.compat.eager_names": "_get_module _set_module",
        "zeropoint.eager.fuse": "_fuse_modules",
        "zeropoint.compat.fx.fuser_methods": "fuse_conv_bn fuse_conv_bn_relu get_fuser_method",
    },
    "torch.ao.quantization.fuser_method_mappings": {
        "zeropoint.compat.fx.fuser_methods": (
            "fuse_conv_bn fuse_conv_bn_relu fuse_convtranspose_bn fuse_linear_bn get_fuser_method get_fuser_method_new"
            " _sequential_wrapper2=sequential_wrapper2"
            " _DEFAULT_OP_LIST_TO_FUSER_METHOD=FUSER_METHODS"
        ),
    },
    "torch.ao.quantization.observer": {
        "zeropoint": (
            "AffineQuantizedObserverBase FixedQParamsObserver Granularity HistogramObserver MappingType "
            "MinMaxObserver MovingAverageMinMaxObserver MovingAveragePerChannelMinMaxObserver NoopObserver "
            "ObserverBase PerAxis PerBlock PerChannelMinMaxObserver PerGroup PerRow PerTensor PerToken "
            "PlaceholderObserver RecordingObserver ReuseInputObserver TorchAODType UniformQuantizationObserverBase "
            "ZeroPointDomain default_affine_fixed_qparams_observer default_debug_observer "
            "default_dynamic_quant_observer default_fixed_qparams_range_0to1_observer "
            "default_fixed_qparams_range_neg1to1_observer default_float_qparams_observer "
            "default_float_qparams_observer_4bit default_histogram_observer default_observer "
            "default_per_channel_weight_observer default_placeholder_observer default_reuse_input_observer "
            "default_symmetric_fixed_qparams_observer default_weight_observer get_block_size get_observer_state_dict "
            "load_observer_state_dict per_channel_weight_observer_range_neg_127_to_127 "
            "weight_observer_range_neg_127_to_127"
        ),
        "zeropoint.observers.partial": "_PartialWrapper=PartialWrapper",
        "zeropoint.observers.base": "_ObserverBase=UniformQuantizationObserverBase",
        "zeropoint.compat.eager_names": "_is_per_channel_script_obs_instance _with_args _with_callable_args",
        "zeropoint.compat.fx.modules": "_is_activation_post_process=is_activation_post_process",
        "abc": "ABC",
    },
    "torch.ao.quantization.qconfig": {
        "zeropoint": (
            "QConfig QConfigAny QConfigDynamic default_activation_only_qconfig default_debug_qconfig "
            "default_dynamic_qat_qconfig default_dynamic_qconfig default_embedding_qat_qconfig "
            "default_embedding_qat_qconfig_4bit default_per_channel_qconfig "
            "default_per_channel_symmetric_qnnpack_qat_qconfig default_per_channel_symmetric_qnnpack_qconfig "
            "default_qat_qconfig default_qat_qconfig_v2 default_qconfig default_quint8_weight_qconfig "
            "default_reuse_input_qconfig default_symmetric_qnnpack_qat_qconfig default_symmetric_qnnpack_qconfig "
            "default_weight_only_qconfig float16_dynamic_qconfig float16_static_qconfig "
            "float_qparams_weight_only_qconfig float_qparams_weight_only_qconfig_4bit get_default_qat_qconfig "
            "get_default_qat_qconfig_dict get_default_qconfig get_default_qconfig_dict per_channel_dynamic_qconfig "
            "qconfig_equals"
        ),
        "zeropoint.qconfig": "_add_module_to_qconfig_obs_ctr=add_module_to_qconfig_obs_ctr",
        "zeropoint.compat.eager_names": "_assert_valid_qconfig",
    },
    "torch.ao.quantization.qconfig_mapping": {
        "zeropoint": "QConfigMapping get_default_qat_qconfig_mapping get_default_qconfig_mapping",
        "zeropoint.qconfig_mapping": (
            "_FIXED_QPARAMS_OP_TO_OBSERVER=FIXED_QPARAMS"
            " _get_symmetric_qnnpack_qat_qconfig_mapping=get_symmetric_qnnpack_qat_qconfig_mapping"
            " _get_symmetric_qnnpack_qconfig_mapping=get_symmetric_qnnpack_qconfig_mapping"
        ),
        "zeropoint.compat.fx_old_functions": (
            "_GLOBAL_DICT_KEY _MODULE_NAME_DICT_KEY _MODULE_NAME_OBJECT_TYPE_ORDER_DICT_KEY"
            " _MODULE_NAME_REGEX_DICT_KEY _OBJECT_TYPE_DICT_KEY"
        ),
    },
    "torch.ao.quantization.quant_type": {
        "zeropoint.compat.fx.qconfig_dtypes": (
            "QuantType _get_quant_type_to_str=quant_type_to_str _quant_type_from_str=quant_type_from_str"
        ),
    },
    "torch.ao.quantization.quantization_mappings": {
        "zeropoint": (
            "get_default_compare_output_module_list get_default_dynamic_quant_module_mappings "
            "get_default_float_to_quantized_operator_mappings get_default_qat_module_mappings "
            "get_default_qconfig_propagation_list get_default_static_quant_module_mappings "
            "get_default_static_quant_reference_module_mappings get_dynamic_quant_module_class "
            "get_embedding_qat_module_mappings get_embedding_static_quant_module_mappings get_quantized_operator "
            "get_static_quant_module_class no_observer_set"
        ),
        "zeropoint.compat.old_functions": (
            "DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS "
            "DEFAULT_MODULE_TO_ACT_POST_PROCESS DEFAULT_QAT_MODULE_MAPPINGS "
            "DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS DEFAULT_STATIC_QUANT_MODULE_MAPPINGS"
        ),
        "zeropoint.compat.eager_names": "_get_special_act_post_process _has_special_act_post_process",
        "zeropoint.compat.sparse": (
            "DEFAULT_DYNAMIC_SPARSE_QUANT_MODULE_MAPPINGS DEFAULT_STATIC_SPARSE_QUANT_MODULE_MAPPINGS "
            "get_default_dynamic_sparse_quant_module_mappings get_default_static_sparse_quant_module_mappings"
        ),
    },
    "torch.ao.quantization.quantize": {
        "zeropoint": (
            "add_quant_dequant convert get_default_custom_config_dict prepare prepare_qat propagate_qconfig_ quantize "
            "quantize_dynamic quantize_qat swap_module"
        ),
        "zeropoint.compat.old_functions": "_get_observer_dict",
        "zeropoint.compat.eager_names": (
            "_add_observer_ _convert _get_unique_devices_ _propagate_qconfig_helper"
            " _register_activation_post_process_hook _remove_activation_post_process _remove_qconfig"
        ),
        "zeropoint.compat.fx.modules": "_is_activation_post_process=is_activation_post_process",
        "zeropoint.eager.prepare": "_observer_forward_hook=_hook _observer_forward_pre_hook=_pre_hook",
    },
    "torch.ao.quantization.quantize_fx": {
        "zeropoint.fx": "convert_fx convert_to_reference_fx fuse_fx prepare_fx prepare_qat_fx",
        "zeropoint.compat.fx.quantize_fx": (
            "_convert_to_reference_decomposed_fx=convert_to_reference_decomposed_fx _fuse_fx=fuse_traced"
        ),
        "zeropoint.compat.fx.observed": "attach_preserved_attrs_to_model",
        "zeropoint.compat.fx.tracer": "QuantizationTracer _swap_ff_with_fxff=replace_float_functionals",
        "torch.fx.proxy": "Scope ScopeContextManager",
        FX: (
            "_check_is_graph_module _convert_fx _convert_standalone_module_fx _prepare_fx _prepare_standalone_module_fx"
        ),
    },
    "torch.ao.quantization.backend_config.backend_config": {
        "zeropoint.fx": "BackendConfig BackendPatternConfig DTypeConfig DTypeWithConstraints ObservationType",
    },
    "torch.ao.quantization.backend_config.executorch": {"zeropoint.fx": "get_executorch_backend_config"},
    "torch.ao.quantization.backend_config.fbgemm": {"zeropoint.fx": "get_fbgemm_backend_config"},
    "torch.ao.quantization.backend_config.native": {
        "zeropoint.fx": "get_native_backend_config get_native_backend_config_dict",
        "zeropoint.compat.fx.backends": (
            "get_test_only_legacy_native_backend_config get_test_only_legacy_native_backend_config_dict"
        ),
    },
    "torch.ao.quantization.backend_config.onednn": {"zeropoint.fx": "get_onednn_backend_config"},
    "torch.ao.quantization.backend_config.qnnpack": {"zeropoint.fx": "get_qnnpack_backend_config"},
    "torch.ao.quantization.backend_config.tensorrt": {
        "zeropoint.fx": "get_tensorrt_backend_config get_tensorrt_backend_config_dict",
    },
    "torch.ao.quantization.backend_config.utils": {
        "zeropoint.compat.fx_old_functions": (
            "get_fused_module_classes get_fuser_method_mapping get_fusion_pattern_to_extra_inputs_getter"
            " get_fusion_pattern_to_root_node_getter get_module_to_qat_module get_pattern_to_dtype_configs"
            " get_pattern_to_input_type_to_index get_qat_module_classes get_root_module_to_quantized_reference_module"
        ),
    },
    "torch.ao.quantization.backend_config.x86": {"zeropoint.fx": "get_x86_backend_config"},
    "torch.ao.quantization.fx": {
        "zeropoint.compat.fx.convert": "convert",
        "zeropoint.compat.fx.fuse": "fuse",
        "zeropoint.compat.fx.prepare": "prepare",
    },
    "torch.ao.quantization.fx.convert": {"zeropoint.compat.fx.convert": "convert"},
    "torch.ao.quantization.fx.fuse": {"zeropoint.compat.fx.fuse": "fuse"},
    "torch.ao.quantization.fx.fuse_handler": {FX: "DefaultFuseHandler FuseHandler"},
    "torch.ao.quantization.fx.prepare": {
        "zeropoint.compat.fx.prepare": "prepare",
        "zeropoint.compat.fx_insides": "_insert_obs_or_fq=insert_observer _save_state=save_state",
    },
    "torch.ao.quantization.fx.lower_to_fbgemm": {"zeropoint.compat.fx_insides": "lower_to_fbgemm"},
    "torch.ao.quantization.fx._decomposed": {
        "zeropoint.compat.fx_insides": (
            "_per_token_quant_qparam_dim_check=require_qparams_of_tokens quantize_per_channel_group"
            " quantized_decomposed_lib"
        ),
    },
    "torch.ao.quantization.fx.custom_config": {
        "zeropoint.fx": "ConvertCustomConfig FuseCustomConfig PrepareCustomConfig StandaloneModuleConfigEntry",
        "zeropoint.compat.fx.custom_config": (
            "FLOAT_TO_OBSERVED_DICT_KEY INPUT_QUANTIZED_INDEXES_DICT_KEY NON_TRACEABLE_MODULE_CLASS_DICT_KEY"
            " NON_TRACEABLE_MODULE_NAME_DICT_KEY OBSERVED_TO_QUANTIZED_DICT_KEY OUTPUT_QUANTIZED_INDEXES_DICT_KEY"
            " PRESERVED_ATTRIBUTES_DICT_KEY STANDALONE_MODULE_CLASS_DICT_KEY STANDALONE_MODULE_NAME_DICT_KEY"
        ),
    },
    "torch.ao.quantization.fx.graph_module": {
        "zeropoint.compat.fx_old_functions": (
            "_get_observed_graph_module_attr _is_observed_module _is_observed_standalone_module"
        ),
    },
    "torch.ao.quantization.fx.lstm_utils": {
        "zeropoint.compat.fx.lstm_parts": (
            "_get_lstm_with_individually_observed_parts=lstm_with_observed_parts"
            " _get_reference_quantized_lstm_module=reference_lstm"
        ),
    },
    "torch.ao.quantization.fx.match_utils": {
        "zeropoint.compat.fx.patterns": "MatchAllNode _is_match=is_match",
    },
    "torch.ao.quantization.fx.pattern_utils": {
        "zeropoint.compat.fx_old_functions": (
            "_DEFAULT_FUSION_PATTERNS _DEFAULT_OUTPUT_FAKE_QUANTIZE_MAP _DEFAULT_OUTPUT_OBSERVER_MAP"
            " _DEFAULT_QUANTIZATION_PATTERNS _register_fusion_pattern _register_quant_pattern"
            " get_default_fusion_patterns get_default_output_activation_post_process_map get_default_quant_patterns"
        ),
    },
    "torch.ao.quantization.fx.qconfig_mapping_utils": {
        "zeropoint.compat.fx.qconfigs": (
            "_get_module_name_qconfig=module_name_qconfig _get_module_name_regex_qconfig=module_name_regex_qconfig"
            " _get_object_type_qconfig=object_type_qconfig"
            " _maybe_adjust_qconfig_for_module_name_object_type_order=order_qconfig"
            " _compare_prepare_convert_qconfig_mappings=require_same_rules"
            " _update_qconfig_for_fusion=add_fused_types _update_qconfig_for_qat=add_trained_types"
        ),
        "zeropoint.compat.fx_insides": "_generate_node_name_to_qconfig=qconfigs_of_nodes",
    },
    "torch.ao.quantization.fx.quantize_handler": {
        "zeropoint.compat.fx_old_functions": (
            "DefaultNodeQuantizeHandler QuantizeHandler"
            " _get_pattern_to_quantize_handlers=get_pattern_to_quantize_handlers"
        ),
        "zeropoint.compat.fx.patterns": "_default_root_node_getter=root_of",
    },
    "torch.ao.quantization.fx._equalize": {
        "zeropoint.compat.fx.equalization": (
            "EqualizationQConfig _InputEqualizationObserver=InputEqualizationObserver"
            " _WeightEqualizationObserver=WeightEqualizationObserver calculate_equalization_scale"
            " default_equalization_qconfig input_equalization_observer weight_equalization_observer"
        ),
        "zeropoint.compat.fx.equalization.observers": "is_equalization_observer",
        "zeropoint.compat.fx_old_functions": "convert_eq_obs update_obs_for_equalization",
        "zeropoint.compat.fx.equalization.convert": "_convert_equalization_ref=equalize",
        "zeropoint.compat.fx.equalization.layers": "node_supports_equalization=equalizes",
        "zeropoint.compat.numeric_suite.graph.ranking": (
            "get_equalization_qconfig_dict=equalize_worst get_layer_sqnr_dict=layer_sqnr"
        ),
        FX: (
            "CUSTOM_MODULE_SUPP_LIST clear_weight_quant_obs_node custom_module_supports_equalization"
            " fused_module_supports_equalization get_op_node_and_weight_eq_obs maybe_get_next_equalization_scale"
            " maybe_get_next_input_eq_obs maybe_get_weight_eq_obs_node nn_module_supports_equalization"
            " qsheme_mapping_per_tensor_to_per_channel remove_node reshape_scale scale_input_observer"
            " scale_weight_functional scale_weight_node"
        ),
    },
    "torch.ao.quantization.fx._model_report.detector": {
        "zeropoint.compat.fx.model_report": (
            "DetectorBase DetectorQConfigInfo DynamicStaticDetector InputWeightEqualizationDetector OutlierDetector"
            " PerChannelDetector"
        ),
        "zeropoint.compat.fx.model_report.detector": (
            "DETECTOR_IS_POST_OBS_KEY=IS_POST DETECTOR_OBS_ARGS_KEY=ARGUMENTS DETECTOR_OBS_TO_INSERT_KEY=OBSERVER"
            " DETECTOR_TARGET_NODE_KEY=TARGET"
        ),
    },
    "torch.ao.quantization.fx._model_report.model_report": {"zeropoint.compat.fx.model_report": "ModelReport"},
    "torch.ao.quantization.fx._model_report.model_report_observer": {
        "zeropoint.compat.fx.model_report": "ModelReportObserver",
    },
    "torch.ao.quantization.fx._model_report.model_report_visualizer": {
        "zeropoint.compat.fx.model_report": "ModelReportVisualizer",
    },
    "torch.ao.quantization.fx.tracer": {"zeropoint.compat.fx.tracer": "QuantizationTracer"},
    "torch.ao.quantization.fx.utils": {
        "zeropoint.compat.fx.custom_recurrent": "_reroute_tuple_getitem_pattern=skip_tuples",
        "zeropoint.compat.fx_old_functions": "NodeInfo get_new_attr_name_with_prefix",
        "zeropoint.compat.fx.modules": "assert_and_get_unique_device=unique_device",
        "zeropoint.compat.fx_insides": "_get_module=module_of graph_module_from_producer_nodes node_arg_is_weight",
        "zeropoint.compat.fx.observed": "ObservedGraphModuleAttrs",
    },
    "torch.ao.quantization.quantize_jit": {
        "zeropoint": (
            "convert_dynamic_jit convert_jit fuse_conv_bn_jit prepare_dynamic_jit prepare_jit quantize_dynamic_jit"
            " quantize_jit script_qconfig"
        ),
        "zeropoint.compat.old_functions": "script_qconfig_dict",
        "zeropoint.compat.script_mode_names": (
            "_check_forward_method _check_is_script_module _convert_jit _prepare_jit _quantize_jit"
        ),
        "zeropoint.compat.on_device": (
            "_convert_ondevice_dynamic_jit _convert_ondevice_jit _prepare_ondevice_dynamic_jit _prepare_ondevice_jit"
            " _quantize_ondevice_dynamic_jit _quantize_ondevice_dynamic_jit_impl"
        ),
    },
    "torch.ao.quantization.stubs": {
        "zeropoint": "DeQuantStub QuantStub QuantWrapper",
    },
    "torch.ao.quantization.utils": {
        "zeropoint": "get_qparam_dict",
        "zeropoint.compat.fx.qconfig_dtypes": (
            "activation_dtype activation_is_dynamically_quantized activation_is_int32_quantized "
            "activation_is_int8_quantized activation_is_statically_quantized get_qconfig_dtypes get_quant_type "
            "op_is_int8_dynamically_quantized weight_dtype weight_is_quantized weight_is_statically_quantized"
        ),
        "zeropoint.compat.old_functions": (
            "calculate_qmin_qmax check_min_max_valid get_combined_dict getattr_from_fqn "
            "has_no_children_ignoring_parametrizations is_per_channel is_per_tensor to_underlying_dtype "
            "validate_qmin_qmax"
        ),
        "zeropoint.compat.fx_old_functions": (
            "NodePattern Pattern get_fqn_to_example_inputs get_swapped_custom_module_class"
        ),
        "zeropoint.compat.fx.patterns": "MatchAllNode",
        "zeropoint.compat.fx.modules": "_parent_name=parent_and_name",
        "zeropoint.compat.eager_names": "determine_qparams",
        FX: "DEPRECATION_WARNING check_node",
    },
    "torch.ao.quantization._equalize": {
        "zeropoint.accuracy.equalize": "channel_range converged cross_layer_equalization equalize",
        EQUALIZE: (
            "expand_groups_in_paired_modules_list get_module_bias get_module_weight get_name_by_module has_bias"
            " max_over_ndim min_over_ndim process_paired_modules_list_to_name set_module_bias set_module_weight"
        ),
    },
    "torch.ao.quantization._correct_bias": {
        "zeropoint.compat.numeric_suite.bias_correction": (
            "MeanShadowLogger bias_correction _supported_modules=FLOAT_LAYERS"
            " _supported_modules_quantized=QUANTIZED_LAYERS"
        ),
        "zeropoint.compat.eager_names": "get_module=_get_module get_param parent_child_names",
    },
    "torch.ao.ns._numeric_suite": {
        "zeropoint.compat.numeric_suite": (
            "Logger OutputLogger Shadow ShadowLogger compare_model_outputs compare_model_stub compare_weights"
            " get_logger_dict get_matching_activations prepare_model_outputs prepare_model_with_stubs"
        ),
        "zeropoint.compat.numeric_suite.eager": "NON_LEAF_MODULE_TO_ADD_OBSERVER_ALLOW_LIST",
    },
    "torch.ao.ns._numeric_suite_fx": {
        "zeropoint.compat.numeric_suite.graph.compare": (
            "NSTracer add_loggers add_shadow_loggers extend_logger_results_with_comparison extract_logger_info"
            " extract_shadow_logger_info extract_weights _extract_weights_impl=extract_weights_of_graphs"
            " _add_loggers_impl=add_loggers_to_graphs _add_shadow_loggers_impl=add_shadow_loggers_to_graphs"
        ),
        "zeropoint.compat.numeric_suite.graph.loggers": "OutputComparisonLogger OutputLogger RNNReturnType=Recurrent",
        "zeropoint.compat.numeric_suite.graph.n_shadows": (
            "convert_n_shadows_model loggers_set_enabled loggers_set_save_activations prepare_n_shadows_model"
            " _prepare_n_shadows_add_loggers_model=prepare_shadow_network"
        ),
        "zeropoint.compat.numeric_suite.graph.n_shadows_results": (
            "_n_shadows_compare_weights=n_shadows_compare_weights extract_results_n_shadows_model"
            " print_comparisons_n_shadows_model"
        ),
    },
    "torch.ao.ns.fx.graph_matcher": {
        "zeropoint.compat.numeric_suite.graph.matching": (
            "GraphMatchingException get_matching_subgraph_pairs=matching_subgraphs"
        ),
    },
    "torch.ao.ns.fx.mappings": {
        "zeropoint.compat.numeric_suite.graph.related": (
            "add_op_to_sets_of_related_ops=add_to_set get_base_name_for_op=base_name_of"
            " get_base_name_to_sets_of_related_ops=related_sets get_node_type_to_io_type_map=io_types"
            " get_unmatchable_types_map=unmatchable"
        ),
    },
    "torch.ao.ns.fx.ns_types": {
        "zeropoint.compat.numeric_suite.graph.matching": "NSSubgraph=Subgraph",
        "zeropoint.compat.numeric_suite.graph.results": "NSSingleResultValuesType=ResultKind NSResultsType=Results",
    },
    "torch.ao.ns.fx.pattern_utils": {
        "zeropoint.compat.numeric_suite.graph.related": "get_type_a_related_to_b=related_types",
    },
    "torch.ao.ns.fx.qconfig_multi_mapping": {
        "zeropoint.compat.numeric_suite.graph.multi_mapping": "QConfigMultiMapping",
    },
    "torch.ao.ns.fx.utils": {
        "zeropoint.compat.numeric_suite.graph.measures": (
            "compute_cosine_similarity compute_normalized_l2_error compute_sqnr"
        ),
    },
    "torch.ao.ns.fx.weight_utils": {
        "zeropoint.compat.numeric_suite.graph.weights": (
            "extract_weight_from_node=weight_of get_op_to_type_to_weight_extraction_fn=weight_extraction"
            " get_linear_fun_weight=weight_of_function get_conv_fun_weight=weight_of_function"
        ),
    },
    "torch.ao.nn.intrinsic.modules.fused": {
        "zeropoint.nn.intrinsic": (
            "BNReLU2d BNReLU3d ConvAdd2d ConvAddReLU2d ConvBn1d ConvBn2d ConvBn3d ConvBnReLU1d ConvBnReLU2d "
            "ConvBnReLU3d ConvReLU1d ConvReLU2d ConvReLU3d LinearBn1d LinearLeakyReLU LinearReLU LinearTanh "
            "_FusedModule=FusedModule"
        ),
    },
    "torch.ao.nn.intrinsic.qat.modules.conv_fused": {
        "zeropoint.nn.intrinsic.qat": (
            "ConvBn1d ConvBn2d ConvBn3d ConvBnReLU1d ConvBnReLU2d ConvBnReLU3d ConvReLU1d ConvReLU2d ConvReLU3d "
            "freeze_bn_stats update_bn_stats"
        ),
        "zeropoint.compat.trained_bases": "_BN_CLASS_MAP _ConvBnNd",
    },
    "torch.ao.nn.intrinsic.qat.modules.linear_fused": {
        "zeropoint.nn.intrinsic.qat": "LinearBn1d",
    },
    "torch.ao.nn.intrinsic.qat.modules.linear_relu": {
        "zeropoint.nn.intrinsic.qat": "LinearReLU",
    },
    "torch.ao.nn.intrinsic.quantized.dynamic.modules.linear_relu": {
        "zeropoint.nn.intrinsic.quantized.dynamic": "LinearReLU",
    },
    "torch.ao.nn.intrinsic.quantized.modules.bn_relu": {
        "zeropoint.nn.intrinsic.quantized": "BNReLU2d BNReLU3d",
    },
    "torch.ao.nn.intrinsic.quantized.modules.conv_add": {
        "zeropoint.nn.intrinsic.quantized": "ConvAdd2d ConvAddReLU2d",
    },
    "torch.ao.nn.intrinsic.quantized.modules.conv_relu": {
        "zeropoint.nn.intrinsic.quantized": "ConvReLU1d ConvReLU2d ConvReLU3d",
    },
    "torch.ao.nn.intrinsic.quantized.modules.linear_relu": {
        "zeropoint.nn.intrinsic.quantized": "LinearLeakyReLU LinearReLU LinearTanh",
    },
    "torch.ao.nn.qat.dynamic.modules.linear": {
        "zeropoint.nn.qat.dynamic": "Linear",
    },
    "torch.ao.nn.qat.modules.conv": {
        "zeropoint.nn.qat": "Conv1d Conv2d Conv3d",
        "zeropoint.compat.trained_bases": "_ConvNd",
    },
    "torch.ao.nn.qat.modules.embedding_ops": {
        "zeropoint.nn.qat": "Embedding EmbeddingBag",
    },
    "torch.ao.nn.qat.modules.linear": {
        "zeropoint.nn.qat": "Linear",
    },
    "torch.ao.nn.quantizable.modules.activation": {
        "zeropoint.nn.quantizable": "MultiheadAttention",
    },
    "torch.ao.nn.quantizable.modules.rnn": {
        "zeropoint.nn.quantizable": "LSTM LSTMCell",
        "zeropoint.nn.quantizable.lstm": "_LSTMLayer=_Layer _LSTMSingleLayer=_Direction",
    },
    "torch.ao.nn.sparse.quantized.linear": {"zeropoint.compat.sparse": "Linear LinearPackedParams"},
    "torch.ao.nn.sparse.quantized.dynamic.linear": {"zeropoint.compat.sparse": "Linear=DynamicLinear"},
    "torch.ao.nn.sparse.quantized.utils": {"zeropoint.compat.sparse": "LinearBlockSparsePattern"},
    "torch.ao.nn.quantized.dynamic.modules.conv": {
        "zeropoint.nn.quantized.dynamic": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d",
    },
    "torch.ao.nn.quantized.dynamic.modules.linear": {
        "zeropoint.nn.quantized.dynamic": "Linear",
    },
    "torch.ao.nn.quantized.dynamic.modules.rnn": {
        "zeropoint.nn.quantized.dynamic": "GRU GRUCell LSTM LSTMCell RNNCell",
        "zeropoint.nn.quantized.dynamic.rnn": "RNNBase",
        "zeropoint.nn.quantized.dynamic.cells": "RNNCellBase",
        "zeropoint.nn.quantized.dynamic.recurrent_weights": "PackedParameter",
        INSIDE: "apply_permutation pack_weight_bias",
    },
    "torch.ao.nn.quantized.functional": {
        "zeropoint.nn.quantized.functional": (
            "adaptive_avg_pool2d adaptive_avg_pool3d avg_pool2d avg_pool3d celu clamp conv1d conv2d conv3d elu "
            "hardsigmoid hardswish hardtanh interpolate leaky_relu linear max_pool1d max_pool2d threshold upsample "
            "upsample_bilinear upsample_nearest"
        ),
    },
    "torch.ao.nn.quantized.modules.activation": {
        "zeropoint.nn.quantized": "ELU Hardswish LeakyReLU MultiheadAttention PReLU ReLU6 Sigmoid Softmax",
    },
    "torch.ao.nn.quantized.modules.batchnorm": {
        "zeropoint.nn.quantized": "BatchNorm2d BatchNorm3d",
    },
    "torch.ao.nn.quantized.modules.conv": {
        "zeropoint.nn.quantized": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d",
        "zeropoint.nn.quantized.conv": "_ConvNd",
        "zeropoint.compat.eager_names": "_reverse_repeat_padding",
    },
    "torch.ao.nn.quantized.modules.dropout": {
        "zeropoint.nn.quantized": "Dropout",
    },
    "torch.ao.nn.quantized.modules.embedding_ops": {
        "zeropoint.nn.quantized": "Embedding EmbeddingBag",
        "zeropoint.nn.quantized.embedding": "EmbeddingPackedParams",
    },
    "torch.ao.nn.quantized.modules.functional_modules": {
        "zeropoint.nn.quantized": "FXFloatFunctional FloatFunctional QFunctional",
    },
    "torch.ao.nn.quantized.modules.linear": {
        "zeropoint.nn.quantized": "Linear",
        "zeropoint.nn.quantized.linear": "LinearPackedParams",
    },
    "torch.ao.nn.quantized.modules.normalization": {
        "zeropoint.nn.quantized": "GroupNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d LayerNorm",
    },
    "torch.ao.nn.quantized.modules.rnn": {
        "zeropoint.nn.quantized": "LSTM",
    },
    "torch.ao.nn.quantized.modules.utils": {
        "zeropoint.nn.quantized.storage": "WeightedQuantizedModule=StoredWeight _quantize_weight=quantize_weight",
        "zeropoint.compat.eager_names": "_hide_packed_params_repr _ntuple_from_first _pair_from_first",
    },
    "torch.ao.nn.quantized.modules": {"zeropoint.nn.quantized": "DeQuantize MaxPool2d Quantize"},
    "torch.ao.nn.quantized.reference.modules.conv": {
        "zeropoint.nn.quantized.reference": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d",
    },
    "torch.ao.nn.quantized.reference.modules.linear": {
        "zeropoint.nn.quantized.reference": "Linear",
    },
    "torch.ao.nn.quantized.reference.modules.rnn": {
        "zeropoint.nn.quantized.reference": "GRU GRUCell LSTM LSTMCell RNNCell",
        "zeropoint.nn.quantized.reference.rnn": "RNNBase=_RNN RNNCellBase=_Cell",
        INSIDE: "get_quantized_weight",
    },
    "torch.ao.nn.quantized.reference.modules.sparse": {
        "zeropoint.nn.quantized.reference": "Embedding EmbeddingBag",
    },
    "torch.ao.nn.quantized.reference.modules.utils": {
        "zeropoint.nn.quantized.reference.weight": "ReferenceQuantizedModule=ReferenceModule",
        "zeropoint.compat.reference_weights": (
            "_quantize_and_dequantize_weight _quantize_and_dequantize_weight_decomposed _quantize_weight"
        ),
    },
}

_QUANTIZATION = (
    "fake_quantize fuse_modules fuser_method_mappings observer qconfig qconfig_mapping quant_type quantization_mappings"
    " quantize quantize_jit stubs"
)

# Package -> the modules whose names it has too, relative to it.
PACKAGES = {
    "torch.ao.quantization": _QUANTIZATION,
    "torch.ao.quantization.backend_config": "backend_config executorch fbgemm native onednn qnnpack tensorrt x86",
    "torch.ao.quantization.fx._model_report": "",
    "torch.ao.nn.intrinsic": "modules",
    "torch.ao.nn.intrinsic.modules": "fused",
    "torch.ao.nn.intrinsic.qat": "modules",
    "torch.ao.nn.intrinsic.qat.modules": "conv_fused linear_fused linear_relu",
    "torch.ao.nn.intrinsic.quantized": "modules",
    "torch.ao.nn.intrinsic.quantized.modules": "bn_relu conv_add conv_relu linear_relu",
    "torch.ao.nn.intrinsic.quantized.dynamic": "modules",
    "torch.ao.nn.intrinsic.quantized.dynamic.modules": "linear_relu",
    "torch.ao.nn.qat": "modules",
    "torch.ao.nn.qat.modules": "conv embedding_ops linear",
    "torch.ao.nn.qat.dynamic": "modules",
    "torch.ao.nn.qat.dynamic.modules": "linear",
    "torch.ao.nn.quantizable": "modules",
    "torch.ao.nn.quantizable.modules": "activation rnn",
    "torch.ao.nn.quantized": "modules",
    "torch.ao.nn.quantized.modules": (
        "activation batchnorm conv dropout embedding_ops functional_modules linear normalization rnn utils"
    ),
    "torch.ao.nn.quantized.dynamic": "modules",
    "torch.ao.nn.quantized.dynamic.modules": "conv linear rnn",
    "torch.ao.nn.sparse": "",
    "torch.ao.nn.sparse.quantized": "linear utils",
    "torch.ao.nn.sparse.quantized.dynamic": "linear",
    "torch.ao.nn.quantized.reference": "modules",
    "torch.ao.nn.quantized.reference.modules": "conv linear rnn sparse utils",
}

# Older paths of whole trees. The longer ones come first.
MOVED = {
    "torch.quantization.fx.fusion_patterns": "torch.ao.quantization.fx.fuse_handler",
    "torch.quantization.fx.quantization_patterns": "torch.ao.quantization.fx.quantize_handler",
    "torch.nn.quantized._reference": "torch.ao.nn.quantized.reference",
    "torch.quantization._numeric_suite": "torch.ao.ns._numeric_suite",
    "torch.quantization._numeric_suite_fx": "torch.ao.ns._numeric_suite_fx",
    "torch.quantization": "torch.ao.quantization",
    "torch.nn.intrinsic": "torch.ao.nn.intrinsic",
    "torch.nn.qat": "torch.ao.nn.qat",
    "torch.nn.quantizable": "torch.ao.nn.quantizable",
    "torch.nn.quantized": "torch.ao.nn.quantized",
}

# Packages that only hold others, and stay as they are.
CONTAINERS = ("torch.ao", "torch.ao.nn", "torch.ao.ns", "torch.ao.ns.fx")

# Modules without a counterpart, with all that is below them.
GONE = {
    "torch.ao.quantization.backend_config": BACKEND,
    "torch.ao.quantization.fx": FX,
}

# Modules that PyTorch gave to torchao, which has their names: where PyTorch has them no more, they are found there.
IN_TORCHAO = {
    "torch.ao.quantization.quantize_pt2e": "torchao.quantization.pt2e.quantize_pt2e",
    "torch.ao.quantization.quantizer": "torchao.quantization.pt2e.quantizer",
    "torch.ao.quantization.quantizer.quantizer": "torchao.quantization.pt2e.quantizer.quantizer",
    "torch.ao.quantization.quantizer.x86_inductor_quantizer": (
        "torchao.quantization.pt2e.quantizer.x86_inductor_quantizer"
    ),
}

# ----------------------------------------------------------------------------- torch, torch.Tensor, torch.ops.quantized

FUNCTIONS = {
    "zeropoint": (
        "quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic dequantize"
        " _empty_affine_quantized=empty_affine_quantized"
        " _empty_per_channel_affine_quantized=empty_per_channel_affine_quantized"
        " _make_per_tensor_quantized_tensor=make_per_tensor_quantized_tensor"
        " _make_per_channel_quantized_tensor=make_per_channel_quantized_tensor"
        " choose_qparams_optimized _saturate_weight_to_fp16=saturate_weight_to_fp16"
        " fake_quantize_per_tensor_affine fake_quantize_per_channel_affine fused_moving_avg_obs_fake_quant"
    ),
    "zeropoint.qfunctions": "quantized_gru quantized_lstm",
    "zeropoint.compat.functions": (
        "empty_quantized _choose_qparams_per_tensor int_repr q_scale q_zero_point q_per_channel_axis"
        " q_per_channel_scales q_per_channel_zero_points quantized_batch_norm quantized_max_pool1d quantized_max_pool2d"
        " quantized_max_pool3d _fake_quantize_learnable_per_tensor_affine _fake_quantize_learnable_per_channel_affine"
    ),
    "zeropoint.compat.fbgemm": (
        "fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation=fbgemm_linear_fp16_weight"
        " fbgemm_linear_int8_weight fbgemm_linear_int8_weight_fp32_activation=fbgemm_linear_int8_weight"
        " fbgemm_linear_quantize_weight fbgemm_pack_gemm_matrix_fp16"
        " fbgemm_pack_quantized_matrix quantized_gru_cell quantized_lstm_cell quantized_rnn_relu_cell"
        " quantized_rnn_tanh_cell _wrapped_linear_prepack _wrapped_quantized_linear_prepacked"
    ),
    INSIDE: "_fused_moving_avg_obs_fq_helper _fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
}

# Objects in `torch` that stay as long as PyTorch has them, being equal to zeropoint's, which stand in afterwards.
VALUES = {
    "zeropoint": (
        "qint8 quint8 qint32 quint4x2 quint2x4 per_tensor_affine per_tensor_symmetric per_channel_affine"
        " per_channel_symmetric per_channel_affine_float_qparams qscheme=QScheme"
    ),
}

METHODS = (
    "dequantize int_repr is_quantized q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale"
    " q_zero_point qscheme"
)

# Operators on plain tensors that PyTorch keeps for itself, with their signatures: compat has its own for them.
PRIVATE_OPERATORS = {
    "_quantized::wrapped_fbgemm_pack_gemm_matrix_fp16(Tensor W) -> Tensor": (
        "zeropoint.compat.fbgemm.fbgemm_pack_gemm_matrix_fp16"
    ),
    "_quantized::wrapped_fbgemm_linear_fp16_weight(Tensor X, Tensor W, Tensor B, int out_channel) -> Tensor": (
        "zeropoint.compat.fbgemm.wrapped_fbgemm_linear_fp16_weight"
    ),
    "_quantized::wrapped_quantized_linear(Tensor X, Tensor X_scale, Tensor X_zero_point, Tensor W, Tensor W_scale,"
    " Tensor W_zero_point, Tensor B, Tensor output_scale, Tensor output_zero_point, int out_channel) -> Tensor Y": (
        "zeropoint.compat.fbgemm.wrapped_quantized_linear"
    ),
    "_quantized::_wrapped_linear_prepack(Tensor W, Tensor W_scale, Tensor W_zero_point, Tensor B) -> Tensor": (
        "zeropoint.compat.fbgemm._wrapped_linear_prepack"
    ),
    "_quantized::_wrapped_quantized_linear_prepacked(Tensor X, Tensor X_scale, Tensor X_zero_point, Tensor W_prepack,"
    " Tensor output_scale, Tensor output_zero_point, int out_channel) -> Tensor Y": (
        "zeropoint.compat.fbgemm._wrapped_quantized_linear_prepacked"
    ),
    "quantized::linear_dynamic_fp16_unpacked_weight(Tensor X, Tensor weight, Tensor? bias) -> Tensor Y": (
        "zeropoint.compat.packed.linear_dynamic_fp16_unpacked_weight"
    ),
    "aten::_saturate_weight_to_fp16(Tensor weight) -> Tensor": "zeropoint.saturate_weight_to_fp16",
}

OPERATORS = {
    "zeropoint.qfunctions": (
        "add add_out add_relu add_relu_out add_scalar add_scalar_out add_scalar_relu add_scalar_relu_out batch_norm"
        " batch_norm1d batch_norm1d_relu batch_norm2d batch_norm2d_relu batch_norm3d batch_norm3d_relu batch_norm_relu"
        " cat cat_out cat_relu cat_relu_out celu clamp dropout elu embedding_2bit embedding_4bit embedding_bag_2bit"
        " embedding_bag_2bit_prepack embedding_bag_2bit_prepack_with_rowwise_min_max embedding_bag_2bit_rowwise_offsets"
        " embedding_bag_2bit_unpack embedding_bag_4bit embedding_bag_4bit_prepack"
        " embedding_bag_4bit_prepack_with_rowwise_min_max embedding_bag_4bit_rowwise_offsets embedding_bag_4bit_unpack"
        " embedding_bag_byte embedding_bag_byte_prepack embedding_bag_byte_prepack_with_rowwise_min_max"
        " embedding_bag_byte_rowwise_offsets embedding_bag_byte_unpack embedding_bag_prepack embedding_bag_unpack"
        " embedding_byte group_norm hardswish instance_norm layer_norm leaky_relu linear linear_dynamic"
        " linear_dynamic_fp16 linear_leaky_relu linear_prepack linear_prepack_fp16 linear_relu linear_relu_dynamic"
        " linear_relu_dynamic_fp16 linear_tanh linear_unpack linear_unpack_fp16=linear_unpack"
        " make_quantized_cell_params_dynamic make_quantized_cell_params_fp16 matmul mul mul_out mul_relu mul_relu_out"
        " mul_scalar mul_scalar_out mul_scalar_relu mul_scalar_relu_out prelu quantized_gru_cell_dynamic"
        " quantized_lstm_cell_dynamic quantized_rnn_relu_cell_dynamic quantized_rnn_tanh_cell_dynamic relu6 sigmoid"
        " softmax threshold conv_prepack=conv_prepack conv1d_prepack=conv_prepack conv2d_prepack=conv_prepack"
        " conv3d_prepack=conv_prepack conv_transpose1d_prepack=conv_transpose_prepack"
        " conv_transpose2d_prepack=conv_transpose_prepack conv_transpose3d_prepack=conv_transpose_prepack"
    ),
    "zeropoint.qfunctions.packed": (
        "conv2d=conv conv3d=conv conv_transpose2d=conv conv_transpose3d=conv conv2d_relu=conv_relu"
        " conv3d_relu=conv_relu conv2d_add=conv_add conv2d_add_relu=conv_add_relu conv2d_dynamic=conv_dynamic"
        " conv3d_dynamic=conv_dynamic conv_transpose2d_dynamic=conv_dynamic conv_transpose3d_dynamic=conv_dynamic"
    ),
    "zeropoint.compat.packed": (
        "conv1d conv1d_relu conv1d_dynamic conv_transpose1d=conv1d conv_transpose1d_dynamic=conv1d_dynamic"
        " conv1d_unpack conv_transpose1d_unpack=conv1d_unpack conv2d_stride=stride conv3d_stride=stride"
        " conv_transpose2d_stride=stride conv_transpose3d_stride=stride"
        " conv2d_padding=padding conv3d_padding=padding conv_transpose2d_padding=padding"
        " conv_transpose3d_padding=padding conv2d_output_padding=output_padding"
        " conv3d_output_padding=output_padding conv_transpose2d_output_padding=output_padding"
        " conv_transpose3d_output_padding=output_padding conv2d_dilation=dilation conv3d_dilation=dilation"
        " conv_transpose2d_dilation=dilation conv_transpose3d_dilation=dilation conv2d_groups=groups"
        " conv3d_groups=groups conv_transpose2d_groups=groups conv_transpose3d_groups=groups"
        " conv2d_transpose=transpose conv3d_transpose=transpose conv_transpose2d_transpose=transpose"
        " conv_transpose3d_transpose=transpose conv_unpack=unpack conv2d_unpack=unpack"
        " conv3d_unpack=unpack conv_transpose2d_unpack=unpack conv2d_unpack_sizes=unpack_sizes"
        " make_quantized_cell_params"
        " conv_transpose3d_unpack=unpack linear_dynamic_fp16_unpacked_weight"
        " linear_with_input_q_dq_qweight_dq_output_fp32 linear_with_input_q_dq_qweight_dq_relu_output_fp32"
    ),
    "zeropoint.compat.functions": "max_pool1d=quantized_max_pool1d max_pool2d=quantized_max_pool2d",
    REFUSED: "linear_prepack_fp16_legacy linear_prepack_legacy",
    NOT_OLD: "int4mm_packed_weight_cpu",
}

# Operators of torch.ops.quantized_decomposed; torch.ops.zeropoint has the same ones.
DECOMPOSED = (
    "_choose_qparams_per_token_asymmetric_impl choose_qparams choose_qparams_per_token"
    " choose_qparams_per_token_asymmetric choose_qparams_symmetric dequantize_per_channel dequantize_per_channel_group"
    " dequantize_per_tensor dequantize_per_token fake_quant_per_channel quantize_per_channel quantize_per_channel_group"
    " quantize_per_tensor quantize_per_token"
)
