import math

import torch
from torch import Tensor

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import number
from pe_zoo._rotation import head_dim_of


@register("tapa")
class TAPA(Encoder):
    """Multiplies scores of one part of each head by a cosine, whose phase the other part sets and distance stretches.
    TAPA (token-aware phase attention), Wang et al. (2025), arXiv:2509.12635, §3.

        scores[q, k] = amplitude · cos(2π · |q_p − k_p|^alpha · phase)
        amplitude = q_A · k_A / sqrt(dim_A),  phase = q_P · k_P / sqrt(dim_P)

    The first dim_A dimensions of a head are A, the others P. Keys at the query's own place are not modulated. The paper
    trains it at a fifth of RoPE's learning rate.

    Args:
        alpha: how fast phases grow with distance, above 0; 0.1 as published.
        fraction: share of the dimensions in A, between 0 and 1, rounded down to whole dimensions, but at least one on
            either side; 0.5 as published.

    Departures: none. Scores are scaled by the dimensions of A, as published, not by all of the head's.
    """

    family = "rotation"
    shift_invariant = True

    def __init__(self, geometry: Geometry, *, alpha: float = 0.1, fraction: float = 0.5) -> None:
        super().__init__(geometry)
        self.alpha = number("tapa alpha", alpha, above=0)
        number("tapa fraction", fraction, above=0, below=1)
        if geometry.head_dim < 2:
            raise ValueError(f"tapa splits heads and needs a head_dim of at least 2; got {head_dim_of(geometry)}")
        self.amplitude_dim = min(max(1, int(fraction * geometry.head_dim + 1e-9)), geometry.head_dim - 1)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        dtype, dims = torch.promote_types(scores.dtype, torch.float32), self.amplitude_dim
        amplitude, phase = (
            one.to(dtype) * one.shape[-1] ** -0.5 @ other.to(dtype).mT
            for one, other in ((q[..., :dims], k[..., :dims]), (q[..., dims:], k[..., dims:]))
        )
        stretch = 2 * math.pi * site.distance.to(dtype).abs() ** self.alpha
        return (amplitude * (stretch * phase).cos()).to(scores.dtype)
