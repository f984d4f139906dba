"""Where an encoder sits in a model: what its hooks ask of a layer, cached tokens included."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle
from transformers import Cache

from pe_zoo import Encoder, Site, raw_scores

PLACE = "pe_zoo_seat"
NOTHING = torch.empty(0)


@dataclass(eq=False)
class Seat:
    """An encoder in one attention layer, and the tokens that layer is reading.

    Args:
        encoder: the encoder, shared by all of its seats.
        layer: which of its layers this is, from 0.
        causal: whether the layer is.
        reads_input: whether the encoder reads the layer's input, so that it is cached.
    """

    encoder: Encoder
    layer: int
    causal: bool
    reads_input: bool = False
    flexes: bool = False
    """Whether the model attended by FlexAttention, and goes on to where that can be."""
    window: int | None = None
    """Keys that a query sees back from its own, that included; None: all."""
    first: int = 0
    """First keys of the text that a query sees beside its window."""
    halves: int = 0
    """Dimensions of a head whose two halves form the model's pairs, where the encoder's are neighbours; 0: none."""
    positions: Tensor = NOTHING
    """Of the queries, ``(query,)`` or ``(batch, query)``."""
    key_positions: Tensor = NOTHING
    x: Tensor | None = None
    """The layer's input at all keys, ``(batch, key, model_dim)``."""
    hook: RemovableHandle | None = None

    def read(self, x: Tensor, position_ids: Tensor, mask: Tensor | None) -> None:
        """Take note of the tokens that come now; those of a cache come in `Luggage.update`."""
        if self.reads_input and mask is not None:  # padding, which does not see itself, is read as nothing
            x = x * mask.diagonal(mask.shape[-1] - mask.shape[-2], -2, -1)[:, 0, :, None]
        # One row for all samples stays one, so that a bias is made once.
        self.positions = (position_ids[0] if len(position_ids) == 1 else position_ids).float()
        self.key_positions, self.x = self.positions, x

    def site(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Site:
        """What the hooks are told: queries are the last of the keys."""
        queries, keys = q.shape[-2], k.shape[-2]
        if self.key_positions.shape[-1] != keys:
            raise ValueError(
                f"{keys} keys where {self.key_positions.shape[-1]} tokens were read: an unknown kind of cache"
            )
        return Site(
            layer=self.layer,
            query_positions=self.positions,
            key_positions=self.key_positions,
            rows=slice(keys - queries, keys),
            mask=visible(mask, q, k, causal=self.causal, window=self.window, first=self.first),
            causal=self.causal,
            x=self.x,
        )


def seat_of(module: nn.Module) -> Seat | None:
    """The seat in an attention module, if it has one."""
    return getattr(module, PLACE, None)


def sit(module: nn.Module, seat: Seat) -> None:
    """Give an attention module a seat."""
    seat.hook = module.register_forward_pre_hook(before, with_kwargs=True)
    setattr(module, PLACE, seat)


def leave(module: nn.Module) -> None:
    """Take a module's seat away, if it has one."""
    if (seat := seat_of(module)) is not None and seat.hook is not None:
        seat.hook.remove()
        delattr(module, PLACE)


def reads_input(encoder: Encoder) -> bool:
    """Whether a hook of an encoder reads the layer's input."""
    sizes = encoder.geometry
    some = next(encoder.parameters(), torch.zeros(()))
    q = some.new_zeros(1, sizes.num_heads, 2, sizes.head_dim)
    places = torch.arange(2.0, device=q.device)
    mask = places[:, None] >= places
    site = Site(layer=0, query_positions=places, key_positions=places, rows=slice(0, 2), mask=mask, causal=True)
    try:
        with torch.no_grad():
            encoder.mix(raw_scores(encoder, q, q, site).masked_fill(~mask, -torch.inf), q, site)
    except (ValueError, AttributeError, TypeError):
        return True
    return False


def visible(
    mask: Tensor | None, q: Tensor, k: Tensor, *, causal: bool, window: int | None = None, first: int = 0
) -> Tensor:
    """The mask in full, ``(batch or 1, 1, query, key)``: padding, which may look at nothing, looks at itself."""
    queries, keys = q.shape[-2], k.shape[-2]
    itself = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)
    if mask is None:
        mask = itself[None, None] if causal else torch.ones_like(itself)[None, None]
    if window is not None:
        near = itself.triu(keys - queries - window + 1)
        mask = mask & (near | (mask.cumsum(-1) <= first) if first else near)  # padding before the text is not counted
    return mask | (itself.triu(keys - queries) & ~mask.any(-1, keepdim=True))


