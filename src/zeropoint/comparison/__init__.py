"""A float model and its quantized form, side by side: pairs of values, their sizes and times."""
