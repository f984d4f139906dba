"""How untrained encoders and models behave: shifted, reversed, beyond training, and how far back they see."""

import torch
from torch import Tensor

import pe_zoo
from experiments.measures.place_bias.influence import profile
from experiments.measures.structure.kernel import ROUNDING, count_up, exact, kernel, window
from experiments.measures.structure.vectors import codes
from experiments.model.streams import initialising
from experiments.model.transformer import Transformer
from experiments.rows.row import RELATIVE_DISTANCE, Row
from experiments.training.evaluate import Subject
from pe_zoo import Encoder, Unsupported, scores
from pe_zoo._contract.bench import site_of
from pe_zoo._contract.relatives import score_distance

CONTENTS = "structure/kernel"
"""The stream of the contents that kernels are means over."""
SEQUENCES = 4
PROJECTIONS = 8
TRAINING_SAMPLES = 32
"""Draws of training positions; one where the numbering draws nothing."""


def score_shift_change(subject: Subject, encoder: Encoder, shift: int) -> float:
    """Return the largest change of a score when all positions go up by ``shift``, relative to the largest score.

    Queries, keys and the layer's input are independent random contents of the training length, each embedded as the
    encoder would. Scores of keys ahead do not count in a causal model. Rounding counts as 0.
    """
    geometry, causal = encoder.geometry, subject.model.causal
    length, generator = geometry.train_length, subject.stream("structure/shift")
    contents = torch.randn(3, SEQUENCES, length, geometry.model_dim, generator=generator, dtype=torch.float64)

    def at(start: int) -> Tensor:
        positions = start + count_up(length)
        embedded = [encoder.embed(content, positions) for content in contents]
        q, k = (x.unflatten(-1, (geometry.num_heads, -1)).transpose(1, 2) for x in embedded[:2])
        found = scores(encoder, q, k, positions, 0, embedded[2], causal=causal)
        return found[..., torch.ones(length, length).tril().bool()] if causal else found

    before, after = at(0), at(shift)
    largest = before[before.isfinite()].abs().max()
    hidden = before.isfinite() != after.isfinite()  # hidden in the one and not in the other: all of it changed
    change = torch.where(hidden, largest, (after - before).abs())
    return _beyond_rounding(change[change.isfinite()].max() / largest)


def relative_distances(subject: Subject, experiment: str) -> list[Row]:
    """Return the distance of the scores from those of the encoder that it is a relative of or extends, as a row.

    At the positions of one training sequence, in the first layer; none if the encoder declares no other.
    """
    encoder = subject.model.encoder
    other = encoder.relative_of or encoder.extends
    if other is None:
        return []
    length = encoder.geometry.train_length
    positions = subject.numbering.train(1, length, subject.stream("structure/relative"))
    try:
        relative = pe_zoo.build(other, encoder.geometry)
        value = score_distance(encoder, relative, positions.reshape(-1)[:length], causal=subject.model.causal)
    except Unsupported as reason:
        return [subject.cannot(experiment, RELATIVE_DISTANCE, reason, condition=other)]
    return [subject.row(experiment, RELATIVE_DISTANCE, condition=other, value=value, n=length)]


def _beyond_rounding(relative: Tensor) -> float:
    value = relative.item()
    return 0.0 if value < ROUNDING else value


def direction_awareness(subject: Subject, model: Transformer) -> float:
    """Return ‖f(reversed x) − reversed f(x)‖ / ‖f(x)‖ of an untrained bidirectional model; 0: left and right are alike.

    The subject's seed initialises the trunk and draws the sequences, of the training length.
    """
    if model.encoder.causal_only:
        raise Unsupported(f"{model.encoder.name} means nothing without a causal mask")
    with initialising(subject.seed, "structure/trunk"):
        both_ways = Transformer(model.vocab_size, model.geometry, exact(model.encoder), causal=False).double()
    tokens = _tokens(subject, model, model.geometry.train_length, "reversal")
    with torch.no_grad():
        forth, back = both_ways(tokens), both_ways(tokens.flip(-1)).flip(1)
    return _beyond_rounding((back - forth).norm() / forth.norm())


