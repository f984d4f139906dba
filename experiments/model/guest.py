"""A model from outside, asked as the Transformer of a run is: logits are needed, what else it tells is used."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

import torch
from torch import Tensor, nn

from experiments.model.attention import Past
from experiments.model.layout import Layout
from experiments.model.transformer import Transformer, View
from pe_zoo import Encoder, Geometry, Unsupported

Told = TypeVar("Told")
UNTOLD = "the model tells nothing but its logits"


@dataclass(kw_only=True)
class Insight:
    """What a model from outside tells besides its logits; what is None or empty it does not.

    ``hidden`` makes tokens and positions the stream before the first layer and after each, ``attention`` the weights
    of each layer, ``last_outputs`` the embeddings and the last outputs, which depend on them. ``encoder`` is an encoder
    of the zoo that tells it order now, ``replace(encoder, window, first)`` puts another in its place (None: none) and
    lets every query see a window of keys (None: all), and the first ones beside it.
    """

    geometry: Geometry
    hidden: Callable[[Tensor, Tensor], list[Tensor]] | None = None
    attention: Callable[[Tensor, Tensor], list[Tensor]] | None = None
    last_outputs: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
    encoder: Encoder | None = None
    replace: Callable[[Encoder | None, int | None, int], None] | None = None
    window: int | None = None
    """Keys that each query sees now, if ``replace`` can change that; None: all."""
    first: int = 0
    """First keys that each query sees now beside a window."""
    rotating: tuple[list[int], list[int]] | None = None
    """The layers that have ``encoder``, and those in which nothing tells order; None: all have it."""
    fixed: str = ""
    """Why there is no ``replace``, if that is known."""
    parameters: tuple[int, int] = (0, 0)
    """Of the encoder, and of all else."""
    vocabulary: int | None = None
    """Tokens that it has, if that is known."""


class Own(Encoder):
    """Stands for what tells a model from outside order, which nobody here knows."""

    name = "its own"


class Guest(Transformer):
    """A causal model from outside.

    Args:
        answer: tokens ``(batch, length)`` and positions ``(length,)`` or ``(batch, length)``, or None for its own, to
            logits ``(batch, length, vocab)``; Unsupported for positions that it cannot have.
        insight: what else it tells.
        device: where it is.
    """

    def __init__(
        self, answer: Callable[[Tensor, Tensor | None], Tensor], insight: Insight, device: torch.device
    ) -> None:
        nn.Module.__init__(self)
        self.answer, self.insight, self.geometry, self.causal = answer, insight, insight.geometry, True
        self.layout, self.encoder_dropped = Layout(), False
        self.encoder = insight.encoder or Own(insight.geometry)
        self.fixed = "" if insight.replace else insight.fixed or UNTOLD
        self._alone = Lock()
        heads, windows = insight.geometry.num_heads, (insight.window,)
        self.layers = nn.ModuleList(View(heads, windows) for _ in range(insight.geometry.num_layers))
        self.token_embedding = nn.Embedding.from_pretrained(torch.zeros(1, 1, device=device))  # says where it is
        self.first_tokens = insight.first
        self._put: tuple[Encoder | None, int | None, int] = (self.encoder, insight.window, insight.first)

    def num_parameters(self) -> tuple[int, int]:
        return self.insight.parameters

    def forward(self, tokens: Tensor, positions: Tensor | None = None, pasts: Sequence[Past] | None = None) -> Tensor:
        """Return logits; with a cache, of the new tokens after those of before, all of which are read again."""
        self._place()
        new = tokens.shape[-1]
        if pasts:
            (tokens,) = pasts[0].and_now(tokens.unsqueeze(-1))
            tokens = tokens.squeeze(-1)
        with self._alone:  # a model from outside may note what it is reading
            return self.answer(tokens, _unless_counted(positions, tokens))[:, -new:].float()

    @property
    def num_streams(self) -> int:
        return 0 if self.insight.hidden is None else self.geometry.num_layers + 1

    def read(self, tokens: Tensor, positions: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return logits, and the residual stream, empty if the model does not tell it."""
        return self(tokens, positions), self.hidden(tokens, positions) if self.num_streams else []

    def hidden(
        self, tokens: Tensor, positions: Tensor | None = None, pasts: Sequence[Past] | None = None
    ) -> list[Tensor]:
        """Return the residual stream before the first layer and after each; Unsupported if it is not told."""
        return [each.float() for each in self._told(self.insight.hidden, tokens, positions)]

    def attention(self, tokens: Tensor, positions: Tensor | None = None) -> list[Tensor]:
        """Return attention weights of each layer; Unsupported if they are not told."""
        return [each.float() for each in self._told(self.insight.attention, tokens, positions)]

    def last_outputs(self, tokens: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return embeddings and the last outputs, of which gradients can be taken; Unsupported if they are not told."""
        return self._told(self.insight.last_outputs, tokens, positions)

    def values(self, tokens: Tensor, positions: Tensor) -> list[Tensor]:
        raise Unsupported(UNTOLD)

    def _told(self, tell: Callable[[Tensor, Tensor], Told] | None, tokens: Tensor, positions: Tensor | None) -> Told:
        if tell is None:
            raise Unsupported(UNTOLD)
        self._place()
        places = torch.arange(tokens.shape[-1], device=tokens.device) if positions is None else positions
        with self._alone:
            return tell(tokens, places)

    def _place(self) -> None:
        """Put the encoder and the window that a measure has set into the model."""
        first = next(iter(self.layers), None)
        window = first.windows[0] if isinstance(first, View) else None
        encoder = None if self.encoder_dropped else self.encoder
        wanted = encoder, window, self.first_tokens
        if wanted == self._put:
            return
        if self.insight.replace is None:
            raise Unsupported(self.fixed)
        self.insight.replace(*wanted)
        self._put = wanted


def _unless_counted(positions: Tensor | None, tokens: Tensor) -> Tensor | None:
    """Positions, or None where they are 0, 1, 2, …: every model has those."""
    if positions is None:
        return None
    positions = positions[..., : tokens.shape[-1]]
    counted = torch.arange(tokens.shape[-1], device=positions.device)
    return None if bool((positions == counted).all()) else positions
