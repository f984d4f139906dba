"""Numberings: how the positions of a sequence are assigned. They are data, made outside the model.

A numbering combines with every encoder. Each sample gets its own draw, shared by all layers and by queries and keys.
"""

import copy
from collections.abc import Callable
from typing import ClassVar, Self

import torch
from torch import Generator, Tensor

from pe_zoo._encoder import Unsupported
from pe_zoo._knobs import number, one_of, true_or_false, whole
from pe_zoo._registry import Registry

Supply = Callable[[str, int], Tensor]
"""A task's own numbers: from a kind of numbering and a length to those of each place, ``(length,)``; in a grid,
``(length, 2)``. Of ``segments``, the tokens that end one, ``(any,)``."""


class Numbering:
    """A way to assign positions: 0, 1, 2, … unless overridden. Keyword-only arguments are knobs."""

    name: ClassVar[str]
    axes: ClassVar[int] = 1
    """Coordinates of a position: more than 1 make positions ``(1 or batch, length, axes)``."""
    plane: ClassVar[str] = "grid"
    """What two axes are, as of an encoder."""
    reads_tokens: ClassVar[bool] = False
    """Whether positions follow from the tokens, so that those of a generated text follow from what was generated."""

    def read(self, tokens: Tensor, generator: Generator, *, training: bool = False) -> Tensor:
        """Positions of a batch of tokens, ``(batch, length)`` int64; most numberings only count the tokens.

        Those of a token must not depend on later ones.
        """
        batch_size, length = tokens.shape
        return (self.train if training else self.evaluate)(batch_size, length, generator)

    def train(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        """Positions of a training batch: ``(length,)`` or ``(batch, length)``, float32."""
        return count_up(length)

    def evaluate(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        """Positions of an evaluation batch."""
        return count_up(length)

    def bound(self, supply: Supply) -> Self:
        """Return this numbering with a task's own numbers; most need none and are returned as they are."""
        return self

    def lowest(self, length: int) -> float:
        """A lower bound of positions at a length, in training and evaluation."""
        return 0.0

    def highest(self, length: int) -> float:
        """An upper bound of positions at a length, in training and evaluation: an encoder must reach it."""
        return length - 1


numberings: Registry[Numbering] = Registry("numbering", Numbering)


def count_up(length: int) -> Tensor:
    """0, 1, 2, … as ``(length,)`` float32, which is exact up to 16 777 216.

    >>> count_up(3)
    tensor([0., 1., 2.])
    """
    return torch.arange(length, dtype=torch.float32)


@numberings.register("sequential")
class Sequential(Numbering):
    """Numbers positions 0, 1, 2, …, as usual."""


@numberings.register("offset")
class Offset(Numbering):
    """Adds a random offset to the positions of each training sample.
    SHAPE, Kiyono et al. (2021), arXiv:2109.05644, §3.

        positions = k + (0, 1, 2, …),      k ~ U{0 … num_offsets − 1}

    Args:
        num_offsets: how many starts there are, at least 1; 500 as published.
        evaluate_at: the start in evaluation, at least 0.

    Departures: the official code evaluates at ``num_offsets``, a start that training never drew.
    """

    def __init__(self, *, num_offsets: int = 500, evaluate_at: int = 0) -> None:
        self.num_offsets = whole("offset num_offsets", num_offsets, at_least=1)
        self.evaluate_at = whole("offset evaluate_at", evaluate_at, at_least=0)

    def train(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        starts = torch.randint(self.num_offsets, (batch_size, 1), generator=generator)
        return starts + count_up(length)

    def evaluate(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        return self.evaluate_at + count_up(length)

    def highest(self, length: int) -> float:
        return max(self.num_offsets - 1, self.evaluate_at) + length - 1


@numberings.register("randomized")
class Randomized(Numbering):
    """Draws sorted positions without replacement from a long range, in training and evaluation.
    Ruoss et al. (2023), arXiv:2305.16843, §3.

        positions = sorted sample of ``length`` numbers out of {0 … limit − 1}

    Args:
        limit: size of the range, at least the longest length evaluated; 2048 as published.

    Departures: a draw per sample, shared by all layers; the official code draws per batch, for some encoders per layer.
    """

    def __init__(self, *, limit: int = 2048) -> None:
        self.limit = whole("randomized limit", limit, at_least=1)

    def train(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        if length > self.limit:
            draws = f"randomized draws {length} different positions out of limit={self.limit}"
            raise Unsupported(f"{draws}; set positions.limit higher")
        keys = torch.rand(batch_size, self.limit, generator=generator)
        return keys.topk(length, dim=-1, sorted=False).indices.sort(-1).values.float()

    evaluate = train

    def highest(self, length: int) -> float:
        return self.limit - 1


@numberings.register("random_float")
class RandomFloat(Numbering):
    """Draws sorted real-valued positions from a range; evaluation spreads every length over the same range.
    RFS, Shimizu et al. (2026), arXiv:2602.14050.

        positions = sorted sample of ``length`` numbers out of U[0, limit)          in training
        positions = limit · (0, 1, …, length − 1) / length                          in evaluation

    Args:
        limit: where the range ends, above 0; 1024 (ours).
        evaluation: ``even`` as above, or ``sampled`` (drawn as in training).

    Departures: a draw per sample, shared by all layers.
    """

    def __init__(self, *, limit: float = 1024.0, evaluation: str = "even") -> None:
        self.limit = number("random_float limit", limit, above=0)
        self.evaluation = one_of("random_float evaluation", evaluation, ("even", "sampled"))

    def train(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        return self.limit * torch.rand(batch_size, length, generator=generator).sort(-1).values

    def evaluate(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        if self.evaluation == "sampled":
            return self.train(batch_size, length, generator)
        return self.limit * (count_up(length) / length)

    def highest(self, length: int) -> float:
        return self.limit


@numberings.register("scaled")
class Scaled(Numbering):
    """Interpolates: divides positions by a factor in evaluation, so that long inputs stay in the training range.
    Position interpolation, Chen et al. (2023), arXiv:2306.15595.

        positions = (0, 1, 2, …) / factor          in evaluation

    Args:
        factor: how many times the training length should fit, at least 1; 4 (ours: longest over training length).

    Departures: every length is evaluated at the one factor, and nothing is fine-tuned at it; the paper fine-tunes.
    """

    def __init__(self, *, factor: float = 4.0) -> None:
        self.factor = number("scaled factor", factor, at_least=1)

    def evaluate(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        return count_up(length) / self.factor


@numberings.register("cape")
class CAPE(Numbering):
    """Augments training positions by a global shift, a local shift of each position and a global scale.
    Likhomanenko et al. (2021), arXiv:2106.03143.

        positions = λ · ((0, 1, 2, …) − mean + Δ + ε)
        Δ ~ U(−max_shift, max_shift) and ln λ ~ U(−1, 1) · ln(1 + max_stretch) per sample,
        ε ~ U(−max_jitter, max_jitter) per position

    Args:
        max_shift: largest global shift in positions, at least 0; 5.
        max_jitter: largest local shift in positions, in [0, 0.5], above which order would be lost; 0.5.
        max_stretch: largest global scale, less 1, at least 0; 0.03.
        centred: whether the mean is subtracted, in evaluation too, which makes half of the positions negative.

    Departures: the paper feeds these positions to sinusoids. Its ranges differ by task: these are those of a public
    implementation (gcambara/cape) for text, except the jitter, 1 there, which can exchange neighbours.
    """

    def __init__(
        self, *, max_shift: float = 5.0, max_jitter: float = 0.5, max_stretch: float = 0.03, centred: bool = True
    ) -> None:
        self.max_shift = number("cape max_shift", max_shift, at_least=0)
        self.max_jitter = number("cape max_jitter", max_jitter, at_least=0, at_most=0.5)
        self.max_stretch = number("cape max_stretch", max_stretch, at_least=0)
        self.centred = true_or_false("cape centred", centred)

    def train(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        def symmetric(width: int) -> Tensor:
            return 2 * torch.rand(batch_size, width, generator=generator) - 1

        shift, jitter, log_stretch = symmetric(1), symmetric(length), symmetric(1)
        moved = self._start(length) + count_up(length) + self.max_shift * shift + self.max_jitter * jitter
        return moved * (1 + self.max_stretch) ** log_stretch

    def evaluate(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        return self._start(length) + count_up(length)

    def lowest(self, length: int) -> float:
        return (self._start(length) - self.max_shift - self.max_jitter) * (1 + self.max_stretch)

    def highest(self, length: int) -> float:
        return (self._start(length) + length - 1 + self.max_shift + self.max_jitter) * (1 + self.max_stretch)

    def _start(self, length: int) -> float:
        return -(length - 1) / 2 if self.centred else 0.0


@numberings.register("chunked")
class Chunked(Numbering):
    """Skips a random gap between two chunks of each training sequence, so that far positions are trained.
    PoSE, Zhu et al. (2023), arXiv:2309.10400.

        positions = (0, 1, …, cut − 1), (cut, …, length − 1) + gap
        cut ~ U{1 … ⌈length / 2⌉},      gap ~ U{0 … limit − length}

    Args:
        limit: size of the range to be reached, at least the training length; 2048 (the paper: 16384 and more).

    Departures: the chunks follow one another in the text; the official code also skips text between them.
    """

    def __init__(self, *, limit: int = 2048) -> None:
        self.limit = whole("chunked limit", limit, at_least=1)

    def train(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        if length > self.limit:
            raise Unsupported(f"chunked fits {length} positions into limit={self.limit}; set positions.limit higher")
        cut = torch.randint(1, (length + 1) // 2 + 1, (batch_size, 1), generator=generator)
        gap = torch.randint(self.limit - length + 1, (batch_size, 1), generator=generator)
        return count_up(length) + gap * (count_up(length) >= cut)

    def highest(self, length: int) -> float:
        return self.limit - 1


class TaskNumbering(Numbering):
    """Numbers given by the task; one without them is unsupported."""

    _supply: Supply | None = None

    def bound(self, supply: Supply) -> Self:
        bound = copy.copy(self)
        bound._supply = supply
        return bound

    def supplied(self, length: int) -> Tensor:
        """What the task supplies for a length; Unsupported if there is no task."""
        if self._supply is None:
            raise Unsupported(f"{self.name} takes its numbers from the task, and this task has none")
        return self._supply(self.name, length)

    def evaluate(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        return self.supplied(length).float()

    def train(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        return self.evaluate(batch_size, length, generator)

    def highest(self, length: int) -> float:
        return self.evaluate(1, length, Generator()).max().item()


@numberings.register("coupled")
class Coupled(TaskNumbering):
    """Gives places that belong together the same position, such as an answer's symbol and the one it repeats.
    Position coupling, Cho et al. (2024), arXiv:2405.20671, §3.

        positions = k + number the task gives,      k ~ U{0 … num_offsets − 1} in training, 0 in evaluation

    Args:
        num_offsets: how many starts there are, at least 1; 200, the numbers of the paper's longest addition.

    Departures: the paper's starts count from 1, as 0 is its padding; there is none here.
    """

    def __init__(self, *, num_offsets: int = 200) -> None:
        self.num_offsets = whole(f"{self.name} num_offsets", num_offsets, at_least=1)

    def train(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        starts = torch.randint(self.num_offsets, (batch_size, 1), generator=generator)
        return self.evaluate(batch_size, length, generator) + starts

    def highest(self, length: int) -> float:
        return self.num_offsets - 1 + super().highest(length)


@numberings.register("abacus")
class Abacus(Coupled):
    """Counts from 1 within each word, so that equal places of different words share a position; marks get 0.
    McLeish et al. (2024), arXiv:2405.17399, §3.

        positions = number in the word + k (marks: 0),      k ~ U{0 … num_offsets − 1} in training, 0 in evaluation

    Args:
        num_offsets: how many starts there are, at least 1; 100 as published.

    Departures: a start for each sample, where the official code draws one for a batch.
    """

    def __init__(self, *, num_offsets: int = 100) -> None:
        super().__init__(num_offsets=num_offsets)

    def train(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        marks = self.evaluate(batch_size, length, generator) == 0
        return super().train(batch_size, length, generator).masked_fill(marks, 0)


@numberings.register("grid")
class Grid(TaskNumbering):
    """Numbers the cells of a grid by row and column, from 1, as the task places them; marks outside it get (0, 0).
    Vision Transformer, Dosovitskiy et al. (2021), arXiv:2010.11929, §3.2.

        position of a cell = (row, column)                                  extent = null
        position of a cell = ((row, column) − ½) · extent / side + ½        otherwise

    Args:
        extent: rows and columns that every grid is spread over, whatever its own, at least 1, so that a finer grid
            keeps the positions of the coarse one it was trained on: the interpolation of the paper. null: cells count.

    Departures: the paper interpolates learned vectors; here positions, for every encoder.
    """

    axes = 2

    def __init__(self, *, extent: int | None = None) -> None:
        self.extent = None if extent is None else whole("grid extent", extent, at_least=1)

    def evaluate(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        places = super().evaluate(batch_size, length, generator)
        if self.extent is not None:
            spread = (places - 0.5) * self.extent / places.amax(0) + 0.5
            places = torch.where(places > 0, spread, places)
        return places.unsqueeze(0)


@numberings.register("segments")
class Segments(TaskNumbering):
    """Numbers the segments of a text and the tokens within each; a segment ends with a delimiter that the task names.
    BiPE, He et al. (2024), arXiv:2401.16421.

        position = (delimiters before the token, tokens between the last of them and the token)

    A delimiter is the last token of its segment, as in the official code.

    Departures: there, delimiters are a full stop after a space and a line break; here, what the task says.
    """

    axes = 2
    plane = "segments"
    reads_tokens = True

    def read(self, tokens: Tensor, generator: Generator, *, training: bool = False) -> Tensor:
        ends = torch.isin(tokens, self.supplied(tokens.shape[-1]))
        before = ends.cumsum(-1) - ends.long()
        index = torch.arange(tokens.shape[-1])
        first = torch.where(before.diff(dim=-1, prepend=before[:, :1]) > 0, index, 0).cummax(-1).values
        return torch.stack([before, index - first], -1).float()

    def evaluate(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        raise Unsupported("segments follows from tokens, and here there are only their places")

    def highest(self, length: int) -> float:
        return length - 1
