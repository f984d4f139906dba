"""Learned tables: rows looked up by position or by distance."""

import torch
from torch import Tensor
from torch.nn import functional

from pe_zoo._encoder import Unsupported
from pe_zoo._knobs import whole


def enough_rows(owner: str, num_rows: int, train_length: int) -> int:
    """The number of rows, if there is one for each position of the training length."""
    whole(f"{owner} num_rows", num_rows, at_least=1)
    if num_rows < train_length:
        raise ValueError(
            f"{owner} has num_rows={num_rows}, too few for the {train_length} positions of the "
            f"training length; set num_rows to {train_length} or more"
        )
    return num_rows


def rows_at(owner: str, table: Tensor, positions: Tensor, dtype: torch.dtype) -> Tensor:
    """The rows of positions; between two whole positions, the linear interpolation of their rows.

    Args:
        owner: who asks, for the message.
        table: ``(rows, dim)``.
        positions: ``(...)``, float.
        dtype: of the result; rows are interpolated in it.

    Returns:
        ``(..., dim)``.

    Raises:
        Unsupported: a position has no row. Where that cannot be seen (under vmap), its row is NaN.
    """
    last = len(table) - 1
    below = positions.floor()
    share = (positions - below).unsqueeze(-1).to(dtype)
    known = (positions >= 0) & (positions <= last)
    _refuse_unknown(owner, last, positions, known)
    row, next_row = (
        functional.embedding(whole_positions.long().clamp(0, last), table).to(dtype)
        for whole_positions in (below, positions.ceil())
    )
    return torch.where(known.unsqueeze(-1), torch.lerp(row, next_row, share), torch.nan)


def _refuse_unknown(owner: str, last: int, positions: Tensor, known: Tensor) -> None:
    try:
        missing = not bool(known.all())
    except RuntimeError:
        return  # vmap over positions can take no branch: there, a row that does not exist is NaN
    if missing:
        raise Unsupported(
            f"{owner} has rows for positions 0 to {last}; positions from "
            f"{positions.min().item():g} to {positions.max().item():g} were asked for. "
            f"Set num_rows higher before training"
        )


def pick(products: Tensor, rows: Tensor) -> Tensor:
    """Of each product with all rows of a table, those with the rows asked for.

    Cheaper by far than the rows themselves: no tensor of (query, key, dim) is made.

    >>> pick(torch.tensor([[10.0, 11.0, 12.0]]), torch.tensor([[2, 0]]))
    tensor([[12., 10.]])

    Args:
        products: ``(batch, heads, query, rows)``.
        rows: ``(query, key)`` or ``(batch, 1, query, key)``, int64.

    Returns:
        ``(batch, heads, query, key)``.
    """
    return products.gather(-1, rows.expand(*products.shape[:-1], rows.shape[-1]))


def heads_first(bias: Tensor) -> Tensor:
    """Biases of each distance, ``(query, key, heads)`` or ``(batch, 1, query, key, heads)``, in the order of scores."""
    return (bias.squeeze(1) if bias.ndim == 5 else bias).movedim(-1, -3)
