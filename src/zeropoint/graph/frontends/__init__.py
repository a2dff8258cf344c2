"""Ways into graph mode: torch.export and TorchScript, read into one kind of graph."""