class Luggage:
    """A cache in which every value carries what the encoder will ask of its token: its position, and the input there.

    So they are reordered, cropped and dropped with it, whatever the cache does.
    """

    def __init__(self, cache: Cache, seat: Seat) -> None:
        self._cache, self._seat = cache, seat

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def update(self, key: Tensor, value: Tensor, *arguments: Any, **others: Any) -> tuple[Tensor, Tensor]:
        """Append keys and values and return all so far."""
        seat, groups = self._seat, value.shape[1]
        carried = digits(seat.positions.to(key.device).expand(len(value), -1))
        if seat.reads_input and seat.x is not None:
            carried = torch.cat([carried, seat.x], -1)
        width = carried.shape[-1]
        carried = functional.pad(carried, (0, -width % groups)).unflatten(-1, (groups, -1)).transpose(1, 2)
        packed = torch.cat([value, carried.to(value.dtype)], -1)
        tokens = key.shape[-2]
        key, packed = self._cache.update(key, packed, *arguments, **others)
        if key.shape[-2] == tokens:  # nothing was cached: what was read stands, as one row where it is one
            return key, value
        value, carried = packed.split([value.shape[-1], carried.shape[-1]], -1)
        carried = carried.transpose(1, 2).flatten(-2)[..., :width]
        seat.key_positions = undigits(carried[..., :DIGITS].detach())
        seat.x = carried[..., DIGITS:] if seat.reads_input else None
        return key, value


DIGITS, DIGIT = 3, 256
"""A position in digits that bfloat16 holds exactly: up to 2²⁴, where float32 ends too."""


def digits(positions: Tensor) -> Tensor:
    """Whole positions to digits, the lowest first.

    >>> digits(torch.tensor([[70000.0]])).tolist()
    [[[112.0, 17.0, 1.0]]]
    """
    return torch.stack([positions.div(DIGIT**place, rounding_mode="floor") % DIGIT for place in range(DIGITS)], -1)


def undigits(carried: Tensor) -> Tensor:
    """What `digits` made, back as positions.

    >>> undigits(digits(torch.tensor([[70000.0]])).bfloat16()).tolist()
    [[70000.0]]
    """
    return sum(carried[..., place].float() * DIGIT**place for place in range(DIGITS))


def before(
    module: nn.Module, arguments: tuple[Any, ...], given: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Run before an attention module with a seat: note its tokens, switch its rotation off, pack for its cache."""
    seat = seat_of(module)
    assert seat is not None
    x = given["hidden_states"] if "hidden_states" in given else arguments[0]
    seat.read(x, given["position_ids"], given.get("attention_mask"))
    _, given = unrotated_input(module, arguments, given)
    acts = any(seat.encoder.overrides(hook) for hook in ("rotate", "score", "mix"))
    caches = {name: Luggage(cache, seat) for name, cache in given.items() if acts and isinstance(cache, Cache)}
    return arguments, given | caches


def unrotated_input(
    _: nn.Module, arguments: tuple[Any, ...], given: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Run before an attention module: give it angles of 0, as complex numbers or as cosines and sines."""
    turns = given.get("position_embeddings")
    if isinstance(turns, Tensor):
        given = given | {"position_embeddings": torch.ones_like(turns)}
    elif turns is not None:
        cos, sin = turns
        given = given | {"position_embeddings": (torch.ones_like(cos), torch.zeros_like(sin))}
    return arguments, given


def neighbours(x: Tensor, halves: int) -> Tensor:
    """Put dimension i beside i + halves/2: scores are the same in any order of dimensions.

    >>> neighbours(torch.arange(6), 4).tolist()
    [0, 2, 1, 3, 4, 5]
    """
    if not halves:
        return x
    paired, still = x.split([halves, x.shape[-1] - halves], -1)
    paired = paired.unflatten(-1, (2, -1)).mT.flatten(-2)
    return torch.cat([paired, still], -1) if still.shape[-1] else paired
