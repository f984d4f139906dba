"""Numbers about position vectors and about components that are sinusoids of the position."""

import math

import numpy as np
import torch
from torch import Tensor

from pe_zoo import Encoder, Unsupported

PURE = 1e-5
"""Largest residual, relative to the second differences, of a component that counts as a sinusoid."""
STILL = 1e-11
"""Second differences below this share of the component itself are rounding: it is constant, or a straight line."""
WAYS = ("exp of a logarithm", "power")
SAME = 1e-6
"""Frequencies and ratios of frequencies closer than this, relatively, are one."""


def codes(encoder: Encoder, positions: Tensor) -> Tensor:
    """Return what an encoder in float64 adds to embeddings, ``(length, model_dim)``; Unsupported if that is nothing."""
    if not encoder.overrides("embed"):
        raise Unsupported(f"{encoder.name} adds no vectors to the embeddings")
    return encoder.embed(torch.zeros(1, len(positions), encoder.geometry.model_dim, dtype=torch.float64), positions)[0]


def shift_maps(codes: Tensor, shifted: list[Tensor]) -> Tensor:
    """Return the linear maps M of least ‖Φ M − Φ shifted‖, ``(shifts, model_dim, model_dim)``.

    That such maps exist for sinusoids is why they were chosen: Vaswani et al. (2017), arXiv:1706.03762, §3.5. There are
    more positions in Φ, ``(positions, model_dim)`` float64, than dimensions, so that it can fail.
    """
    # Not the default driver, which wants columns that are independent: codes need not fill all dimensions.
    found = torch.linalg.lstsq(codes, torch.cat(shifted, -1), driver="gelsd").solution
    return torch.stack(found.split(codes.shape[-1], -1))


def collisions(codes: Tensor, dtype: torch.dtype) -> int:
    """Return the number of pairs of positions whose codes, ``(length, model_dim)``, are equal in this precision."""
    # Rounded to float32 from float32 upwards: exact, and −0 becomes 0, which it equals.
    rounded = np.ascontiguousarray((codes.to(dtype).float() + 0.0).numpy())
    as_bytes = rounded.view(np.dtype((np.void, rounded.shape[1] * rounded.itemsize))).ravel()
    counts = np.unique(as_bytes, return_counts=True)[1].astype(np.int64)
    return int((counts * (counts - 1) // 2).sum())


def frequencies(values: Tensor) -> Tensor:
    """Return the radians per position of each column that is a pure sinusoid, ``(columns,)`` in (0, π]; else NaN.

    A sinusoid, and no other bounded function, has second differences in proportion to itself, over any stride s:
    f(p − s) − 2 f(p) + f(p + s) = −4 sin²(ws/2) f(p). Stride 1 gives w by least squares; longer strides sharpen it,
    each with the number of turns that the shorter ones imply. Frequencies above π alias to lower ones at whole
    positions; those below about 1e-4 / positions count as 0.

    Args:
        values: ``(positions, columns)`` float64 at successive whole positions, at least 8.
    """
    if len(values) < 8:
        raise Unsupported(f"{len(values)} positions are too few to detect a sinusoid; raise structure.reach")
    strides = [2**power for power in range(max(1, (len(values) // 8).bit_length()))]
    w = torch.zeros(values.shape[1], dtype=torch.float64)
    surest = torch.full_like(w, -1.0)
    for s in strides:
        middle, second = _second_differences(values, s)
        ratio = -(second * middle).sum(0) / middle.square().sum(0)
        angle = 2 * torch.asin((ratio.clamp(0, 4) / 4).sqrt())
        turns = ((w * s - angle) / (2 * math.pi)).round()
        back = ((w * s + angle) / (2 * math.pi)).round()
        ahead, behind = angle + 2 * math.pi * turns, 2 * math.pi * back - angle
        nearest = torch.where((ahead - w * s).abs() <= (behind - w * s).abs(), ahead, behind) if s > 1 else angle
        sureness = s * angle.sin().abs()  # an error in the ratio moves w by its inverse
        sureness = sureness.where(ratio.isfinite(), torch.full_like(sureness, -1.0))
        w = torch.where(sureness > surest, nearest / s, w)
        surest = torch.maximum(surest, sureness)
    left, moved, size = (torch.zeros_like(w) for _ in range(3))
    for s in strides:
        middle, second = _second_differences(values, s)
        left += (second + 4 * (w * s / 2).sin().square() * middle).square().sum(0)
        moved += second.square().sum(0)
        size += middle.square().sum(0)
    pure = (left <= PURE**2 * moved) & (moved > STILL**2 * size) & (w > 0)
    return torch.where(pure, w, torch.nan)


def _second_differences(values: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    middle = values[stride : len(values) - stride]
    return middle, values[: len(middle)] - 2 * middle + values[2 * stride :]


def base_of(found: Tensor) -> float:
    """Return the base of ``frequencies`` that are base^(−2i/model_dim), i = 0, 1, …, each of two dimensions.

    Raises:
        Unsupported: they are no such series.
    """
    model_dim = len(found)
    pairs = found.sort(descending=True).values.unflatten(0, (-1, 2)) if model_dim % 2 == 0 else found.unsqueeze(-1)
    if not bool(found.isfinite().all()) or not torch.allclose(pairs[:, 0], pairs[:, -1], rtol=SAME, atol=0):
        raise Unsupported("not all components are sinusoids, two of each frequency")
    if len(pairs) < 2:
        raise Unsupported("one frequency is no series")
    steps = pairs.mean(-1).log().diff()
    step = steps.mean().item()
    if abs(pairs[0, 0].item() - 1) > SAME or step >= 0 or (steps - step).abs().max() > SAME * abs(step):
        raise Unsupported("the frequencies are no geometric series that starts at 1 radian per position")
    return float(f"{math.exp(-step * model_dim / 2):.8g}")


def frequency_errors(base: float, model_dim: int) -> dict[str, float]:
    """Return the largest relative error of float32 frequencies base^(−2i/model_dim), by the way they are computed.

    Some teaching texts take the exponential of a logarithm and call it the more stable way; others raise to a power.
    """
    even = torch.arange(0, model_dim, 2)
    exact = base ** (-even.double() / model_dim)
    computed = (torch.exp(even.float() * (-math.log(base) / model_dim)), 1.0 / base ** (even.float() / model_dim))
    return {
        way: ((values.double() - exact).abs() / exact).max().item() for way, values in zip(WAYS, computed, strict=True)
    }
