"""The architectures: one line for each, with how it is built, what it is called with, and the modes it is run in."""

# ruff: noqa: E501 -- one line for each architecture

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from . import plain_attention as attention
from . import plain_audio as audio
from . import plain_domains as domains
from . import plain_habits as habits
from . import plain_images as images
from . import plain_sequences as sequences
from . import plain_spectra as spectra
from . import plain_spellings as spellings
from . import plain_vision as vision
from .inputs import (
    Inputs,
    both,
    flags_and_counts,
    floats,
    graph,
    image,
    image_bytes,
    lengths,
    mask,
    named,
    nested,
    nothing,
    tokens,
    tokens_below,
    video,
)
from .packages import hugging, timm_model, torchvision_model

__all__ = ["CASES", "Case"]


@dataclass(frozen=True)
class Case:
    """One architecture in one mode.

    `small`: quick enough for the tests that run always. `refused`: torch.export cannot capture it; words of the refusal.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Inputs
    mode: str = "static"
    small: bool = False
    refused: str = ""

    @property
    def key(self) -> str:
        """Name and mode."""
        return f"{self.name} {self.mode}"


def _torchvision(name: str, inputs: Inputs, **options: object) -> list[Case]:
    return [Case(f"torchvision/{name}", torchvision_model(name, **options), inputs)]


def _timm(name: str, size: int, **options: object) -> list[Case]:
    return [Case(f"timm/{name}", timm_model(name, **options), image(size))]


def _both(name: str, build: Callable[[], nn.Module], inputs: Inputs, small: bool, refused: str = "") -> list[Case]:
    return [Case(name, build, inputs, mode, small, refused) for mode in ("static", "dynamic")]


def _transformers(model: str, config: str, inputs: Inputs, **options: object) -> list[Case]:
    return [Case(f"transformers/{model}", hugging(model, config, **options), inputs)]


def _text(model: str, config: str, **options: object) -> list[Case]:
    """A model of transformers that takes tokens, in both modes."""
    return _both(f"transformers/{model}", hugging(model, config, **options), tokens(), False)


def _plain(name: str, build: Callable[[], nn.Module], inputs: Inputs) -> list[Case]:
    return [Case(f"plain/{name}", build, inputs, "static", True)]


def _plain_text(name: str, build: Callable[[], nn.Module], inputs: Inputs, refused: str = "") -> list[Case]:
    return _both(f"plain/{name}", build, inputs, True, refused)


_HEADS = {"num_key_value_heads": 2, "head_dim": 8}
_D_MODEL = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "decoder_start_token_id": 1}  # fmt: skip
_PICTURE = {"image_size": 32, "patch_size": 8}
_SPEECH = {"conv_dim": (16, 16), "conv_kernel": (8, 4), "conv_stride": (4, 2), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}  # fmt: skip
_SMALL = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "projection_dim": 16,
}
_TO_TEXT = named(input_ids=tokens(), decoder_input_ids=tokens(6))
_MASKED = named(input_ids=tokens(), attention_mask=mask())

# fmt: off
CASES: tuple[Case, ...] = tuple(case for cases in (
    # ------------------------------------------------------------------------------------------------ plain models
    _plain("unet_padded", images.UNet, image(20)),
    _plain("unet_bilinear", lambda: images.UNet(False), image(16)),
    _plain("yolo", images.YoloHead, image(32)),
    _plain("botnet", images.BotNet, image(16)),
    _plain("vae", images.VAE, both(floats(2, 64), floats(2, 8))),
    _plain("dcgan_generator", images.dcgan_generator, floats(2, 16, 1, 1)),
    _plain("discriminator", images.discriminator, image(32)),
    _plain("edsr", images.EDSR, image(12)),
    _plain("spatial_transformer", images.SpatialTransformer, image(20, 1)),
    _plain("hourglass", images.Hourglass, image(16)),
    _plain("fpn", images.FPN, image(32)),
    _plain("cbam", images.AttentionGate, image(16)),
    _plain("mlp_mixer", images.PatchMixer, image(32)),
    _plain("pointnet", images.PointNet, floats(2, 3, 24)),
    _plain("nerf", images.NeRF, floats(16, 3)),
    _plain("siamese", images.Siamese, both(image(16, 1), image(16, 1))),
    _plain("dueling_dqn", images.DQN, image(44, 4)),
    _plain("weight_standardization", images.standardized, image(16)),
    _plain("diffusion_unet", images.DiffusionUNet, both(image(16), images.one_hot_steps(100))),
    _plain("crnn", sequences.CRNN, floats(1, 1, 32, 24)),
    _plain("tcn", sequences.TCN, floats(2, 4, 24)),
    _plain("conv_tasnet", sequences.ConvTasNet, floats(2, 1, 64)),
    _plain("wavenet", sequences.WaveNet, floats(2, 1, 32)),
    _plain("keyword_spotter", sequences.KeywordSpotter, floats(2, 40, 20)),
    _plain_text("tagger_lstm", sequences.Tagger, tokens()),
    _plain_text("tagger_packed", sequences.PackedTagger, both(tokens(), lengths(12))),
    _plain_text("rnn_tanh", lambda: sequences.Recurrent("RNN"), floats(2, 6, 8)),
    _plain_text("rnn_relu", lambda: sequences.Recurrent("RNN", nonlinearity="relu"), floats(2, 6, 8)),
    _plain_text("gru", lambda: sequences.Recurrent("GRU"), floats(2, 6, 8)),
    _plain_text("seq2seq_attention", sequences.Seq2Seq, both(tokens(8, 50), tokens(3, 50))),
    _plain("text_cnn", sequences.TextCNN, tokens()),
    _plain("bag_of_words", sequences.BagOfWords, tokens()),
    _plain_text("transformer_encoder", sequences.TransformerClassifier, tokens()),
    _plain_text("transformer_norm_first", lambda: sequences.TransformerClassifier(True), tokens()),
    _plain_text("transformer_translator", sequences.Translator, both(tokens(8, 60), tokens(6, 60))),
    _plain_text("nano_gpt", sequences.NanoGPT, tokens(10, 65)),
    _plain_text("nano_llama", sequences.NanoLlama, tokens(10, 65)),
    _plain_text("nano_llama_nn_rms_norm", lambda: sequences.NanoLlama(norm=nn.RMSNorm), tokens(10, 65)),
    _plain("mixture_of_experts", sequences.MixtureOfExperts, floats(4, 16)),
    _plain("dlrm", sequences.DLRM, both(floats(4, 13), tokens(3, 100, 4))),
    _plain("deep_fm", sequences.DeepFM, tokens(4, 50)),
    _plain("gcn", sequences.GCN, graph(10, 8, 30)),
    _plain("gat", sequences.GAT, both(floats(10, 8), floats(10, 10))),
    _plain("n_beats", sequences.NBeats, floats(4, 20)),
    _plain_text("conformer", sequences.Conformer, floats(2, 14, 32)),
    _plain("autocast_region", sequences.Autocast, floats(4, 16)),
    # ------------------------------------------------------------------- plain models: attention and what is around it
    _plain_text("attention_einsum", attention.EinsumAttention, floats(2, 10, 32)),
    _plain_text("attention_bmm_alibi", attention.BmmAttention, floats(2, 10, 32)),
    _plain_text("attention_linear", attention.LinearAttention, floats(2, 10, 32)),
    _plain_text("attention_cosine", attention.CosineAttention, floats(2, 10, 32)),
    _plain_text("attention_relative_shift", attention.RelativeAttention, floats(2, 10, 32)),
    _plain_text("attention_windows", attention.WindowAttention, floats(2, 8, 8, 16)),
    _plain_text("attention_multi_query", attention.MultiQuery, both(tokens(), mask())),
    _plain_text("perceiver", attention.CrossAttention, both(floats(2, 12, 32), mask())),
    _plain_text("vit_by_hand", attention.ViT, image(32)),
    _plain_text("gmlp", attention.GatedMLP, floats(2, 12, 16)),
    _plain_text("experts_gathered", attention.TopKExperts, floats(6, 16)),
    _plain_text("experts_masked", attention.MaskedExperts, floats(2, 5, 16)),
    _plain_text("transformer_decoder", attention.Decoder, both(tokens(6, 60), floats(2, 12, 32), mask())),
    _plain_text("retention", attention.Retention, floats(2, 10, 32)),
    _plain_text("state_space_conv", attention.StateSpace, floats(2, 8, 16)),
    # ---------------------------------------------------------------------------- plain models: sequences and speech
    _plain_text("tagger_masked", audio.MaskedTagger, both(tokens(), lengths(12))),
    _plain_text("gru_encoder", audio.GRUEncoder, tokens()),
    _plain_text("lstm_learned_state", audio.LSTMWithState, floats(6, 2, 8)),
    _plain_text("lstm_by_hand", audio.HandLSTM, floats(2, 5, 8)),
    _plain_text("conv_lstm", audio.ConvLSTM, floats(2, 3, 3, 8, 8)),
    _plain_text("tcn_gated", audio.GatedTCN, floats(2, 4, 20)),
    _plain_text("rnn_transducer", audio.Transducer, both(floats(2, 9, 20), tokens(4, 30))),
    _plain_text("deep_speech", audio.DeepSpeech, both(floats(2, 1, 40, 24), lengths(24))),
    _plain_text("spectrogram_cnn", audio.Spectrogram, floats(2, 256)),
    _plain_text("speaker_encoder", audio.SpeakerEncoder, floats(2, 20, 18)),
    _plain_text("vocoder", audio.Vocoder, floats(2, 8, 12)),
    _plain_text("dual_path_separator", audio.Separator, floats(2, 1, 66)),
    _plain_text("series_decomposition", audio.Forecaster, floats(2, 24, 5)),
    _plain_text("character_cnn", audio.CharacterCNN, tokens_below(60, 2, 5, 9)),
    _plain_text("quasi_recurrent", audio.Quasi, floats(2, 7, 8)),
    # ------------------------------------------------------- plain models: inputs, outputs, weights, control flow
    _plain_text("output_dictionary", spellings.DictOutput, image(8)),
    _plain_text("output_named_tuple", spellings.NamedOutput, floats(3, 12)),
    _plain_text("output_ordered", spellings.OrderedOutput, image(16)),
    _plain_text("input_optional", spellings.OptionalInput, both(floats(3, 8), floats(3, 4))),
    _plain_text("input_none", spellings.OptionalInput, both(floats(3, 8), nothing)),
    _plain_text("input_nested", spellings.NestedInput, nested),
    _plain_text("training_branches", spellings.TrainingBranches, floats(3, 10)),
    _plain_text("image_bytes", spellings.Normalizer, image_bytes),
    _plain_text("tied_autoencoder", spellings.Tied, floats(3, 32)),
    _plain_text("parametrized", spellings.Parametrized, floats(3, 8)),
    _plain_text("hyper_network", spellings.HyperNetwork, both(floats(3, 6), floats(3, 4))),
    _plain_text("dynamic_conv", spellings.DynamicConv, image(8, 4)),
    _plain_text("low_rank_adapter", spellings.LowRank, floats(3, 16)),
    _plain_text("film", spellings.FiLM, both(image(8), lengths(9))),
    _plain_text("triplet", spellings.Siamese, both(floats(4, 10), floats(4, 10), floats(4, 10))),
    _plain_text("vq_vae", spellings.Codebook, image(8, 1)),
    _plain_text("mixture_density", spellings.BayesHead, both(floats(4, 6), floats(4))),
    _plain_text("normalizing_flow", spellings.Flow, floats(4, 6)),
    _plain_text("actor_critic", spellings.Actor, floats(4, 11)),
    _plain_text("tab_net", spellings.TabNet, both(floats(4, 4), tokens_below(3, 4, 3))),
    _plain_text("chebyshev_graph", spellings.ChebyshevGraph, both(floats(2, 7, 6), floats(2, 7, 7))),
    _plain_text("message_passing", spellings.MessagePassing, graph(9, 8, 20)),
    _plain_text("graph_sage", spellings.GraphSage, graph(10, 8, 30)),
    _plain_text("recommender", spellings.Recommender, both(tokens_below(30, 6), tokens_below(40, 6))),
    _plain_text("writes_through_views", spellings.WritesThroughViews, floats(4, 8)),
    # ------------------------------------------------------------------------------------ plain models: more images
    _plain_text("squeeze_linear", lambda: vision.SqueezeExcite("linear"), image(16)),
    _plain_text("squeeze_conv", lambda: vision.SqueezeExcite("conv"), image(16)),
    _plain_text("squeeze_eca", lambda: vision.SqueezeExcite("eca"), image(16)),
    _plain_text("autoencoder", vision.Autoencoder, image(16, 1)),
    _plain_text("seg_net", vision.SegNet, image(12)),
    _plain_text("capsules", vision.Capsules, image(16, 1)),
    _plain_text("style_generator", vision.StyleGenerator, both(floats(2, 16), floats(2, 1, 8, 8))),
    _plain_text("residual_generator", vision.ResidualGenerator, image(12)),
    _plain_text("non_local", vision.NonLocal, image(16)),
    _plain_text("pyramid_pooling", vision.Pyramid, image(20)),
    _plain_text("shuffled_channels", vision.Shuffled, image(16)),
    _plain_text("corner_pools", vision.CornerPools, image(16)),
    _plain_text("optical_flow", vision.OpticalFlow, both(image(16), image(16))),
    _plain_text("involution", vision.Involution, image(8)),
    _plain_text("point_cloud_edges", vision.PointCloud, floats(2, 3, 20)),
    _plain_text("video_shift", vision.Video, video(4, 12)),
    # ------------------------------------------------------------ plain models: complex numbers, spectra, splines, losses
    _plain_text("rotary_complex", spectra.ComplexRotary, floats(2, 10, 32)),
    _plain_text("fourier_operator", spectra.FourierOperator, floats(2, 1, 32)),
    _plain_text("log_mel", spectra.LogMel, floats(2, 200)),
    _plain_text("splines", spectra.Splines, floats(4, 9)),
    _plain_text("returns_losses", spectra.ReturnsLosses, both(image(8, 1), floats(2, 6))),
    _plain_text("bilinear_forms", spectra.BilinearForms, floats(2, 8, 24)),
    # --------------------------------------------------------------------------------- plain models: more fields
    _plain_text("detector_decoded", domains.DecodedDetector, image(32)),
    _plain_text("selective_scan", domains.SelectiveScan, floats(2, 6, 16)),
    _plain_text("time_mix", domains.TimeMix, floats(2, 5, 16)),
    _plain_text("hifi_gan", domains.HiFiGAN, floats(2, 10, 8)),
    _plain_text("vits_prior", domains.PriorEncoder, both(tokens(9, 40), lengths(9), floats(2, 16, 9))),
    _plain_text("ctc_greedy", domains.TextToUnits, floats(2, 18, 20)),
    _plain_text("pointer_network", domains.PointerNetwork, floats(3, 5, 2)),
    _plain_text("kan_chebyshev", domains.ChebyshevKAN, floats(4, 6)),
    _plain_text("state_space_complex", domains.DiagonalStateSpace, floats(2, 8, 16)),
    _plain_text("graph_equivariant", domains.EquivariantGraph, both(floats(8, 5), floats(8, 3), tokens_below(8, 2, 20))),
    _plain_text("graph_transformer", domains.GraphTransformer, graph(8, 8, 24)),
    _plain_text("unet_attention", domains.AttentionUNet, both(image(8), tokens_below(1000, 2))),
    _plain_text("series_reversible", domains.ReversibleSeries, floats(2, 32, 3)),
    _plain_text("deep_operator", domains.DeepOperator, both(floats(3, 20), floats(3, 7, 1))),
    # ------------------------------------------------------------------------------------- plain models: more habits
    _plain_text("output_dataclass", habits.DataclassOutput, named(features=floats(4, 10), keep=floats(4))),
    _plain_text("input_flags", habits.BoolAndInt, flags_and_counts),
    _plain_text("weights_bfloat16", habits.HalfWeights, floats(4, 16)),
    _plain_text("weights_float16", lambda: habits.HalfWeights(torch.float16), floats(4, 16)),
    _plain_text("double_inside", habits.DoubleInside, floats(4, 12)),
    _plain_text("in_place", habits.InPlace, image(8)),
    _plain_text("running_counts", habits.RunningCounts, floats(4, 6)),
    _plain_text("conditions", habits.Conditions, floats(4, 8)),
    _plain_text("vmapped_ensemble", habits.Vmapped, floats(5, 4)),
    _plain_text("lazy_modules", habits.LazyEverything, image(8)),
    _plain_text("tied_language_model", habits.TiedLanguageModel, tokens(8, 40)),
    _plain_text("transformer_whole", habits.WholeTransformer, both(floats(2, 7, 16), floats(2, 5, 16), mask(7))),
    _plain_text("attention_variants", habits.AttentionVariants, both(floats(2, 5, 16), floats(2, 7, 12), floats(2, 7, 10))),
    _plain_text("packed_unsorted", habits.PackedClassifier, both(tokens(9, 30, 3), lengths(9, 3))),
    _plain_text("spectral_critic", habits.SpectralCritic, image(16)),
    _plain_text("rearranged", habits.Rearranged, floats(2, 3, 16, 16)),
    _plain_text("many_heads", habits.ManyHeads, floats(4, 6)),
    # ------------------------------------------------------------------------------------------------- torchvision
    _torchvision("alexnet", image(64)),
    _torchvision("vgg11", image(32)),
    _torchvision("vgg16_bn", image(32)),
    _torchvision("resnet18", image(64)),
    _torchvision("resnet50", image(64)),
    _torchvision("resnext50_32x4d", image(64)),
    _torchvision("wide_resnet50_2", image(64)),
    _torchvision("densenet121", image(64)),
    _torchvision("mobilenet_v2", image(64)),
    _torchvision("mobilenet_v3_small", image(64)),
    _torchvision("mobilenet_v3_large", image(64)),
    _torchvision("mnasnet0_5", image(64)),
    _torchvision("shufflenet_v2_x0_5", image(64)),
    _torchvision("squeezenet1_0", image(64)),
    _torchvision("squeezenet1_1", image(64)),
    _torchvision("googlenet", image(64), init_weights=False),
    _torchvision("inception_v3", image(96), init_weights=False),
    _torchvision("efficientnet_b0", image(64)),
    _torchvision("efficientnet_v2_s", image(64)),
    _torchvision("regnet_x_400mf", image(64)),
    _torchvision("regnet_y_400mf", image(64)),
    _torchvision("convnext_tiny", image(64)),
    _torchvision("vit_b_32", image(64, batch=1), image_size=64),
    _torchvision("swin_t", image(64, batch=1)),
    _torchvision("swin_v2_t", image(64, batch=1)),
    _torchvision("maxvit_t", image(224, batch=1)),
    _torchvision("fcn_resnet50", image(64, batch=1), weights_backbone=None),
    _torchvision("deeplabv3_mobilenet_v3_large", image(64), weights_backbone=None),
    _torchvision("lraspp_mobilenet_v3_large", image(64), weights_backbone=None),
    _torchvision("r3d_18", video(4, 32)),
    _torchvision("mc3_18", video(4, 32)),
    _torchvision("r2plus1d_18", video(4, 32)),
    _torchvision("swin3d_t", video(4, 64)),
    _torchvision("ssdlite320_mobilenet_v3_large", image(64), weights_backbone=None),
    _torchvision("retinanet_resnet50_fpn", image(64, batch=1), weights_backbone=None),
    _torchvision("fasterrcnn_mobilenet_v3_large_320_fpn", image(64), weights_backbone=None),
    _torchvision("fcos_resnet50_fpn", image(64, batch=1), weights_backbone=None),
    # -------------------------------------------------------------------------------------------------------- timm
    _timm("cait_xxs24_224", 64, img_size=64),
    _timm("coat_lite_tiny", 64, img_size=64),
    _timm("convnextv2_atto", 64),
    _timm("crossvit_tiny_240", 240),
    _timm("cspdarknet53", 64),
    _timm("davit_tiny", 64),
    _timm("deit_tiny_patch16_224", 64, img_size=64),
    _timm("dla34", 64),
    _timm("dpn68", 64),
    _timm("edgenext_xx_small", 64),
    _timm("efficientformer_l1", 224),
    _timm("efficientvit_b0", 64),
    _timm("ese_vovnet19b_slim", 64),
    _timm("fastvit_t8", 64),
    _timm("focalnet_tiny_srf", 64),
    _timm("ghostnet_100", 64),
    _timm("hardcorenas_a", 64),
    _timm("hrnet_w18_small", 64),
    _timm("inception_next_atto", 64),
    _timm("lambda_resnet26t", 64),
    _timm("lcnet_050", 64),
    _timm("levit_128s", 224),
    _timm("mixer_s32_224", 224, num_classes=10),
    _timm("mixnet_s", 64),
    _timm("mobilenetv4_conv_small", 64),
    _timm("mobileone_s0", 64),
    _timm("mobilevit_xxs", 64),
    _timm("mobilevitv2_050", 64),
    _timm("nf_regnet_b0", 64),
    _timm("pit_ti_224", 224),
    _timm("poolformer_s12", 64),
    _timm("pvt_v2_b0", 64),
    _timm("repvgg_a0", 64),
    _timm("repvit_m0_9", 64),
    _timm("res2net50_14w_8s", 64),
    _timm("resmlp_12_224", 224),
    _timm("resnest14d", 64),
    _timm("resnetv2_50", 64),
    _timm("rexnet_100", 64),
    _timm("selecsls42", 64),
    _timm("sequencer2d_s", 224),
    _timm("skresnet18", 64),
    _timm("starnet_s1", 64),
    _timm("tf_efficientnet_lite0", 64),
    _timm("tinynet_e", 64),
    _timm("twins_svt_small", 64),
    _timm("visformer_tiny", 224),
    _timm("vit_tiny_patch16_224", 64, img_size=64),
    _timm("xcit_nano_12_p16_224", 64),
    _timm("bat_resnext26ts", 64),
    _timm("botnet26t_256", 64),
    _timm("convmixer_768_32", 64),
    _timm("cs3darknet_s", 64),
    _timm("efficientnet_es", 64),
    _timm("eva02_tiny_patch14_224", 56, img_size=56),
    _timm("gcresnet33ts", 64),
    _timm("gernet_s", 64),
    _timm("gmixer_24_224", 224, num_classes=10),
    _timm("halonet26t", 64),
    _timm("hgnet_tiny", 64),
    _timm("mambaout_femto", 64),
    _timm("nfnet_l0", 64),
    _timm("regnetz_b16", 64),
    _timm("seresnet18", 64),
    _timm("swiftformer_xs", 64),
    _timm("tiny_vit_5m_224", 64),
    _timm("volo_d1_224", 64, img_size=64),
    _timm("xception41", 96),
    # ------------------------------------------------------------------------------------------------ transformers
    _text("BertModel", "BertConfig"),
    _text("RobertaModel", "RobertaConfig"),
    _text("DistilBertModel", "DistilBertConfig", dim=32, n_layers=2, n_heads=4, hidden_dim=64),
    _text("AlbertModel", "AlbertConfig", embedding_size=16),
    _text("ElectraModel", "ElectraConfig", embedding_size=16),
    _text("MobileBertModel", "MobileBertConfig", embedding_size=32, intra_bottleneck_size=16),
    _text("DebertaModel", "DebertaConfig"),
    _text("DebertaV2Model", "DebertaV2Config"),
    _text("ModernBertModel", "ModernBertConfig", cls_token_id=1, sep_token_id=2),
    _text("SqueezeBertModel", "SqueezeBertConfig", embedding_size=32),
    _text("RemBertModel", "RemBertConfig", input_embedding_size=16, output_embedding_size=16),
    _text("XLNetModel", "XLNetConfig", d_model=32, n_layer=2, n_head=4, d_inner=64, max_position_embeddings=None),
    _text("FNetModel", "FNetConfig"),
    _text("MPNetModel", "MPNetConfig"),
    _text("GPT2LMHeadModel", "GPT2Config", n_embd=32, n_layer=2, n_head=4, n_positions=64),
    _text("GPTNeoForCausalLM", "GPTNeoConfig", num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=8),
    _text("GPTNeoXForCausalLM", "GPTNeoXConfig"),
    _text("GPTJForCausalLM", "GPTJConfig", n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4),
    _text("OPTForCausalLM", "OPTConfig", ffn_dim=64, word_embed_proj_dim=32),
    _text("BloomForCausalLM", "BloomConfig", n_layer=2, n_head=4),
    _text("LlamaForCausalLM", "LlamaConfig", **_HEADS),
    _text("MistralForCausalLM", "MistralConfig", **_HEADS),
    _text("Qwen2ForCausalLM", "Qwen2Config", num_key_value_heads=2),
    _text("Qwen3ForCausalLM", "Qwen3Config", **_HEADS),
    _text("GemmaForCausalLM", "GemmaConfig", **_HEADS),
    _text("Gemma2ForCausalLM", "Gemma2Config", **_HEADS, query_pre_attn_scalar=8),
    _text("Gemma3ForCausalLM", "Gemma3TextConfig", **_HEADS, query_pre_attn_scalar=8),
    _text("PhiForCausalLM", "PhiConfig"),
    _text("Phi3ForCausalLM", "Phi3Config", num_key_value_heads=2),
    _text("FalconForCausalLM", "FalconConfig"),
    _text("MptForCausalLM", "MptConfig", d_model=32, n_layers=2, n_heads=4, max_seq_len=64),
    _text("StableLmForCausalLM", "StableLmConfig", num_key_value_heads=2),
    _text("Starcoder2ForCausalLM", "Starcoder2Config", num_key_value_heads=2),
    _text("CohereForCausalLM", "CohereConfig", num_key_value_heads=2),
    _text("Olmo2ForCausalLM", "Olmo2Config", num_key_value_heads=2),
    _text("GraniteForCausalLM", "GraniteConfig", num_key_value_heads=2),
    _text("MixtralForCausalLM", "MixtralConfig", num_key_value_heads=2, num_local_experts=2),
    _text("MambaForCausalLM", "MambaConfig", state_size=4, time_step_rank=4),
    _transformers("BertForTokenClassification", "BertConfig", _MASKED),
    _transformers("T5ForConditionalGeneration", "T5Config", _TO_TEXT, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0),
    _transformers("BartForConditionalGeneration", "BartConfig", _TO_TEXT, **_D_MODEL),
    _transformers("PegasusForConditionalGeneration", "PegasusConfig", _TO_TEXT, **_D_MODEL),
    _transformers("MarianMTModel", "MarianConfig", _TO_TEXT, **_D_MODEL),
    _transformers("WhisperForConditionalGeneration", "WhisperConfig", named(input_features=floats(2, 80, 60), decoder_input_ids=tokens(6)), **_D_MODEL, max_source_positions=30, max_target_positions=20),
    _transformers("Wav2Vec2Model", "Wav2Vec2Config", floats(2, 400), **_SPEECH),
    _transformers("HubertModel", "HubertConfig", floats(2, 400), **_SPEECH),
    _transformers("ViTModel", "ViTConfig", image(32), **_PICTURE),
    _transformers("DeiTModel", "DeiTConfig", image(32), **_PICTURE),
    _transformers("BeitModel", "BeitConfig", image(32), **_PICTURE),
    _transformers("Dinov2Model", "Dinov2Config", image(32), **_PICTURE),
    _transformers("SiglipVisionModel", "SiglipVisionConfig", image(32), **_PICTURE),
    _transformers("CLIPVisionModel", "CLIPVisionConfig", image(32), **_PICTURE),
    _transformers("CLIPTextModel", "CLIPTextConfig", tokens()),
    _transformers("SwinModel", "SwinConfig", image(32), image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, hidden_size=None, num_attention_heads=None, num_hidden_layers=None),
    _transformers("SegformerForSemanticSegmentation", "SegformerConfig", image(64), hidden_sizes=[8, 16, 16, 32], num_attention_heads=[1, 1, 2, 2], depths=[1, 1, 1, 1], decoder_hidden_size=16),
    _transformers("ConvNextModel", "ConvNextConfig", image(32), hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1]),
    _transformers("PoolFormerModel", "PoolFormerConfig", image(32), hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1]),
    _transformers("MobileViTModel", "MobileViTConfig", image(64), image_size=64, hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 16, 16, 24, 32, 40, 64]),
    _transformers("ASTModel", "ASTConfig", floats(2, 32, 16), max_length=32, num_mel_bins=16, patch_size=8, frequency_stride=8, time_stride=8),
    _text("CamembertModel", "CamembertConfig"),
    _text("XLMRobertaModel", "XLMRobertaConfig"),
    _text("ErnieModel", "ErnieConfig"),
    _text("RoFormerModel", "RoFormerConfig", embedding_size=32),
    _text("ConvBertModel", "ConvBertConfig", embedding_size=32),
    _text("MegatronBertModel", "MegatronBertConfig"),
    _text("BigBirdModel", "BigBirdConfig", attention_type="original_full"),
    _text("OpenAIGPTLMHeadModel", "OpenAIGPTConfig", n_embd=32, n_layer=2, n_head=4, n_positions=64),
    _text("XGLMForCausalLM", "XGLMConfig", d_model=32, ffn_dim=64, num_layers=2, attention_heads=4),
    _text("BioGptForCausalLM", "BioGptConfig"),
    _text("CodeGenForCausalLM", "CodeGenConfig", n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4),
    _text("PersimmonForCausalLM", "PersimmonConfig"),
    _text("OlmoForCausalLM", "OlmoConfig", num_key_value_heads=2),
    _text("Cohere2ForCausalLM", "Cohere2Config", num_key_value_heads=2),
    _text("NemotronForCausalLM", "NemotronConfig", **_HEADS),
    _text("HeliumForCausalLM", "HeliumConfig", **_HEADS),
    _text("SmolLM3ForCausalLM", "SmolLM3Config", num_key_value_heads=2),
    _text("Qwen3MoeForCausalLM", "Qwen3MoeConfig", **_HEADS, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32),
    _text("GptOssForCausalLM", "GptOssConfig", **_HEADS, num_local_experts=4, num_experts_per_tok=2, sliding_window=8),
    _text("FlexOlmoForCausalLM", "FlexOlmoConfig", num_key_value_heads=2, num_experts=4, num_experts_per_tok=2),
    _text("FalconMambaForCausalLM", "FalconMambaConfig", state_size=4, time_step_rank=4),
    _transformers("ResNetModel", "ResNetConfig", image(32), embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], layer_type="basic"),
    _transformers("RegNetModel", "RegNetConfig", image(32), embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], groups_width=8, layer_type="x"),
    _transformers("MobileNetV1Model", "MobileNetV1Config", image(64), image_size=64, depth_multiplier=0.25),
    _transformers("ConvNextV2Model", "ConvNextV2Config", image(32), hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1]),
    _transformers("Swinv2Model", "Swinv2Config", image(32), image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, hidden_size=None, num_attention_heads=None, num_hidden_layers=None),
    _transformers("PvtV2Model", "PvtV2Config", image(64), image_size=64, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2]),
    _transformers("FocalNetModel", "FocalNetConfig", image(32), image_size=32, embed_dim=16, hidden_sizes=[16, 32], depths=[1, 1], focal_levels=[2, 2], focal_windows=[3, 3], hidden_size=None),
    _transformers("HieraModel", "HieraConfig", image(64), image_size=[64, 64], embed_dim=16, depths=[1, 1], num_heads=[1, 2], num_query_pool=1, hidden_size=None, num_attention_heads=None, num_hidden_layers=None),
    _transformers("Data2VecVisionModel", "Data2VecVisionConfig", image(32), **_PICTURE),
    _transformers("MobileViTV2Model", "MobileViTV2Config", image(64), image_size=64, width_multiplier=0.25),
    _transformers("CLIPModel", "CLIPConfig", named(input_ids=tokens(), pixel_values=image(32)), text_config=_SMALL, vision_config={**_SMALL, **_PICTURE}, projection_dim=16),
    _transformers("WavLMModel", "WavLMConfig", floats(2, 400), **_SPEECH),
    _transformers("UniSpeechModel", "UniSpeechConfig", floats(2, 400), **_SPEECH),
    _transformers("SEWModel", "SEWConfig", floats(2, 400), **_SPEECH, squeeze_factor=2),
    _transformers("Wav2Vec2ConformerModel", "Wav2Vec2ConformerConfig", floats(2, 400), **_SPEECH),
    _transformers("Data2VecAudioModel", "Data2VecAudioConfig", floats(2, 400), **{**_SPEECH, "num_conv_pos_embeddings": 2}, conv_pos_kernel_size=5),
    _transformers("PatchTSTModel", "PatchTSTConfig", floats(2, 32, 3), num_input_channels=3, context_length=32, patch_length=8, patch_stride=8, d_model=32, ffn_dim=64),
    _transformers("BlenderbotForConditionalGeneration", "BlenderbotConfig", _TO_TEXT, **_D_MODEL),
    _transformers("M2M100ForConditionalGeneration", "M2M100Config", _TO_TEXT, **_D_MODEL),
    _transformers("MT5ForConditionalGeneration", "MT5Config", _TO_TEXT, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0),
    _text("FunnelModel", "FunnelConfig", block_sizes=[1, 1], d_model=32, n_head=4, d_head=8, d_inner=64, max_position_embeddings=None, num_decoder_layers=1, num_hidden_layers=None),
    _text("YosoModel", "YosoConfig", use_expectation=True),
    _text("CanineModel", "CanineConfig", num_hash_functions=2, num_hash_buckets=64, local_transformer_stride=4, downsampling_rate=4),
    _text("SplinterModel", "SplinterConfig"),
    _text("IBertModel", "IBertConfig"),
    _text("EsmModel", "EsmConfig", mask_token_id=3, position_embedding_type="rotary", emb_layer_norm_before=True),
    _text("LukeModel", "LukeConfig", entity_vocab_size=20, entity_emb_size=16),
    _transformers("MraModel", "MraConfig", tokens(32), block_per_row=1),
    _transformers("PerceiverModel", "PerceiverConfig", floats(2, 12, 32), d_model=32, num_latents=6, d_latents=32, num_blocks=1, num_self_attends_per_block=2, num_self_attention_heads=4, num_cross_attention_heads=4),
    _transformers("BigBirdForMaskedLM", "BigBirdConfig", tokens(64), attention_type="block_sparse", block_size=4, num_random_blocks=2, max_position_embeddings=128),
) for case in cases)
# fmt: on
