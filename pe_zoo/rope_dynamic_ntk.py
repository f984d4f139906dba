import torch
from torch import Tensor

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import number, whole
from pe_zoo._positions import geometric_frequencies
from pe_zoo._rotation import pairs_of, reach


@register("rope_dynamic_ntk")
class DynamicNTKRoPE(Encoder):
    """Rotates as RoPE does up to the training length; beyond, its base grows with the length of the text.
    "Dynamic NTK" interpolation, Peng et al. (2023), arXiv:2309.00071, §3.3.

        scores[q, k] = rotate(q, q_p · θ) · rotate(k, k_p · θ) / sqrt(head_dim)
        θ[i] = base^(−2i/head_dim) · s^(−2i/(head_dim − 2))
        s = max(1, factor · length / original_length − (factor − 1))

    The length is the highest position known plus 1: in a causal model, that of the text so far, so that each query has
    its own frequencies, at which all its keys are rotated; otherwise that of the whole text. This takes head_dim/2
    products of the size of the scores: it is for short training lengths.

    Args:
        factor: how fast the base grows, above 0; 1 as published.
        original_length: length up to which this is RoPE, at least 1. None: ``train_length``, as published.
        base: the base before it grows, above 0; 10000 as published.

    Departures: published code uses the final length of a causal text for all queries, so that later tokens change
    earlier outputs; here a query uses the text up to it.
    """

    family = "rotation"
    direction_aware = True
    extends = "rope"

    def __init__(
        self, geometry: Geometry, *, factor: float = 1.0, original_length: int | None = None, base: float = 10000.0
    ) -> None:
        super().__init__(geometry)
        self.pairs = pairs_of("rope_dynamic_ntk", geometry)
        self.factor = number("rope_dynamic_ntk factor", factor, above=0)
        length = geometry.train_length if original_length is None else original_length
        self.original_length = whole("rope_dynamic_ntk original_length", length, at_least=1)
        self.base = number("rope_dynamic_ntk base", base, above=0)

    def frequencies(self, length: Tensor) -> Tensor:
        """Lengths ``(...)`` to radians per position of each pair, ``(..., pairs)`` float64."""
        head_dim, device = self.geometry.head_dim, length.device
        stretch = (self.factor * length.double() / self.original_length - (self.factor - 1)).clamp(min=1)
        # The formula leaves the first pair alone, and with head_dim 2 there is no other.
        exponents = torch.arange(self.pairs, dtype=torch.float64, device=device) * (-2 / max(head_dim - 2, 1))
        return geometric_frequencies(self.pairs, self.base, head_dim, device) * stretch.unsqueeze(-1) ** exponents

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        exact = torch.promote_types(q.dtype, torch.float32)
        distance = site.distance.double()
        frequencies = self.frequencies(reach(site) + 1).unsqueeze(-2)  # (..., query, 1, pairs)
        frequencies = frequencies.unsqueeze(1) if frequencies.ndim == 4 else frequencies
        rotated = torch.zeros_like(scores, dtype=exact)
        for pair in range(self.pairs):  # one by one: all at once would need head_dim/2 times the memory
            angle = distance * frequencies[..., pair]
            here, there = (x[..., 2 * pair : 2 * pair + 2].to(exact) for x in (q, k))
            quarter = torch.stack([here[..., 1], -here[..., 0]], -1)
            rotated = torch.addcmul(rotated, here @ there.mT, angle.cos().to(exact))
            rotated = torch.addcmul(rotated, quarter @ there.mT, angle.sin().to(exact), value=-1)
        return (rotated * self.geometry.head_dim**-0.5).to(scores.dtype)
