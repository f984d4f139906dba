"""The contract: an encoder is four hooks around one unchanged attention, and a few claims about itself."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from pe_zoo._positions import at, distances, length_of

HOOKS = ("embed", "rotate", "score", "mix")
"""The methods by which an encoder tells positions, in the order of a layer."""


class Unsupported(Exception):
    """An encoder cannot do what a measurement needs. The measurement becomes a row with ``status=unsupported``."""


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """The sizes a model dictates to its encoder.

    Args:
        model_dim: width of the residual stream.
        num_heads: attention heads per layer.
        num_layers: attention layers.
        train_length: positions in the longest training sequence, special tokens included.
        head_dim: width of a head. None: ``model_dim / num_heads``, which must be a whole number.
    """

    model_dim: int
    num_heads: int
    num_layers: int
    train_length: int
    head_dim: int = None  # type: ignore[assignment]  # a number as soon as it is built

    def __post_init__(self) -> None:
        for field in ("model_dim", "num_heads", "num_layers", "train_length", "head_dim"):
            size: object = getattr(self, field)
            if field == "head_dim" and size is None:
                object.__setattr__(self, "head_dim", self._share())
            elif isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ValueError(f"{field} must be a whole number of at least 1, got {size!r}")

    def _share(self) -> int:
        """Return the width of a head where all of them share ``model_dim``."""
        if self.model_dim % self.num_heads:
            fitting = [n for n in range(1, self.model_dim + 1) if self.model_dim % n == 0]
            nearest = ", ".join(map(str, sorted(sorted(fitting, key=lambda n: abs(n - self.num_heads))[:3])))
            wrong = f"num_heads={self.num_heads} does not divide model_dim={self.model_dim}"
            raise ValueError(f"{wrong}; the nearest that do are {nearest}")
        return self.model_dim // self.num_heads


@dataclass(frozen=True, kw_only=True, eq=False)
class Site:
    """The context of a per-layer hook: layer, queries, keys, mask.

    Queries may be a block of the sequence (long evaluation) or its last row (generation), so take distances from here,
    never from ``arange``.

    Args:
        layer: index of the attention layer, from 0.
        query_positions: ``(query,)`` or ``(batch, query)``, float; of several axes, ``(1 or batch, query, axes)``.
        key_positions: the same of the keys.
        rows: which rows of the sequence the queries are.
        mask: bool, true where a query may look at a key; broadcasts to ``(batch, heads, query, key)``.
        causal: whether the model is causal. A Python value, so that an encoder may branch on it.
        x: the layer's normalised input for all keys, ``(batch, key, model_dim)``; None if there is none.
    """

    layer: int
    query_positions: Tensor
    key_positions: Tensor
    rows: slice
    mask: Tensor
    causal: bool
    x: Tensor | None = None

    def content(self, reader: str) -> Tensor:
        """``x``, for an encoder that needs it; ``reader`` is its name, for the message."""
        if self.x is None:
            raise ValueError(f"{reader} reads the layer's input: pass x, (batch, key, model_dim)")
        return self.x

    @property
    def distance(self) -> Tensor:
        """Query minus key position: ``(query, key)``, or ``(batch, 1, query, key)`` for one draw per sample.

        Of several axes, one distance along each: ``(1 or batch, 1, query, key, axes)``.
        """
        if self.key_positions.ndim == 3:
            return (self.query_positions.unsqueeze(2) - self.key_positions.unsqueeze(1)).unsqueeze(1)
        distance = distances(self.query_positions, self.key_positions)
        return distance if distance.ndim == 2 else distance.unsqueeze(-3)


class Encoder(nn.Module):
    """A positional encoder. Override only the hooks that the method uses; the others are identities.

    Claims are attributes of the class or, where a knob decides, of the instance. Contract tests check each both ways:
    an encoder that claims it has it, one that does not lacks it. ``causal_only`` limits what is tested, and ``control``
    is checked where it is claimed.
    Keyword-only arguments of a subclass are its knobs.
    """

    name: ClassVar[str]
    """Key in the registry; set by ``register``."""

    family: ClassVar[str] = ""
    """What kind of method it is, which decides its colour in figures; blank: as its behaviour shows."""
    axes: int = 1
    """Coordinates of a position: 1 in a sequence, 2 (row and column) in a grid. Others are unsupported."""
    plane: ClassVar[str] = "grid"
    """What two axes are: row and column of a ``grid``, or number and place of ``segments``."""
    shift_invariant: bool = False
    """Adding one number to all positions changes nothing."""
    direction_aware: bool = False
    """A bidirectional model can tell a sequence from its reversal."""
    causal_only: bool = False
    """Undefined without a causal mask; excludes ``direction_aware``."""
    static_bias: bool = False
    """``score`` adds a term that depends on positions or the layer's input, not on scores, q or k."""
    distance_bias: bool = False
    """``score`` adds a term that depends on distance alone, so that one query's row gives every other's."""
    blockwise_rotation: bool = False
    """``rotate`` depends on the block of queries or its mask: keys are rotated again for each block."""
    max_length: int | None = None
    """Positions, on each axis, must lie between 0 and this minus 1; None: no limit."""
    relative_of: ClassVar[str | None] = None
    """The encoder, without parameters as this one is, that its scores nearly equal within short training lengths."""
    extends: ClassVar[str | None] = None
    """The encoder in whose trained model its paper puts this one, to reach longer texts: ``factor=1`` equals it, or,
    without that knob, what neighbours compute."""
    fine_tuned: ClassVar[bool] = False
    """The paper trains the model on after it ``extends`` it."""
    rope_type: ClassVar[str | None] = None
    """What Transformers computes alike from ``rope_parameters`` of a model's configuration."""
    control: ClassVar[bool] = False
    """No method, but a part of others on its own, to show what that part does: reads no positions."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        self.geometry = geometry

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add position to the token embeddings, ``(batch, length, model_dim)``: no dropout, no norm.

        Positions are ``(length,)`` or ``(batch, length)``, float; of several axes, ``(1 or batch, length, axes)``.
        """
        return x

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        """Transform queries and keys, ``(batch, heads, query | key, head_dim)``, before their product.

        May widen the last dimension of both; scores are scaled by the geometry's head_dim all the same.
        """
        return q, k

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        """Transform scores, ``(batch, heads, query, key)``: after 1/sqrt(head_dim), before the mask."""
        return scores

    def mix(self, scores: Tensor, v: Tensor, site: Site) -> Tensor:
        """Masked scores and values, ``(batch, heads, key, head_dim)``, to ``(batch, heads, query, head_dim)``."""
        return scores.softmax(-1) @ v

    def taken(self, positions: Tensor) -> Tensor:
        """Return positions as the hooks take them; those of several axes may come as ``(length, axes)``.

        Raises:
            Unsupported: they have other axes than this encoder's.
        """
        if self.axes > 1 and positions.ndim == 2:
            positions = positions.unsqueeze(0)
        if positions.shape[2:] != ((self.axes,) if self.axes > 1 else ()):
            shapes = "(length,) or (batch, length)"
            if self.axes > 1:
                shapes = f"(length, {self.axes}) or (batch, length, {self.axes})"
            name = getattr(self, "name", type(self).__name__)
            raise Unsupported(f"{name} takes positions of shape {shapes}; got {tuple(positions.shape)}")
        return positions

    def coordinates(self, positions: Tensor) -> tuple[Tensor, ...]:
        """Return the positions along each axis, ``(1 or batch, length)`` each: row and column in a grid.

        Of ``segments``, a segment's number and the place within it.
        """
        return self.taken(positions).unbind(-1)

    @classmethod
    def overrides(cls, hook: str) -> bool:
        """Whether this encoder does anything at a hook; if not, a model may take a faster path there."""
        return getattr(cls, hook) is not getattr(Encoder, hook)

    def extra_repr(self) -> str:
        return f"{getattr(self, 'name', type(self).__name__)}, {self.geometry}"


