"""torch.ao.nn.sparse: layers for block-sparse weights, which are dense here.

A layer computes what the sparse one did: zeros are multiplied, too. The sizes of the blocks are kept, as old code asks
for them, and have no effect.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

from torch import Tensor, nn

from zeropoint.nn.quantized import dynamic, linear as static
from zeropoint.numerics.dtypes import qint8
from zeropoint.tensor.qtensor import QTensor

_BLOCKS = ((1, 4), (8, 1))  # what QNNPACK had kernels for
_CURRENT = threading.local()


class _Blocks:
    """What both kinds of layers share: blocks that are remembered."""

    _FLOAT: ClassVar[tuple[type, ...]] = (nn.Linear,)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        row_block_size: int,
        col_block_size: int,
        bias: bool = True,
        dtype: Any = qint8,
    ) -> None:
        super().__init__(in_features, out_features, bias, dtype)  # type: ignore[call-arg]
        self._take_blocks(row_block_size, col_block_size)

    def set_weight_bias(
        self, w: QTensor, b: Tensor | None, row_block_size: int | None = 1, col_block_size: int | None = 4
    ) -> None:
        super().set_weight_bias(w, b)  # type: ignore[misc]
        self._take_blocks(row_block_size, col_block_size)

    def _take_blocks(self, row_block_size: int | None, col_block_size: int | None) -> None:
        if row_block_size is None or col_block_size is None:
            raise ValueError(f"a sparse layer needs both sizes of its blocks, got {row_block_size}, {col_block_size}")
        self.row_block_size, self.col_block_size = row_block_size, col_block_size

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """A file of torch.ao's has the sizes behind weight and bias."""
        state_dict.pop(prefix + "op_type", None)
        kept = state_dict.get(prefix + "_packed_params._packed_params")
        if kept is not None and len(kept) == 4:
            weight, bias, *blocks = state_dict.pop(prefix + "_packed_params._packed_params")
            state_dict[prefix + "_packed_params.weight"] = weight
            state_dict[prefix + "_packed_params.bias"] = bias
            self._take_blocks(*(int(size) for size in blocks))
        super()._load_from_state_dict(state_dict, prefix, *args)  # type: ignore[misc]

    @classmethod
    def _made(cls, mod: Any, dense: Any) -> Any:
        blocks = getattr(mod, "sparse_params", {}).get("sparse_block_shape")
        if not isinstance(blocks, (tuple, list)) or len(blocks) != 2:
            raise ValueError(
                f"{cls.__name__}.from_float: the layer has no sparse_params with a sparse_block_shape of two "
                'numbers: call sparsifier.squash_mask(params_to_save=("sparse_block_shape",)) first'
            )
        rows, columns = blocks
        made: Any = cls(dense.in_features, dense.out_features, rows, columns, bias=dense.bias() is not None)
        made.set_weight_bias(dense.weight(), dense.bias(), *blocks)
        return made


class Linear(_Blocks, static.Linear):
    """A linear layer on integers whose weight has blocks of zeros.

    Example:
        >>> Linear(8, 2, 1, 4)
        SparseQuantizedLinear(in_features=8, out_features=2, scale=1.0, zero_point=0, qscheme=per_tensor_affine)
    """

    _NAME = "SparseQuantizedLinear"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Linear:
        """The quantized layer of a sparsified float layer that was calibrated."""
        dense = static.Linear.from_float(mod)
        made: Linear = cls._made(mod, dense)
        made.scale, made.zero_point = dense.scale, dense.zero_point
        return made


class DynamicLinear(_Blocks, dynamic.Linear):
    """As `Linear`, on floats that are quantized on the way in."""

    _NAME = "SparseQuantizedDynamicLinear"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> DynamicLinear:
        """The dynamically quantized layer of a sparsified float layer with a qconfig."""
        made: DynamicLinear = cls._made(mod, dynamic.Linear.from_float(mod))
        return made


LinearPackedParams = static.LinearPackedParams


class LinearBlockSparsePattern(contextlib.AbstractContextManager[None]):
    """The sizes of blocks inside a ``with``; `block_size` answers them.

    Example:
        >>> with LinearBlockSparsePattern(8, 1):
        ...     print(LinearBlockSparsePattern.block_size())
        (8, 1)
    """

    def __init__(self, row_block_size: int = 1, col_block_size: int = 4) -> None:
        if (row_block_size, col_block_size) not in _BLOCKS:
            raise ValueError(f"blocks are 1 x 4 or 8 x 1, got {row_block_size} x {col_block_size}")
        self._inside = _inside((row_block_size, col_block_size))

    def __enter__(self) -> None:
        self._inside.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._inside.__exit__(*error)

    @staticmethod
    def block_size() -> tuple[int, int]:
        """The sizes that hold here."""
        return getattr(_CURRENT, "sizes", _BLOCKS[0])


@contextlib.contextmanager
def _inside(sizes: tuple[int, int]) -> Iterator[None]:
    before = LinearBlockSparsePattern.block_size()
    _CURRENT.sizes = sizes
    try:
        yield
    finally:
        _CURRENT.sizes = before


def get_default_static_sparse_quant_module_mappings() -> dict[type, type]:
    """Float module -> the layer that takes its place if it was sparsified."""
    return {nn.Linear: Linear}


def get_default_dynamic_sparse_quant_module_mappings() -> dict[type, type]:
    """The same for dynamic quantization."""
    return {nn.Linear: DynamicLinear}


DEFAULT_STATIC_SPARSE_QUANT_MODULE_MAPPINGS = get_default_static_sparse_quant_module_mappings()
DEFAULT_DYNAMIC_SPARSE_QUANT_MODULE_MAPPINGS = get_default_dynamic_sparse_quant_module_mappings()
