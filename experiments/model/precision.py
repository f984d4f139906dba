"""Which arithmetic and which attention kernel: by processor, width, length, and whether gradients are needed.

A test compares each path with plain float32 attention. The limits were measured; the log of 2026-11-21 has figures.
On a CPU attention itself is in float32, always: the fused kernel's bfloat16 backward is slower. On a GPU a training in
bfloat16 has flash attention where scores have no bias, and TF32 elsewhere, but not for learned angles: bfloat16 scores
rotate their gradient, which grows with the position (at 10 000, by 14 degrees).
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from pe_zoo import Encoder

AUTO, FLOAT32, BFLOAT16 = "auto", "float32", "bfloat16"
PRECISIONS = (AUTO, FLOAT32, BFLOAT16)
"""What matrices may be multiplied in while training; evaluation is in float32, always."""

WIDE = 128
"""Model width from which bfloat16 products gain more than the conversions cost."""
SHORT = 64
"""Keys up to which, with gradients, attention as matrix products is faster than the fused kernel on a CPU."""
FEW = 2**18
"""Scores, all sequences and heads together, below which the kernel is faster even so, for being one call."""


@contextmanager
def repeatable(threads: int) -> Iterator[None]:
    """Use deterministic kernels, where there are any, and this number of threads within: another rounds differently.

    Fused attention on a GPU has none for the way back, so that a run there repeats up to rounding.
    """
    # The switch of torch.use_deterministic_algorithms, which also imports the compiler.
    before, threads_before = torch.get_deterministic_debug_mode(), torch.get_num_threads()
    torch.set_deterministic_debug_mode("warn")
    torch.set_num_threads(threads)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".* defaults to a non-deterministic algorithm")
            yield
    finally:
        torch.set_deterministic_debug_mode(before)
        torch.set_num_threads(threads_before)


def resolved(precision: str, device: str, model_dim: int) -> str:
    """Return what ``auto`` is here: bfloat16 where the processor multiplies it natively and a wide model gains by it.

    The device may be ``auto``: the GPU if there is one.
    """
    if precision != AUTO:
        return precision
    on_cpu = device == "cpu" or (device == AUTO and not torch.cuda.is_available())
    native = _multiplies_bfloat16() if on_cpu else torch.cuda.is_bf16_supported()
    return BFLOAT16 if native and model_dim >= WIDE else FLOAT32


def _multiplies_bfloat16() -> bool:
    # Without these instructions products in bfloat16 are emulated, and slower than in float32.
    known = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(supported() for supported in known if supported is not None)


def linear(x: Tensor, layer: nn.Linear, dtype: torch.dtype | None) -> Tensor:
    """Apply a layer without bias in ``dtype``; None: as x and the weights are."""
    return layer(x) if dtype is None else functional.linear(x.to(dtype), layer.weight.to(dtype))


def learns_angles(encoder: Encoder) -> bool:
    """Return whether scores have to be exact for what the encoder learns, see above."""
    return encoder.overrides("rotate") and next(encoder.parameters(), None) is not None


def flash_dtype(encoder: Encoder, x: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """Return what attention without a bias is in, in a training in ``dtype``: on a GPU in that, for flash attention."""
    return dtype if dtype is not None and x.is_cuda and not learns_angles(encoder) else x.dtype


@contextmanager
def products_in(dtype: torch.dtype | None, encoder: Encoder, device: str) -> Iterator[None]:
    """Multiply what stays in float32 on a GPU (logits, scores) in TF32 within, in a training in ``dtype``."""
    if dtype is None or device != "cuda" or learns_angles(encoder):
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def fused_pays(q: Tensor, k: Tensor) -> bool:
    """Return whether the fused kernel is faster than products of matrices, where an encoder allows it."""
    if not torch.is_grad_enabled() or q.device.type != "cpu":
        return True
    num_keys = k.shape[-2]
    return num_keys > SHORT or q.shape[:-1].numel() * num_keys < FEW
