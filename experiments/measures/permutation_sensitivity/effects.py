"""Effects of permuting an input on a model's answers, its outputs, and the representations in between."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self, TypeVar

import torch
from torch import Tensor

from experiments.measures.permutation_sensitivity.permutations import Intervention
from experiments.model.transformer import Transformer
from experiments.tasks import Batch
from experiments.training.evaluate import Scored, by_chunk, score
from pe_zoo import Unsupported

Key = TypeVar("Key")


@dataclass(frozen=True, eq=False)
class Effects:
    """Effects of one change of order, sequence by sequence, against the answer to the untouched input.

    A change is stored as two squared norms, of the difference and of the value before, which add up over sequences:
    ``(batch, 2)`` of the output (logits of the answer, less their mean over the vocabulary, which softmax ignores) and
    of the equivariance (logits at the input's own places against those that moved with it), ``(batch, num_streams,
    2)`` of the representation (the residual stream at the input's places, likewise). ``changed``, ``(batch, answer)``
    bool, is where the likeliest token is another.
    """

    scored: Scored
    changed: Tensor
    output: Tensor
    equivariance: Tensor
    representation: Tensor

    @classmethod
    def joined(cls, parts: list[Self]) -> Self:
        names = ("changed", "output", "equivariance", "representation")
        tensors = (torch.cat([getattr(part, name) for part in parts]) for name in names)
        return cls(Scored.joined([part.scored for part in parts]), *tensors)

    def quality(self, metric: str, sequences: Tensor | None = None) -> float:
        scored = self.scored if sequences is None else self.scored.each(lambda answers: answers[sequences])
        return scored.quality()[metric]


def relative(squares: Tensor) -> float:
    """Return ‖difference‖ / ‖before‖ over all sequences, from ``(batch, 2)``."""
    difference, before = squares.sum(0).sqrt().tolist()
    return float(difference / before)


def effects(
    model: Transformer, batch: Batch, positions: Tensor, span: slice, interventions: Mapping[Key, Intervention]
) -> dict[Key | Literal[""], Effects | Unsupported]:
    """Return the effects of each intervention, or its refusal, by its key; those of none under ``""``.

    The batch is the untouched input and its answers, ``span`` the places that are permuted; positions are ``(length,)``
    or ``(batch, length)``.

    Raises:
        Unsupported: the encoder refuses the untouched input, or nothing is scored after the input.
    """
    answer = batch.counted & (torch.arange(len(batch.counted)) >= span.stop)
    if not answer.any():
        raise Unsupported(f"nothing is scored after the input of {span.stop} places: give task.train_length more")

    def of_chunk(rows: slice, tokens: Tensor, numbers: Tensor) -> dict[Key | Literal[""], Effects | Unsupported]:
        part = replace(batch.part(rows), counted=answer)
        before = _reply(model, tokens, numbers)
        found: dict[Key | Literal[""], Effects | Unsupported] = {"": _compared(before, before, part, span, None)}
        for key, whole in interventions.items():
            intervention = whole.part(rows)
            try:
                after = _reply(model, *intervention(tokens, numbers, span))
            except Unsupported as reason:
                found[key] = reason
                continue
            found[key] = _compared(after, before, part, span, intervention)
        return found

    parts = by_chunk(model, batch.tokens, positions, of_chunk)
    return {key: _joined([part[key] for part in parts]) for key in parts[0]}


def _joined(parts: list[Effects | Unsupported]) -> Effects | Unsupported:
    refusal = next((part for part in parts if isinstance(part, Unsupported)), None)
    return refusal or Effects.joined([part for part in parts if isinstance(part, Effects)])


def _reply(model: Transformer, tokens: Tensor, positions: Tensor) -> tuple[Tensor, list[Tensor]]:
    device = model.token_embedding.weight.device
    logits, stream = model.read(tokens.to(device), positions.to(device))
    return logits - logits.mean(-1, keepdim=True), stream


def _compared(
    after: tuple[Tensor, list[Tensor]],
    before: tuple[Tensor, list[Tensor]],
    batch: Batch,
    span: slice,
    intervention: Intervention | None,
) -> Effects:
    """Compare two replies; ``batch.counted`` are the places of the answer."""

    def squares_in_span(now: Tensor, then: Tensor) -> Tensor:
        return _squares(now[:, span], intervention.moved(then[:, span]) if intervention else then[:, span])

    (logits, stream), (logits_before, stream_before) = after, before
    now, then = logits[:, batch.counted].cpu(), logits_before[:, batch.counted].cpu()
    return Effects(
        score(now, batch),
        now.argmax(-1) != then.argmax(-1),
        _squares(now, then),
        squares_in_span(logits, logits_before),
        torch.stack([squares_in_span(*pair) for pair in zip(stream, stream_before, strict=True)], 1)
        if stream
        else torch.zeros(len(logits), 0, 2, dtype=torch.float64),
    )


def _squares(now: Tensor, then: Tensor) -> Tensor:
    """Squared norms of the difference and of the value before, for each sequence: ``(batch, 2)`` float64."""
    norms = [torch.linalg.vector_norm(x, dim=(1, 2)).cpu().double() for x in (now - then, then)]
    return torch.stack(norms, -1).square()
