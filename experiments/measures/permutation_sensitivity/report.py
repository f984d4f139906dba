"""Summary, figures and tables of the effects of changes of order."""

from functools import cache, partial

import pandas as pd

from experiments.figures.panels import by_task
from experiments.figures.style import Chart, Look
from experiments.measures.permutation_sensitivity import DISTANCES, NAME, POSITIONS, SLOPES, TOKENS, Change, figures
from experiments.rows.row import rows_of
from experiments.statistics.intervals import by_measurement, half_width, with_series


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Return mean, interval and number of seeds for each series, metric and condition. See `by_measurement`.

    A sensitivity of one seed has an interval over the parts of its inputs. Column ``interval_over`` says which it is:
    ``seeds``, ``inputs``, or blank where there is none.
    """
    rows = rows_of(rows, NAME)
    table = by_measurement(rows, ("layer", "part", "size", "share"))
    table["interval_over"] = ["seeds" if low == low else "" for low in table["low"]]
    is_slope = table["metric"].isin(SLOPES.values()) & (table["seeds"] == 1) & table["part"].isna()
    folds = with_series(rows[rows["metric"].isin(SLOPES.values()) & (rows["status"] == "ok") & rows["part"].notna()])
    keys = ["task", "metric", "series", "train_length", "eval_length", "condition"]
    halves = folds.groupby(keys)["value"].agg(half_width)
    for place, line in table[is_slope].iterrows():
        if (half := halves.get(tuple(line[keys]))) is not None:
            ends = [line["mean"] - half, line["mean"] + half, "inputs"]
            table.loc[[place], ["low", "high", "interval_over"]] = [ends]
    return table


def change_names(rows: pd.DataFrame) -> list[str]:
    """Return the name of the change of order of each row, see `Change`; blank where there was none."""
    columns = (rows[column].astype(object).where(rows[column].notna(), None) for column in Change._fields)
    names = cache(lambda cells: Change(*cells).name)
    return [names(cells) for cells in zip(*columns, strict=True)]


def order(rows: pd.DataFrame) -> list[str]:
    """Return the changes of order, the gentlest first: by the neighbours lost, then by how far tokens move."""
    by = ["neighbours_lost", "index_displacement"]
    distances = rows[rows["metric"].isin(DISTANCES) & (rows["condition"] != "")]
    distances = distances.assign(change=change_names(distances))
    table = distances.pivot_table(index="change", columns="metric", values="value", aggfunc="mean")
    known = [str(change) for change in table.reindex(columns=by).sort_values(by).index]
    others = set(change_names(rows[rows["metric"].isin(["quality_loss", "output_change"])]))
    return [*known, *sorted(others - {"", *known})]


def _figures(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Chart | None]:
    rows = rows[rows["part"].isna()]
    names, prefix = pd.Series(change_names(rows), rows.index, dtype=object), f"{POSITIONS}: "
    kinds = names.str.startswith(prefix).map({True: POSITIONS, False: TOKENS})
    rows = rows.assign(kind=kinds, change=names.str.removeprefix(prefix))
    return {draw.__name__: draw(rows, looks) for draw in (figures.sensitivity, figures.representation_change)}


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that stand for the experiment in one table: two changes of order, and the sensitivities."""
    heads = {
        (metric, condition): f"{name}, {what} shuffled"
        for metric, name in (("quality_loss", "quality lost"), ("answers_changed", "answers changed"))
        for what, condition in ((TOKENS, "shuffle"), (POSITIONS, f"{POSITIONS}: shuffle"))
    }
    heads |= {(by, of): f"{by.replace('_', ' ')}, {of}" for of in (TOKENS, POSITIONS) for by in SLOPES.values()}
    rows = rows[rows["part"].isna()]
    heading = [heads.get(key) for key in zip(rows["metric"], rows["condition"], strict=True)]
    places = {head: place for place, head in enumerate(heads.values())}
    found = rows.assign(head=pd.Series(heading, rows.index, dtype=object)).dropna(subset="head")
    return found.sort_values("head", key=lambda column: column.map(places), kind="stable")


plot = partial(by_task, experiment=NAME, draw=_figures)
