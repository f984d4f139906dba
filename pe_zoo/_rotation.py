"""Rotation of pairs of dimensions, shared by the rotary encoders; each has its own frequencies."""

import math

import torch
from torch import Tensor

from pe_zoo._encoder import Encoder, Geometry, Site
from pe_zoo._knobs import number
from pe_zoo._positions import angles, geometric_frequencies


def head_dim_of(geometry: Geometry) -> str:
    """The width of a head, and where it comes from, for a message."""
    shared = geometry.head_dim * geometry.num_heads == geometry.model_dim
    source = f" (model_dim {geometry.model_dim} / num_heads {geometry.num_heads})" if shared else ""
    return f"{geometry.head_dim}{source}"


def pairs_of(encoder: str, geometry: Geometry, axes: int = 1) -> int:
    """How many pairs of dimensions a head has for each axis, of one or two; a head_dim with a rest is refused."""
    if geometry.head_dim % (2 * axes):
        needs = "pairs by two axes and needs a head_dim that 4 divides"
        if axes == 1:
            needs = "pairs of dimensions and needs an even head_dim"
        raise ValueError(f"{encoder} rotates {needs}; got {head_dim_of(geometry)}")
    return geometry.head_dim // (2 * axes)


def rotate_pairs(x: Tensor, angle: Tensor, pairing: str = "interleaved", scale: float | Tensor = 1.0) -> Tensor:
    """Rotate the first ``2 · pairs`` dimensions of x counter-clockwise and leave the rest.

    Args:
        x: ``(batch, heads, length, head_dim)``.
        angle: radians, ``(length, pairs)`` or ``(batch, length, pairs)``.
        pairing: ``interleaved`` or ``half``.
        scale: what the rotated dimensions are multiplied by, a number or of the shape of the angles.
    """
    return rotate_by(x, *_cos_and_sin(angle, scale, x.dtype), pairing)


