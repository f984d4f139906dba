"""A linear probe: ridge regression in closed form, from sums over sequences, so that no features are stored."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from experiments.model.transformer import Transformer
from experiments.training.evaluate import CHUNK_TOKENS

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


class Sums:
    """Counts, sums and sums of products of features and labels, float64: all that a ridge regression needs."""

    def __init__(self) -> None:
        self.count = 0
        self.sums: list[Tensor] = []

    def add(self, features: Tensor, labels: Tensor) -> None:
        """Add tokens: ``(tokens, features)`` and ``(tokens, labels)``."""
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
        together = torch.outer(varies / scale, varies / scale)
        values, vectors = torch.linalg.eigh((squares - torch.outer(mean, mean)) * together)
        along = vectors.mT @ ((products - torch.outer(mean, intercept)) * (varies / scale).unsqueeze(1))
        strengths = torch.tensor(STRENGTHS, dtype=torch.float64)
        weights = vectors @ (along / (values.clamp_min(0) + strengths.unsqueeze(1)).unsqueeze(2))
        return lambda features: (features.double() - mean) / scale @ weights + intercept


def probe_errors(features: Features, labels: Tensor) -> Tensor:
    """Return mean absolute errors on held-out sequences, ``(layers, labels)`` float64.

    The first half of the sequences is fitted on, the next quarter decides the strength, for each layer and label by
    itself, and the rest is tested on. Readings are clamped to the places there are: 0 … length − 1.

    Args:
        features: of any of the sequences.
        labels: ``(sequences, length, labels)``, places; at least ``LEAST`` sequences.
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


def num_tested(num_sequences: int) -> int:
    """Return the number of sequences that are tested on."""
    return len(range(num_sequences)[_parts(num_sequences)[2]])


def constant_error(length: int) -> float:
    """Return the mean absolute error of the best constant, the median of the places; about a quarter of the length."""
    places = torch.arange(length, dtype=torch.float64)
    return (places - (length - 1) / 2).abs().mean().item()


def streams(model: Transformer, tokens: Tensor, positions: Tensor) -> Features:
    """Return the residual stream before the first layer and after each as features, on the CPU."""
    device = model.token_embedding.weight.device

    def some(part: slice) -> list[Tensor]:
        was_training = model.training
        model.eval()
        with torch.no_grad():
            numbers = positions if positions.ndim == 1 else positions[part]
            hidden = model.hidden(tokens[part].to(device), numbers.to(device))
        model.train(was_training)
        return [layer.cpu() for layer in hidden]

    return some


def identities(tokens: Tensor, vocab_size: int) -> Features:
    """Return the identity of each token as the only layer of features."""
    return lambda part: [functional.one_hot(tokens[part], vocab_size)]


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
