"""Where zeropoint meets other libraries that quantize, PyTorch's own among them, to compare with them."""
