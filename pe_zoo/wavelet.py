import math

import torch
from torch import Tensor

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import whole


@register("wavelet")
class Wavelet(Encoder):
    """Adds to each key a vector of wavelets of the distance, a window of its own width and place in each channel.
    Wavelet-based positional representation, Oka et al. (2025), arXiv:2502.02004, §5.1.

        scores[q, k] += query[q] · p[q_p − k_p] / sqrt(head_dim)
        p[d][c] = (1 − t²) · exp(−t²/2),  t = (d − ⌊c / scales⌋) / 2^(c mod scales)

    That is the relative key of ``shaw`` (Ricker wavelets in place of learned vectors), without its term for values and
    without a clip. Nothing is learned.

    Args:
        scales: how many widths there are, at least 1. None: as many as keep the widest at a quarter of
            ``train_length``: 1, 2, … 128 of 512 as published.

    Departures: none for a causal model, where the scales divide head_dim; elsewhere the last shift lacks some. In a
    bidirectional model distances to keys ahead are negative.
    """

    family = "relative term"
    shift_invariant = True

    def __init__(self, geometry: Geometry, *, scales: int | None = None) -> None:
        super().__init__(geometry)
        published = 1 + max(0, int(math.log2(geometry.train_length / 4)))
        self.scales = whole("wavelet scales", published if scales is None else scales, at_least=1)
        self.direction_aware = geometry.head_dim > self.scales  # unshifted wavelets are even

    def vectors(self, distance: Tensor) -> Tensor:
        """The wavelets of each distance, ``(…, head_dim)``."""
        channel = torch.arange(self.geometry.head_dim, device=distance.device)
        square = ((distance.unsqueeze(-1) - channel // self.scales) * 0.5 ** (channel % self.scales)).square()
        return (1 - square) * (-square / 2).exp()

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        dtype = torch.promote_types(scores.dtype, torch.float32)
        q = q.to(dtype) * self.geometry.head_dim**-0.5
        return (scores + torch.einsum("...qc,...qkc->...qk", q, self.vectors(site.distance.to(dtype)))).to(scores.dtype)
