"""How far quality holds: reach and area of each series, and the same of one run in a line."""

from typing import Any

import pandas as pd

from experiments.figures import words
from experiments.measures.length_extrapolation import report as length_extrapolation
from experiments.report.page import Table
from experiments.report.sections.task import TaskResults
from experiments.rows.row import metric_of
from experiments.statistics import intervals
from experiments.statistics import reach as reaches


def compare(qualities: dict[str, pd.DataFrame], baselines: dict[str, str]) -> dict[str, pd.DataFrame]:
    """Compare the areas of each task with its baseline; ``p_holm`` is corrected for all tasks together."""
    found = {task: reaches.compare_areas(qualities[task], baseline) for task, baseline in baselines.items()}
    corrected = iter(intervals.holm([p for table in found.values() for p in table["p"]]))
    return {task: table.assign(p_holm=[next(corrected) for _ in table["p"]]) for task, table in found.items()}


def table(task: TaskResults) -> Table:
    """Return in-range quality, seeds that learned the task, reach and area of each series."""
    judged = task.quality[task.quality["converged"].notna()].assign(passed=lambda rows: rows["converged"].astype(bool))
    learned = judged.groupby(["series", "seed"])["passed"].all().groupby(level="series")
    seeds = pd.DataFrame({"seeds_learned": learned.sum(), "seeds_judged": learned.count()})
    data = _numbers(task.quality, task.reach).merge(seeds, on="series", how="left")
    data = data.fillna({name: 0 for name in seeds}).astype(dict.fromkeys(seeds, int))
    areas = task.areas if task.areas is not None and len(task.areas) else None
    if areas is not None:
        data = data.merge(areas, on="series", how="left")
    full = float(data["measured_up_to"].max())
    found = {line["series"]: line for line in data.to_dict("records")}
    lines = []
    for line in (found[series] for series in task.order if series in found):
        cells = {
            "series": task.display(line["series"]),
            "in range": _mean(line["in_range"], line["in_range_half_width"]),
            "learned in range": f"{line['seeds_learned']} of {line['seeds_judged']}",
            "reach": _reach(line),
            f"area, ×1 to ×{full:.3g}": _area(line, full),
        }
        if not line["seeds_judged"]:
            cells["learned in range"] = "not judged"
        if areas is not None:
            baseline = task.display(areas["baseline"].iloc[0])
            difference = _mean(line["difference"], line["high"] - line["difference"], "+.3f")
            cells[f"area less that of {baseline}"] = difference + _up_to(line["compared_up_to"], full)
            cells["p (Holm)"] = words.p_value(line["p_holm"])
        lines.append(cells)
    metric = str(task.quality["metric"].iloc[0])
    note = (
        f"In range: mean {metric_of(metric).label} at the longest training length. Reach: longest length, in training "
        f"lengths, up to which every measured length has {_share(metric)} the value in range. Area: mean from the "
        "training length to the longest measured (trapezoid rule over log2 of the length), of each seed first; two "
        "areas are compared over the lengths that both have. ±: half the 95 % t interval over seeds. p: after Holm's "
        "correction for all areas on this page."
    )
    return Table(task.stem("reach"), f"How far it holds, {task.key}", pd.DataFrame(lines), data, note)


def of_one_run(quality: pd.DataFrame) -> str:
    """Return reach and area of one run in a line; blank unless measured within the training length and beyond."""
    (line,) = _numbers(quality, reaches.reach(length_extrapolation.summarise(quality))).to_dict("records")
    if line["measured_up_to"] <= 1 or line["multiple"] != line["multiple"]:
        return ""
    metric, full = str(quality["metric"].iloc[0]), line["measured_up_to"]
    return (
        f"reach {_reach(line)}: {_share(metric)} the {metric_of(metric).label} in range; "
        f"area {_area(line, full)}: its mean from ×1 to ×{full:.3g}, every doubling weighing the same"
    )


def _numbers(quality: pd.DataFrame, reach: pd.DataFrame) -> pd.DataFrame:
    """Reach and area as numbers, one line for each series, and why an area ends before what was measured."""
    beyond = quality[(quality["eval_length"] > quality["train_length"]) & (quality["status"] != "ok")]
    data = reach.merge(reaches.areas(quality), on="series")
    data["measured_up_to"] = data["longest"] / data["train_length"]
    return data.assign(lacking=data["series"].map(beyond.groupby("series")["status"].first()))


def _share(metric: str) -> str:
    up = metric_of(metric).higher_is_better
    return f"at least {reaches.KEEPS:.0%} of" if up else f"no more than {1 / reaches.KEEPS:.2f} times"


def _mean(value: float, half: float, written: str = ".3f") -> str:
    return "" if value != value else f"{value:{written}}" + ("" if half != half else f" ± {half:.3f}")


def _reach(line: dict[Any, Any]) -> str:
    """``×2``; ``×8 or more`` where it held up to the longest length measured."""
    if line["multiple"] != line["multiple"]:
        return words.NOT_MEASURED
    return f"×{line['multiple']:.3g}" + (" or more" if line["reach"] == line["longest"] else "")


def _area(line: dict[Any, Any], full: float) -> str:
    if line["area"] != line["area"]:
        return line["lacking"] if isinstance(line["lacking"], str) else words.NOT_MEASURED
    return _mean(line["area"], line["area_half_width"]) + _up_to(line["area_up_to"], full)


def _up_to(multiple: float, full: float) -> str:
    """Name the end of an area that ends before the one in the head of the column."""
    return f" (up to ×{multiple:.3g})" if multiple < full else ""
