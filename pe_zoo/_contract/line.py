"""An encoder of several axes on a line, so that what is promised of sequences is asked of it too."""

from dataclasses import replace

from torch import Tensor

from pe_zoo._contract.bench import Maker
from pe_zoo._encoder import Encoder, Geometry, Site

CLAIMS = (
    *("shift_invariant", "direction_aware", "causal_only", "static_bias", "distance_bias", "blockwise_rotation"),
    *("max_length", "name", "family", "control"),
)


class Line(Encoder):
    """Passes a position to an encoder of several axes as the place whose coordinates all equal it."""

    def __init__(self, inner: Encoder) -> None:
        super().__init__(inner.geometry)
        self.inner = inner
        for claim in CLAIMS:
            setattr(self, claim, getattr(inner, claim, None))
        # Of the instance: what it does is known only now. Past torch's check of attributes.
        self.__dict__["overrides"] = inner.overrides

    def _places(self, positions: Tensor) -> Tensor:
        return self.inner.taken(positions.unsqueeze(-1).expand(*positions.shape, self.inner.axes))

    def _there(self, site: Site) -> Site:
        queries, keys = self._places(site.query_positions), self._places(site.key_positions)
        return replace(site, query_positions=queries, key_positions=keys)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.inner.embed(x, self._places(positions))

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        return self.inner.rotate(q, k, self._there(site))

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return self.inner.score(scores, q, k, self._there(site))

    def mix(self, scores: Tensor, v: Tensor, site: Site) -> Tensor:
        return self.inner.mix(scores, v, self._there(site))


def on_line(make: Maker, geometry: Geometry) -> Encoder:
    """Build an encoder; put one of several axes on a line."""
    encoder = make(geometry)
    return encoder if encoder.axes == 1 else Line(encoder)
