import torch
from torch import Tensor, nn

from pe_zoo import Encoder, Geometry, register
from pe_zoo._knobs import number
from pe_zoo._tables import enough_rows, rows_at


@register("learned")
class Learned(Encoder):
    """Adds a learned vector per position to the token embeddings; rows never trained stay as initialised.
    Gehring et al. (2017), arXiv:1705.03122, §3.1.

        x[p] += table[p]

    Args:
        num_rows: positions the table has, at least ``train_length``; 2048 as in GPT-Neo and Kazemnejad et al. (512 in
            BERT, 1024 in GPT-2). Positions beyond ``num_rows`` − 1 are unsupported.
        init_std: standard deviation of the rows at the start, above 0; 1.0, the scale of the token embeddings here (in
            BERT and GPT-2 both are 0.02).

    Departures: a position between two whole numbers gets the linear interpolation of their rows.
    """

    family = "input"
    direction_aware = True

    def __init__(self, geometry: Geometry, *, num_rows: int = 2048, init_std: float = 1.0) -> None:
        super().__init__(geometry)
        self.max_length = enough_rows("learned", num_rows, geometry.train_length)
        self.table = nn.Parameter(torch.empty(num_rows, geometry.model_dim))
        nn.init.normal_(self.table, std=number("learned init_std", init_std, above=0))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + rows_at("learned", self.table, positions, x.dtype)
