"""What can be quantized, and how."""
