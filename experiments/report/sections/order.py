"""Permutation sensitivity: the quality lost by each change of order, and the equivariance error."""

from functools import partial
from itertools import islice
from typing import Any

import pandas as pd

from experiments.figures import words
from experiments.measures import permutation_sensitivity
from experiments.measures.permutation_sensitivity import report as permutation_report
from experiments.measures.permutation_sensitivity.report import change_names, order
from experiments.report import drawing
from experiments.report.page import Block, Cell, Picture, Section, Table, heat
from experiments.report.sections.task import TaskResults, opening
from experiments.rows.row import among, is_share, main_metric, metric_of

EXPERIMENT = "permutation_sensitivity"
STAGES = {"initial_equivariance_error": "at initialisation", "equivariance_error": "trained"}


def on_the_index(task: TaskResults) -> list[Section]:
    """Return what each change of order costs each series of a task, as a map: the gentlest change first."""
    rows = task.rows_of(EXPERIMENT)
    lost = rows[(rows["metric"] == "quality_loss") & (rows["status"] == "ok") & rows["part"].isna()]
    lost = lost.assign(change=change_names(lost))
    means = lost.pivot_table(index="change", columns="series", values="value", aggfunc="mean")
    if means.empty:
        return []
    share, names = is_share(task.metric), [series for series in task.coloured if series in means.columns]
    most = max(float(means.max().max()), 1e-9)
    lines = []
    for change in (change for change in order(rows) if change in means.index and not change.startswith("positions")):
        values = means.loc[[change], names].to_numpy(dtype=float)[0]
        texts = [words.fixed(100 * value, ".0f") if share else words.fixed(value) for value in values]
        cells = [Cell(text or "–", heat(value / most)) for text, value in zip(texts, values, strict=True)]
        lines.append((change, "", cells))
    whole = means[names].T["shuffle"].dropna().sort_values() if "shuffle" in means.index else pd.Series(dtype=float)
    ends = [f"{series} loses {100 * value:.0f} points" for series, value in whole.items()] if share else []
    finding = [f"With its input shuffled, {ends[-1]} on {task.key}, and {ends[0]}."] if len(ends) > 1 else []
    if finding and task.asked and task.baseline and task.baseline in whole:  # of which the page was asked
        rest = " to ".join(dict.fromkeys(f"{100 * loss:.0f}" for loss in whole.drop(task.baseline).iloc[[0, -1]]))
        at = f"{task.baseline} loses {100 * whole[task.baseline]:.0f} points on {task.key}"
        finding = [f"With its input shuffled, {at}, the others {rest}."]
    unit = "percentage points" if share else "bits"
    given: dict[str, Any] = {"corner": "change of order", "caption": f"Quality lost on {task.key}, {unit}"}
    given |= {"lines": lines, "series": [(series, drawing.css(task.kind_of(series))) for series in names]}
    given["note"] = f"Quality lost in {unit}, mean over seeds, at the training length; tokens change places."
    if len(names) < len(means.columns):
        given["note"] += f" Shown: {words.listed(names)}, of {len(means.columns)}."
    stem = task.stem("permutation_sensitivity")
    return [Section("Order", finding, [Block("map", given | {"stem": stem})])]


def section(task: TaskResults) -> Section:
    """Make the section: figures, and tables of quality lost, of its slopes and of the equivariance error."""
    section = opening("Permutation sensitivity", EXPERIMENT, task.results)
    rows = task.rows_of(EXPERIMENT)
    summary = task.with_marks(permutation_report.summarise(rows))
    figures = permutation_report.plot(task.rows_of(EXPERIMENT, drawn=True))
    slopes = summary[summary["metric"].isin(permutation_sensitivity.SLOPES.values())]
    errors = summary[summary["metric"].isin(STAGES)]
    for stem, figure in islice(figures.items(), 1 if task.first_figure_only else None):
        name = stem.removeprefix(task.stem(""))
        data = summary[summary["metric"].str.endswith(name)] if name == "representation_change" else None
        section.parts.append(Picture(stem, figure.caption, figure, data))
    section.parts += _permutation_tables(task, rows, summary)
    if len(slopes):
        section.parts.append(_sensitivity_table(task, slopes))
    if len(errors):
        section.parts.append(_equivariance_table(task, errors))
    return section


