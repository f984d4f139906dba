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
    """Adds a trained vector per position; rows that training never reached stay as initialised. Gehring et al. (2017), arXiv:1705.03122, §3.1.

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
        share = positions.frac().unsqueeze(-1).to(x.dtype)
        try:
            return x + torch.lerp(self._rows(positions.floor()), self._rows(positions.ceil()), share)
        except IndexError as error:
            raise Unsupported(
                f"learned has rows for positions 0 to {len(self.table) - 1}; positions from "
                f"{positions.min().item():g} to {positions.max().item():g} were asked for. "
                f"Set num_rows higher before training"
            ) from error

    def _rows(self, whole_positions: Tensor) -> Tensor:
        # The lookup itself refuses rows that do not exist, without a branch on values that vmap could
        # not take. A GPU's lookup would take the whole process down instead, so there we look first.
        if whole_positions.is_cuda and not bool(((whole_positions >= 0) & (whole_positions < len(self.table))).all()):
            raise IndexError
        return functional.embedding(whole_positions.long(), self.table)
