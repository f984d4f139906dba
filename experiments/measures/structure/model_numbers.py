"""What takes an encoder in action: shifts, reversal, what training covers, how far back a model sees."""

from __future__ import annotations

import torch
from torch import Generator, Tensor
from torch.utils.checkpoint import checkpoint

from experiments.measures.structure.kernel import codes, exact, kernel
from experiments.measures.structure.kernel_numbers import ROUNDING, clean, window
from experiments.model.streams import initialising
from experiments.model.transformer import Transformer
from experiments.training.evaluate import Subject
from pe_zoo import Encoder, Site, Unsupported, scores

CONTENTS = "structure/kernel"
"""The stream of the contents that kernels are means over."""
SEQUENCES = 4
"""Random sequences that a measurement is a mean over."""
PROJECTIONS = 8
"""Random directions of the output whose gradients are taken."""
TRAINING_SAMPLES = 32
"""Draws of training positions; one where the numbering draws nothing."""


def score_shift_change(encoder: Encoder, shift: int, generator: Generator, *, causal: bool) -> float:
    """Largest change of a score when all positions go up by ``shift``, relative to the largest score; 0 if rounding.

    Queries, keys and the layer's input are independent random contents, each embedded as the encoder would.

    Args:
        encoder: of ``exact``; asked for the training length.
        shift: in positions.
        generator: of the contents.
        causal: then scores of keys ahead do not count.
    """
    geometry = encoder.geometry
    length = geometry.train_length
    contents = torch.randn(3, SEQUENCES, length, geometry.model_dim, generator=generator, dtype=torch.float64)

    def at(start: int) -> Tensor:
        positions = start + torch.arange(length, dtype=torch.float64)
        embedded = [encoder.embed(content, positions) for content in contents]
        q, k = (x.unflatten(-1, (geometry.num_heads, -1)).transpose(1, 2) for x in embedded[:2])
        found = scores(encoder, q, k, positions, 0, embedded[2], causal=causal)
        return found[..., torch.ones(length, length).tril().bool()] if causal else found

    before, after = at(0), at(shift)
    largest = before[before.isfinite()].abs().max()
    hidden = before.isfinite() != after.isfinite()  # hidden in the one and not in the other: all of it changed
    change = torch.where(hidden, largest, (after - before).abs())
    return clean((change[change.isfinite()].max() / largest).item())


def direction_awareness(subject: Subject, model: Transformer) -> float:
    """‖f(reversed x) − reversed f(x)‖ / ‖f(x)‖ of an untrained bidirectional model: 0 if left and right are one to it.

    Args:
        subject: whose seed initialises the trunk and draws the sequences, of the training length.
        model: untrained; its encoder and sizes are taken.
    """
    if model.encoder.causal_only:
        raise Unsupported(f"{model.encoder.name} means nothing without a causal mask")
    with initialising(subject.seed, "structure/trunk"):
        both_ways = Transformer(model.vocab_size, model.geometry, exact(model.encoder), causal=False).double()
    tokens = _tokens(subject, model, model.geometry.train_length, "reversal")
    with torch.no_grad():
        forth, back = both_ways(tokens), both_ways(tokens.flip(-1)).flip(1)
    return clean(((back - forth).norm() / forth.norm()).item())


def receptive_field(subject: Subject, model: Transformer, length: int) -> float:
    """Positions back from the last one, itself included, that hold 99 % of what its output depends on.

    Dependence on a place is the norm of the gradient of the last output (after the final norm), along random
    directions, in the token embedding at that place; a mean over directions and random sequences. The whole model
    counts, as it is initialised: its layers, what each sees, paths around attention. Chi et al. (2023),
    arXiv:2212.10356, §4, who take the gradient of a trained model's prediction.

    Args:
        subject: whose seed draws sequences and directions.
        model: untrained, on the CPU.
        length: of the sequences, in positions.
    """
    generator = subject.stream("structure/directions")
    directions = torch.randn(PROJECTIONS, model.geometry.model_dim, generator=generator)
    total = torch.zeros(length, dtype=torch.float64)
    for tokens in _tokens(subject, model, length, "receptive field").split(1):
        embedded, output = _last_output(model, tokens)
        for direction in directions:
            (gradient,) = torch.autograd.grad(output @ direction, embedded, retain_graph=True)
            total += gradient[0].double().norm(dim=-1)
    return window(total, 0.99).item()


