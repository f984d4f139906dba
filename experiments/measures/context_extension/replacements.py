"""Temporary changes of a trained model: another encoder in place of its own, a window, or no encoder."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import pe_zoo
from experiments.model.attention import PLAIN, attend
from experiments.model.guest import Guest
from experiments.model.transformer import Transformer, View
from pe_zoo import Encoder, Unsupported
from pe_zoo._contract.bench import site_of
from pe_zoo._contract.relatives import FACTOR, shared_knobs
from pe_zoo._knobs import knobs

SAME = 1e-6
"""Largest difference of equal computations, in float64 and for contents of unit variance."""
NEIGHBOURS = 2
PROBES = 32
"""Number of positions from 0 on, and evenly over the length, at which encoders are compared."""


def replacing(trained: Encoder, *, causal: bool) -> list[str]:
    """Return every registered encoder that can replace a trained one to extend its context, in alphabetical order.

    Neither encoder has parameters or buffers. The other has a knob ``factor`` for some value of which it computes the
    same as the trained one within the training length, or has none, is declared to extend it, and computes the same for
    neighbours.
    """
    found = []
    for name in pe_zoo.names():
        cls = pe_zoo.get(name)
        if FACTOR in knobs(cls) or cls.extends == trained.name:
            with suppress(Unsupported):
                found.append(Replacement(name, trained, causal=causal).name)
    return found


class Replacement:
    """An encoder to replace a trained one, with the values of the knobs that both have.

    One that a user has ``chosen`` may differ from the trained encoder within the training length.

    Raises:
        Unsupported: it cannot replace the trained one, with the reason.
    """

    def __init__(self, name: str, trained: Encoder, *, causal: bool, chosen: bool = False) -> None:
        self.name, self.trained = name, trained
        length, self.knobs = trained.geometry.train_length, shared_knobs(trained, name)
        for encoder in (trained, self._build()):
            if encoder.state_dict():
                raise Unsupported(f"{encoder.name} has parameters or buffers; a replacement must have none")
            if encoder.causal_only and not causal:
                raise Unsupported(f"{encoder.name} needs a causal mask")
        self.origin: float | None = None
        self.extends = False
        if FACTOR in knobs(pe_zoo.get(name)):
            origins = dict.fromkeys((1.0, float(getattr(trained, FACTOR, 1.0))))
            same = [start for start in origins if agree(self._build(start), trained, length, causal=causal)]
            if not same and not chosen:
                raise Unsupported(f"{name} is {trained.name} at no factor, within the training length")
            self.origin = same[0] if same else 1.0
            # One that extends the context by itself at factor 1 would be extended twice by a larger factor.
            longer = replace(trained.geometry, train_length=4 * length)
            here, there = (pe_zoo.build(name, sizes, **{FACTOR: 1.0}) for sizes in (trained.geometry, longer))
            self.extends = agree(here, there, 4 * length, causal=causal)
        elif not chosen and not agree(self._build(), trained, NEIGHBOURS, causal=causal):
            raise Unsupported(f"{name} is not {trained.name} even between neighbours")

    def at(self, reach: float) -> tuple[Encoder, dict[str, Any]]:
        """Return the encoder for a length in training lengths, and its factor, if it has one."""
        if not self.extends or self.origin is None:
            return self._build(self.origin), {}
        factor = self.origin * max(1.0, reach)
        return self._build(factor), {FACTOR: float(f"{factor:.4g}")}

    def _build(self, factor: float | None = None) -> Encoder:
        given = self.knobs if factor is None else self.knobs | {FACTOR: factor}
        try:
            return pe_zoo.build(self.name, self.trained.geometry, **given)
        except ValueError as error:
            raise Unsupported(f"{self.name} cannot be built for this model: {error}") from error


def agree(one: Encoder, other: Encoder, length: int, *, causal: bool) -> bool:
    """Whether two encoders compute the same at positions 0 to ``length`` - 1, on embeddings and in every layer."""
    outputs = [_outputs(encoder, length, causal=causal) for encoder in (one, other)]
    return all(torch.allclose(a, b, rtol=0, atol=SAME) for a, b in zip(*outputs, strict=True))


def _outputs(encoder: Encoder, length: int, *, causal: bool) -> list[Tensor]:
    geometry, content = encoder.geometry, torch.Generator().manual_seed(0)
    near, far = torch.arange(min(length, PROBES)), torch.linspace(0, length - 1, PROBES, dtype=torch.float64).round()
    positions = torch.cat([near, far]).unique().double()
    x = torch.randn(1, len(positions), geometry.model_dim, generator=content, dtype=torch.float64)
    q, k, v = (
        torch.randn(1, geometry.num_heads, len(positions), geometry.head_dim, generator=content, dtype=torch.float64)
        for _ in range(3)
    )
    outputs = [encoder.embed(x, positions)]
    for layer in range(geometry.num_layers):
        outputs.append(attend(encoder, q, k, v, site_of(positions, causal, x, layer=layer), PLAIN))
    return outputs


@contextmanager
def altered(
    model: Transformer,
    *,
    encoder: Encoder | None = None,
    window: int | None = None,
    first: int = 0,
    dropped: bool = False,
) -> Iterator[Transformer]:
    """Change the model within the context: another encoder, a window, or no encoder; its parameters stay as they are.

    A window is the most keys that a query of any layer and head may see to each side, itself included. A model from
    outside can keep the ``first`` keys in sight beside it.
    """
    layers = [layer for layer in model.layers if isinstance(layer, View)]
    before = model.encoder, model.encoder_dropped, [layer.windows for layer in layers]
    kept = model.first_tokens if isinstance(model, Guest) else 0
    try:
        if encoder is not None:
            model.encoder = encoder.to(model.token_embedding.weight.device)
        if window is not None:
            for layer in layers:
                layer.windows = tuple(window if seen is None else min(window, seen) for seen in layer.windows)
        if isinstance(model, Guest):
            model.first_tokens = max(first, kept)
        model.encoder_dropped = model.encoder_dropped or dropped
        yield model
    finally:
        if isinstance(model, Guest):
            model.first_tokens = kept
        model.encoder, model.encoder_dropped = before[:2]
        for layer, windows in zip(layers, before[2], strict=True):
            layer.windows = windows
