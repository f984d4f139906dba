"""Numbers and lists of names as text."""

import re
from collections.abc import Callable, Iterable
from typing import Any

NOT_MEASURED = "not measured"
ROUNDING = 1e-7
"""A measured value closer to zero is rounding alone."""


def minus(text: str) -> str:
    """Return a number with a minus sign in place of its hyphen, and a zero without a sign."""
    text = text if text.strip("+-0.,") else text.lstrip("+-")
    return f"−{text[1:]}" if text.startswith("-") else text


def cell(line: dict[Any, Any] | None, seeds: int, written: Callable[[float], str] = "{:.3f}".format) -> str:
    """Return mean and interval of a summary line, or the reason why it has none; name missing seeds."""
    if line is None:
        return NOT_MEASURED
    lacking = [f"{line[status]} {status}" for status in ("unsupported", "diverged") if line[status]]
    if not line["seeds"]:
        return next((status for status in ("diverged", "unsupported") if line[status]), NOT_MEASURED)
    text = minus(written(line["mean"]))
    if line["low"] == line["low"]:
        text += f" [{minus(written(line['low']))}, {minus(written(line['high']))}]"
    if line["seeds"] < seeds:
        missing = ", ".join([f"{line['seeds']} of {seeds} seeds", *lacking])
        text += f" ({missing})"
    return text


def measured(value: Any) -> str:
    """Return three significant digits of a measured value, ``0`` where it is rounding alone."""
    return fixed(0 if isinstance(value, float) and abs(value) < ROUNDING else value, ".3g")


def fixed(value: Any, written: str = ".2f") -> str:
    """Return two decimals; blank for anything but a number."""
    text = "" if not isinstance(value, int | float) or value != value else f"{value:{written}}"
    return minus(text.removesuffix("."))


def interval(mean: float, low: float, high: float, written: str = ".3f") -> str:
    """``0.783 [0.601, 0.965]``; the mean alone where there is no interval, blank where there is neither."""
    text = fixed(mean, written)
    return text if low != low else f"{text} [{fixed(low, written)}, {fixed(high, written)}]"


def signed(mean: float, low: float, high: float, digits: int) -> str:
    """``−0.629 [−0.719, −0.539]``: a difference and its interval, each with its sign, what rounds to zero with none.

    One digit more where an end of the interval is not zero, and would be printed as zero.
    """
    digits += any(end and not round(end, digits) for end in (low, high))
    return interval(mean, low, high, f"+.{digits}f")


def between(low: float, high: float, written: str = ".3f") -> str:
    """``0.601 to 0.965``; blank where there is no interval."""
    return f"{fixed(low, written)} to {fixed(high, written)}" if low == low else ""


def span(low: float, high: float) -> str:
    """``2–5``, ``3`` where both are the same; blank where there are none."""
    return "" if low != low else f"{low:g}" if low == high else f"{low:g}–{high:g}"


def p_value(p: float) -> str:
    """Return three decimals; blank where nothing was tested."""
    return "" if p != p else "< 0.001" if p < 0.001 else f"{p:.3f}"


def number(value: Any) -> str:
    """Return a count or an amount; blank for anything but a number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return ""
    return minus(f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:.1f}")


def count(how_many: int, noun: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{how_many} {noun}{'s' * (how_many != 1)}"


def quoted(text: str) -> str:
    """Return a text in which the encoder ``none`` does not read as nobody."""
    return re.sub(r"\bnone\b", "“none”", text)


def cut(name: str, most: int) -> str:
    """Return a name of ``most`` letters at most; of what stands behind a dot, such as a numbering, its name stays.

    >>> cut("sinusoidal · coupled", 16), cut("short_convolution", 16)
    ('sinus… · coupled', 'short_convoluti…')
    """
    if len(name) <= most:
        return name
    head, dot, tail = name.rpartition(" · ")
    end = dot + tail.partition("(")[0]
    room = most - len(end) - 1
    return f"{head[:room]}…{end}" if dot and room > 0 else f"{name[: most - 1]}…"


def listed(names: Iterable[Any]) -> str:
    """``a, b and c``."""
    *rest, last = [str(name) for name in names] or [""]
    return f"{', '.join(rest)} and {last}" if rest else last


def few(names: Iterable[Any]) -> str:
    """Return the first of many names and the number of the others."""
    known = list(names)
    return listed(known if len(known) <= 6 else [*known[:5], f"{len(known) - 5} more"])


def brief(names: Iterable[Any], of: int, what: str = "encoders") -> str:
    """Return up to three names for a title, or how many of all they are."""
    known = list(names)
    if len(known) == of > 1:
        return f"all {of} {what}"
    return listed(known) if len(known) <= 3 else f"{len(known)} of {of} {what}"


def by_number(name: str) -> list[tuple[str, float]]:
    """Return what sorts names by the numbers in them.

    >>> sorted(["text(20 tokens)", "text(5 tokens)", "copy"], key=by_number)
    ['copy', 'text(5 tokens)', 'text(20 tokens)']
    """
    return [(text, float(number or 0)) for text, number in re.findall(r"(\D*)(\d+\.\d+|\d*)", name)]
