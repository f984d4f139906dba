"""What a task is: how to draw a batch of any length, how it is scored, and what guessing would get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from pe_zoo import Registry, Unsupported
from pe_zoo._knobs import whole


@dataclass(frozen=True, eq=False)
class Batch:
    """What crosses from a task to the model and back.

    Args:
        tokens: ``(batch, length)`` int64, what the model reads.
        targets: ``(batch, length)`` int64, what it should say at each place.
        counted: ``(length,)`` bool, the places that are scored.
        target_bytes: ``(batch, length)`` int64, how many bytes of text each target stands for; None: one each.
    """

    tokens: Tensor
    targets: Tensor
    counted: Tensor
    target_bytes: Tensor | None = None

    def part(self, rows: slice) -> Batch:
        """Some of the sequences."""
        widths = None if self.target_bytes is None else self.target_bytes[rows]
        return Batch(self.tokens[rows], self.targets[rows], self.counted, widths)

    def first(self, count: int) -> Batch:
        """The first so many sequences."""
        return self.part(slice(count))

    def to(self, device: torch.device) -> Batch:
        widths = None if self.target_bytes is None else self.target_bytes.to(device)
        return Batch(self.tokens.to(device), self.targets.to(device), self.counted.to(device), widths)


class Task:
    """One kind of sequence to learn. Keyword-only arguments are knobs; every task has ``train_length``.

    A batch has one length, so nothing is padded. ``length`` is counted in the task's own unit.
    """

    name: ClassVar[str]
    metrics: ClassVar[tuple[str, ...]] = ("token_accuracy", "exact_match")
    """What it is scored by, the main one first."""
    converged_at: ClassVar[float] = 0.98
    """In-range token accuracy from which a run counts as having learned the task."""

    shortest: ClassVar[int] = 1
    """Shortest length there is."""

    vocab_size: int
    train_length: int
    """Longest length trained on."""
    min_length: int
    """Shortest length trained on; each training batch draws its length between the two."""
    running_length: int = 0
    """Length of the running text that it is tested on; 0 if its test sequences stand alone."""

    def set_lengths(self, train_length: int, min_length: int) -> None:
        """Check the lengths that are trained on, and keep them."""
        self.train_length = whole("task.train_length", train_length, at_least=self.shortest)
        self.min_length = whole("task.min_length", min_length, at_least=self.shortest)
        if min_length > train_length:
            raise ValueError(f"task.min_length={min_length} exceeds task.train_length={train_length}; lower it")

    def sequence_length(self, length: int) -> int:
        """Positions that a sequence of a length takes up."""
        raise NotImplementedError

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        """Draw sequences of one length.

        Args:
            batch_size: how many.
            length: in the task's unit.
            generator: the only source of randomness.
            split: ``train``, ``validation`` or ``test``; tasks that make their data draw afresh for each.
            causal: whether the model is; a bidirectional one must not be shown the answer.
        """
        raise NotImplementedError

    def evaluation(self, samples: int, length: int, generator: Generator, *, causal: bool) -> Batch:
        """The sequences that a length is measured on: ``samples`` test draws, unless a task has a fixed test set."""
        return self.sample(samples, length, generator, split="test", causal=causal)

    def windows(self, ends: Tensor, length: int, *, causal: bool) -> Batch:
        """Windows of the running test text, so that the same targets can be asked with more of it before them or less.

        Args:
            ends: ``(batch,)`` int64, where each window ends: the place after its last target, counted from 0.
            length: of every window.
            causal: whether the model is.

        Raises:
            Unsupported: the task has no running text, or less than that.
        """
        raise Unsupported(f"{self.name}: the answer depends on all of the input; with less of it, the question changes")

    def input_span(self, length: int) -> slice:
        """The places whose order a permutation may change; what is scored after them is the answer."""
        raise NotImplementedError

    def numbers(self, kind: str, size: int, *, causal: bool) -> Tensor:
        """The task's own numbers for the places of a sequence, ``(size,)`` int64, from 0.

        Args:
            kind: ``coupled`` (places that belong together share a number) or ``abacus`` (counted within words).
            size: places in the sequence.
            causal: whether the model is; the answer stands one place later in a bidirectional one.

        Raises:
            ValueError: the task has none of this kind.
        """
        raise ValueError(f"task={self.name} offers no {kind} positions; take another task or numbering")

    def chance(self, metric: str, length: int) -> float:
        """What guessing uniformly gets."""
        raise NotImplementedError

    def position_guess(self, metric: str, length: int) -> float:
        """What the best guess gets that knows the place and the length but does not read the input."""
        return self.chance(metric, length)

    def has_converged(self, quality: dict[str, float]) -> bool:
        """Whether in-range quality, by metric, says that the task was learned."""
        return quality["token_accuracy"] >= self.converged_at

    def provenance(self) -> dict[str, Any] | None:
        """Hash and size of the data, for tasks that read any."""
        return None


tasks: Registry[Task] = Registry("task", Task)
