import math
import re
from typing import Any

import torch
from torch import Generator, Tensor

from experiments.tasks import Batch, Placed, Task, shuffles, tasks
from experiments.tasks.text import Text
from pe_zoo import Unsupported
from pe_zoo._knobs import one_of, whole

MARKS = b"\n", b"@", b"="
"""That a line of the corpus never has in this order: of Python, an assignment to a decorator."""
FORMS = ("keys", "queries", "values", "tracing")
WORD, LETTER = re.compile(rb" ?[a-z]{3,}"), re.compile(rb"[a-z]")
FEWEST_WORDS, MOST_WORDS = 64, 1024
"""Words that keys and values are made of; with fewer in the vocabulary, letters."""


@tasks.register("needles")
class Needles(Task):
    """Find lines that were put into real text: ``… @ab=cd … @ef=gh … @ab=`` to ``cd``. Retrieval from natural text.

        tokens   ^ d e f ↵ @ a b = c d ↵   r e t u r n ↵ @ a b = c
        targets  .               …                           . c d

    Length counts tokens, those of needles and question included. Needles stand anywhere in text that was not trained
    on; keys and values are uniform, and no two keys begin alike. Needle in a haystack in the forms of RULER, Hsieh et
    al. (2024), arXiv:2404.06654, §3, made here: ``keys``: one of several needles is asked for (of one needle, the
    plain form); ``queries``: as many of them as are not, one after the other; ``values``: all values of one key, in the
    order of the text, beside as many of another; ``tracing``: ``@ab=vw``, ``@cd=ab``, …, and for ``=vw`` all names that
    lead to it, ``@ab@cd``, beside another chain. Departures: RULER's needles are English sentences with numbers, its
    models are told what to do and answer in any order.

    Chance: 1 / the words or letters that keys and values are made of (26 of bytes) a token.

    Args:
        train_length: tokens of the longest training sequence.
        min_length: tokens of the shortest one; null: as many as needles and question need. With long sequences alone
            no model learned to find a needle.
        form: ``keys``, ``queries``, ``values`` or ``tracing``.
        num_needles: needles in the text of ``keys``; needles that the answer needs of the others; at least 1.
        num_letters: tokens of a key, and of a value, at least 1.
        path: a file or folder of text instead of Python's library, as in the task ``text``.
        dataset: a data set instead, as there.
        tokenizer: ``bytes``, ``bpe`` or that of another model, as there.
    """

    own_split = True

    def __init__(
        self,
        *,
        train_length: int = 128,
        min_length: int | None = None,
        form: str = "keys",
        num_needles: int = 2,
        num_letters: int = 2,
        path: str | None = None,
        dataset: str | None = None,
        tokenizer: str = "bytes",
    ) -> None:
        self.form = one_of("task.form", form, FORMS)
        whole("task.num_needles", num_needles, at_least=1)
        self.num_letters = whole("task.num_letters", num_letters, at_least=1)
        self.groups, self.needles = (num_needles, 1) if form == "keys" else (2, num_needles)
        self.text = Text(train_length=train_length, path=path, dataset=dataset, tokenizer=tokenizer)
        self.vocab_size, spelled = self.text.vocab_size, self.text.spelled
        if missing := [mark.decode() for mark in MARKS if mark not in spelled]:
            raise ValueError(f"task.tokenizer={tokenizer!r} has no token {missing[0]!r}, which needles are made with")
        self._marks = [spelled.index(mark) for mark in MARKS]
        words, letters = ([n for n, token in enumerate(spelled) if kind.fullmatch(token)] for kind in (WORD, LETTER))
        self._pool = torch.tensor(words[:MOST_WORDS] if len(words) >= FEWEST_WORDS else letters)
        self.num_answers = len(self._pool)
        self._names = {"values": 1, "tracing": num_needles + 1}.get(form, self.needles)
        if self.groups * self._names > self.num_answers:
            most = f"there are {self.num_answers} to begin keys with, none twice"
            raise ValueError(f"task.num_needles={num_needles} takes {self.groups * self._names} keys: {most}; lower it")
        unasked = 1 if form == "tracing" else 3 + num_letters
        asked = [*[False] * unasked, *[True] * num_letters] * self.needles
        self._counted = torch.tensor([False] * (2 + num_letters) * (form == "tracing") + asked)
        self._lines = self.groups * self.needles * (4 + 2 * num_letters)
        self.shortest = self._lines + len(self._counted) + 1  # type: ignore[misc]  # needles and question need room
        self.set_lengths(train_length, self.shortest if min_length is None else min_length)

    @classmethod
    def data_sha256(cls, **knobs: Any) -> str:
        return Text.data_sha256(**knobs)

    def provenance(self) -> dict[str, Any] | None:
        return self.text.provenance()

    def sequence_length(self, length: int) -> int:
        return length

    def answer_size(self, length: int) -> int:
        return self.needles * self.num_letters

    def position_guess(self, metric: str, length: int) -> float:
        if metric == "exact_match" and self.form == "tracing":  # no two names begin alike
            rest = self.num_answers ** -float(self.needles * (self.num_letters - 1))
            return rest / math.perm(self.num_answers, self.needles)
        return self.chance(metric, length)

    def numbers(self, kind: str, size: int, *, causal: bool) -> Tensor:
        """Return, of ``segments``, the tokens that end one in the text; others there are none."""
        if kind != "segments":
            return super().numbers(kind, size, causal=causal)
        return self.text.numbers(kind, size, causal=causal)

    def input_span(self, length: int) -> slice:
        return slice(1, 1 + length - len(self._counted))

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        self.check_causal(causal)
        return self._posed(self._gaps(batch_size, length, generator), length, generator, split).batch

    def places(self, length: int) -> int:
        self.check_length(length)
        return length - self.shortest + 2

    def placed(
        self, place: int, batch_size: int, length: int, generator: Generator, *, causal: bool, other: int | None = None
    ) -> Placed:
        """Draw questions all of whose evidence stands together at a place; the distractor is another key, or chain."""
        self.check_causal(causal)
        gaps = self._gaps(batch_size, length, generator)
        gaps[:, 0] = place
        if other is None:
            return self._posed(gaps, length, generator, "test")._replace(decoys=None)
        if self.groups < 2:
            raise Unsupported(f"task={self.name} with one needle has no other in its stead; raise task.num_needles")
        gaps[:, 1] = other
        return self._posed(gaps, length, generator, "test")

    def _gaps(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        """Draw before which token of the text each needle stands, ``(batch, groups, needles)``."""
        drawn = torch.randint(self.places(length), (batch_size, self.groups, self.needles), generator=generator)
        return drawn if self.form == "queries" else drawn.sort(-1).values

    def _posed(self, gaps: Tensor, length: int, generator: Generator, split: str) -> Placed:
        room, text = self.places(length) - 1, self.text.splits[split]
        if room > text.longest:
            raise Unsupported(f"needles: {room} tokens of text are more than the {split} text has, {text.longest}")
        drawn = text.draw(len(gaps), room, generator).long()
        keys, values = self._pairs(len(gaps), generator)
        line, at, is_ = (torch.full_like(keys[..., :1], mark) for mark in self._marks)
        haystack = inserted(drawn, torch.cat([line, at, keys, is_, values, line], -1).flatten(1, 2), gaps.flatten(1))
        if self.form == "tracing":
            opening = torch.cat([line, is_, values], -1)[:, :, 0]
            questions = torch.cat([opening, torch.cat([at, keys], -1).flatten(2)], -1)
        else:
            questions = torch.cat([line, at, keys, is_, values], -1).flatten(2)
        begin = torch.full_like(drawn[:, :1], self.text.begin)
        both = questions[:, 0], questions[:, min(1, self.groups - 1)]
        targets, decoys = (torch.cat([haystack, question], 1) for question in both)
        counted = torch.cat([torch.zeros(length - len(self._counted), dtype=torch.bool), self._counted])
        return Placed(Batch(torch.cat([begin, targets[:, :-1]], 1), targets, counted), decoys)

    def _pairs(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw keys and values, each ``(batch, groups, needles, num_letters)``."""

        def words(count: int, letters: int) -> Tensor:
            size = batch_size, self.groups, count, letters
            return self._pool[torch.randint(self.num_answers, size, generator=generator)]

        first = self._pool[shuffles(batch_size, self.num_answers, generator)[:, : self.groups * self._names]]
        names = torch.cat([first.view(batch_size, self.groups, -1, 1), words(self._names, self.num_letters - 1)], -1)
        if self.form == "tracing":  # of each name the value is the one before; of the first, a name of nothing
            return names[:, :, 1:], names[:, :, :-1]
        return names.expand(-1, -1, self.needles, -1), words(self.needles, self.num_letters)


def inserted(text: Tensor, needles: Tensor, gaps: Tensor) -> Tensor:
    """Put needles, ``(batch, number, size)``, before tokens of texts, ``(batch, length)``, each after ``gaps`` of them.

    Needles at the same gap keep their order.
    """
    batch_size, length = text.shape
    inside = torch.arange(needles[0].numel(), dtype=torch.float64).view(needles.shape[1:]) / needles[0].numel()
    where = (gaps.unsqueeze(-1) + inside / 2).flatten(1)
    order = torch.cat([(torch.arange(length, dtype=torch.float64) + 0.5).expand(batch_size, -1), where], 1).argsort(-1)
    return torch.cat([text, needles.flatten(1)], 1).gather(1, order)
