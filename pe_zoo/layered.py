from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._positions import plane_of
from pe_zoo._registry import build

WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


@register("layered")
class Layered(Encoder):
    """Gives each kind of layer an encoder of its own: here, five layers a RoPE of fast, and one of slow frequencies.
    Gemma 3, Kamath et al. (2025), arXiv:2503.19786, §2.

        layer i of n uses layers[(i − n) mod len(layers)]

    So the last layer has the last entry, and a model of few layers the end of the list. What acts on the embeddings
    acts once for each different entry that does. Layers with equal entries share one encoder, which counts them alone.

    Args:
        layers: an encoder for each of a cycle of layers, by name and knobs: ``rope base=1000000``; at least one. The
            list of Gemma 3, five times ``rope`` and once ``rope base=1000000``, as published.

    Departures: none. Gemma's local layers also see a window alone, which is ``layout.windows``.
    """

    family = "rotation"

    def __init__(
        self,
        geometry: Geometry,
        *,
        layers: tuple[str, ...] = ("rope", "rope", "rope", "rope", "rope", "rope base=1000000"),
    ) -> None:
        super().__init__(geometry)
        given: object = layers
        if not isinstance(given, list | tuple) or not given:
            raise ValueError(f"layered layers must be a list of at least one encoder; got {given!r}")
        count = geometry.num_layers
        of_layer = [" ".join(str(layers[(layer - count) % len(layers)]).split()) for layer in range(count)]
        entries = list(dict.fromkeys(of_layer))
        self.places = [(entries.index(entry), of_layer[:layer].count(entry)) for layer, entry in enumerate(of_layer)]
        parts = [_part(entry, replace(geometry, num_layers=of_layer.count(entry))) for entry in entries]
        self.parts = nn.ModuleList(parts)
        self.shift_invariant = all(part.shift_invariant for part in parts)
        self.causal_only = any(part.causal_only for part in parts)
        self.direction_aware = not self.causal_only and any(part.direction_aware for part in parts)
        scoring = [part for part in parts if part.overrides("score")]
        self.static_bias = bool(scoring) and all(part.static_bias for part in scoring)
        self.distance_bias = bool(scoring) and all(part.distance_bias for part in scoring)
        self.blockwise_rotation = any(part.blockwise_rotation for part in parts)
        # Of this one, not of the class, so that a model may fuse what no part changes; past the check of attributes.
        self.__dict__["overrides"] = self._some_part_overrides
        self.max_length = min((part.max_length for part in parts if part.max_length is not None), default=None)

    def _some_part_overrides(self, hook: str) -> bool:
        return any(part.overrides(hook) for part in self._encoders())

    @classmethod
    def overrides(cls, hook: str) -> bool:
        """Whether encoders with the published list, those of the class, do anything at a hook."""
        return hook == "rotate"

    def _encoders(self) -> list[Encoder]:
        return list(self.parts)  # type: ignore[arg-type]  # nothing else is in it

    def _in(self, site: Site) -> tuple[Encoder, Site]:
        """The encoder of a layer, and the site as that one counts layers."""
        part, layer = self.places[site.layer]
        return self._encoders()[part], replace(site, layer=layer)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        for part in self._encoders():
            x = part.embed(x, positions)
        return x

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        part, site = self._in(site)
        return part.rotate(q, k, site)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        part, site = self._in(site)
        return part.score(scores, q, k, site)

    def mix(self, scores: Tensor, v: Tensor, site: Site) -> Tensor:
        part, site = self._in(site)
        return part.mix(scores, v, site)


def _part(entry: str, geometry: Geometry) -> Encoder:
    """Build an encoder written as on a command line: ``rope base=1000000``."""
    name, *given = entry.split()
    pairs = [pair.partition("=") for pair in given]
    if wrong := [pair for pair, (_, equals, _) in zip(given, pairs, strict=True) if not equals]:
        raise ValueError(f"layered layers, {entry!r}: write {wrong[0]!r} as name=value")
    try:
        part = build(name, geometry, **{knob: _value(text) for knob, _, text in pairs})
        if part.axes != Layered.axes:
            raise ValueError(f"{name} takes places in {plane_of(part)}; layers here are of sequences")
        return part
    except (ValueError, LookupError) as error:
        raise ValueError(f"layered layers, {entry!r}: {error}") from error


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return WORDS.get(text, text)
