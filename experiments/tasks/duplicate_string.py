"""Say a word twice without being shown any of it again."""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.tasks.kinds.chomsky import Blanks
from experiments.tasks.kinds.task import tasks


@tasks.register("duplicate_string")
class DuplicateString(Blanks):
    """Say a random word twice, at blanks: ``0 1 _ _ _ _`` to ``0 1 0 1``. Retrieval at two distances, told by length.

        tokens    ^ 0 1 _ _ _ _
        targets   . . . 0 1 0 1

    Delétang et al. (2023), arXiv:2207.02098, as Ruoss et al. (2023), arXiv:2305.16843, train encoders on it; there
    without ``^``. A context-sensitive task.

    Chance: ``1 / num_symbols`` a symbol, ``num_symbols ** -(2 * length)`` an answer. Place alone: 0.5 and 1.53e-05 at
    length 16.

    Args:
        train_length: longest word trained on, at least 1; 40 published, 16 here for quick training.
        min_length: shortest word trained on, between 1 and ``train_length``.
        num_symbols: alphabet, at least 2; 2 as published.
    """

    def answer(self, word: Tensor) -> Tensor:
        return word.repeat(1, 2)

    def answer_length(self, length: int) -> int:
        return 2 * length

    def numbers(self, kind: str, size: int, *, causal: bool) -> Tensor:
        """Both copies have the word's numbers if ``coupled``; ``abacus`` counts through the two."""
        word = torch.arange(1, (size - 1) // 3 + 1)
        answers = {"coupled": word.repeat(2), "abacus": torch.arange(1, 2 * len(word) + 1)}
        if kind not in answers:
            return super().numbers(kind, size, causal=causal)
        return torch.cat([torch.zeros(1, dtype=torch.long), word, answers[kind]])

    def position_guess(self, metric: str, length: int) -> float:
        """Any word twice: whoever knows the task does not guess the second half."""
        return float(self.num_symbols) ** -length if metric == "exact_match" else self.chance(metric, length)
