"""Conditions of older results, which packed coordinates into their text: ``"2-gram shuffle, layer=2"``."""

import re

from experiments.rows.row import COORDINATES

RENAMED = {
    "query": "position",
    "offset": "shift",
    "keys": "sequence_length",
    "below": "sequence_length",
    "places": "sequence_length",
    "inputs": "part",
}
"""Names in packed conditions -> columns, where the two differ."""
SIZED = {
    r"(\d+)-gram shuffle": "n-gram shuffle",
    r"shuffle within (\d+)": "shuffle within",
    r"within (\d+)": "within",
    r"window, keys=(\d+)": "window",
}
"""Pattern of a condition with a size -> the condition without."""
RETIRED = {*("asymmetry", "kernel_growth", "distances_told_apart"), *("code_distance", "code_growth", "code_error")}
"""Metrics of `structure` that earlier releases measured, and that no claim, table or figure showed."""
NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"


def unpack(packed: str) -> tuple[str, dict[str, int | float]]:
    """Split a packed condition into the condition and its coordinates.

    >>> unpack("positions: shuffle within 4, layer=2")
    ('positions: shuffle within', {'size': 4, 'layer': 2})

    Returns:
        the condition, and column -> number. Text of no known form stays in the condition.
    """
    prefix, text = ("positions: ", packed[11:]) if packed.startswith("positions: ") else ("", packed)
    found: dict[str, int | float] = {}
    for pattern, name in SIZED.items():
        if sized := re.match(rf"{pattern}(?=$|, )", text):
            found["size"], text = int(sized[1]), name + text[sized.end() :]
    if swaps := re.match(rf"adjacent swaps ({NUMBER})%", text):
        found["share"], text = float(swaps[1]) / 100, "adjacent swaps" + text[swaps.end() :]
    words = []
    for part in filter(None, text.split(", ")):
        numbers = _numbers(*part.partition("=")[::2])
        words += [] if numbers else [part]
        found |= numbers
    return prefix + ", ".join(words), found


def _numbers(name: str, value: str) -> dict[str, int | float]:
    column = RENAMED.get(name, name)
    if column not in COORDINATES:
        return {}
    if COORDINATES[column] is float:
        return {column: float(value)} if re.fullmatch(NUMBER, value) else {}
    if name == "inputs":
        value = value.partition("/")[0]
    if ends := re.fullmatch(r"(-?\d{1,9})-(-?\d{1,9})", value):
        first, last = int(ends[1]), int(ends[2])
        return {column: first, "size": last - first + 1}
    return {column: int(value)} if re.fullmatch(r"-?\d{1,9}", value) else {}