def scores(
    encoder: Encoder,
    q: Tensor,
    k: Tensor,
    positions: Tensor | None = None,
    layer: int = 0,
    x: Tensor | None = None,
    *,
    causal: bool = True,
) -> Tensor:
    """The reference for every faster path: rotate, scale, score; no mask is applied.

    Args:
        encoder: any encoder.
        q: ``(batch, heads, query, head_dim)``; fewer queries than keys are the last rows of the sequence.
        k: ``(batch, heads, key, head_dim)``.
        positions: ``(key,)`` or ``(batch, key)``; 0, 1, 2, … if None. Of an encoder of several axes, ``(key, axes)`` or
            ``(batch, key, axes)``, and never None.
        layer: which attention layer asks.
        x: the layer's normalised input, ``(batch, key, model_dim)``, for encoders that read content.
        causal: what a bidirectional variant is told (T5 has other buckets in an encoder than in a decoder).

    Returns:
        ``(batch, heads, query, key)`` in the dtype of q.
    """
    num_queries, num_keys = q.shape[-2], k.shape[-2]
    if positions is None:
        positions = torch.arange(num_keys, dtype=torch.float32, device=q.device)
    positions = encoder.taken(positions)
    if (count := length_of(positions)) != num_keys:
        raise ValueError(f"{count} positions for {num_keys} keys: there must be one each")
    if num_queries > num_keys:
        rule = "queries are the last rows of the sequence, at most one per key"
        raise ValueError(f"{num_queries} queries for {num_keys} keys: {rule}")
    rows = slice(num_keys - num_queries, num_keys)
    queries, mask = at(positions, rows), torch.ones(num_queries, num_keys, dtype=torch.bool, device=q.device)
    site = Site(layer=layer, query_positions=queries, key_positions=positions, rows=rows, mask=mask, causal=causal, x=x)
    return raw_scores(encoder, q, k, site).to(q.dtype)


def raw_scores(encoder: Encoder, q: Tensor, k: Tensor, site: Site) -> Tensor:
    """Rotate, scale by 1/sqrt(head_dim) of the geometry (whatever ``rotate`` widened), score."""
    q, k = encoder.rotate(q, k, site)
    return encoder.score(q * encoder.geometry.head_dim**-0.5 @ k.mT, q, k, site)
