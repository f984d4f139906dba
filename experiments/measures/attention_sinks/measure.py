"""Weight and values of the first token, and the tails of the residual stream, by layer and length."""

from collections.abc import Iterator

import torch
from torch import Tensor

from experiments.measures.attention_pattern.weights import patterns
from experiments.measures.attention_sinks import KURTOSIS, LARGEST, MAIN, NAME, VALUE_NORM
from experiments.measures.length_extrapolation.measure import lengths
from experiments.rows.row import Row
from experiments.training.evaluate import Subject, by_chunk
from pe_zoo import Unsupported
from pe_zoo._knobs import Count, Positive, Several


def measure(subject: Subject, *, multiples: Several[Positive] = (1.0, 2.0, 4.0), samples: Count = 32) -> list[Row]:
    """Measure signs of attention sinks in the trained model, on test sequences of several lengths.

    Args:
        subject: the trained model and its task.
        multiples: lengths to measure at, in training lengths, each above 0.
        samples: sequences per length, at least 1; of a fixed test set, windows of the training length.
    """
    rows = list[Row]()
    for length in lengths(subject.task.train_length, multiples):
        for metrics, part in (((MAIN,), _mass), ((VALUE_NORM,), _values), ((KURTOSIS, LARGEST), _stream)):
            try:
                batch, positions = subject.question(NAME, samples, length)
                rows += part(subject, batch.tokens, positions, length)
            except Unsupported as reason:
                rows += [subject.cannot(NAME, metric, reason, eval_length=length) for metric in metrics]
    return rows


def first(weights: Tensor, seen: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Tally the weight of all queries but the first on the first token."""
    later = weights[:, :, 1:, 0]
    return {MAIN: (later.sum((0, 2)), torch.full((later.shape[1],), float(len(later) * later.shape[2])).double())}


def _mass(subject: Subject, tokens: Tensor, positions: Tensor, length: int) -> Iterator[Row]:
    for layer, found in enumerate(patterns(subject.model, tokens, positions, first)):
        mean, where = found[MAIN].over_heads(), {"eval_length": length, "layer": layer}
        numbers = {"value": mean.value.item(), "chance": mean.uniform.item(), "n": int(mean.n)}
        yield subject.row(NAME, MAIN, **where, **numbers)


def _values(subject: Subject, tokens: Tensor, positions: Tensor, length: int) -> Iterator[Row]:
    device = subject.model.token_embedding.weight.device

    def norms(_: slice, part: Tensor, places: Tensor) -> Tensor:
        found = subject.model.values(part.to(device), places.to(device))
        of_token = torch.stack([layer.norm(dim=-1).mean(1) for layer in found])
        return torch.stack([of_token[..., 0], of_token[..., 1:].mean(-1)]).double().cpu()

    sums = torch.stack([part.sum(-1) for part in by_chunk(subject.model, tokens, positions, norms)]).sum(0)
    for layer, (of_first, of_others) in enumerate(sums.T.tolist()):
        where = {"eval_length": length, "layer": layer, "n": len(tokens)}
        yield subject.row(NAME, VALUE_NORM, value=of_first / of_others, **where)


def _stream(subject: Subject, tokens: Tensor, positions: Tensor, length: int) -> Iterator[Row]:
    if not subject.model.num_streams:
        raise Unsupported("the model does not tell its residual stream")
    device = subject.model.token_embedding.weight.device

    def read(_: slice, part: Tensor, places: Tensor) -> list[Tensor]:
        return [stream.cpu() for stream in subject.model.hidden(part.to(device), places.to(device))]

    parts = by_chunk(subject.model, tokens, positions, read)
    for layer, streams in enumerate(zip(*parts, strict=True)):
        stream = torch.cat(streams).double()
        where = {"eval_length": length, "layer": layer, "n": len(tokens)}
        yield subject.row(NAME, KURTOSIS, value=kurtosis(stream), **where)
        size = stream.abs()
        yield subject.row(NAME, LARGEST, value=(size.max() / size.median()).item(), **where)


def kurtosis(values: Tensor) -> float:
    """Return the fourth central moment over the squared second one, 3 for normal numbers.

    >>> kurtosis(torch.tensor([-1.0, 1.0]))
    1.0
    """
    centred = values - values.mean()
    return (centred.pow(4).mean() / centred.square().mean().square()).item()
