"""Public architectures, with random weights and small inputs, through capture, quantization and programs."""