def _permutation_tables(task: TaskResults, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Table]:
    changes = order(rows)
    prefix = f"{permutation_sensitivity.POSITIONS}: "
    # Shuffled pieces of one token are a shuffle, drawn a second time.
    lost = summary[(summary["metric"] == "quality_loss") & (summary["size"].fillna(0) != 1)]
    lost = lost.assign(change=change_names(lost))
    cells = task.grid(lost, ["change"], {name: name for name in changes}, EXPERIMENT).set_index("series").T
    cells = cells.reindex(columns=list(map(task.display, task.order)), fill_value=words.NOT_MEASURED)
    cells = cells[(cells != words.NOT_MEASURED).any(axis=1)]
    for metric in reversed(permutation_sensitivity.DISTANCES):
        of_metric = rows[rows["metric"] == metric]
        moved = of_metric.groupby(change_names(of_metric))["value"].mean()
        cells.insert(0, metric_of(metric).label, [words.fixed(moved.get(name), ".3g") for name in cells.index])
    cells.insert(0, "change of order", [name.removeprefix(prefix) for name in cells.index])
    main = main_metric(summary["metric"].unique())
    note = (
        f"Drop in {metric_of(main).label if main else 'quality'} from the unchanged input; positive is worse. "
        f"{task.means} Index displacement: mean distance moved, as a share of the length. Neighbours lost: share of "
        "adjacent pairs that are parted."
    )
    positions = cells.index.str.startswith(prefix)
    stem, caption = task.stem("permutation_sensitivity"), f"Quality lost, {task.key}"
    tables = [Table(stem, caption, cells[~positions], summary, note)]
    if positions.any():
        data = summary[summary["condition"].str.startswith(prefix)]
        caption = f"Quality lost by permuted positions, {task.key}"
        tables.append(Table(task.stem("permuted_positions"), caption, cells[positions], data, note))
    return tables


def _sensitivity_table(task: TaskResults, slopes: pd.DataFrame) -> Table:
    kinds = (permutation_sensitivity.TOKENS, permutation_sensitivity.POSITIONS)
    metrics = permutation_sensitivity.SLOPES.values()
    heads = {(metric, kind): f"{metric_of(metric).label}, {kind}" for kind in kinds for metric in metrics}
    whole = slopes[slopes["part"].isna()]
    cells = task.grid(whole, ["metric", "condition"], heads, EXPERIMENT)
    over = whole.groupby("series")["interval_over"].agg(lambda kinds: " and ".join(sorted(set(kinds) - {""})))
    cells["interval over"] = cells["series"].map({task.display(series): kinds for series, kinds in over.items()})
    note = (
        "Quality lost per unit of distance [95 % interval]. An interval over inputs, from eight parts of "
        "the inputs of one seed, does not cover other trainings."
    )
    return Table(task.stem("order_sensitivity"), f"Sensitivity to order, {task.key}", cells, slopes, note)


def _equivariance_table(task: TaskResults, summary: pd.DataFrame) -> Table:
    conditions = among(permutation_sensitivity.LAYERED, summary["condition"])
    heads = {(metric, name): f"{name}, {stage}" for name in conditions for metric, stage in STAGES.items()}
    cells = task.grid(summary, ["metric", "condition"], heads, EXPERIMENT, partial(words.fixed, written=".3g"))
    note = (
        "Whether permuting the tokens merely permutes the outputs: about 1e-7 (rounding) for a model that cannot see "
        "order. A causal mask sees order even without an encoder."
    )
    return Table(task.stem("equivariance_error"), f"Equivariance error, {task.key}", cells, summary, note)
