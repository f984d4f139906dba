"""One learned vector per position, added to the token embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from pe_zoo._encoder import Encoder, Geometry, Unsupported
from pe_zoo._knobs import number, whole
from pe_zoo._registry import register


@register("learned")
class Learned(Encoder):
    """Adds a trained vector per position; rows that training never reached stay as initialised.
    Gehring et al. (2017), arXiv:1705.03122, §3.1.

        x[p] += table[p]

    Args:
        num_rows: positions the table has, at least ``train_length``; 2048 as in GPT-Neo and Kazemnejad
            et al. (512 in BERT, 1024 in GPT-2). Position ``num_rows`` and beyond are unsupported.
        init_std: standard deviation of the rows at the start, at least above 0; 1.0, the scale of the
            token embeddings here. (BERT and GPT-2 start both at 0.02: the ratio is the same.)

    Departures: a position between two whole numbers gets the linear interpolation of their rows, so that
    fractional numberings work; whole positions are exact.
    """

    direction_aware = True

    def __init__(self, geometry: Geometry, *, num_rows: int = 2048, init_std: float = 1.0) -> None:
        super().__init__(geometry)
        whole("learned num_rows", num_rows, at_least=1)
        if num_rows < geometry.train_length:
            raise ValueError(
                f"learned has num_rows={num_rows}, too few for the {geometry.train_length} positions of the "
                f"training length; set num_rows to {geometry.train_length} or more"
            )
        self.max_length = num_rows
        self.table = nn.Parameter(torch.empty(num_rows, geometry.model_dim))
        nn.init.normal_(self.table, std=number("learned init_std", init_std, above=0))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        below = positions.floor()
        share = (positions - below).unsqueeze(-1).to(x.dtype)
        known = (positions >= 0) & (positions <= len(self.table) - 1)
        self._refuse_unknown(positions, known)
        rows, next_rows = (self._rows(whole_positions).to(x.dtype) for whole_positions in (below, positions.ceil()))
        vector = torch.lerp(rows, next_rows, share)
        return x + torch.where(known.unsqueeze(-1), vector, torch.nan)

    def _rows(self, whole_positions: Tensor) -> Tensor:
        return functional.embedding(whole_positions.long().clamp(0, len(self.table) - 1), self.table)

    def _refuse_unknown(self, positions: Tensor, known: Tensor) -> None:
        try:
            missing = not bool(known.all())
        except RuntimeError:
            return  # vmap over positions can take no branch: there, a row that does not exist is NaN
        if missing:
            raise Unsupported(
                f"learned has rows for positions 0 to {len(self.table) - 1}; positions from "
                f"{positions.min().item():g} to {positions.max().item():g} were asked for. "
                f"Set num_rows higher before training"
            )
