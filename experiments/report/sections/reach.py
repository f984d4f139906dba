"""How far quality holds, in the report's words: a line a label, with what each number means."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd

from experiments.figures import words
from experiments.measures.length_extrapolation import measure as length_extrapolation
from experiments.report.page import Table
from experiments.rows.row import metric_of
from experiments.statistics import intervals
from experiments.statistics import reach as _reach

EVENLY = "every doubling weighing the same"


def compare(qualities: dict[str, pd.DataFrame], baselines: dict[str, str]) -> dict[str, pd.DataFrame]:
    """Task -> its comparisons of areas, with ``p_holm``: corrected for all of them together.

    Args:
        qualities: task -> its main metric over lengths.
        baselines: task -> the label that the others are compared with.
    """
    found = {task: _reach.compare_areas(qualities[task], baseline) for task, baseline in baselines.items()}
    corrected = iter(intervals.holm([p for table in found.values() for p in table["p"]]))
    return {task: table.assign(p_holm=[next(corrected) for _ in table["p"]]) for task, table in found.items()}


def table(
    stem: str,
    task: str,
    quality: pd.DataFrame,
    reach: pd.DataFrame,
    compared: pd.DataFrame | None,
    order: Iterable[str],
    name: Callable[[str], str],
) -> Table:
    """In-range quality, the convergence gate, reach and area of each label.

    Args:
        stem: of the files.
        task: as it is called.
        quality: its main metric over lengths, with ``label`` and ``converged``.
        reach: of `_reach.reach`, of the same.
        compared: of `compare`; None where there is nothing beyond the training length to compare.
        order: of the labels.
        name: label -> how it is shown.
    """
    data = _numbers(quality, reach).merge(_gate(quality), on="label")
    versus = []
    if compared is not None and len(compared):
        data = data.merge(compared, on="label", how="left")
        versus = [f"area less that of {name(str(compared['baseline'].iloc[0]))}", "p (Holm)"]
    full = float(data["measured_up_to"].max())
    found = {line["label"]: line for line in data.to_dict("records")}
    lines = []
    for label in (label for label in order if label in found):
        line = found[label]
        in_range = _mean(line["in_range"], line["in_range_half_width"])
        lines.append([name(label), in_range, _learned(line), _reached(line), _area(line, full)])
        if versus:
            lines[-1] += [_difference(line, full), words.p_value(line["p_holm"])]
    head = ["label", "in range", "learned in range", "reach", f"area, ×1 to ×{full:.3g}", *versus]
    meaning = _meaning(str(quality["metric"].iloc[0]))
    return Table(stem, f"How far it holds, {task}", pd.DataFrame(lines, columns=head), data, meaning)


def said(quality: pd.DataFrame, reach: pd.DataFrame, order: Iterable[str], name: Callable[[str], str]) -> list[str]:
    """The areas in a sentence; none where nothing was measured beyond the training length."""
    data = _numbers(quality, reach)
    if data["area"].isna().all():
        return []
    full = float(data["measured_up_to"].max())
    found = {line["label"]: line for line in data.to_dict("records")}
    areas = words.listed(f"{name(label)} {_area(found[label], full)}" for label in order if label in found)
    named = metric_of(str(quality["metric"].iloc[0])).label
    return [f"Area, the mean {named} from the training length to {full:.3g} times it, {EVENLY}: {areas}."]


def of_one_run(quality: pd.DataFrame) -> str:
    """Reach and area of one run, in a line; blank where it was not measured within the training length and beyond."""
    (line,) = _numbers(quality, _reach.reach(length_extrapolation.summarise(quality))).to_dict("records")
    if line["measured_up_to"] <= 1 or line["multiple"] != line["multiple"]:
        return ""
    metric = str(quality["metric"].iloc[0])
    return (
        f"reach {_reached(line)}: {_keeps(metric)} the {metric_of(metric).label} in range; "
        f"area {_area(line, line['measured_up_to'])}: its mean from ×1 to ×{line['measured_up_to']:.3g}, {EVENLY}"
    )


def _numbers(quality: pd.DataFrame, reach: pd.DataFrame) -> pd.DataFrame:
    """Reach and area as numbers, a line a label, and why an area ends before what was measured."""
    beyond = quality[(quality["eval_length"] > quality["train_length"]) & (quality["status"] != "ok")]
    data = reach.merge(_reach.areas(quality), on="label")
    data["measured_up_to"] = data["longest"] / data["train_length"]
    return data.assign(lacking=data["label"].map(beyond.groupby("label")["status"].first()))


def _gate(quality: pd.DataFrame) -> pd.DataFrame:
    """How many seeds of each label were judged, and how many had learned in range. A seed's runs all must have."""
    judged = quality[quality["converged"].notna()].assign(passed=lambda rows: rows["converged"].astype(bool))
    seeds = judged.groupby(["label", "seed"])["passed"].all().groupby(level="label").agg(["sum", "count"])
    gate = seeds.reindex(sorted(quality["label"].unique()), fill_value=0).rename_axis("label").reset_index()
    return gate.rename(columns={"sum": "seeds_learned", "count": "seeds_judged"})


def _keeps(metric: str) -> str:
    if metric_of(metric).higher_is_better:
        return f"at least {_reach.KEEPS:.0%} of"
    return f"no more than {1 / _reach.KEEPS:.2f} times"


def _meaning(metric: str) -> str:
    named = metric_of(metric).label
    return (
        f"In range: mean {named} at the longest length measured that was trained on. Learned in range: seeds whose "
        f"training passed the task's own gate. Reach: the longest length, in training lengths, up to which every "
        f"measured length has {_keeps(metric)} the {named} in range. Area: mean {named} from the training length to "
        "the longest measured, that is the area under the curve (trapezoid rule over log2 of the length, so that a "
        "doubling counts the same wherever it is) over its width; of each seed first. A label that ends sooner has "
        "its area up to there and says so; two areas are compared, paired by seed, over the lengths that both have. "
        "±: half the 95 % t interval over seeds. p: after Holm's correction for all areas compared on this page."
    )


# ---- cells -----------------------------------------------------------------------------------------


def _mean(value: float, half: float, written: str = ".3f") -> str:
    """Blank for what is no number."""
    if value != value:
        return ""
    return f"{value:{written}}" if half != half else f"{value:{written}} ± {half:.3f}"


def _learned(line: dict[Any, Any]) -> str:
    return f"{line['seeds_learned']} of {line['seeds_judged']}" if line["seeds_judged"] else "not judged"


def _reached(line: dict[Any, Any]) -> str:
    """``×2``; all that was measured is no limit."""
    if line["multiple"] != line["multiple"]:
        return words.NOT_MEASURED
    more = " or more" if line["reach"] == line["longest"] else ""
    return f"×{line['multiple']:.3g}{more}"


def _area(line: dict[Any, Any], full: float) -> str:
    if line["area"] != line["area"]:
        return line["lacking"] if isinstance(line["lacking"], str) else words.NOT_MEASURED
    return _mean(line["area"], line["area_half_width"]) + _up_to(line["area_up_to"], full)


def _difference(line: dict[Any, Any], full: float) -> str:
    half = line["high"] - line["difference"]
    return _mean(line["difference"], half, "+.3f") + _up_to(line["compared_up_to"], full)


def _up_to(multiple: float, full: float) -> str:
    """Said wherever it is less than the head of the column says."""
    return f" (up to ×{multiple:.3g})" if multiple < full else ""