def receptive_field(subject: Subject, model: Transformer, length: int) -> float:
    """Return how many of the last positions hold 99 % of what the last output depends on.

    Dependence on a place is the norm of the gradient of the last output (after the final norm), along random
    directions, in the token embedding at that place; a mean over directions and random sequences. The whole model
    counts, as it is initialised: its layers, what each sees, paths around attention. Chi et al. (2023),
    arXiv:2212.10356, §4, who take the gradient of a trained model's prediction.
    """
    generator = subject.stream("structure/directions")
    directions = torch.randn(PROJECTIONS, model.geometry.model_dim, generator=generator)
    tokens = _tokens(subject, model, length, "receptive field")
    return window(profile(model, tokens, torch.arange(length, dtype=torch.float32), directions), 0.99).item()


def _tokens(subject: Subject, model: Transformer, length: int, purpose: str) -> Tensor:
    generator = subject.stream(f"structure/{purpose}")
    return torch.randint(model.vocab_size, (SEQUENCES, length), generator=generator)


def rotated(encoder: Encoder, positions: Tensor, *, causal: bool) -> Tensor:
    """Return rotated queries of ones at ``(samples, length)`` positions, ``(samples, heads, length, width)``."""
    geometry = encoder.geometry
    samples, length = positions.shape
    ones = torch.ones(samples, geometry.num_heads, length, geometry.head_dim, dtype=torch.float64)
    x = torch.ones(samples, length, geometry.model_dim, dtype=torch.float64)
    return encoder.rotate(ones, ones, site_of(positions, causal, x))[0]


def uncovered(subject: Subject, encoder: Encoder, keys: int, draws: int) -> tuple[float, int]:
    """Return the share of features of a sequence of ``keys`` outside the range seen in training, and their number.

    Features are the components of the code, of a rotated query of ones, and, where scores are changed, each head's
    kernel between the last query and each key. Each is covered from its smallest to its largest value in training, over
    all places and, of the kernel, over all pairs. Positions are numbered as in training and as in evaluation. The
    encoder is of ``exact``; one without features leaves nothing uncovered: 0 of 0.
    """
    generator = subject.stream("structure/positions")
    length, causal = encoder.geometry.train_length, subject.model.causal

    def expected(positions: Tensor, queries: int | None = None) -> Tensor:
        contents = subject.stream(CONTENTS)
        return kernel(encoder, positions, contents, causal=causal, draws=draws, queries=queries)

    # A task's own numbering may give a few positions more.
    drawn = subject.numbering.train(TRAINING_SAMPLES, length, generator), length
    seen, new = (
        (positions if positions.ndim == 2 else positions.unsqueeze(0))[:, :size].double()
        for positions, size in (drawn, (subject.numbering.evaluate(SEQUENCES, keys, generator), keys))
    )
    pairs = []
    if encoder.overrides("embed"):
        pairs.append([torch.cat([codes(encoder, places) for places in part]) for part in (seen, new)])
    if encoder.overrides("rotate"):
        parts = (rotated(encoder, part, causal=causal) for part in (seen, new))
        pairs.append([part.transpose(1, 2).flatten(2).flatten(0, 1) for part in parts])
    if encoder.overrides("score") or encoder.overrides("mix"):
        visible = torch.ones(length, length).tril(0 if causal else length).bool()
        in_training = [expected(places)[:, visible].mT for places in seen]
        pairs.append([torch.cat(in_training), torch.cat([expected(places, queries=1)[:, 0].mT for places in new])])
    cells = sum(int(there.isfinite().sum()) for _, there in pairs)
    return (sum(_outside(known, there) for known, there in pairs) / cells if cells else 0.0), cells


def _outside(known: Tensor, new: Tensor) -> int:
    """Count the cells of ``(any, features)`` outside the known range of their feature; hidden ones do not count."""
    low = known.where(known.isfinite(), torch.inf).amin(0)
    high = known.where(known.isfinite(), -torch.inf).amax(0)
    slack = ROUNDING * torch.maximum(low.abs(), high.abs())
    return int((((new < low - slack) | (new > high + slack)) & new.isfinite()).sum())
