"""Attention temperature: laws by which a query that sees more keys has its scores sharpened."""

import math

import torch
from torch import Tensor, nn

from pe_zoo import Geometry

LOG_N = "log_n"
SCALABLE_SOFTMAX = "scalable_softmax"
LLAMA4 = "llama4"
INKLING = "inkling"
MISTRAL_LARGE4 = "mistral_large4"
LAWS = (INKLING, LLAMA4, LOG_N, MISTRAL_LARGE4, SCALABLE_SOFTMAX)
STEPPED = (INKLING, LLAMA4)
"""Laws that have a floor."""


class Temperature(nn.Module):
    """Multiplies each query of a layer by a factor that grows with n, the number of keys it may see.

        log_n               ln n / ln train_length
        scalable_softmax    s[head] · ln n
        llama4              1 + 0.1 · ln(1 + ⌊n / floor⌋)
        inkling             1 + 0.1 · ln(max(n / floor, 1))
        mistral_large4      s[head] · ln n + b[head]

    ``log_n``: Chiang & Cholak (2022), arXiv:2202.12172, divided by its value at the training length.
    ``scalable_softmax``: SSMax, Nakanishi (2025), arXiv:2501.19399, without its variants; s is trained, one for each
    layer and head, outside weight decay, and starts where the mean factor of a training sequence is 1.
    ``llama4``, ``inkling``, ``mistral_large4``: as in those models, where n is the place of the query counted from 1,
    as it is here without windows. The s and b of the last are trained as above, from 0 and 1: no factor.

    A query's factor reaches whatever is computed from the query, not biases that an encoder adds to the scores; that of
    ``inkling`` multiplies scores as the encoder leaves them, biases too.

    Args:
        law: one of ``LAWS``.
        geometry: of the model.
        floor: of ``llama4``, keys to a step; of ``inkling``, from which on it grows; None: the training length.
    """

    def __init__(self, law: str, geometry: Geometry, *, floor: int | None = None) -> None:
        super().__init__()
        longest = self.train_length = max(geometry.train_length, 2)  # ln 1 = 0 is no scale
        self.law = law
        self.floor = floor or geometry.train_length
        if law == SCALABLE_SOFTMAX:
            mean = sum(math.log(n) for n in range(1, longest + 1)) / longest
            self.s = nn.Parameter(torch.full((geometry.num_heads,), 1 / mean))
        elif law == MISTRAL_LARGE4:
            self.s = nn.Parameter(torch.zeros(geometry.num_heads))
            self.b = nn.Parameter(torch.ones(geometry.num_heads))

    @property
    def on_scores(self) -> bool:
        """Whether factors are of scores as the encoder leaves them, rather than of queries."""
        return self.law == INKLING

    def forward(self, mask: Tensor) -> Tensor:
        """Return factors for a mask of ``(query, key)`` or ``(1, heads, query, key)``: ``(…, query, 1)``."""
        seen = mask.sum(-1).float()
        if self.law == LLAMA4:
            factor = 1 + 0.1 * torch.log1p((seen / self.floor).floor())
        elif self.law == LOG_N:
            factor = seen.log() / math.log(self.train_length)
        elif self.law == INKLING:
            factor = 1 + 0.1 * (seen / self.floor).clamp(min=1).log()
        elif self.law == MISTRAL_LARGE4:
            factor = self.s.unsqueeze(-1) * seen.log() + self.b.unsqueeze(-1)
        else:
            factor = self.s.unsqueeze(-1) * seen.log()
        return factor.unsqueeze(-1)