def _last_output(model: Transformer, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The token embeddings of one sequence, ``(1, length, model_dim)``, and the last output that they make.

    As the model's own forward pass, but each layer is computed anew on the way back: some encoders keep dozens of
    tensors of the size of the scores.
    """
    positions = torch.arange(tokens.shape[-1], dtype=torch.float32)
    embedded = model.token_embedding(tokens).detach().requires_grad_()
    stream = model.encoder.embed(embedded, positions)
    bare = Encoder(model.geometry)
    for index, layer in enumerate(model.layers):
        encoder = model.encoder if model.layout.carries(index) else bare
        stream = checkpoint(layer, stream, positions, encoder, use_reentrant=False, preserve_rng_state=False)
    return embedded, model.norm(stream)[0, -1]


def _tokens(subject: Subject, model: Transformer, length: int, purpose: str) -> Tensor:
    generator = subject.stream(f"structure/{purpose}")
    return torch.randint(model.vocab_size, (SEQUENCES, length), generator=generator)


def turned(encoder: Encoder, positions: Tensor, *, causal: bool) -> Tensor:
    """What ``rotate`` makes of queries of ones, ``(samples, heads, length, width)``; the layer's input is ones too.

    Args:
        encoder: of ``exact``.
        positions: ``(samples, length)`` float64.
        causal: what the encoder is told.
    """
    geometry = encoder.geometry
    samples, length = positions.shape
    ones = torch.ones(samples, geometry.num_heads, length, geometry.head_dim, dtype=torch.float64)
    mask = torch.ones(length, length, dtype=torch.bool)
    site = Site(
        layer=0,
        query_positions=positions,
        key_positions=positions,
        rows=slice(0, length),
        mask=mask.tril() if causal else mask,
        causal=causal,
        x=torch.ones(samples, length, geometry.model_dim, dtype=torch.float64),
    )
    return encoder.rotate(ones, ones, site)[0]


def uncovered(subject: Subject, encoder: Encoder, keys: int, draws: int) -> tuple[float, int]:
    """Share of what an encoder shows of a long sequence that lies outside what training showed, and of how many.

    Features are the components of the code, of a turned query of ones, and, where scores are changed, each head's
    kernel between the last query and each key. Each is covered from its smallest to its largest value in training,
    over all places and, of the kernel, over all pairs. Positions are numbered as in training and as in evaluation.
    An encoder without features leaves nothing uncovered: 0 of 0.

    Args:
        subject: whose numbering and training length count.
        encoder: of ``exact``.
        keys: positions of the long sequence.
        draws: contents that a kernel is a mean over.
    """
    generator = subject.stream("structure/positions")
    length, causal = encoder.geometry.train_length, subject.model.causal
    seen = _drawn(subject.numbering.train(TRAINING_SAMPLES, length, generator), length)
    asked = _drawn(subject.numbering.evaluate(SEQUENCES, keys, generator), keys)
    pairs = []
    if encoder.overrides("embed"):
        pairs.append((_codes(encoder, seen), _codes(encoder, asked)))
    if encoder.overrides("rotate"):
        known, new = (turned(encoder, places, causal=causal).transpose(1, 2).flatten(2) for places in (seen, asked))
        pairs.append((known.flatten(0, 1), new.flatten(0, 1)))
    if encoder.overrides("score") or encoder.overrides("mix"):
        visible = torch.ones(length, length).tril(0 if causal else length).bool()
        shown = [_scores(subject, encoder, places, draws)[:, visible].mT for places in seen]
        at_the_end = [_scores(subject, encoder, places, draws, queries=1)[:, 0].mT for places in asked]
        pairs.append((torch.cat(shown), torch.cat(at_the_end)))
    cells = sum(int(new.isfinite().sum()) for _, new in pairs)
    return (sum(_outside(known, new) for known, new in pairs) / cells if cells else 0.0), cells


def _drawn(positions: Tensor, length: int) -> Tensor:
    """``(samples, length)`` float64. A task's own numbering may give a few places more."""
    return (positions if positions.ndim == 2 else positions.unsqueeze(0))[:, :length].double()


def _codes(encoder: Encoder, positions: Tensor) -> Tensor:
    return torch.cat([codes(encoder, places) for places in positions])


def _scores(subject: Subject, encoder: Encoder, positions: Tensor, draws: int, queries: int | None = None) -> Tensor:
    generator = subject.stream(CONTENTS)
    return kernel(encoder, positions, generator, causal=subject.model.causal, draws=draws, queries=queries)


def _outside(known: Tensor, new: Tensor) -> int:
    """How many cells of ``(…, features)`` lie outside what is known of their feature; hidden ones (−inf) do not count.

    Args:
        known: ``(any, features)``.
        new: ``(any, features)``.
    """
    low = known.where(known.isfinite(), torch.inf).amin(0)
    high = known.where(known.isfinite(), -torch.inf).amax(0)
    slack = ROUNDING * torch.maximum(low.abs(), high.abs())
    return int((((new < low - slack) | (new > high + slack)) & new.isfinite()).sum())
