"""Learned tables: rows looked up by position, by distance or by bucket of distances."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from pe_zoo._encoder import Unsupported
from pe_zoo._knobs import whole
from pe_zoo._positions import FURTHEST, log_buckets, look_up, look_up_both_ways


class Buckets(nn.Module):
    """T5's buckets of distance: each distance its own up to half of them, then growing logarithmically.

    Args:
        owner: the encoder, for messages.
        num_buckets: a multiple of 4.
        max_distance: where the last bucket begins to saturate, above ``num_buckets / 2``; None: a quarter of
            ``train_length``, but at least ``num_buckets``.
        train_length: of the geometry.
    """

    looking_back: Tensor
    one_side: Tensor

    def __init__(self, owner: str, num_buckets: int, max_distance: int | None, train_length: int) -> None:
        super().__init__()
        if whole(f"{owner} num_buckets", num_buckets, at_least=4, at_most=FURTHEST) % 4:
            raise ValueError(
                f"{owner} num_buckets must be a multiple of 4 (two sides, half of each exact); got {num_buckets}"
            )
        if max_distance is None:
            max_distance = max(train_length // 4, num_buckets)
        whole(f"{owner} max_distance", max_distance, at_least=num_buckets // 2 + 1)
        self.num_buckets = num_buckets
        # Integer buffers, which a change of the module's dtype leaves alone.
        self.register_buffer("looking_back", log_buckets(num_buckets, max_distance), persistent=False)
        self.register_buffer("one_side", log_buckets(num_buckets // 2, max_distance), persistent=False)

    def forward(self, distance: Tensor, bidirectional: bool) -> Tensor:
        """Distances, query minus key, of any shape, to buckets, int64; half of them for each side if bidirectional."""
        if bidirectional:
            return look_up_both_ways(distance, self.one_side, self.num_buckets // 2)
        return look_up(distance, self.looking_back)


def enough_rows(owner: str, num_rows: int, train_length: int) -> int:
    """The number of rows, if there is one for each position of the training length."""
    whole(f"{owner} num_rows", num_rows, at_least=1)
    if num_rows < train_length:
        few = f"{owner} has num_rows={num_rows}, too few for the {train_length} positions of the training length"
        raise ValueError(f"{few}; set num_rows to {train_length} or more")
    return num_rows


def rows_at(owner: str, table: Tensor, positions: Tensor, dtype: torch.dtype) -> Tensor:
    """The rows of positions, ``(...)`` to ``(..., dim)`` of ``dtype``; between whole positions, interpolated.

    Raises:
        Unsupported: a position has no row. Where that cannot be seen, see `known_to_hold`, its row is NaN.
    """
    last = len(table) - 1
    below = positions.floor()
    share = (positions - below).unsqueeze(-1).to(dtype)
    known = (positions >= 0) & (positions <= last)
    if not known_to_hold(known):
        given = f"positions from {positions.min().item():g} to {positions.max().item():g} were given"
        raise Unsupported(f"{owner} has rows for positions 0 to {last}; {given}. Set num_rows higher before training")
    row, next_row = (
        functional.embedding(whole_positions.long().clamp(0, last), table).to(dtype)
        for whole_positions in (below, positions.ceil())
    )
    return torch.where(known.unsqueeze(-1), torch.lerp(row, next_row, share), torch.nan)


def known_to_hold(conditions: Tensor) -> bool:
    """Return whether all conditions hold; true where nothing can look at a value: under vmap, and recorded on a GPU."""
    if conditions.is_cuda and torch.cuda.is_current_stream_capturing():
        return True
    try:
        return bool(conditions.all())
    except RuntimeError:
        return True


def by_bucket(table: Tensor, buckets: Tensor) -> Tensor:
    """Rows of a table of few, ``(rows, heads)``, by bucket of any shape: ``(..., heads)``.

    The gradient, a sum over thousands of places for each row, is faster as an embedding's on a GPU alone.
    """
    return functional.embedding(buckets, table) if table.is_cuda else table[buckets]


def pick(products: Tensor, rows: Tensor) -> Tensor:
    """Select the products with some rows of a table, without a tensor of (query, key, dim).

    >>> pick(torch.tensor([[10.0, 11.0, 12.0]]), torch.tensor([[2, 0]]))
    tensor([[12., 10.]])

    Args:
        products: ``(batch, heads, query, rows)``.
        rows: ``(query, key)`` or ``(batch, 1, query, key)``, int64.
    """
    return products.gather(-1, rows.expand(*products.shape[:-1], rows.shape[-1]))


def heads_first(bias: Tensor) -> Tensor:
    """Biases of each distance, ``(query, key, heads)`` or ``(batch, 1, query, key, heads)``, in the order of scores."""
    return (bias.squeeze(1) if bias.ndim == 5 else bias).movedim(-1, -3)
