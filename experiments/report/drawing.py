"""Drawings of the page: SVG in the colours of its style sheet, so that they are dark where the page is."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup, escape

from experiments.figures import words

Point = tuple[float, float]
FAMILIES = {"no position": "none", "input": "input", "rotation": "rotation", "score bias": "bias"}
FAMILIES |= {"relative term": "relative", "content": "content"}
"""Family of encoders -> class of the style sheet; any other is ``other``."""
DASHES = ("", "7 4", "2 3", "9 3 2 3")
"""Of lines of one colour, in turn; the first is whole."""
SAMPLE = 18
"""Pixels of a line that are drawn beside its name."""
LONGEST = {"wide": 34, "narrow": 16, "small": 24}
"""Most letters of a name beside a curve."""
CELLS = 12
"""Most places that are drawn as cells; of more, a bar is drawn."""


@dataclass(frozen=True)
class Line:
    """One series over lengths: ``mean`` of the runs that learned, each run as in ``seeds``, others in ``unlearned``.

    ``band`` has length, low and high of an interval of the mean; NaN where there is none.
    """

    name: str
    family: str
    mean: Sequence[Point]
    seeds: Sequence[Sequence[Point]] = ()
    unlearned: Sequence[Sequence[Point]] = ()
    dash: int = 0
    coloured: bool = True
    band: Sequence[tuple[float, float, float]] = ()

    @property
    def named(self) -> Sequence[Point]:
        """Points beside which its name may stand: of its mean, or of a run that did not learn."""
        return self.mean or next(iter(self.unlearned), ())


@dataclass(frozen=True)
class Axes:
    """Lengths (log2) and values of a curve: ``ticks`` of the values, first and last are the ends."""

    lengths: Sequence[int]
    trained: int
    ticks: Sequence[float]
    chance: Sequence[Point] = ()

    @property
    def edge(self) -> int:
        """The longest length trained on, or the shortest measured if that is longer."""
        return max(self.trained, self.lengths[0])


class Frame(NamedTuple):
    """Where lengths and values are in pixels."""

    axes: Axes
    left: float
    right: float
    top: float
    bottom: float

    def x(self, length: float) -> float:
        low, high = math.log2(self.axes.lengths[0]), math.log2(max(self.axes.lengths[-1], self.axes.lengths[0] * 2))
        return self.left + (math.log2(length) - low) / (high - low) * (self.right - self.left)

    def y(self, value: float) -> float:
        low, high = self.axes.ticks[0], self.axes.ticks[-1]
        return self.bottom - (min(max(value, low), high) - low) / (high - low) * (self.bottom - self.top)

    def path(self, points: Sequence[Point], kind: str, more: str = "") -> str:
        places = [f"{self.x(x):.0f} {self.y(y):.1f}".replace(".0", "") for x, y in points]
        return f'<path class="{kind}" d="M{"L".join(places)}"{more}/>' if len(places) > 1 else ""

    def chance(self) -> str:
        """Return the line of guesses; blank where it lies beyond the values."""
        low, high = self.axes.ticks[0], self.axes.ticks[-1]
        inside = all(low <= value <= high for _, value in self.axes.chance)
        return self.path(self.axes.chance, "chance") if inside else ""

    def shade(self) -> str:
        wide, tall = self.x(self.axes.edge) - self.left, self.bottom - self.top
        return f'<rect class="shade" x="{self.left:g}" y="{self.top:g}" width="{wide:.0f}" height="{tall:g}"/>'


def css(family: str) -> str:
    """Return the class of a family."""
    return f"f-{FAMILIES.get(family, 'other')}"


def curves(lines: Sequence[Line], axes: Axes, said: str) -> Markup:
    """Return the curves twice, for a wide and for a narrow page; ``said`` is what they show, in words.

    Names stand at the right, in the order of the lines' ends.
    """
    return _curves(lines, axes, said, "wide", 836, 352) + _curves(lines, axes, said, "narrow", 358, 290)


def _curves(lines: Sequence[Line], axes: Axes, said: str, kind: str, width: int, height: int) -> Markup:
    narrow = kind == "narrow"
    names = [(line, words.cut(line.name, LONGEST[kind])) for line in lines if line.coloured and line.named]
    room = SAMPLE + 24 + (9 if narrow else 10) * max((len(name) for _, name in names), default=0)
    frame = Frame(axes, 34, width - room, 12, height - 36)
    parts = [frame.shade(), *_axes(frame, narrow=narrow)]
    known = (line for line in lines if line.coloured or not narrow)
    behind_first = sorted(known, key=lambda line: (line.coloured, line.family == ""))  # the user's own in front
    for line in behind_first:
        dash = _dash(line)
        parts.append(f'<g class="s {css(line.family)}{"" if line.coloured else " grey"}" data-e="{escape(line.name)}">')
        for known, part in itertools.groupby(line.band, key=lambda end: end[1] == end[1]):
            there, back = zip(*(((x, low), (x, high)) for x, low, high in part), strict=True)
            parts += [frame.path([*there, *back[::-1]], "band")] * known
        parts += [frame.path(seed, "seed") for seed in line.seeds] if line.coloured else []
        for seed in line.unlearned if line.coloured else ():
            parts.append(frame.path(seed, "seed lost"))
            parts += [_circle(frame, *seed[-1], "ring", 3)] if seed else []
        parts.append(frame.path(line.mean, "mean", dash))
        parts += [_circle(frame, *point, "dot", 2.6 if narrow else 3.2) for point in line.mean] if line.coloured else []
        parts.append("</g>")
    parts += _ends(frame, names)
    return Markup(
        f'<svg class="hero {kind}" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(said)}">'
        + "".join(parts)
        + "</svg>"
    )


def _dash(line: Line) -> str:
    return f' stroke-dasharray="{pattern}"' if (pattern := DASHES[line.dash % len(DASHES)]) else ""


def _circle(frame: Frame, x: float, y: float, kind: str, radius: float) -> str:
    return f'<circle class="{kind}" cx="{frame.x(x):.0f}" cy="{frame.y(y):.1f}" r="{radius}"/>'


def _text(x: float, y: float, text: object, kind: str = "tick", anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(text)}</text>'


def _axes(frame: Frame, *, narrow: bool) -> Iterator[str]:
    axes = frame.axes
    for tick in axes.ticks:
        y = frame.y(tick)
        yield f'<path class="grid" d="M{frame.left:g} {y:.1f}H{frame.right:g}"/>'
        yield _text(frame.left - 5, y + 4, f"{tick:g}", anchor="end")
    edge = frame.x(axes.edge)
    yield f'<path class="edge" d="M{edge:.0f} {frame.top - 6:g}V{frame.bottom:g}"/>'
    if edge - frame.left > 60:
        yield _text((edge + frame.left) / 2, frame.top + 0.45 * (frame.bottom - frame.top), "trained", "tick b")
    if len(axes.chance) > 1:
        x, y = axes.chance[0]
        above = frame.y(y) - 5 if frame.y(y) > frame.top + 14 else frame.y(y) + 13
        drawn = frame.chance()
        yield drawn
        text = "guessing" if drawn else f"guessing: {y:.2f}, off the scale"
        yield _text(frame.x(x) + 6, above, text, "tick over", "start")
    yield _text(frame.right + 18, frame.bottom + 17, "length", anchor="start")
    doublings = [axes.trained * 2**power for power in range(12)]
    taken = [-math.inf]
    for length in sorted(axes.lengths, key=lambda length: (length not in doublings, length)):
        x, known = frame.x(length), length in doublings
        if min(abs(x - place) for place in taken) < (26 if narrow else 20):
            continue
        taken.append(x)
        yield _text(x, frame.bottom + 17, length, "tick b" if known else "tick")
        if known:
            yield _text(x, frame.bottom + 31, f"×{length // axes.trained}")


def _ends(frame: Frame, names: Sequence[tuple[Line, str]]) -> Iterator[str]:
    """Name each line at the right of its end, one below the other, with a leader to it and a sample of it."""
    ends = sorted(((frame.y(line.named[-1][1]), line, name) for line, name in names), key=lambda end: end[0])
    bases = _apart([y + 5 for y, *_ in ends], 17, frame.top + 5, frame.bottom)
    for (y, line, name), base in zip(ends, bases, strict=True):
        x = frame.x(line.named[-1][0])
        colour, dash = css(line.family), _dash(line)
        yield f'<path class="lead {colour}" d="M{x + 4:.0f} {y:.0f}L{x + 14:.0f} {base - 5:.0f}"/>'
        yield f'<g class="{colour}"><path class="mean" d="M{x + 14:.0f} {base - 5:.0f}h{SAMPLE}"{dash}/></g>'
        yield (
            f'<text class="lab {colour}" data-e="{escape(line.name)}" x="{x + SAMPLE + 18:.0f}" y="{base:.0f}">'
            f"{escape(name)}</text>"
        )


def _apart(wanted: Sequence[float], gap: float, low: float, high: float) -> Iterator[float]:
    """Move sorted places at least a gap apart, from ``low`` to ``high``."""
    last = low - gap
    for number, place in enumerate(wanted):
        last = min(max(place, last + gap), high - gap * (len(wanted) - 1 - number))
        yield last


def small(lines: Sequence[Line], axes: Axes, width: int, height: int) -> Markup:
    """Return small curves without text."""
    frame = Frame(axes, 1, width - 1, 3, height - 3)
    parts = [frame.chance(), f'<path class="edge" d="M{frame.x(axes.edge):.0f} 0V{height}"/>']
    for line in lines:
        parts.append(f'<g class="{css(line.family)}">{frame.path(line.mean, "mean", _dash(line))}</g>')
    return _svg("spark", width, height, "".join(parts))


def named(others: Sequence[Line], own: Sequence[Line], axes: Axes) -> Markup:
    """Return small curves with the ends of their axes and names at the right: ``own`` bold, above the others."""
    sizes = [(7.6 if line in own else 6.4) * len(words.cut(line.name, LONGEST["small"])) for line in [*others, *own]]
    room, height = max(106.0, 10 + max(sizes)), 126
    width = 194 + room
    frame = Frame(axes, 30, width - room, 6, height - 20)
    parts = [frame.chance(), frame.shade()]
    parts.append(f'<path class="grid" d="M{frame.left:g} {frame.top:g}V{frame.bottom:g}H{frame.right:g}"/>')
    for tick in (axes.ticks[0], axes.ticks[-1]):
        parts.append(_text(frame.left - 4, frame.y(tick) + 4, f"{tick:g}", anchor="end"))
    for length in sorted({axes.lengths[0], axes.edge, axes.lengths[-1]}):
        parts.append(_text(frame.x(length), height - 5, length, "tick b" if length == axes.trained else "tick"))
    for line in [*others, *own]:
        thin = "" if line in own else ' class="other"'
        parts.append(f'<g class="{css(line.family)}"><g{thin}>{frame.path(line.mean, "mean", _dash(line))}</g></g>')
    ends = sorted(((frame.y(line.mean[-1][1]), line) for line in [*others, *own]), key=lambda end: end[0])
    for (_, line), low in zip(ends, _apart([y + 4 for y, _ in ends], 13, 10, frame.bottom + 2), strict=True):
        kind = "tick b" if line in own else "tick"
        parts.append(_text(width - room + 6, low, words.cut(line.name, LONGEST["small"]), kind, "start"))
    return _svg("spark", width, height, "".join(parts))


def _svg(kind: str, width: float, height: float, inner: str) -> Markup:
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    return Markup(f'<svg class="{kind}" {size}>{inner}</svg>')


def track(low: float, high: float, place: float, count: int) -> Markup:
    """Return the places ``low`` to ``high`` that a series may have among ``count``, and the one it has."""
    if count <= CELLS:
        kinds = ["on" if n == round(place) else "in" if low <= n <= high else "off" for n in range(1, count + 1)]
        cells = (
            f'<rect class="{kind}" x="{11 * n}" y="1" width="9" height="12" rx="2"/>' for n, kind in enumerate(kinds)
        )
        return _svg("place", 11 * count, 14, "".join(cells))
    step = 108 / max(1, count - 1)
    x, start, end = (5 + step * (n - 1) for n in (place, low, high))
    bar = f'<rect class="in" x="{start - 3:.1f}" y="4" width="{end - start + 6:.1f}" height="6" rx="3"/>'
    on = f'<circle class="on" cx="{x:.1f}" cy="7" r="3.5"/>'
    return _svg("place", 118, 14, f'<path class="grid" d="M2 7H116"/>{bar}{on}')


def taken(places: Sequence[float], count: int) -> Markup:
    """Return the places that a series has over tasks, among ``count``: cells, darker where more often, or dots."""
    if count > CELLS:
        step = 108 / (count - 1)
        dots = (f'<circle class="on" cx="{5 + step * (place - 1):.1f}" cy="7" r="3"/>' for place in places)
        return _svg("place", 118, 14, f'<path class="grid" d="M2 7H116"/>{"".join(dots)}')
    counts = [sum(round(place) == n for place in places) for n in range(1, count + 1)]
    cells = (
        f'<rect class="{"on" if n else "off"}" x="{11 * place}" y="1" width="9" height="12" rx="2"'
        + (f' fill-opacity="{0.15 + 0.85 * n / max(counts):.2f}"' if n else "")
        + "/>"
        for place, n in enumerate(counts)
    )
    return _svg("place", 11 * count, 14, "".join(cells))


def strip(dots: Sequence[float], mean: float, low: float, high: float) -> Markup:
    """Return values between 0 and 1 as dots, their mean, and its interval where there is one."""
    width = 180

    def x(value: float) -> float:
        return 5 + min(max(value, 0.0), 1.0) * (width - 10)

    parts = [f'<path class="grid" d="M5 8H{width - 5}M5 4V12M{width / 2:g} 6V10M{width - 5} 4V12"/>']
    start, wide = x(low), max(1, x(high) - x(low))
    parts += [f'<rect class="ci" x="{start:.1f}" y="3" width="{wide:.1f}" height="10" rx="4"/>'] * (low == low)
    parts += [f'<circle class="dot" cx="{x(dot):.1f}" cy="8" r="3"/>' for dot in dots if dot == dot]
    parts += [f'<path class="mid" d="M{x(mean):.1f} 1V15"/>'] if mean == mean else []
    return _svg("strip", width, 16, "".join(parts))


def interval(low: float, mean: float, high: float, ends: tuple[float, float]) -> Markup:
    """Return an interval with 0, which it must lie beyond, on a scale between two ends."""
    width, (least, most) = 150, ends
    at: Callable[[float], float] = lambda value: 4 + (value - least) / ((most - least) or 1) * (width - 8)
    parts = [f'<path class="grid" d="M4 8H{width - 4}"/>', f'<path class="need" d="M{at(0):.1f} 0V16"/>']
    start, wide = at(low), max(1, at(high) - at(low))
    parts += [f'<rect class="ci" x="{start:.1f}" y="4" width="{wide:.1f}" height="8" rx="3"/>'] * (low == low)
    parts += [f'<circle class="dot" cx="{at(mean):.1f}" cy="8" r="3"/>'] if mean == mean else []
    return _svg("claim", width, 16, "".join(parts))


def diverging(wins: int, losses: int, most: int) -> Markup:
    """Return comparisons won to the right of the middle, lost to the left; ``most`` fills a side."""
    scale = 60 / max(1, most)
    bars = f'<rect class="on" x="62" y="2" width="{wins * scale:.1f}" height="10"/>'
    bars += f'<rect class="in" x="{62 - losses * scale:.1f}" y="2" width="{losses * scale:.1f}" height="10"/>'
    return _svg("place", 124, 14, f'{bars}<path class="mid" d="M62 0V14"/>')
