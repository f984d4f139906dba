"""Errors of linear probes for positions, layer by layer.

A probe is a ridge regression in closed form, from sums over sequences, so that no features are stored.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional

from experiments.measures.position_probe import INITIAL, MAIN, NAME, SHUFFLED, TOKENS
from experiments.model.transformer import Transformer
from experiments.rows.row import Row
from experiments.training.evaluate import CHUNK_TOKENS, Subject, evaluating
from pe_zoo import Unsupported
from pe_zoo._knobs import whole

STRENGTHS = tuple(10.0**power for power in range(2, -7, -1))
"""Penalties to choose from, the strongest first; the first leaves next to nothing but the mean of the labels."""
LEAST = 4
"""Fewest sequences: two to fit on, one to choose the strength on, one to test on."""
CONSTANT = 1e-12
"""A feature whose variance is below this share of its mean square is constant up to rounding."""

Features = Callable[[slice], list[Tensor]]
"""Some of the sequences to the features of their tokens: for each layer ``(sequences, length, features)``."""
Probe = Callable[[Tensor], Tensor]
"""Features, ``(tokens, features)``, to the readings of each strength, ``(strengths, tokens, labels)``."""


def measure(subject: Subject, *, samples: Annotated[int, partial(whole, at_least=LEAST)] = 256) -> list[Row]:
    """By how many places a linear probe errs about places, for each layer, before training and after.

    Probing for places: Haviv et al. (2022), arXiv:2203.16634, §4, with a network of two layers that classifies; here
    the probe is linear (ridge regression of the place, in closed form), so that it can work out nothing by itself.
    Labels to learn nothing from: after Hewitt & Liang (2019), arXiv:1909.03368, who draw one for each type of token;
    here they are the places of the sequence, in another order in each, so that they tell nothing at all.

    ``probe_error`` is the mean absolute error in places over the held-out sequences, of readings cut to the places
    there are. ``chance`` is that of the best constant.

    Args:
        subject: the trained model and its task; measured at the training length.
        samples: sequences, at least 4; half to fit on, a quarter to choose the strength of the ridge on, the rest to
            test on. Of a fixed test set, windows.
    """
    batch, positions = subject.question(NAME, samples, subject.task.train_length)
    count, length = batch.tokens.shape
    if count < LEAST:
        raise Unsupported(f"{NAME} needs {LEAST} sequences and the task has {count} to test on; give it more")
    places = torch.arange(length).expand(count, length)
    shuffled = torch.rand(count, length, generator=subject.stream(f"{NAME}/{SHUFFLED}")).argsort(-1)
    labels = torch.stack([places, shuffled], -1)
    trained = probe_errors(streams(subject.model, batch.tokens, positions), labels)
    initial = probe_errors(streams(subject.initial(), batch.tokens, positions), labels)
    vocab_size = subject.task.vocab_size
    tokens = probe_errors(lambda part: [functional.one_hot(batch.tokens[part], vocab_size)], labels)
    tested = {"chance": constant_error(length), "n": len(range(count)[_parts(count)[2]]) * length}
    rows = [subject.row(NAME, MAIN, condition=TOKENS, value=tokens[0, 0].item(), **tested)]
    errors = (MAIN, "", trained[:, 0]), (INITIAL, "", initial[:, 0]), (MAIN, SHUFFLED, trained[:, 1])
    for layer in range(len(trained)):
        for metric, condition, error in errors:
            value = error[layer].item()
            rows.append(subject.row(NAME, metric, condition=condition, layer=layer, value=value, **tested))
    return rows


class Sums:
    """Counts, sums and sums of products of features and labels, float64: all that a ridge regression needs."""

    def __init__(self) -> None:
        self.count = 0
        self.sums: list[Tensor] = []

    def add(self, features: Tensor, labels: Tensor) -> None:
        x, y = features.double(), labels.double()
        sums = [x.sum(0), y.sum(0), x.mT @ x, x.mT @ y]
        self.sums = [before + more for before, more in zip(self.sums, sums, strict=True)] if self.sums else sums
        self.count += len(x)

    def probe(self) -> Probe:
        """Minimise mean (y − z·w − mean y)² + strength · |w|² over w for each strength, z the standardised features."""
        mean, intercept, squares, products = (total / self.count for total in self.sums)
        variance = squares.diagonal() - mean**2
        constant = variance <= CONSTANT * squares.diagonal()
        scale = torch.where(constant, 1.0, variance.clamp_min(0).sqrt())
        varies = (~constant).double()
        correlations = (squares - torch.outer(mean, mean)) * torch.outer(varies / scale, varies / scale)
        slopes = (products - torch.outer(mean, intercept)) * (varies / scale).unsqueeze(1)
        identity = torch.eye(len(mean), dtype=torch.float64)
        penalised = torch.stack([correlations + strength * identity for strength in STRENGTHS])
        weights = torch.cholesky_solve(slopes, torch.linalg.cholesky(penalised))
        return lambda features: (features.double() - mean) / scale @ weights + intercept


def probe_errors(features: Features, labels: Tensor) -> Tensor:
    """Return mean absolute errors on held-out sequences, ``(layers, labels)`` float64.

    Labels are places, ``(sequences, length, labels)``, of at least ``LEAST`` sequences. The first half is fitted on,
    the next quarter decides the strength, for each layer and label by itself, and the rest is tested on. Readings are
    clamped to the places there are: 0 … length − 1.
    """
    fit, choose, test = _parts(len(labels))
    sums: list[Sums] = []
    for part in _chunks(fit, labels.shape[1]):
        layers = features(part)
        sums = sums or [Sums() for _ in layers]
        for total, x in zip(sums, layers, strict=True):
            total.add(x.flatten(0, 1), labels[part].flatten(0, 1))
    probes = [total.probe() for total in sums]
    best = _errors(probes, features, labels, choose).argmin(1, keepdim=True)
    return _errors(probes, features, labels, test).gather(1, best).squeeze(1)


def constant_error(length: int) -> float:
    """Return the mean absolute error of the best constant, the median of the places; about a quarter of the length."""
    places = torch.arange(length, dtype=torch.float64)
    return (places - (length - 1) / 2).abs().mean().item()


def streams(model: Transformer, tokens: Tensor, positions: Tensor) -> Features:
    """Return the residual stream before the first layer and after each as features, on the CPU."""
    device = model.token_embedding.weight.device

    def some(part: slice) -> list[Tensor]:
        numbers = positions if positions.ndim == 1 or len(positions) == 1 else positions[part]
        with evaluating(model):
            return [layer.cpu() for layer in model.hidden(tokens[part].to(device), numbers.to(device))]

    return some


def _parts(num_sequences: int) -> tuple[slice, slice, slice]:
    half, quarter = num_sequences // 2, num_sequences // 4
    return slice(0, half), slice(half, half + quarter), slice(half + quarter, num_sequences)


def _chunks(part: slice, length: int) -> list[slice]:
    at_once = max(1, CHUNK_TOKENS // length)
    return [slice(start, min(start + at_once, part.stop)) for start in range(part.start, part.stop, at_once)]


def _errors(probes: list[Probe], features: Features, labels: Tensor, part: slice) -> Tensor:
    """``(layers, strengths, labels)``."""
    length = labels.shape[1]
    total = torch.zeros(len(probes), len(STRENGTHS), labels.shape[2], dtype=torch.float64)
    for chunk in _chunks(part, length):
        true = labels[chunk].flatten(0, 1).double()
        for layer, x in enumerate(features(chunk)):
            total[layer] += (probes[layer](x.flatten(0, 1)).clamp(0, length - 1) - true).abs().sum(1)
    return total / ((part.stop - part.start) * length)
