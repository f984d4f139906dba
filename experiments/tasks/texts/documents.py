"""Tokens of a text, and windows of them that never cross the end of a document."""

from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor


@dataclass(frozen=True, eq=False)
class Documents:
    """One split of a corpus: all tokens, ``(total,)``, of any type of whole numbers, and how many each document has."""

    tokens: Tensor
    sizes: Tensor
    _windows: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def longest(self) -> int:
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

    def stretches(self, total: int, length: int, size: int, generator: Generator) -> Tensor:
        """Cut ``total`` tokens into windows, ``(windows, length)``, from stretches of ``size`` drawn over the whole
        split.

        The split is divided into as many equal parts as stretches are needed, and each part has one, decided by the
        generator's state, whatever the length. Where the documents have fewer stretches, all are taken, and then the
        longest of their rests. The end of a stretch that fills no window is left out; at least one window is cut.
        """
        counts = -(-self.sizes // size)
        begins = torch.arange(int(counts.sum())) - (counts.cumsum(0) - counts).repeat_interleave(counts)
        begins = self._begins.repeat_interleave(counts) + size * begins
        sizes = (self.sizes.cumsum(0).repeat_interleave(counts) - begins).clamp(max=size)
        sizes, order = sizes.sort(descending=True, stable=True)
        whole = int((sizes == size).sum())
        parts = min(-(-total // size), whole)
        edges = torch.arange(parts + 1) * whole // max(1, parts)
        drawn = edges[:-1] + (torch.rand(parts, generator=generator) * edges.diff()).long()
        chosen = torch.cat([drawn, torch.arange(whole, len(sizes))])
        sizes, begins = sizes[chosen], begins[order[chosen]]
        windows = torch.minimum(sizes, (total - (sizes.cumsum(0) - sizes)).clamp(min=0)) // length
        windows[0].clamp_(min=1)
        place = torch.arange(int(windows.sum())) - (windows.cumsum(0) - windows).repeat_interleave(windows)
        return self.tokens[(begins.repeat_interleave(windows) + length * place).unsqueeze(1) + torch.arange(length)]
