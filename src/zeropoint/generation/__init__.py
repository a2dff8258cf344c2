"""Language models as program files: made from GGUF files and models of transformers, run without PyTorch."""

from zeropoint.generation.compile_decoder import compile_decoder
from zeropoint.generation.decode_speed import DecodeSpeed, decode_speed
from zeropoint.generation.export_gguf import export_gguf
from zeropoint.generation.language_model import LanguageModel, load
from zeropoint.generation.perplexity import perplexity

__all__ = ["DecodeSpeed", "LanguageModel", "compile_decoder", "decode_speed", "export_gguf", "load", "perplexity"]
