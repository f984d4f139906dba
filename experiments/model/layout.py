"""Layouts: which layers carry the encoder, and how far each layer and head sees."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from pe_zoo import Geometry
from pe_zoo._knobs import number, one_of, some, whole

ALL = "all"
CARRYING = "carrying"
SKIPPING = "skipping"


@dataclass(kw_only=True)
class Layout:
    """Which layers carry the encoder, and how far each layer and head sees.

    Windows count places in the sequence, whatever the positions are. Where two restrictions meet, both hold.

    Args:
        skip_every: one layer of every n goes without the encoder's per-layer hooks, n at least 2; None: all carry it.
        skip_at: which one of every n, counted from 1; None: the last.
        window: keys a query can see to each side, itself included, at least 1; None: all.
        window_share: the window as a share of the training length, rounded up, in (0, 1]; None: as ``window`` says.
        windows: a window for each of a cycle of layers, a share of the training length or null for none; the last layer
            has the last entry. None: as the two above say.
        window_on: which layers have the window: ``all``, or ``carrying`` (those that carry the encoder).
        masked_heads: how many heads of every layer are masked: head i of them, counted from 0, sees i + 1 keys. The
            others are free, and one must be; None: all are free.
    """

    skip_every: int | None = None
    skip_at: int | None = None
    window: int | None = None
    window_share: float | None = None
    windows: list[float | None] | None = None
    window_on: str = ALL
    masked_heads: int | None = None

    def check(self, num_layers: int, num_heads: int) -> None:
        """Refuse values out of range, and a layout that could not show in a model of these sizes."""
        self._check_skips(num_layers)
        self._check_windows()
        if self.masked_heads is not None and whole("layout.masked_heads", self.masked_heads, at_least=1) >= num_heads:
            remedy = f"set model.num_heads={self.masked_heads + 1} or more, or layout.masked_heads lower"
            raise ValueError(f"layout.masked_heads={self.masked_heads} leaves none of {num_heads} heads free; {remedy}")

    def _check_skips(self, num_layers: int) -> None:
        if self.skip_every is None:
            if self.skip_at is not None:
                raise ValueError(f"layout.skip_at={self.skip_at} changes nothing without layout.skip_every; set both")
            return
        whole("layout.skip_every", self.skip_every, at_least=2)
        if self.skip_at is not None and whole("layout.skip_at", self.skip_at, at_least=1) > self.skip_every:
            raise ValueError(f"layout.skip_at={self.skip_at} must be at most layout.skip_every={self.skip_every}")
        first = self.skip_at or self.skip_every
        if first > num_layers:
            useless = f"layout.skip_every={self.skip_every} changes nothing in a model of {num_layers} layers"
            raise ValueError(f"{useless}; set model.num_layers={first} or more")
        if num_layers == 1:
            raise ValueError("layout.skip_at=1 leaves no layer with the encoder; set model.num_layers=2 or more")

    def _check_windows(self) -> None:
        one_of("layout.window_on", self.window_on, (ALL, CARRYING))
        if self.window is not None:
            whole("layout.window", self.window, at_least=1)
        if self.window_share is not None:
            number("layout.window_share", self.window_share, above=0, at_most=1)
        if self.window is not None and self.window_share is not None:
            both = f"layout.window={self.window} and layout.window_share={self.window_share}"
            raise ValueError(f"{both} say the same twice; set one of them to null")
        if self.windows is not None:
            self._check_cycle(self.windows)
        unlimited = self.window is None and self.window_share is None
        if self.window_on == CARRYING and (self.skip_every is None or unlimited):
            remedy = f"set layout.skip_every and layout.window, or layout.window_on={ALL}"
            raise ValueError(
                f"layout.window_on={CARRYING} changes nothing without windows and skipped layers; {remedy}"
            )

    def _check_cycle(self, windows: list[float | None]) -> None:
        some("layout.windows", windows)
        for share in windows:
            if share is not None:
                number("layout.windows", share, above=0, at_most=1)
        if (self.window, self.window_share, self.window_on) != (None, None, ALL):
            raise ValueError(
                "layout.windows says the windows of all layers; leave layout.window, window_share, window_on out"
            )

    def carries(self, layer: int) -> bool:
        """Whether a layer, counted from 0, uses the encoder's hooks."""
        return self.skip_every is None or (layer + 1 - (self.skip_at or 0)) % self.skip_every != 0

    def seen(self, layer: int, geometry: Geometry) -> tuple[int | None, ...]:
        """Return how many keys a query sees to each side, itself included, for each head of a layer; None: all."""
        window, share = self.window, self.window_share
        if self.windows is not None:
            share = self.windows[(layer - geometry.num_layers) % len(self.windows)]
        if share is not None:
            window = math.ceil(share * geometry.train_length - 1e-9)  # 0.07 of 100 is 7, not 7.000…1
        if self.window_on == CARRYING and not self.carries(layer):
            window = None
        masked = self.masked_heads or 0
        own = [head + 1 if head < masked else None for head in range(geometry.num_heads)]
        return tuple(min((w for w in (window, head) if w is not None), default=None) for head in own)

    def __str__(self) -> str:
        changed = [f"{f.name}={getattr(self, f.name)}" for f in fields(self) if getattr(self, f.name) != f.default]
        return ", ".join(changed) or "uniform"


def visible(back: Tensor, windows: Sequence[int | None], causal: bool) -> Tensor:
    """Return the mask, true where a query may look at a key: ``(query, key)``, or ``(1, heads, query, key)``.

    ``back``, ``(query, key)``, is the place of the query minus that of the key; there is a window for each head.
    """
    mask = back >= 0 if causal else torch.ones_like(back, dtype=torch.bool)
    if len(set(windows)) > 1:
        longest = back.shape[-1]  # no key is so far away
        each = torch.tensor([longest if window is None else window for window in windows], device=back.device)
        return mask & (back.abs() < each[:, None, None]).unsqueeze(0)
    return mask if windows[0] is None else mask & (back.abs() < windows[0])
