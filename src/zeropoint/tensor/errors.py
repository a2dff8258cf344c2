"""What QTensors refuse with."""


class QTensorError(RuntimeError, ValueError):
    """A QTensor was used in a way that has no meaning.

    A ValueError, as everywhere in zeropoint, and a RuntimeError, because PyTorch's quantized tensors raised that and
    old code catches it.
    """
