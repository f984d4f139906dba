"""Numbers and names as a reader of the report sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

NOT_MEASURED = "not measured"
ROUNDING = 1e-12
"""Relative to the mean: seeds that differ by no more do not differ."""


def cell(line: dict[Any, Any] | None, seeds: int, written: Callable[[float], str] = "{:.3f}".format) -> str:
    """Mean ± half-width of one group, or in words why there is none; says so if seeds are lacking."""
    if line is None:
        return NOT_MEASURED
    lacking = [f"{line[status]} {status}" for status in ("unsupported", "diverged") if line[status]]
    if not line["seeds"]:
        return next((status for status in ("diverged", "unsupported") if line[status]), NOT_MEASURED)
    said_so = written(line["mean"])
    if line["seeds"] > 1:
        spread = line["half_width"] > ROUNDING * abs(line["mean"])
        said_so += f" ± {written(line['half_width'] if spread else 0.0).removeprefix('+')}"
    if line["seeds"] < seeds:
        said_so += f" ({', '.join([str(line['seeds']) + f' of {seeds} seeds', *lacking])})"
    return said_so


def said(verdict: str) -> str:
    """A verdict as part of a sentence."""
    return {
        "unsupported": "cannot be asked there (unsupported)",
        "diverged": "diverged",
        "ok": "not compared",
    }.get(verdict, verdict)


def short(value: Any) -> str:
    """Three digits; blank for what is no number."""
    return "" if not isinstance(value, int | float) or value != value else f"{value:.3g}"


def interval(mean: float, low: float, high: float) -> str:
    """``0.783 [0.601, 0.965]``; the mean alone where there is no interval."""
    return f"{mean:.3f}" if low != low else f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def amount(difference: float, low: float, high: float) -> str:
    """By how much two differ, whichever is the larger, with the interval if it keeps to one side."""
    sign = -1 if difference < 0 else 1
    ends = sorted((sign * low, sign * high))
    return interval(sign * difference, *ends) if ends[0] >= 0 else f"{sign * difference:.3f}"


def p_value(p: float) -> str:
    """Three digits; blank where nothing was tested."""
    return "" if p != p else "< 0.001" if p < 0.001 else f"{p:.3f}"


def number(value: Any) -> str:
    """A count or an amount; blank for what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:.1f}"


def text(value: Any) -> str:
    """As it is; blank for None."""
    return "" if value is None else str(value)


def count(how_many: int, noun: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{how_many} {noun}{'s' * (how_many != 1)}"


def listed(names: Iterable[Any]) -> str:
    """``a, b and c``."""
    *rest, last = [str(name) for name in names] or [""]
    return f"{', '.join(rest)} and {last}" if rest else last


def few(names: Iterable[Any]) -> str:
    """The first of many names: all of them are in the table of runs."""
    known = list(names)
    return listed(known if len(known) <= 6 else [*known[:5], f"{len(known) - 5} more"])
