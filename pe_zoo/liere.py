import math

import torch
from torch import Tensor, nn

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import number, whole
from pe_zoo._rotation import head_dim_of


@register("liere")
class LieRE(Encoder):
    """Rotates queries and keys by the matrix exponential of learned skew-symmetric generators.
    LieRE, Ostmeier et al. (2024), arXiv:2406.10322, §4.

        q → exp(q/span · generator) q,   k → exp(k/span · generator) k,      generator = upper − upperᵀ

    In one dimension scores depend on distance exactly: a RoPE whose planes and frequencies are both learned, for each
    layer and head. Matrix exponentials cost about length · head_dim · block² a head: dense heads are slow.

    Args:
        block_fraction: share of the head that one block of the generator spans, in (0, 1], rounded down to whole
            dimensions but at least two; dimensions beyond the last whole block are not rotated. 1 is the dense form;
            blocks of 8 in heads of 64 are 0.125.
        span: positions over which an entry of the generator is counted in radians, at least 1. None: ``train_length``,
            as the published positions run from 0 to 1 over an image of the training size.

    Departures: the published positions have two or three axes, whose generators need not commute; a sequence has one.
    Entries start uniform in [0, 2π), as published. Everything is computed in float64.
    """

    family = "rotation"
    shift_invariant = direction_aware = True

    def __init__(self, geometry: Geometry, *, block_fraction: float = 1.0, span: int | None = None) -> None:
        super().__init__(geometry)
        head_dim = geometry.head_dim
        number("liere block_fraction", block_fraction, above=0, at_most=1)
        if head_dim < 2:
            raise ValueError(f"liere rotates at least two dimensions of a head; got head_dim {head_dim_of(geometry)}")
        self.span = whole("liere span", geometry.train_length if span is None else span, at_least=1)
        self.block = max(2, int(block_fraction * head_dim + 1e-9))
        self.num_blocks = head_dim // self.block
        pairs = self.block * (self.block - 1) // 2
        self.upper = nn.Parameter(torch.empty(geometry.num_layers, geometry.num_heads, self.num_blocks, pairs))
        nn.init.uniform_(self.upper, 0.0, 2 * math.pi)

    def generators(self, layer: int) -> Tensor:
        """Skew-symmetric, ``(heads, blocks, block, block)`` float64, radians per position."""
        row = torch.arange(self.block, device=self.upper.device)
        low, high = torch.minimum(row[:, None], row), torch.maximum(row[:, None], row)
        # Which stored number stands at (low, high), counting along the rows above the diagonal; on it, the sign is 0.
        stored = low * self.block - low * (low + 1) // 2 + high - low - 1
        return self.upper[layer].double()[..., stored] * (row - row[:, None]).sign() / self.span

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        places = site.key_positions.double()[..., None, :, None, None, None]
        # One exponential for each key; the queries are some of the same rows.
        rotation = torch.matrix_exp(places * self.generators(site.layer).unsqueeze(1))
        return self._rotate(q, rotation[..., site.rows, :, :, :]), self._rotate(k, rotation)

    def _rotate(self, x: Tensor, rotation: Tensor) -> Tensor:
        rotated_dim = self.num_blocks * self.block
        rotated, still = x.split([rotated_dim, x.shape[-1] - rotated_dim], -1)
        blocks = rotated.double().unflatten(-1, (self.num_blocks, self.block)).unsqueeze(-1)
        rotated = (rotation @ blocks).squeeze(-1).flatten(-2).to(x.dtype)
        return torch.cat([rotated, still], -1) if still.shape[-1] else rotated
