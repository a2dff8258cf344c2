"""Attention out of linear layers that can be observed and quantized."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zeropoint.context import CONTEXT
from zeropoint.nn.quantized.functional_modules import FloatFunctional
from zeropoint.nn.stubs import DeQuantStub, QuantStub


class MultiheadAttention(nn.MultiheadAttention):
    """torch.nn.MultiheadAttention out of parts that can be observed and quantized.

    The four linear layers are quantized; scores, softmax and the weighted sum between them are float32::

        output = out_proj(softmax(linear_Q(query) / sqrt(head_dim) @ linear_K(key).T + mask) @ linear_V(value))

    Args:
        embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first: as for
            torch.nn.MultiheadAttention.

    Example:
        >>> x = torch.randn(5, 1, 4)
        >>> y, weights = MultiheadAttention(4, 2)(x, x, x)
        >>> y.shape, weights.shape
        (torch.Size([5, 1, 4]), torch.Size([1, 5, 5]))
    """

    _FLOAT_MODULE: Any = nn.MultiheadAttention
    __constants__ = ("batch_first",)

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device, dtype
        )
        # Their work is done by the linear layers. As None they also keep nn.TransformerEncoderLayer off the shortcut
        # that reads them instead of calling this module.
        for name in _PACKED:
            self.register_parameter(name, None)
        self.linear_Q = nn.Linear(self.embed_dim, embed_dim, bias, device, dtype)
        self.linear_K = nn.Linear(self.kdim, embed_dim, bias, device, dtype)
        self.linear_V = nn.Linear(self.vdim, embed_dim, bias, device, dtype)
        self.out_proj: Any = nn.Linear(embed_dim, embed_dim, bias, device, dtype)
        self.q_scaling_product = FloatFunctional()
        self.quant_attn_output, self.quant_attn_output_weights = QuantStub(), QuantStub()
        self.dequant_q, self.dequant_k, self.dequant_v = DeQuantStub(), DeQuantStub(), DeQuantStub()

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The result and, with `need_weights`, the weights; arguments and shapes of torch.nn.MultiheadAttention."""
        if is_causal and attn_mask is None:
            raise ValueError("MultiheadAttention: is_causal describes attn_mask; pass attn_mask too")
        batched = query.dim() == 3
        q = self.dequant_q(self.q_scaling_product.mul_scalar(self.linear_Q(query), float(self.head_dim) ** -0.5))
        k = self.dequant_k(self.linear_K(key))
        v = self.dequant_v(self.linear_V(value))
        if not batched:
            q, k, v = q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0)
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)
        batch, length = q.shape[0], q.shape[1]

        bias_k, bias_v = self.bias_k, self.bias_v
        if bias_k is not None and bias_v is not None:
            k = torch.cat([k, bias_k.expand(batch, 1, self.embed_dim)], 1)
            v = torch.cat([v, bias_v.expand(batch, 1, self.embed_dim)], 1)
        if self.add_zero_attn:
            zeros = torch.zeros([batch, 1, self.embed_dim], dtype=k.dtype, device=k.device)
            k, v = torch.cat([k, zeros], 1), torch.cat([v, zeros], 1)
        sources = k.shape[1]
        added = int(bias_k is not None) + int(self.add_zero_attn)

        q = q.reshape(batch, length, self.num_heads, self.head_dim).transpose(1, 2)
        k = k.reshape(batch, sources, self.num_heads, self.head_dim).permute(0, 2, 3, 1)
        v = v.reshape(batch, sources, self.num_heads, self.head_dim).transpose(1, 2)
        scores = torch.matmul(q, k)
        if attn_mask is not None:
            mask = attn_mask
            if mask.dim() == 3:
                mask = mask.reshape(batch, self.num_heads, length, sources - added)
            elif mask.dim() != 2:
                raise ValueError(f"MultiheadAttention: attn_mask must have 2 or 3 dimensions, got {mask.dim()}")
            scores = _masked(scores, F.pad(mask, [0, added]))
        if key_padding_mask is not None:
            scores = _masked(scores, F.pad(key_padding_mask, [0, added]).reshape(batch, 1, 1, sources))
        weights = F.dropout(torch.softmax(scores, -1), self.dropout, self.training)

        mixed = torch.matmul(weights, v)
        if not batched:
            mixed = mixed.transpose(1, 2).reshape(length, self.embed_dim)
        elif self.batch_first:
            mixed = mixed.transpose(1, 2).reshape(batch, length, self.embed_dim)
        else:
            mixed = mixed.permute(2, 0, 1, 3).reshape(length, batch, self.embed_dim)
        output = self.out_proj(self.quant_attn_output(mixed))
        if not self._weights_wanted(need_weights):
            return output, None
        weights = self.quant_attn_output_weights(weights)
        if not need_weights:
            return output, None
        if average_attn_weights:
            weights = weights.mean(1)
        return output, weights if batched else weights.squeeze(0)

    def _weights_wanted(self, need_weights: bool) -> bool:
        return True  # they are observed, also where they are not asked for

    def _get_name(self) -> str:
        return "QuantizableMultiheadAttention"

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name in _PACKED:  # torch.ao saves them beside the linear layers, unused
            if prefix + "linear_Q.weight" in state_dict or prefix + "linear_Q.scale" in state_dict:
                state_dict.pop(prefix + name, None)
        super()._load_from_state_dict(state_dict, prefix, *args)

    @classmethod
    def from_float(cls, other: Any) -> MultiheadAttention:
        """The attention of an nn.MultiheadAttention, observed; in training, with fake quantization inside."""
        if type(other) is not cls._FLOAT_MODULE:
            raise TypeError(
                f"{cls.__module__}.{cls.__name__}.from_float takes a {cls._FLOAT_MODULE.__name__}, got a"
                f" {type(other).__name__}"
            )
        qconfig = getattr(other, "qconfig", None)
        if qconfig is None:
            raise ValueError(
                f"{cls.__name__}.from_float: the module has no qconfig: call zeropoint.prepare, which sets it"
            )
        made = cls(
            other.embed_dim, other.num_heads, other.dropout, other.in_proj_bias is not None, other.bias_k is not None,
            other.add_zero_attn, other.kdim, other.vdim, other.batch_first,
        )  # fmt: skip
        made.bias_k, made.bias_v, made.qconfig = other.bias_k, other.bias_v, qconfig
        if other._qkv_same_embed_dim:
            weights = other.in_proj_weight.chunk(3)
        else:
            weights = (other.q_proj_weight, other.k_proj_weight, other.v_proj_weight)
        biases = (None,) * 3 if other.in_proj_bias is None else other.in_proj_bias.chunk(3)
        for layer, weight, bias in zip((made.linear_Q, made.linear_K, made.linear_V), weights, biases, strict=True):
            layer.weight = nn.Parameter(weight.detach(), weight.requires_grad)
            layer.bias = None if bias is None else nn.Parameter(bias.detach(), bias.requires_grad)
        made.out_proj.weight, made.out_proj.bias = other.out_proj.weight, other.out_proj.bias
        made.train(other.training)
        return (CONTEXT.prepare_qat if other.training else CONTEXT.prepare)(made, inplace=True)

    @torch.jit.unused
    def dequantize(self) -> nn.MultiheadAttention:
        """An nn.MultiheadAttention with these weights; of a quantized one, with what is left of them."""
        layers: Any = (self.linear_Q, self.linear_K, self.linear_V, self.out_proj)
        weights, biases = zip(*(_float_weight_bias(layer) for layer in layers), strict=True)
        made = nn.MultiheadAttention(
            self.embed_dim, self.num_heads, self.dropout, biases[0] is not None, self.bias_k is not None,
            self.add_zero_attn, self.kdim, self.vdim, self.batch_first,
        )  # fmt: skip
        with torch.no_grad():
            if made._qkv_same_embed_dim:
                made.in_proj_weight.copy_(torch.cat(weights[:3]))
            else:
                for name, weight in zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), weights, strict=False):
                    getattr(made, name).copy_(weight)
            made.out_proj.weight.copy_(weights[3])
            for target, source in (
                (made.in_proj_bias, None if biases[0] is None else torch.cat(biases[:3])),
                (made.out_proj.bias, biases[3]),
                (made.bias_k, self.bias_k),
                (made.bias_v, self.bias_v),
            ):
                if target is not None and source is not None:
                    target.copy_(source)
        return made.train(self.training)

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        """There is none: `zeropoint.nn.quantized.MultiheadAttention.from_observed` makes the quantized module."""
        raise NotImplementedError(
            "zeropoint.nn.quantizable.MultiheadAttention is the observed module; the quantized one is"
            " zeropoint.nn.quantized.MultiheadAttention.from_observed(attention), which zeropoint.convert calls"
        )


_PACKED = ("in_proj_weight", "in_proj_bias", "q_proj_weight", "k_proj_weight", "v_proj_weight")


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    """Where a bool mask is True there is nothing to attend to; a float mask is added."""
    if mask.dtype == torch.bool:
        return scores.masked_fill(mask, float("-inf"))
    if not mask.is_floating_point():
        raise TypeError(f"MultiheadAttention: masks must be bool or float tensors, got {mask.dtype}")
    return scores + mask


def _float_weight_bias(layer: Any) -> tuple[Tensor, Tensor | None]:
    if isinstance(layer, nn.Linear):
        return layer.weight, layer.bias
    weight, bias = layer._weight_bias()
    return weight.dequantize(), bias
