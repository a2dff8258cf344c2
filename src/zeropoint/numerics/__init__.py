"""The mathematics of quantization, each formula in one place."""
