"""The changes of one model at one length, best first, and its numbers as text."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from experiments.figures import words
from experiments.measures.context_extension import AS_TRAINED, CONTENT, DROPPED, END, LIMITS, TIME, WINDOW
from experiments.rows.row import is_share, metric_of
from experiments.statistics import blocks
from experiments.statistics.intervals import SIGNIFICANCE

LEAST, GAIN = 0.0005, 0.01
"""Differences in bits per byte, or shares, that are printed as one, and that are worth a change of the model."""


@dataclass(eq=False)
class Ranking:
    """The changes of a model at one length, best first.

    Args:
        length: in the task's unit.
        multiple: of the training length.
        table: by condition: ``value`` and its interval ``low`` and ``high``, ``factor``, ``end`` (bits in the last
            quarter of each window) with ``end_low`` and ``end_high``, ``content`` with ``content_low`` and
            ``content_high`` (bits that distant text saves, with Bonferroni's correction), ``time`` (of reading, over
            that of the unchanged model) with ``time_low`` and ``time_high`` (the range of its readings), ``saved`` (the
            value at the training length with the factor of this one), and for ``trained_`` (less unchanged), ``best_``
            (less the best), ``window_`` (the last quarter, less that of a window) and ``saved_`` (at the training
            length, less unchanged) ``difference``, ``low``, ``high``, ``p`` and ``p_holm``.
        windows: how many windows were measured; 0 where sequences are no text.
        blocks: of how many blocks the intervals are.
        limit: the better window: alone, or with the first tokens beside it.
    """

    length: int
    multiple: float
    table: pd.DataFrame
    windows: int
    blocks: int
    limit: str

    def line(self, name: str) -> dict[str, float]:
        """Return the numbers of a condition."""
        return self.table.loc[[name]].to_dict("records")[0]  # type: ignore[return-value]

    def known(self, column: str) -> list[str]:
        """The conditions with a number in a column, best first."""
        return [str(name) for name in self.table.index[self.table[column].notna()]]

    @property
    def best(self) -> str:
        """The condition with the best value."""
        return str(self.table.index[0])

    @property
    def alike(self) -> list[str]:
        """The conditions that do not differ significantly from the best."""
        untold = self.best != AS_TRAINED and not shown(self.line(self.best), "trained_")  # the same pair, other family
        return [
            str(name)
            for name in self.table.index[1:]
            if not shown(self.line(name), "best_") or (name == AS_TRAINED and untold)
        ]

    @property
    def better(self) -> list[str]:
        """The conditions that are better than the unchanged model, by enough to be worth a change, best first."""
        names = [str(name) for name in self.table.index]
        ahead = names[: names.index(AS_TRAINED)]
        return [name for name in ahead if shown(self.line(name), "trained_", GAIN)]

    @property
    def first(self) -> str | None:
        """The best of those that are better than the unchanged model."""
        return next(iter(self.better), None)

    @property
    def methods(self) -> list[str]:
        """The replacements, best first."""
        return [str(name) for name in self.table.index if name not in (AS_TRAINED, *LIMITS, DROPPED)]

    @property
    def chosen(self) -> str | None:
        """The replacement to use, better than the unchanged model: beside a window, one that uses distant text."""
        better = [name for name in self.better if name in self.methods]
        using = [name for name in better if self.line(name)["content_low"] > 0]
        return next(iter([*using * (self.first == self.limit), *better]), None)

    def gains(self, name: str) -> bool:
        """Whether a way of reading is shown better than a window where each piece has most text before it."""
        line = self.line(name)
        return line["window_difference"] < 0 and shown(line, "window_")

    @property
    def nothing_gains(self) -> bool:
        """Whether every way of reading was measured beside a window and none gains from what that does not see."""
        known = self.known("window_difference")
        return bool(known) and not any(map(self.gains, known))


def ranked(rows: pd.DataFrame, metric: str, length: int, trained: int) -> Ranking:
    """Rank the changes of a model at a length, by the rows of one run."""
    here = rows[rows["eval_length"] == length]
    if length == trained:
        here = here[here["condition"] == AS_TRAINED]  # others are there with several factors
    quality = here[here["metric"] == metric]
    whole = _whole(quality, "value").sort_values(ascending=not metric_of(metric).higher_is_better, kind="stable")
    parts = _parts(quality)
    table = pd.DataFrame({"value": whole, "factor": _whole(quality, "factor").astype(float).reindex(whole.index)})
    table = table.join(_intervals(whole, parts))
    for prefix, baseline in (("trained_", AS_TRAINED), ("best_", str(whole.index[0]) if len(whole) else "")):
        table = table.join(blocks.against(whole, parts, baseline).add_prefix(prefix))
    for column, name in (("end", END), ("content", CONTENT), ("time", TIME)):
        of_metric = here[here["metric"] == name]
        table[column] = _whole(of_metric, "value").astype(float).reindex(table.index)
        measured = table[column].dropna()
        several = len(measured) if column == "content" else 1
        if column == "time":
            ratios = of_metric[of_metric["part"].notna()].groupby("condition")["value"]
            table = table.join(ratios.agg(time_low="min", time_high="max"))
        else:
            table = table.join(_intervals(measured, _parts(of_metric), several).add_prefix(f"{column}_"))
    ends = table["end"].drop(DROPPED, errors="ignore").dropna()
    limit = next((str(name) for name in table.index if name in LIMITS), WINDOW)
    table = table.join(blocks.against(ends, _parts(here[here["metric"] == END]), limit).add_prefix("window_"))
    table = table.join(_as_saved(rows[rows["metric"] == metric], table["factor"], trained))
    windows = int(_whole(quality, "n").get(AS_TRAINED, 0)) // length if metric == "bits_per_byte" else 0
    return Ranking(length, length / trained, table, windows, len(parts), limit)


def _as_saved(rows: pd.DataFrame, factors: "pd.Series[float]", trained: int) -> pd.DataFrame:
    """Return the values at the training length with such factors, and their differences from the unchanged model."""
    here = rows[rows["eval_length"] == trained]
    factor = here["condition"].map(factors)
    here = here[(here["factor"] == factor) | (here["factor"].isna() & factor.isna())]
    whole = _whole(here, "value")
    return blocks.against(whole, _parts(here), AS_TRAINED).add_prefix("saved_").assign(saved=whole)


def _whole(rows: pd.DataFrame, column: str) -> "pd.Series[float]":
    """Return a column of the rows about all of the text, by condition."""
    return rows[rows["part"].isna()].drop_duplicates("condition").set_index("condition")[column]


def _parts(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows[rows["part"].notna()]
    return rows.pivot_table(index="part", columns="condition", values="value")


def _intervals(whole: "pd.Series[float]", parts: pd.DataFrame, several: int = 1) -> pd.DataFrame:
    found = {
        name: blocks.interval(value, parts[name], several) if name in parts else (math.nan, math.nan)
        for name, value in whole.items()
    }
    return pd.DataFrame.from_dict(found, orient="index", columns=["low", "high"], dtype=float)


def shown(line: Mapping[str, float], prefix: str, least: float = LEAST) -> bool:
    """Whether a difference is significant, and large enough; by default, to be printed."""
    return abs(line[f"{prefix}difference"]) >= least and line[f"{prefix}p_holm"] < SIGNIFICANCE


def number(value: float, metric: str) -> str:
    """Return a quality with its unit."""
    return f"{100 * value:.1f} %" if is_share(metric) else f"{value:.3f} {metric_of(metric).label}"


def at(ranking: Ranking, name: str, metric: str) -> str:
    """Return the quality of a way of reading with its unit."""
    return number(ranking.line(name)["value"], metric)


def least(metric: str) -> str:
    """Return the least gain that is worth a change of the model."""
    return "1 point" if is_share(metric) else f"{GAIN:g} {metric_of(metric).label}"


def none_gains(metric: str) -> str:
    """Return that no method is worth a change of the model."""
    return f"no method is shown to gain {least(metric)}"


def level(line: Mapping[str, float], metric: str, column: str = "value") -> str:
    """Return a quality with its interval, without a unit, in percent where it is a share."""
    before, scale = ("" if column == "value" else f"{column}_"), (100 if is_share(metric) else 1)
    value, low, high = (scale * line[each] for each in (column, f"{before}low", f"{before}high"))
    return words.interval(value, low, high, ".1f" if scale > 1 else ".3f")


def difference(line: Mapping[str, float], prefix: str, metric: str) -> str:
    """Return a difference with its interval, in points where the metric is a share."""
    scale = 100 if is_share(metric) else 1
    mean, low, high = (scale * line[f"{prefix}{end}"] for end in ("difference", "low", "high"))
    return f"{words.signed(mean, low, high, 1)} points" if scale > 1 else words.signed(mean, low, high, 3)


def content(line: Mapping[str, float]) -> str:
    """Return the bits that distant text saves, with their interval; blank where that was not measured."""
    return words.signed(line["content"], line["content_low"], line["content_high"], 3)


def times_of(line: Mapping[str, float]) -> str:
    """Return in how many times the time of the unchanged model a text is read, to one digit, below 2 to two.

    ``1`` where some readings took longer and others less; blank where nothing was timed several times.

    >>> [times_of({"time": time, "time_low": 1.1, "time_high": 9.0}) for time in (1.24, 1.98, 2.4, 12.0)]
    ['1.2', '2', '2', '10']
    """
    if line["time_low"] != line["time_low"]:
        return ""
    if line["time_low"] <= 1 <= line["time_high"]:
        return "1"
    return f"{float(format(line['time'], '.2g' if 1 < line['time'] < 2 else '.1g')):g}"
