import torch
from torch import Tensor, nn

from pe_zoo import Encoder, Geometry, register
from pe_zoo._knobs import number, whole
from pe_zoo._positions import even_width
from pe_zoo._tables import rows_at


@register("learned_2d")
class Learned2D(Encoder):
    """Adds a learned vector of the column to one half of the channels, of the row to the other.
    Vision Transformer, Dosovitskiy et al. (2020), arXiv:2010.11929, §3.1; DETR, Carion et al. (2020), arXiv:2005.12872.

        x += (columns[column], rows[row])

    Args:
        num_rows: rows of each table, at least 1; 256, for grids of up to 255 a side (50 in DETR's code). Places beyond
            ``num_rows`` − 1 are unsupported.
        init_std: standard deviation of the vectors at the start, above 0; 1.0, the scale of the token embeddings here.

    Departures: a place between two whole numbers gets the linear interpolation of their rows, as when the paper
    fine-tunes at another resolution: ``positions.extent``.
    """

    axes = 2
    family = "input"
    direction_aware = True

    def __init__(self, geometry: Geometry, *, num_rows: int = 256, init_std: float = 1.0) -> None:
        super().__init__(geometry)
        even_width("learned_2d", geometry.model_dim)
        self.max_length = whole("learned_2d num_rows", num_rows, at_least=1)
        self.columns, self.rows = (nn.Parameter(torch.empty(num_rows, geometry.model_dim // 2)) for _ in range(2))
        for table in (self.columns, self.rows):
            nn.init.normal_(table, std=number("learned_2d init_std", init_std, above=0))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        row, column = self.coordinates(positions)
        tables = ((self.columns, column), (self.rows, row))
        return x + torch.cat([rows_at("learned_2d", table, along, x.dtype) for table, along in tables], -1)
