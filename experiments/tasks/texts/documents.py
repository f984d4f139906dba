"""Tokens of a text, and windows of them that never cross the end of a document."""

from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor


@dataclass(frozen=True, eq=False)
class Documents:
    """One split of a corpus, all documents in one tensor.

    Args:
        tokens: ``(total,)``, of any type of whole numbers.
        sizes: ``(documents,)`` int64, tokens in each.
    """

    tokens: Tensor
    sizes: Tensor
    _windows: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def longest(self) -> int:
        """The number of tokens in the longest document."""
        return int(self.sizes.max()) if len(self.sizes) else 0

    @property
    def _begins(self) -> Tensor:
        return self.sizes.cumsum(0) - self.sizes

    def draw(self, count: int, length: int, generator: Generator) -> Tensor:
        """Draw ``(count, length)`` tokens; every window inside a document is as likely as any other."""
        if length not in self._windows:  # kept: there may be millions of documents
            windows = (self.sizes - length + 1).clamp(min=0)
            ends = windows.cumsum(0)
            self._windows[length] = ends, self._begins - (ends - windows)
        ends, shifts = self._windows[length]
        drawn = torch.randint(int(ends[-1]), (count, 1), generator=generator)
        starts = drawn + shifts[torch.searchsorted(ends, drawn, right=True)]
        return self.tokens[starts + torch.arange(length)]

    def neighbours(self, total: int, length: int) -> Tensor:
        """Cut ``total`` tokens into consecutive windows, ``(windows, length)``, from the longest document on.

        The end of a document that fills no window is left out. At least one window is cut.
        """
        sizes, order = self.sizes.sort(descending=True, stable=True)
        windows = torch.minimum(sizes, (total - (sizes.cumsum(0) - sizes)).clamp(min=0)) // length
        windows[0].clamp_(min=1)
        begins = self._begins[order].repeat_interleave(windows)
        place = torch.arange(len(begins)) - (windows.cumsum(0) - windows).repeat_interleave(windows)
        return self.tokens[(begins + length * place).unsqueeze(1) + torch.arange(length)]
