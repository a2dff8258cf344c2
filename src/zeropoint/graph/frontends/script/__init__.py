"""TorchScript in, TorchScript out: one pass per file."""
