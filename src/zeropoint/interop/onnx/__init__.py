"""ONNX files: quantized models out, float and quantized models in.

The records say how each operator is written and read (`zeropoint.operators.onnx`).
"""
