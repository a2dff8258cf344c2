"""Where zeropoint meets PyTorch's own quantization, while PyTorch has it."""
