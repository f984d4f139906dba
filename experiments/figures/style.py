"""How figures look: a colour for each family of encoders, one theme, and SVG files that turn dark with their page."""

import hashlib
import io
import re
import textwrap
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from experiments.statistics.intervals import with_series
from pe_zoo import _catalogue

Dash = str | tuple[float, tuple[float, ...]]

PAGE_WIDTH = 4.8
"""Inches of every figure: 461 pixels, so that text of 11 can still be read on a phone, or in a paper's column."""
DOTS = 150
"""Pixels of an inch in a ``png``."""
LETTER, CAPTION, PAD = 0.0079, 7.5, 0.06
"""Inches of a letter for each point of its size, about; points of a caption, and inches above and below it."""
NOT_CONVERGED = " †"
"""Put behind a series of which a run did not learn its task within the training length."""

FAMILIES = {
    "no position": ("#4a5259", "#c5ced6"),
    "input": ("#1f5fbf", "#7cc4ff"),
    "rotation": ("#009e73", "#22a878"),
    "score bias": ("#a93a00", "#f2894a"),
    "relative term": ("#cc4f9e", "#e07ab8"),
    "content": ("#b58b00", "#f0d65a"),
    "": ("#3d0066", "#a14dff"),
}
"""Family -> its colour on white and on black; blank: an encoder of the user's own. Each has a contrast of 3 or more,
and they differ for the three kinds of colour-blindness."""
INK, MUTED, OTHER, GRID = "#1c2128", "#57606a", "#b6bdc5", "#dde1e6"
DARK = dict(FAMILIES.values()) | {INK: "#e6edf3", MUTED: "#9aa4ae", OTHER: "#56606b", GRID: "#363d45"}
SHADE: dict[str, Any] = {"color": "#8c959f", "alpha": 0.13, "linewidth": 0, "zorder": 0}
"""Of the lengths trained on, and of every second line: seen on white and on black."""
DASHES: tuple[Dash, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
FONT = re.compile(r"font: (?:(\d+) )?([\d.]+)px [^;\"]*")
UNSEEN = re.compile(
    r"(?<=\.\d)\d+| id=\"(?:axes|figure|patch|line2d|text|xtick|ytick|matplotlib)[\w.]*\""
    r"| transform=\"rotate\(-0 [^\"]*\"| font-family: [^;]*;"
)
"""What is left out of the tags of an SVG file."""
MARKS = re.compile(r"<g( clip-path=[^>]*)>(\n(?:<use [^>]* style=[^>]*/>\n)+)</g>")
STYLE = re.compile(r' style="[^"]*"')
SPACES, SHORT = re.compile(r"\s*([A-Za-z])\s*"), re.compile(r"M([^A-Za-z]+)L([^A-Za-z]+)")
CLASSIC = ("none", "sinusoidal", "learned", "rope", "alibi", "t5")
"""Encoders listed first."""


@dataclass(frozen=True)
class Look:
    """Family, colour and dash of one series; ``rank`` is its place in legends and tables.

    ``own``: of an encoder that is not the zoo's.
    """

    family: str
    colour: str
    dash: Dash
    rank: int
    own: bool = False


def looks(rows: pd.DataFrame, families: Mapping[str, str] | None = None, own: Container[str] = ()) -> dict[str, Look]:
    """Return a look for every series: classic encoders first, the others in alphabetical order.

    The colour is that of the encoder's family, in every figure and report, and the user's own have one that no family
    has; series of one colour differ in dash. ``families`` are those of encoders, if any is not the zoo's, and ``own``
    the names of these. Rows with a column ``look`` keep the looks in it.
    """
    rows = with_series(rows).drop_duplicates("series", keep="last")
    if "look" in rows.columns:
        looked = zip(rows["series"], rows["look"], strict=True)
        given = {series: look for series, look in looked if isinstance(look, Look)}  # methods that extend have none
        return dict(sorted(given.items(), key=lambda item: item[1].rank))
    families = families or {entry.name: entry.declared.get("family", "") for entry in _catalogue.encoders()}
    encoder_of = {one: name.partition("(")[0] for one, name in zip(rows["series"], rows["encoder"], strict=True)}

    ordered = sorted(encoder_of, key=lambda series: (_encoder_order(encoder_of[series]), series))
    named = [families.get(encoder_of[series], "") for series in ordered]
    kinds = [family if family in FAMILIES else "" for family in named]
    found = {}
    for rank, (one, of) in enumerate(zip(ordered, kinds, strict=True)):
        users = encoder_of[one] in own
        found[one] = Look(of, FAMILIES["" if users else of][0], "-", rank, users)
    return dashed(found, ordered)


def _encoder_order(encoder: str) -> tuple[int, str]:
    return (CLASSIC.index(encoder) if encoder in CLASSIC else len(CLASSIC), encoder)


def chosen(looks: dict[str, Look], best_first: Iterable[str], most: int = 6) -> dict[str, Look]:
    """Return the looks of the series that get a colour: the user's own, the best of each family, the best of all."""
    ordered = [series for series in best_first if series in looks]
    firsts = {looks[series].family: series for series in reversed(ordered)}
    return dashed(
        looks, sorted(ordered, key=lambda series: (not looks[series].own, series not in firsts.values()))[:most]
    )


def dashed(looks: dict[str, Look], names: Iterable[str]) -> dict[str, Look]:
    """Return the looks of some series, in order; the first of each colour has a solid line."""
    found: dict[str, Look] = {}
    for series in sorted(set(names), key=lambda series: looks[series].rank):
        before = sum(look.colour == looks[series].colour for look in found.values())
        found[series] = replace(looks[series], dash=DASHES[before % len(DASHES)])
    return found


class Chart(Figure):
    """A figure with its title, a finding, and a caption: what is drawn, of whom, and why of these."""

    title, caption = "", ""


_width, _scale, _titled = PAGE_WIDTH, 1.0, True


@contextmanager
def sized(width: float, scale: float = 1.0, *, titled: bool = True) -> Iterator[None]:
    """Draw figures ``width`` inches wide; ``scale`` is the size of type and heights, relative to the page.

    Without ``titled`` a figure does not say what it shows.
    """
    global _width, _scale, _titled
    before = _width, _scale, _titled
    _width, _scale, _titled = width, scale, titled
    try:
        yield
    finally:
        _width, _scale, _titled = before


def titled() -> bool:
    """Return whether figures say what they show; those of a paper leave it to its text."""
    return _titled


def scale() -> float:
    """Return the size of type, relative to the page."""
    return _scale


def room() -> float:
    """Return the width of figures in inches of the page, before scaling."""
    return _width / _scale


def figure(height: float) -> Chart:
    """Return an empty figure of the current width; ``height`` is in inches of the page, before scaling."""
    return Chart(figsize=(_width, height * _scale), dpi=72)  # a pixel is a point


@contextmanager
def theme() -> Iterator[None]:
    """Set the theme while a figure is drawn or rendered; the caller's settings come back after it."""
    sizes = {"font.size": 8.5, "axes.titlesize": 8.5, "axes.labelsize": 8.0, "xtick.labelsize": 7.5}
    sizes |= {"ytick.labelsize": 7.5, "axes.linewidth": 0.6, "grid.linewidth": 0.6, "lines.linewidth": 1.6}
    sizes |= {"xtick.major.size": 2.5, "ytick.major.size": 0, "xtick.major.pad": 2.5, "ytick.major.pad": 2.5}
    settings: dict[Any, Any] = {name: size * _scale for name, size in sizes.items()}
    settings |= {"font.sans-serif": ["DejaVu Sans"], "text.color": INK, "axes.titlelocation": "left"}
    settings |= {"axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False}
    settings |= dict.fromkeys(("xtick.color", "ytick.color", "axes.labelcolor"), MUTED) | {"axes.edgecolor": MUTED}
    settings |= {"axes.grid": True, "axes.grid.axis": "y", "grid.color": GRID, "axes.axisbelow": True}
    settings |= {"axes.facecolor": "none", "svg.hashsalt": "pe-zoo", "svg.fonttype": "none", "pdf.fonttype": 42}
    settings |= {"text.parse_math": False}  # a dollar sign in a name does not start a formula
    settings |= {"figure.facecolor": "white", "savefig.facecolor": "white"}
    settings |= {"xtick.bottom": True, "patch.force_edgecolor": False, "lines.solid_capstyle": "projecting"}
    with sns.axes_style("whitegrid"), mpl.rc_context(settings):
        yield


def render(figure: Figure, suffix: str) -> bytes:
    """Return the figure as ``svg``, ``pdf`` or ``png``: the same bytes for the same figure.

    A ``png`` stands alone: it has the caption, which pages and papers set themselves.
    """
    dates = {"svg": {"Date": None, "Creator": None, "Format": None, "Type": None}}
    dates |= {"pdf": {"CreationDate": None}, "png": {"Software": None}}
    content = io.BytesIO()
    with theme():
        if suffix == "png":
            _save_captioned(figure, content, dpi=DOTS, metadata=dates[suffix])
        else:
            figure.savefig(content, format=suffix, dpi=DOTS, metadata=dates[suffix])
    return _light_and_dark(content.getvalue().decode()) if suffix == "svg" else content.getvalue()


def _save_captioned(figure: Figure, content: io.BytesIO, **how: Any) -> None:
    width, height = figure.get_size_inches()
    lines = textwrap.wrap(getattr(figure, "caption", ""), int(width / (LETTER * CAPTION)))
    below = figure.text(0, -PAD / height, "\n".join(lines), va="top", fontsize=CAPTION, color=MUTED)
    low = -2 * PAD - len(lines) * 1.25 * CAPTION / 72
    figure.savefig(content, format="png", bbox_inches=Bbox([[0, low], [width, height]]), **how)
    below.remove()


def _light_and_dark(svg: str) -> bytes:
    """Add the colours of dark pages, and leave out digits and names that nothing shows."""
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<g/>\n", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r"<[^>]+>", lambda tag: UNSEEN.sub("", FONT.sub(_font, tag[0])), svg)
    svg = re.sub(r'(?<= d=")[^"]+', lambda path: SHORT.sub(_point, SPACES.sub(r"\1", path[0])), svg)
    svg = MARKS.sub(_marks, re.sub(r"\n +<", "\n<", svg))
    rules = [
        f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}'
        for light, dark in {**DARK, "#ffffff": "none"}.items()
        for kind in ("fill", "stroke")
        if f"{kind}: {light}" in svg
    ]
    css = 'text{font-family:"DejaVu Sans",Verdana,sans-serif}'
    css += f"@media(prefers-color-scheme:dark){{{''.join(rules)}}}"
    return svg.replace(">", f"><style>{css}</style>", 1).encode()


def _marks(found: re.Match[str]) -> str:
    """Give the marks of a group their style once, if they have one."""
    styles = set(STYLE.findall(found[2]))
    return found[0] if len(styles) > 1 else f"<g{found[1]}{styles.pop()}>{STYLE.sub('', found[2])}</g>"


def _point(found: re.Match[str]) -> str:
    return f"M{found[1]}h0" if found[1] == found[2] else found[0]


def _font(found: re.Match[str]) -> str:
    return f"font-size: {found[2]}px" + f"; font-weight: {found[1]}" * bool(found[1])


def slug(text: str) -> str:
    """Return a text as part of a file name: letters, digits, ``.``, ``=``, ``_`` and ``-``."""
    plain = re.sub(r"[^A-Za-z0-9._=]+", "-", text).strip("-.") or "unnamed"
    # The whole file name has to fit into 255 bytes.
    return plain if len(plain) <= 120 else f"{plain[:111]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
