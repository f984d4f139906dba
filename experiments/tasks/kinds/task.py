"""What a task is: how to draw a batch of any length, how it is scored, and what guessing would get."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Generator, Tensor

from pe_zoo import Registry, Unsupported
from pe_zoo._knobs import whole

HELD_OUT = 8
"""At the training length, one of this many inputs is held out of training."""
FEWEST = 32
"""Different inputs of the training length for some to be held out."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Sequences that a model reads, ``(batch, length)`` int64, and the right outputs at each place.

    ``counted``, ``(length,)`` bool, are the places that are scored; ``target_bytes``, ``(batch, length)`` int64, the
    bytes of text that each target stands for, None: one each.
    """

    tokens: Tensor
    targets: Tensor
    counted: Tensor
    target_bytes: Tensor | None = None

    def part(self, rows: slice | Tensor) -> Self:
        widths = None if self.target_bytes is None else self.target_bytes[rows]
        return replace(self, tokens=self.tokens[rows], targets=self.targets[rows], target_bytes=widths)

    @classmethod
    def joined(cls, parts: list[Self]) -> Self:
        widths = [part.target_bytes for part in parts if part.target_bytes is not None]
        tokens, targets = torch.cat([part.tokens for part in parts]), torch.cat([part.targets for part in parts])
        return cls(tokens, targets, parts[0].counted, torch.cat(widths) if widths else None)

    def first(self, count: int) -> Self:
        return self.part(slice(count))

    def to(self, device: torch.device) -> Self:
        """Move from the CPU, where batches are drawn.

        On a GPU ``counted`` are the indices of the places, int64, since what a mask selects has to be waited for.
        """
        if device.type == "cpu":
            return self
        tensors = {**vars(self), "counted": self.counted.nonzero().squeeze(1)}
        moved = {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items() if tensor is not None}
        return replace(self, **moved)


class Placed(NamedTuple):
    """Questions whose evidence stands at one place, and the targets that a distractor in its stead would make right.

    ``decoys``, ``(batch, length)`` int64, are None where no distractor has a place.
    """

    batch: Batch
    decoys: Tensor | None = None


class Task:
    """One kind of sequence to learn. Keyword-only arguments are knobs; every task has ``train_length``.

    A batch has one length, counted in the task's own unit, so nothing is padded.

    Args:
        train_length: longest length trained on, at least ``shortest``.
        min_length: shortest length trained on, between ``shortest`` and ``train_length``.
    """

    name: ClassVar[str]
    metrics: ClassVar[tuple[str, ...]] = ("token_accuracy", "exact_match")
    """What it is scored by, the main one first."""
    converged_at: ClassVar[float] = 0.98
    """In-range token accuracy from which a run counts as having learned the task."""
    shortest: ClassVar[int] = 1

    one_draw: ClassVar[bool] = False
    """Whether test sequences of all lengths are cut from one draw, so that they get the same random stream."""

    vocab_size: int
    num_answers: int = 2
    """Answers are made of the tokens from 0 up to this number, or of as many others."""
    train_length: int
    min_length: int
    """Shortest length trained on; each training batch draws its length between the two."""
    text_length: int = 0
    """Tokens of the text that it is trained on; 0 if its sequences are made by rule, as many as asked for."""
    running_length: int = 0
    """Length of the running text that it is tested on; 0 if its test sequences stand alone."""
    drawn: ClassVar[str] = ""
    """How its sequences are drawn, where other releases drew those of this task alone otherwise."""
    own_split: ClassVar[bool] = False
    """Whether the task itself keeps the data of its splits apart."""
    limit: tuple[str, int] | None = None
    """A knob that limits lengths, and its value; set before `set_lengths`."""
    _has_split: bool | None = None

    def set_lengths(self, train_length: int, min_length: int) -> None:
        self.train_length = whole("task.train_length", train_length, at_least=self.shortest)
        self.min_length = whole("task.min_length", min_length, at_least=self.shortest)
        if min_length > train_length:
            raise ValueError(f"task.min_length={min_length} exceeds task.train_length={train_length}; lower it")
        if self.limit and train_length > self.limit[1]:
            limit = "task.{}={}".format(*self.limit)
            raise ValueError(f"task.train_length={train_length} exceeds {limit}; lower the one or raise the other")

    def check_length(self, length: int) -> None:
        """Raise ``Unsupported`` for a length that the task does not have."""
        if length < self.shortest:
            raise Unsupported(f"task={self.name} has lengths of at least {self.shortest}; got {length}")
        if self.limit and length > self.limit[1]:
            limit = "{1} (task.{0})".format(*self.limit)
            raise Unsupported(f"task={self.name} has lengths of at most {limit}; got {length}")

    def check_causal(self, causal: bool) -> None:
        if not causal:
            raise ValueError(f"task={self.name} shows its answers and needs a causal model: set model.causal=true")

    def sequence_length(self, length: int) -> int:
        """Return how many positions a sequence of a length takes: by default, a begin token and each symbol."""
        return length + 1

    def answer_size(self, length: int) -> int:
        return length

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        """Draw sequences of one length; a bidirectional model must not be shown the answer.

        The generator is the only source of randomness. ``split`` is ``train``, ``validation`` or ``test``; tasks that
        make their data draw afresh for each.
        """
        raise NotImplementedError

    def draw_split(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        """Draw sequences as `sample` does; at the training length, one input in ``HELD_OUT`` is never trained on.

        Only those are validated and tested on there, so a model that memorises its inputs does not count as having
        learned the task.
        """
        batch = self.sample(batch_size, length, generator, split=split, causal=causal)
        if length != self.train_length or not self.has_split(causal=causal):
            return batch
        parts, size = list[Batch](), batch_size
        while True:
            parts.append(batch.part(held_out(batch.tokens) == (split != "train")))
            if sum(len(part.tokens) for part in parts) >= batch_size:
                return Batch.joined(parts).first(batch_size)
            batch = self.sample(size, length, generator, split=split, causal=causal)
            if not torch.equal(batch.counted, parts[0].counted):  # drawn, too: then one draw must have enough
                parts, size = [], 2 * size

    def has_split(self, *, causal: bool) -> bool:
        """Return whether some inputs of the training length are held out: there are enough, ``FEWEST`` or more."""
        if self._has_split is None and not self.own_split:
            source, length = Generator().manual_seed(0), self.train_length
            few = self.sample(16 * FEWEST, length, source, split="validation", causal=causal)
            self._has_split = len(few.tokens.unique(dim=0)) >= FEWEST and bool(held_out(few.tokens).any())
        return bool(self._has_split)

    def evaluation(self, samples: int, length: int, generator: Generator, *, causal: bool) -> Batch:
        """Return the test sequences of a length: ``samples`` draws, unless a task has running text."""
        return self.draw_split(samples, length, generator, split="test", causal=causal)

    @classmethod
    def data_sha256(cls, **knobs: Any) -> str | None:
        """Return a hash of the data that a task with these knobs reads, for the id of a run; None: it makes them."""
        return None

    def windows(self, ends: Tensor, length: int, *, causal: bool) -> Batch:
        """Return windows of the running test text, which end before the places ``ends``, ``(batch,)`` int64 from 0.

        Raises:
            Unsupported: the task has no running text, or less than that.
        """
        raise Unsupported(f"{self.name}: the answer depends on all of the input; with less of it, the question changes")

    def places(self, length: int) -> int:
        """Return at how many places of a sequence the evidence of an answer may stand.

        Raises:
            Unsupported: the answer depends on all of the input.
        """
        raise Unsupported(f"{self.name}: no part of the input is the evidence; the answer depends on all of it")

    def placed(
        self, place: int, batch_size: int, length: int, generator: Generator, *, causal: bool, other: int | None = None
    ) -> Placed:
        """Draw test questions with their evidence at a place, counted from 0 in the order of the sequence.

        A state of the generator draws the same questions for every place. At the place ``other`` stands a distractor,
        so that exchanging ``place`` and ``other`` changes nothing else. Inputs that training had are not left out.

        Raises:
            Unsupported: the evidence has no place, or a distractor has none.
        """
        raise NotImplementedError

    def input_span(self, length: int) -> slice:
        """Return the places whose order a permutation may change; what is scored after them is the answer.

        By default, these are the first three quarters, where every place is scored.
        """
        return slice(1, max(2, 3 * self.sequence_length(length) // 4))

    def numbers(self, kind: str, size: int, *, causal: bool) -> Tensor:
        """Return the task's own numbers for the places of a sequence, ``(size,)`` int64, from 0.

        Of ``kind`` ``coupled``, places that belong together share a number; ``abacus`` counts within words. In a
        bidirectional model the answer stands one place later. Of ``segments``, return the tokens that end one,
        ``(any,)`` int64, whatever the size.

        Raises:
            ValueError: the task has none of this kind.
        """
        raise ValueError(f"task={self.name} offers no {kind} positions; take another task or numbering")

    def chance(self, metric: str, length: int) -> float:
        """Return the expected score of a uniform guess over the possible answers."""
        return float(self.num_answers) ** -(self.answer_size(length) if metric == "exact_match" else 1)

    def position_guess(self, metric: str, length: int) -> float:
        """Return the score of the best guess that knows place and length but does not read the input."""
        return self.chance(metric, length)

    def has_converged(self, quality: dict[str, float]) -> bool:
        """Return whether in-range quality, by metric, shows that the task was learned."""
        return quality["token_accuracy"] >= self.converged_at

    def provenance(self) -> dict[str, Any] | None:
        """Return hash and size of the data, for tasks that read any."""
        return None


tasks: Registry[Task] = Registry("task", Task, "pe_zoo.tasks")


def held_out(tokens: Tensor) -> Tensor:
    """Return which inputs, ``(batch, length)`` int64, are held out of training, ``(batch,)`` bool: a hash decides."""
    places = torch.arange(1, tokens.shape[1] + 1) * 0x9E3779B97F4A7C1 | 1
    mixed = ((tokens + 1) * (places ^ places >> 29)).sum(1)
    mixed = (mixed ^ mixed >> 31) * 0x5851F42D4C957F2D
    return (mixed >> 40) % HELD_OUT == 0


def ask(problem: Tensor, shown: Tensor, answers: Tensor, *, begin: int) -> Batch:
    """Return sequences of the token ``begin``, problem and answers; only the answers count.

    ``problem`` is ``(batch, size)``, possibly empty; ``shown``, ``(batch, answers)``, is what the model reads at the
    places where it answers.
    """
    first = torch.full((len(problem), 1), begin)
    tokens = torch.cat([first, problem, shown], 1)
    targets = torch.cat([first, problem, answers], 1)
    return Batch(tokens, targets, counted=torch.arange(tokens.shape[1]) > problem.shape[1])


def shuffles(batch_size: int, size: int, generator: Generator) -> Tensor:
    """Draw independent uniform permutations, ``(batch, size)``."""
    # In single precision, equal keys would favour the order before the shuffle.
    return torch.rand(batch_size, size, generator=generator, dtype=torch.float64).argsort(-1)
