"""The changes of order in rows: their names, and their order by how much they change."""

from __future__ import annotations

from functools import cache

import pandas as pd

from experiments.measures.permutation_sensitivity import DISTANCES, Change


def change_names(rows: pd.DataFrame) -> list[str]:
    """The change of order of each row in words, see `Change`; blank where there was none."""
    columns = (rows[column].astype(object).where(rows[column].notna(), None) for column in Change._fields)
    names = cache(lambda cells: Change(*cells).name)
    return [names(cells) for cells in zip(*columns, strict=True)]


def order(rows: pd.DataFrame) -> list[str]:
    """The changes of order, the gentlest first: by the neighbours lost, then by how far tokens move."""
    distances = rows[rows["metric"].isin(DISTANCES) & (rows["condition"] != "")]
    distances = distances.assign(change=change_names(distances))
    table = distances.pivot_table(index="change", columns="metric", values="value", aggfunc="mean")
    table = table.reindex(columns=["neighbours_lost", "index_displacement"]).sort_values(
        ["neighbours_lost", "index_displacement"]
    )
    known = [str(change) for change in table.index]
    others = set(change_names(rows[rows["metric"].isin(["quality_loss", "output_change"])]))
    return [*known, *sorted(others - {"", *known})]
