"""Graph mode through torch.export."""
