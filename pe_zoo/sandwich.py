import torch
from torch import Tensor

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import number, whole
from pe_zoo._positions import angles, geometric_frequencies


@register("sandwich")
class Sandwich(Encoder):
    """Biases scores by the inner product of sinusoidal vectors of query and key position, one ratio per head.
    Sandwich, Chi et al. (2022), arXiv:2212.10356, §5.

        scores[h, q, k] += Σ cos((q − k) · base^(−2i/dim)) / ratio[h],      i = 0 … dim/2 − 1,
        ratio[h] = max_ratio · h / heads,  h = 1 … heads

    Nothing is learned. The bias falls with distance about as a logarithm does; a bidirectional model cannot tell left
    from right. All layers share it.

    Args:
        dim: width of the sinusoidal vectors, even, at least 2; 128 as published, whatever the model's width.
        base: above 0; 10000 as published.
        max_ratio: the ratio of the last head, above 0; 8 as published.

    Departures: none.
    """

    family = "score bias"
    shift_invariant = static_bias = distance_bias = True

    def __init__(self, geometry: Geometry, *, dim: int = 128, base: float = 10000.0, max_ratio: float = 8.0) -> None:
        super().__init__(geometry)
        if whole("sandwich dim", dim, at_least=2) % 2:
            raise ValueError(f"sandwich dim must be even (sines are paired with cosines); got {dim}")
        self.dim = dim
        self.base = number("sandwich base", base, above=0)
        self.max_ratio = number("sandwich max_ratio", max_ratio, above=0)

    def table(self, positions: Tensor) -> Tensor:
        """The sinusoidal vectors: ``(..., length)`` to ``(..., length, dim)``, float64."""
        angle = angles(positions, geometric_frequencies(self.dim // 2, self.base, self.dim, positions.device))
        return torch.cat([angle.cos(), angle.sin()], -1)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        dtype = torch.promote_types(scores.dtype, torch.float32)
        # A product of two tables, not a cosine per pair and frequency: memory is length², not length² · dim.
        query, key = self.table(site.query_positions).to(dtype), self.table(site.key_positions).to(dtype)
        heads = self.geometry.num_heads
        ratio = self.max_ratio / heads * torch.arange(1, heads + 1, dtype=dtype, device=scores.device)
        return (scores + (query @ key.mT).unsqueeze(-3) / ratio[:, None, None]).to(scores.dtype)
