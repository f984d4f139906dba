"""What permuting an input does to a model: its answers, its outputs, and the representations in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import torch
from torch import Tensor

from experiments.measures.permutation_sensitivity.permutations import Intervention
from experiments.model.transformer import Transformer
from experiments.tasks import Batch
from experiments.training.evaluate import CHUNK_TOKENS, Scored, score
from pe_zoo import Unsupported

Key = TypeVar("Key")


@dataclass(frozen=True, eq=False)
class Effects:
    """What one change of order did, sequence by sequence.

    A change is kept as two squared norms, of the difference and of what was there before, so that changes of many
    sequences are the sums of theirs.

    Args:
        scored: the answer against the targets of the untouched input.
        changed: ``(batch, answer)`` bool, where the likeliest token is another.
        output: ``(batch, 2)``, of the logits of the answer, less their mean over the vocabulary, which softmax cannot
            see.
        equivariance: ``(batch, 2)``, of the logits at the input's own places against those that moved with it.
        representation: ``(batch, num_layers + 1, 2)``, of the residual stream at the input's places, likewise.
    """

    scored: Scored
    changed: Tensor
    output: Tensor
    equivariance: Tensor
    representation: Tensor

    @classmethod
    def joined(cls, parts: list[Effects]) -> Effects:
        """The effects on all sequences, from those on some after some."""
        return cls(
            Scored.joined([p.scored for p in parts]),
            torch.cat([p.changed for p in parts]),
            torch.cat([p.output for p in parts]),
            torch.cat([p.equivariance for p in parts]),
            torch.cat([p.representation for p in parts]),
        )

    def quality(self, metric: str, sequences: Tensor | None = None) -> float:
        """A quality of the answers to all sequences, or to some."""
        scored = self.scored if sequences is None else self.scored.each(lambda answers: answers[sequences])
        return scored.quality()[metric]

    def share_changed(self) -> float:
        """Of the answer's places, how many have another likeliest token."""
        return self.changed.double().mean().item()


def relative(squares: Tensor) -> float:
    """‖difference‖ / ‖before‖ over all sequences, from ``(batch, 2)``."""
    difference, before = squares.sum(0).sqrt().tolist()
    return float(difference / before)


@dataclass(frozen=True, eq=False)
class Reply:
    """Centred logits, ``(batch, length, vocab)``, and the residual stream, ``num_layers + 1`` times."""

    logits: Tensor
    stream: list[Tensor]

    @classmethod
    def of(cls, model: Transformer, tokens: Tensor, positions: Tensor) -> Reply:
        device = model.token_embedding.weight.device
        stream = model.hidden(tokens.to(device), positions.to(device))
        logits: Tensor = model.unembedding(model.norm(stream[-1]))
        return cls(logits - logits.mean(-1, keepdim=True), stream)


def effects(
    model: Transformer, batch: Batch, positions: Tensor, span: slice, interventions: Mapping[Key, Intervention]
) -> dict[Key | Literal[""], Effects | Unsupported]:
    """What each intervention does to a model, by its key; under ``""`` what leaving the input alone does.

    Args:
        model: any; measured as in evaluation.
        batch: the untouched input, and the answers asked for.
        positions: ``(length,)`` or ``(batch, length)``.
        span: the places that are permuted.
        interventions: by any key but a blank.

    Returns:
        For an intervention that the encoder refuses, its refusal.

    Raises:
        Unsupported: the encoder refuses the untouched input, or nothing is scored after the input.
    """
    answer = batch.counted & (torch.arange(len(batch.counted)) >= span.stop)
    if not answer.any():
        raise Unsupported(f"nothing is asked after the input of {span.stop} places: give task.train_length more")
    parts: dict[Key | Literal[""], list[Effects]] = {"": [], **{key: [] for key in interventions}}
    refused: dict[Key | Literal[""], Effects | Unsupported] = {}
    was_training = model.training
    model.eval()
    at_once = max(1, CHUNK_TOKENS // batch.tokens.shape[1])
    with torch.no_grad():
        for start in range(0, len(batch.tokens), at_once):
            rows = slice(start, start + at_once)
            numbers = positions if positions.ndim == 1 else positions[rows]
            part = replace(batch.part(rows), counted=answer)
            before = Reply.of(model, part.tokens, numbers)
            parts[""].append(_compared(before, before, part, span, None))
            for key in [key for key in interventions if key not in refused]:
                intervention = interventions[key].part(rows)
                try:
                    after = Reply.of(model, *intervention(part.tokens, numbers, span))
                except Unsupported as reason:
                    refused[key] = reason
                    continue
                parts[key].append(_compared(after, before, part, span, intervention))
    model.train(was_training)
    return {c: refused[c] if c in refused else Effects.joined(found) for c, found in parts.items()}


def _compared(after: Reply, before: Reply, batch: Batch, span: slice, intervention: Intervention | None) -> Effects:
    """One reply against the untouched one; ``batch.counted`` are the places of the answer."""

    def moved(values: Tensor) -> Tensor:
        return intervention.moved(values[:, span]) if intervention else values[:, span]

    answer = batch.counted
    now, then = after.logits[:, answer].cpu(), before.logits[:, answer].cpu()
    layers = [_squares(a[:, span], moved(b)) for a, b in zip(after.stream, before.stream, strict=True)]
    return Effects(
        score(now, batch),
        now.argmax(-1) != then.argmax(-1),
        _squares(now, then),
        _squares(after.logits[:, span], moved(before.logits)),
        torch.stack(layers, 1),
    )


def _squares(now: Tensor, then: Tensor) -> Tensor:
    """Squared norms of the difference and of what was there, for each sequence: ``(batch, 2)`` float64."""
    norms = [torch.linalg.vector_norm(x, dim=(1, 2)).cpu().double() for x in (now - then, then)]
    return torch.stack(norms, -1).square()
