from dataclasses import replace

import torch
from torch import Tensor, nn

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import number, one_of
from pe_zoo._positions import angles, distances, even_width, geometric_frequencies, slopes
from pe_zoo._rotation import pairs_of, rotate_both
from pe_zoo._tables import enough_rows, rows_at

BASE = 10000.0
NUM_ROWS = 1024
STEEPER = 96.0
"""By how much the slopes between segments exceed those of ALiBi between tokens."""


@register("bipe")
class BiPE(Encoder):
    """Adds a learned vector of the place within a segment, and rotates query and key pairs by the segment's number.
    BiPE (bilevel positional encoding), He et al. (2024), arXiv:2401.16421.

        x[t] += table[place[t]]
        (a, b) → (a · cos − b · sin, a · sin + b · cos),  angle = segment · base^(−2i/head_dim)     between = rope
        scores[h, q, k] −= 96 · slope[h] · |segment[q] − segment[k]|,  slope[h] as in ALiBi         between = alibi

    ``positions=segments`` gives each token both numbers: segments end with a delimiter, such as a full stop.

    Args:
        between: ``rope`` or ``alibi``, between segments: both are published.
        within: ``learned``, or ``sinusoidal``: sines and cosines of the place at base 10000, which has no end.
        num_rows: places the table has, at least ``train_length``; 1024 as published. A segment with a place beyond
            ``num_rows`` − 1 is unsupported. ``sinusoidal`` takes no other.
        base: of the rotation, above 0; 10000 as published. ``alibi`` takes no other.

    Departures: the official code gives all places beyond its table the last row. Its rows start at standard deviation
    0.02, as its token embeddings do; here both at 1. The penalty is on the distance, as in ``alibi``.
    """

    axes = 2
    plane = "segments"
    family = "rotation"
    direction_aware = True

    def __init__(
        self,
        geometry: Geometry,
        *,
        between: str = "rope",
        within: str = "learned",
        num_rows: int = NUM_ROWS,
        base: float = BASE,
    ) -> None:
        super().__init__(geometry)
        self.between = one_of("bipe between", between, ("rope", "alibi"))
        one_of("bipe within", within, ("learned", "sinusoidal"))
        enough_rows("bipe", num_rows, 1 if within == "sinusoidal" else geometry.train_length)
        self.base, self.table = number("bipe base", base, above=0), None
        for knob, value, default, of, where in (
            ("base", base, BASE, "between=alibi", between == "alibi"),
            ("num_rows", num_rows, NUM_ROWS, "within=sinusoidal", within == "sinusoidal"),
        ):
            if where and value != default:
                raise ValueError(f"bipe {knob}={value:g} changes nothing with {of}; leave one of them out")
        if within == "learned":
            self.table, self.max_length = nn.Parameter(torch.randn(num_rows, geometry.model_dim)), num_rows
        else:
            even_width("bipe", geometry.model_dim)
        if between == "rope":
            self.pairs = pairs_of("bipe", geometry)
        else:
            self.static_bias = self.distance_bias = True
        # Of this one, not of the class, so that a model may fuse what it leaves alone; past the check of attributes.
        self.__dict__["overrides"] = self._acts_at

    def _acts_at(self, hook: str) -> bool:
        return hook in ("embed", "rotate" if self.between == "rope" else "score")

    @classmethod
    def overrides(cls, hook: str) -> bool:
        """Whether this encoder, with its default between segments, does anything at a hook."""
        return hook in ("embed", "rotate")

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        _, place = self.coordinates(positions)
        if self.table is not None:
            return x + rows_at("bipe", self.table, place, x.dtype)
        dim = self.geometry.model_dim
        angle = angles(place, geometric_frequencies(dim // 2, BASE, dim, x.device))
        return x + torch.stack([angle.sin(), angle.cos()], -1).flatten(-2).to(x.dtype)

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        if self.between != "rope":
            return q, k
        segment, _ = self.coordinates(site.key_positions)
        frequencies = geometric_frequencies(self.pairs, self.base, 2 * self.pairs, q.device)
        return rotate_both(q, k, replace(site, key_positions=segment), frequencies)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        if self.between == "rope":
            return scores
        of_queries, of_keys = (self.coordinates(there)[0] for there in (site.query_positions, site.key_positions))
        # At least float32, whatever the scores are: bfloat16 cannot hold distances above 256.
        distance = distances(of_queries, of_keys).abs().to(torch.promote_types(scores.dtype, torch.float32))
        slope = STEEPER * slopes(self.geometry.num_heads, 8.0, distance)[:, None, None]
        return (scores - slope * distance.unsqueeze(-3)).to(scores.dtype)
