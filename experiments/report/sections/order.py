"""What the page says of permutation sensitivity: which changes of order cost how much."""

from __future__ import annotations

import pandas as pd

from experiments.figures import words
from experiments.measures.permutation_sensitivity import measure as permutation_sensitivity
from experiments.report.page import Picture, Section, Table
from experiments.report.sections.task import MOST, OfTask, opened
from experiments.rows.row import among, main_metric, metric_of

EXPERIMENT = "permutation_sensitivity"


def section(of: OfTask) -> Section:
    """Figures and tables of what changes of order cost, layer by layer and in all."""
    section = opened("Permutation sensitivity", EXPERIMENT)
    rows = of.rows_of(EXPERIMENT)
    summary = of.with_marks(permutation_sensitivity.summarise(rows))
    drawn = of.rows_of(EXPERIMENT, drawn=MOST)
    if of.in_short:
        drawn = drawn[drawn["metric"].isin(["quality_loss", *permutation_sensitivity.DISTANCES])]
    figures = permutation_sensitivity.plot(drawn)
    errors = summary[summary["metric"].isin(["initial_equivariance_error", "equivariance_error"])]
    slopes = summary[summary["metric"].isin(permutation_sensitivity.SLOPES.values())]
    for name, caption in permutation_sensitivity.CAPTIONS.items():
        if (stem := of.stem(name)) in figures:
            data = summary[summary["metric"].str.endswith(name)] if name == "representation_change" else None
            section.parts.append(Picture(stem, caption, figures[stem], data))
        if name == "quality_loss":
            section.parts += _permutation_tables(of, rows, summary)
        if name == "sensitivity" and len(slopes):
            section.parts.append(_sensitivity_table(of, slopes))
    if len(errors):
        section.parts.append(_equivariance_table(of, errors))
    return section


def _permutation_tables(of: OfTask, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Table]:
    """Quality lost by permuted tokens, and by permuted positions where that was measured."""
    lost = summary[summary["metric"] == "quality_loss"]
    named = permutation_sensitivity.change_names
    found = dict(zip(zip(named(lost), lost["label"], strict=True), lost.to_dict("records"), strict=True))
    distances = rows[rows["metric"].isin(permutation_sensitivity.DISTANCES)]
    moved = distances.groupby(["metric", named(distances)])["value"].mean().to_dict()
    prefix = f"{permutation_sensitivity.POSITIONS}: "
    seeds = of.seeds[EXPERIMENT]
    lines: dict[bool, list[list[str]]] = {False: [], True: []}
    for change in permutation_sensitivity.order(rows):
        of_labels = [words.cell(found.get((change, label)), seeds.get(label, 0)) for label in of.order]
        if any(cell != words.NOT_MEASURED for cell in of_labels):
            far = [words.short(moved.get((metric, change))) for metric in permutation_sensitivity.DISTANCES]
            line = [change.removeprefix(prefix), *far, *of_labels]
            lines[change.startswith(prefix)].append(line)
    head = ["change of order", *(metric_of(m).label for m in permutation_sensitivity.DISTANCES)]
    head += map(of.name, of.order)
    metric = main_metric(summary["metric"].unique())
    of_what = f" of {metric_of(metric).label}" if metric else ""
    note = (
        f"Quality lost{of_what} against the untouched input: positive is worse. Mean over seeds ± half the 95 % t "
        "interval. Index displacement: mean distance moved over the length. Neighbours lost: share of adjacent "
        "pairs that no longer follow one another."
    )
    stem, tokens = of.stem("permutation_sensitivity"), pd.DataFrame(lines[False], columns=head)
    tables = [Table(stem, f"Quality lost, {of.task}", tokens, summary, note)]
    if lines[True]:
        cells, caption = pd.DataFrame(lines[True], columns=head), f"Quality lost by permuted positions, {of.task}"
        data = summary[summary["condition"].str.startswith(prefix)]
        tables.append(Table(of.stem("permuted_positions"), caption, cells, data, note))
    return tables


def _sensitivity_table(of: OfTask, slopes: pd.DataFrame) -> Table:
    """The slopes, with their interval over seeds, or over inputs where there is one seed."""
    whole = slopes[slopes["part"].isna()]
    found = {(line["metric"], line["condition"], line["label"]): line for line in whole.to_dict("records")}
    kinds = (permutation_sensitivity.TOKENS, permutation_sensitivity.POSITIONS)
    seeds = of.seeds[EXPERIMENT]
    columns = [(metric, kind) for kind in kinds for metric in permutation_sensitivity.SLOPES.values()]
    lines = []
    for label in of.order:
        cells, over = [], set()
        for metric, kind in columns:
            line = found.get((metric, kind, label))
            cells.append(words.cell(line, seeds.get(label, 0)))
            if line is not None and line["interval_over"]:
                over.add(line["interval_over"])
                if line["interval_over"] == "inputs":
                    cells[-1] += f" ± {line['half_width']:.3f}"
        if any(cell != words.NOT_MEASURED for cell in cells):
            lines.append([of.name(label), *cells, " and ".join(sorted(over))])
    head = ["label", *(f"{metric_of(metric).label}, {kind}" for metric, kind in columns), "interval over"]
    note = (
        "Quality lost per unit of distance ± half the 95 % t interval. Over seeds the interval holds for other "
        "trainings and other inputs; over inputs, eight parts of one seed's, it says nothing of other trainings."
    )
    cells_frame = pd.DataFrame(lines, columns=head)
    return Table(of.stem("order_sensitivity"), f"Sensitivity to order, {of.task}", cells_frame, slopes, note)


def _equivariance_table(of: OfTask, summary: pd.DataFrame) -> Table:
    found = {(line["metric"], line["condition"], line["label"]): line for line in summary.to_dict("records")}
    conditions = among(permutation_sensitivity.LAYERED, summary["condition"])
    stages = {"initial_equivariance_error": "at initialisation", "equivariance_error": "trained"}
    seeds = of.seeds[EXPERIMENT]
    columns = [(metric, condition) for condition in conditions for metric in stages]
    lines = [
        [
            of.name(label),
            *(words.cell(found.get((*column, label)), seeds.get(label, 0), words.short) for column in columns),
        ]
        for label in of.order
        if any((*column, label) in found for column in columns)
    ]
    note = (
        "Whether permuting the input's tokens merely permutes the outputs: about 1e-7 (rounding) where it does, "
        "which is a model that cannot see order. A causal mask sees order even without an encoder."
    )
    head = ["label", *(f"{condition}, {stages[metric]}" for metric, condition in columns)]
    cells = pd.DataFrame(lines, columns=head)
    return Table(of.stem("equivariance_error"), f"Equivariance error, {of.task}", cells, summary, note)
