"""Figure of cost relative to the model without the encoder, and table of cost."""

from functools import partial

import pandas as pd
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from experiments.figures import dots, words
from experiments.figures.panels import by_task, under_heads
from experiments.figures.style import Chart, Look
from experiments.measures.cost import NAME
from experiments.statistics.intervals import by_measurement

PANELS = {
    "operations": ["relative_operations"],
    "time": ["relative_train_time", "relative_inference_time"],
    "memory": ["relative_train_peak_memory", "relative_peak_memory"],
}
HEADS = {
    "relative_operations": "operations at {}, × without",
    "relative_train_time": "training time at {}, × without",
    "relative_train_peak_memory": "training memory at {}, × without",
    "relative_inference_time": "inference time at {}, × without",
    "relative_generation_time": "generation time at {}, × without",
    "peak_memory_mib": "memory at {}, MiB",
    "relative_peak_memory": "memory at {}, × without",
}
CAPTION = (
    "Multiples of the cost without the encoder; at the line it is free. Filled: inference at the longest length "
    "measured; ring: training, at the training length. Operations and memory are counted. Times are ratios of "
    "medians, with the encoder and without it in turn on one machine; noise may take them below 1. All encoders, the "
    "most operations on top."
)
NOTED = 1.1
"""Multiple of the operations from which on an encoder is named as costly."""


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the table, with their column's heading in ``head``: each at the longest length measured."""
    plain = rows[rows["condition"] == ""]
    parts = [plain[plain["metric"] == "encoder_parameters"].assign(head="parameters")]
    for metric, head in HEADS.items():
        at = _at_longest(plain[plain["metric"] == metric])
        parts += [part.assign(head=head.format(length)) for length, part in at.groupby("sequence_length")]
    return under_heads(parts, rows)


def _at_longest(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["sequence_length"] == rows["sequence_length"].max()]


def _figures(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Chart | None]:
    rows = rows[rows["status"] == "ok"]
    drawn = {name: [one for one in part if (rows["metric"] == one).any()] for name, part in PANELS.items()}
    drawn = {name: part for name, part in drawn.items() if part}
    if not drawn:
        return {}
    at = pd.concat([_at_longest(rows[rows["metric"] == metric]) for part in drawn.values() for metric in part])
    first = at[at["metric"] == next(iter(drawn.values()))[0]].groupby("series")["value"].mean()
    order = list(first.sort_values(ascending=False, kind="stable").index)
    figure, panels = dots.panels(_finding(at), CAPTION, order, list(drawn), y="times the cost without encoder")
    for axes, metrics in zip(panels, drawn.values(), strict=True):
        for metric in metrics:
            ring = metric.startswith("relative_train_")
            dots.draw(axes, at[at["metric"] == metric], order, looks, ring=ring, shift=0.17 if ring else -0.17)
        values = at.loc[at["metric"].isin(metrics), "value"]
        low, high = min(0.9, values.min() / 1.08), max(1.5, values.max() * 1.08)
        axes.set_xscale("log")
        axes.set_xlim(low, high)
        axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0,) if high / low > 50 else (1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        dots.reference(axes, 1)
    return {"relative_cost": figure}


def _finding(at: pd.DataFrame) -> str:
    counted = at[at["metric"] == "relative_operations"].groupby("series")["value"].mean()
    costly = counted[counted > NOTED].sort_values(ascending=False)
    if counted.empty:
        return "Cost of the encoder"
    if costly.empty:
        return f"No encoder adds more than {100 * (NOTED - 1):.0f} % to the operations"
    share = words.brief(costly.index, len(counted))
    verb = "adds" if len(costly) == 1 else "add"
    top = (f", {costly.index[0]} most" if len(costly) > 1 else "") + f" ({costly.iloc[0]:.2g} ×)"
    return f"{share} {verb} more than {100 * (NOTED - 1):.0f} % to the operations{top}"


summarise = partial(by_measurement, experiment=NAME)
plot = partial(by_task, experiment=NAME, draw=_figures)
