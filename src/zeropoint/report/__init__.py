"""Pages about a quantized model and about a program."""