def _cos_and_sin(angle: Tensor, scale: float | Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    cos, sin = (part if part.ndim == 2 else part.unsqueeze(1) for part in (angle.cos() * scale, angle.sin() * scale))
    return cos.to(dtype), sin.to(dtype)


def rotate_by(x: Tensor, cos: Tensor, sin: Tensor, pairing: str = "interleaved") -> Tensor:
    """Multiply pairs, as complex numbers, by cos + i · sin, which broadcast to ``(batch, heads, length, pairs)``."""
    rotated, still = x.split([2 * cos.shape[-1], x.shape[-1] - 2 * cos.shape[-1]], -1)
    if pairing == "interleaved" and _may_be_complex(rotated):
        # A rotation is a complex product: the sums below, forwards and backwards in a third of the time.
        pairs = torch.view_as_complex(rotated.unflatten(-1, (-1, 2))) * torch.complex(cos, sin)
        rotated = torch.view_as_real(pairs).flatten(-2)
    elif pairing == "interleaved":
        a, b = rotated.unflatten(-1, (-1, 2)).unbind(-1)
        rotated = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    else:
        a, b = rotated.chunk(2, -1)
        rotated = torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
    return torch.cat([rotated, still], -1) if still.shape[-1] else rotated


def _may_be_complex(x: Tensor) -> bool:
    """Whether neighbours can be read as the parts of complex numbers without a copy."""
    even = x.storage_offset() % 2 == 0 and all(stride % 2 == 0 for stride in x.stride()[:-1])
    return x.dtype in (torch.float32, torch.float64) and x.stride(-1) == 1 and even


def rotate_both(
    q: Tensor, k: Tensor, site: Site, frequencies: Tensor, pairing: str = "interleaved", scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys, each by its position times the frequencies, ``(pairs,)`` float64."""
    of_keys = _cos_and_sin(angles(site.key_positions, frequencies), scale, k.dtype)
    of_queries = [part[..., site.rows, :] for part in of_keys]
    return rotate_by(q, of_queries[0], of_queries[1], pairing), rotate_by(k, of_keys[0], of_keys[1], pairing)


def rotate_heads(x: Tensor, angle: Tensor) -> Tensor:
    """Rotate the pairs (i, i + head_dim/2) of each head by its own angles, ``(batch, heads, length, pairs)``."""
    # `rotate_pairs` rotates all heads of a sample alike: here each stands as a sample.
    return rotate_pairs(x.flatten(0, 1).unsqueeze(1), angle.flatten(0, 1), "half").reshape(x.shape)


class Rotary(Encoder):
    """Rotates pairs of dimensions at frequencies that do not depend on the text; a subclass says at which.

    Args:
        base: of RoPE's frequencies, above 0.
    """

    shift_invariant = direction_aware = True
    pairing = "interleaved"
    scale = 1.0

    def __init__(self, geometry: Geometry, base: float) -> None:
        super().__init__(geometry)
        self.pairs = self.rotated_pairs = pairs_of(self.name, geometry)
        self.base = number(f"{self.name} base", base, above=0)

    def plain_frequencies(self, device: torch.device | None = None) -> Tensor:
        """RoPE's: ``base^(−2i/head_dim)`` radians per position, ``(pairs,)`` float64."""
        return geometric_frequencies(self.pairs, self.base, self.geometry.head_dim, device)

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        """Radians per position of each pair, float64; pairs beyond those given are not rotated."""
        return self.plain_frequencies(device)[: self.rotated_pairs]

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        return rotate_both(q, k, site, self.frequencies(q.device), self.pairing, self.scale)


class Regrouped(Rotary):
    """Rotates as RoPE does; where query and key are far apart, as if they stood elsewhere. A subclass says where.

    Each other place costs a product of the size of the scores.
    """

    def far(self, site: Site) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Of each group of far pairs: which they are, as the scores; positions of queries; positions of keys."""
        raise NotImplementedError

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        frequencies, scale, dtype = self.frequencies(q.device), self.geometry.head_dim**-0.5, scores.dtype
        q, k = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k))
        for where, queries, keys in self.far(site):
            # Both come rotated to their own positions, and are turned on from there.
            there_q = rotate_pairs(q, angles(queries.double() - site.query_positions, frequencies))
            there_k = rotate_pairs(k, angles(keys.double() - site.key_positions, frequencies))
            scores = torch.where(where, (there_q * scale @ there_k.mT).to(dtype), scores)
        return scores


def beyond(
    window: int, offset: float, site: Site, queries: Tensor, keys: Tensor
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Far pairs are those with a window or more between them; queries move by the offset away from their keys."""
    behind = [(site.distance >= window, queries + offset, keys)]
    return behind if site.causal else [*behind, (site.distance <= -window, queries - offset, keys)]


def reach(site: Site) -> Tensor:
    """The highest position that each query knows of (causal: so far), ``(query,)`` or ``(batch, query)``."""
    if site.causal:
        return site.key_positions.cummax(-1).values[..., site.rows]
    return site.key_positions.amax(-1, keepdim=True).expand_as(site.query_positions)


def rotations_ramp(
    num: int, base: float, length: int, fast: float, slow: float, device: torch.device | None = None
) -> Tensor:
    """0 for pairs that rotate more than ``fast`` times over a length, 1 below ``slow`` times, linear between.

    The bounds are rounded outwards to whole pairs, as in YaRN's code; ``(num,)`` float64.

    >>> rotations_ramp(4, 10000.0, 64, 32.0, 1.0)
    tensor([0.0000, 0.5000, 1.0000, 1.0000], dtype=torch.float64)
    """
    low, high = (num * math.log(length / (2 * math.pi * rotations)) / math.log(base) for rotations in (fast, slow))
    first, last = max(math.floor(low), 0), max(min(math.ceil(high), 2 * num - 1), 0)
    pair = torch.arange(num, dtype=torch.float64, device=device)
    return ((pair - first) / max(last - first, 1e-3)).clamp(0, 1)
