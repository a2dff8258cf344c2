"""What quantization did to a model, layer by layer: as numbers, as tables, as a page."""
