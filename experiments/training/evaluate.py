"""Teacher-forced evaluation: a model's answers to a batch of one length, scored token by token."""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter
from typing import Self, TypeVar

import torch
from torch import Generator, Tensor

from experiments.model.streams import stream
from experiments.model.transformer import Transformer
from experiments.rows.row import Row, slice_name
from experiments.tasks import Batch, Placed, Task
from experiments.training.config import TrainConfig
from experiments.training.loss import each_loss
from pe_zoo import Numbering

logger = logging.getLogger("pe_zoo")
noted = logging.getLogger("pe_zoo.noted")
"""For ``run.log`` alone: the end of the run says it to the reader."""
SILENT = ("length_extrapolation", "permutation_sensitivity")
"""Experiments of which the end of a run says no reasons."""

T = TypeVar("T")
beside = 1
"""Chunks that are evaluated at once, on as many cores: more than one only where no other run needs them."""
MOST_BLOCKS, FEWEST_BLOCKS = 16, 4
"""Contiguous blocks of the measured sequences, over which a model that has no seeds varies."""
CHUNK_TOKENS = 8192
"""Tokens per forward pass in evaluation: small enough for the caches, large enough for the cores."""


@dataclass(frozen=True, eq=False)
class Scored:
    """Scored answers, each ``(batch, counted)``: right or not, cross-entropy in nats, and bytes (None: one each)."""

    correct: Tensor
    nats: Tensor
    target_bytes: Tensor | None = None

    @classmethod
    def joined(cls, parts: list[Self]) -> Self:
        """Concatenate the answers to several batches of one task."""
        correct, nats = torch.cat([part.correct for part in parts]), torch.cat([part.nats for part in parts])
        widths = [part.target_bytes for part in parts if part.target_bytes is not None]
        return cls(correct, nats, torch.cat(widths) if widths else None)

    def each(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Apply a change, such as a selection or a new shape, to every field."""
        widths = None if self.target_bytes is None else change(self.target_bytes)
        return replace(self, correct=change(self.correct), nats=change(self.nats), target_bytes=widths)

    def quality(self) -> dict[str, float]:
        """Return every quality by its metric."""
        num_bytes = self.correct.numel() if self.target_bytes is None else int(self.target_bytes.sum())
        return {
            "token_accuracy": self.correct.double().mean().item(),
            "exact_match": self.correct.all(1).double().mean().item(),
            "bits_per_byte": self.nats.double().sum().item() / num_bytes / math.log(2),
        }

    def blocks(self) -> list[Self]:
        """Return contiguous parts of the sequences, in order, as equal as can be; none where there are too few."""
        count = min(MOST_BLOCKS, len(self.correct))
        if count < FEWEST_BLOCKS:
            return []
        edges = [len(self.correct) * place // count for place in range(count + 1)]
        return [self.each(itemgetter(slice(*ends))) for ends in pairwise(edges)]

    def n(self, metric: str) -> int:
        """Return the number of sequences or tokens that a quality is a mean over."""
        return len(self.correct) if metric == "exact_match" else self.correct.numel()


@contextmanager
def evaluating(model: Transformer) -> Iterator[None]:
    """Put a model in evaluation mode, without gradients, within the context."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def chunks(tokens: Tensor, positions: Tensor, at_once: int | None = None) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield a few sequences at a time (None: as many as make ``CHUNK_TOKENS``): which, their tokens and positions.

    Tokens are ``(batch, length)``, positions ``(length,)``, ``(batch, length)`` or ``(1 or batch, length, axes)``.
    Chunks are as equal as can be, since cores wait for the longest.
    """
    most = at_once or max(1, CHUNK_TOKENS // tokens.shape[1])
    at_once = math.ceil(len(tokens) / math.ceil(len(tokens) / most))
    for start in range(0, len(tokens), at_once):
        rows = slice(start, min(start + at_once, len(tokens)))  # positions may have more lines
        yield rows, tokens[rows], positions if positions.ndim == 1 or len(positions) == 1 else positions[rows]


def in_chunks(
    model: Transformer, tokens: Tensor, positions: Tensor, answer: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Return what ``answer`` (such as the model) makes of tokens and positions: evaluating, a few at a time."""
    device = model.token_embedding.weight.device

    def answered(_: slice, tokens: Tensor, positions: Tensor) -> Tensor:
        return answer(tokens.to(device), positions.to(device)).cpu()

    return torch.cat(by_chunk(model, tokens, positions, answered))


def by_chunk(
    model: Transformer, tokens: Tensor, positions: Tensor, make: Callable[[slice, Tensor, Tensor], T]
) -> list[T]:
    """Return what is made of each of the `chunks`: evaluating, on several cores at once, which changes no bit."""
    device, threads = model.token_embedding.weight.device, torch.get_num_threads()

    def one(part: tuple[slice, Tensor, Tensor]) -> T:
        torch.set_num_threads(threads)  # a new thread has as many as there are cores
        with torch.no_grad():
            return make(*part)

    with evaluating(model):
        parts = list(chunks(tokens, positions))
        if (size := min(beside, len(parts))) < 2 or device.type != "cpu":
            return [one(part) for part in parts]
        pool = ThreadPoolExecutor(size)
        try:
            return list(pool.map(one, parts))
        finally:
            pool.shutdown(cancel_futures=True)  # a run that was told to stop waits for no chunk not yet begun


def score(logits: Tensor, batch: Batch) -> Scored:
    """Score logits ``(batch, counted, vocab)`` against a batch's targets at its counted positions."""
    targets = batch.targets[:, batch.counted]
    nats = each_loss(logits, targets)
    widths = None if batch.target_bytes is None else batch.target_bytes[:, batch.counted]
    return Scored(logits.argmax(-1) == targets, nats, widths)


def evaluate(model: Transformer, batch: Batch, positions: Tensor) -> Scored:
    """Score a batch at its counted positions, a few sequences at a time, since logits of all would be large."""
    device = model.token_embedding.weight.device

    def scored(rows: slice, _: Tensor, places: Tensor) -> Scored:
        asked = batch.part(rows).to(device)
        return score(model(asked.tokens, places.to(device))[:, asked.counted], asked).each(Tensor.cpu)

    return Scored.joined(by_chunk(model, batch.tokens, positions, scored))


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """What a measure examines: a trained model, and all that is needed to ask it.

    The model is as it was initialised where nothing was trained; ``initial`` builds it as it was before training.
    ``labels`` are the columns that all rows of the run share, ``refusals`` the reasons of what could not be
    measured, by measure.
    """

    model: Transformer
    initial: Callable[[], Transformer]
    trained: bool
    task: Task
    numbering: Numbering
    seed: int
    labels: dict[str, str | int]
    training: TrainConfig | None = None
    refusals: dict[str, list[str]] = field(default_factory=dict)
    outside: bool = False
    """Whether the model is from outside, so that there is one of it and no seeds."""

    def stream(self, purpose: str) -> Generator:
        """Return the run's random stream for a purpose; the same for every encoder."""
        return stream(self.seed, purpose)

    def question(self, purpose: str, samples: int, length: int) -> tuple[Batch, Tensor]:
        """Draw test sequences of a length and their positions; for a seed, the same for every encoder."""
        data = self.stream(purpose if self.task.one_draw else f"{purpose}/{length}")
        batch = self.task.evaluation(samples, length, data, causal=self.model.causal)
        numbers = self.stream(f"{purpose}/{length}/positions")
        return batch, self.numbering.read(batch.tokens, numbers)

    def placed(
        self, purpose: str, place: int, samples: int, length: int, other: int | None = None
    ) -> tuple[Placed, Tensor]:
        """Draw questions with their evidence at a place, the same at every place, and their positions."""
        data, numbers = self.stream(f"{purpose}/{length}"), self.stream(f"{purpose}/{length}/positions")
        found = self.task.placed(place, samples, length, data, causal=self.model.causal, other=other)
        return found, self.numbering.read(found.batch.tokens, numbers)

    def row(self, experiment: str, metric: str, **measured: object) -> Row:
        """Return a row of this run; ``eval_length`` defaults to the training length."""
        measured = {"eval_length": self.task.train_length, **measured}
        return Row(experiment=experiment, metric=metric, **self.labels, **measured)  # type: ignore[arg-type]

    def cannot(self, experiment: str, metric: str, reason: object, **measured: object) -> Row:
        """Return a row with ``status=unsupported``; the reason is noted, and logged, once."""
        known = self.refusals.setdefault(experiment, [])
        if str(reason) not in known:
            known.append(str(reason))
            where = ", ".join(filter(None, (str(measured.get("eval_length") or ""), slice_name(measured))))
            log = noted if self.outside and experiment not in SILENT else logger
            log.info("%s %s%s: not measured: %s", experiment, metric, where and f" at {where}", reason)
        return self.row(experiment, metric, status="unsupported", **measured)

    def qualities(
        self,
        experiment: str,
        scored: Scored,
        length: int,
        metrics: Iterable[str] = (),
        prefix: str = "",
        **where: object,
    ) -> list[Row]:
        """Return a row for each metric (by default, of the task) with its ``chance``."""
        quality, rows = scored.quality(), []
        for metric in metrics or self.task.metrics:
            measured = {"value": quality[metric], "chance": self.best_guess(metric, length), "n": scored.n(metric)}
            rows.append(self.row(experiment, f"{prefix}{metric}", eval_length=length, **where, **measured))
        return rows

    def in_blocks(self, experiment: str, scored: Scored, length: int, where: Mapping[str, object]) -> list[Row]:
        """Return the main metric of each block of the sequences, of a model that has no seeds; else nothing."""
        blocks, metric = scored.blocks() if self.outside else [], self.task.metrics[:1]
        return [
            row
            for part, block in enumerate(blocks, 1)
            for row in self.qualities(experiment, block, length, metric, part=part, **where)  # type: ignore[arg-type]
        ]

    def best_guess(self, metric: str, length: int) -> float:
        """Return what the best guess gets without reading the input: the ``chance`` column."""
        guesses = (self.task.chance(metric, length), self.task.position_guess(metric, length))
        return min(guesses) if metric == "bits_per_byte" else max(guesses)
