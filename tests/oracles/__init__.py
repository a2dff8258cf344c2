"""PyTorch's operator database and torch.export's examples, through `to_int8` and `compile`: what becomes of each."""
