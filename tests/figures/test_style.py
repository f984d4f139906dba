"""Looks, and SVG files that are dark where the page is."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb

import pe_zoo
from experiments.figures import lines, style, words
from experiments.figures.panels import chart
from pe_zoo import _catalogue

# Machado, Oliveira and Fernandes (2009), severity 1: protanopia, deuteranopia, tritanopia; linear RGB.
BLIND = (
    ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
)


def linear(colour: str) -> np.ndarray:  # type: ignore[type-arg]
    part = np.array(to_rgb(colour))
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """CIELAB of linear RGB, white D65."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    ratio = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    x, y, z = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: str, other: str) -> float:
    light = sorted(float(linear(colour) @ (0.2126, 0.7152, 0.0722)) for colour in (one, other))
    return (light[1] + 0.05) / (light[0] + 0.05)


@pytest.mark.parametrize("family", style.FAMILIES)
def test_every_colour_is_seen_on_its_page(family: str) -> None:
    light, dark = style.FAMILIES[family]
    assert contrast(light, "#ffffff") >= 3
    assert contrast(dark, "#0d1117") >= 3


@pytest.mark.parametrize("page", [0, 1])
@pytest.mark.parametrize("kind", range(3))
def test_families_differ_for_the_colour_blind(kind: int, page: int) -> None:
    seen = {name: lab(np.array(BLIND[kind]) @ linear(pair[page])) for name, pair in style.FAMILIES.items()}
    apart = {pair: float(np.linalg.norm(seen[pair[0]] - seen[pair[1]])) for pair in combinations(seen, 2)}
    assert min(apart.values()) >= 12, min(apart, key=lambda pair: apart[pair])


def test_colour_is_family_and_dash_tells_apart_within_one() -> None:
    assert {entry.declared["family"] for entry in _catalogue.encoders()} == set(style.FAMILIES) - {""}
    names = [*pe_zoo.names(), "mine"]
    looks = style.looks(pd.DataFrame({"encoder": names, "series": names}))
    assert list(looks)[:3] == ["none", "sinusoidal", "learned"]
    assert looks["rope"].colour == looks["yarn"].colour != looks["alibi"].colour
    assert looks["mine"].colour == style.FAMILIES[""][0], "an encoder of one's own has a colour of its own"
    six = style.chosen(looks, ["rope", "yarn", "alibi", "t5", "none", "sinusoidal", "shaw", "dape"])
    assert list(six) == ["none", "sinusoidal", "rope", "alibi", "dape", "shaw"], "the best of each family"
    assert {look.dash for look in six.values()} == {"-"}
    two = style.dashed(looks, ["alibi", "t5"])
    assert two["alibi"].dash != two["t5"].dash


def test_an_encoder_of_one_s_own_is_among_the_coloured_however_bad() -> None:
    order = ["rope", "yarn", "alibi", "t5", "none", "sinusoidal", "shaw", "dape", "mine"]
    rows = pd.DataFrame({"encoder": order, "series": order})
    families = {entry.name: entry.declared["family"] for entry in _catalogue.encoders()} | {"mine": "score bias"}
    looks = style.looks(rows, families, {"mine"})
    assert "mine" in style.chosen(looks, order)
    assert looks["mine"].colour == style.FAMILIES[""][0], "whatever family it is of"
    assert looks["mine"].family == "score bias", "by which figures choose what they say"
    assert style.dashed(looks, ["alibi", "mine"])["mine"].dash == "-", "no other line has its colour"
    assert "mine" not in style.chosen(style.looks(rows, families), order)


@pytest.mark.drawn
def test_a_picture_that_stands_alone_has_room_for_its_caption() -> None:
    heights = []
    for caption in ("", "What is drawn, of whom. " * 8):
        with style.theme():
            figure, _ = chart("Title", caption, x="x")
        png = style.render(figure, "png")
        heights.append(int.from_bytes(png[20:24], "big"))
    assert heights[1] > heights[0] + 30


@pytest.mark.drawn
def test_svg_is_small_has_text_and_is_dark_where_the_page_is() -> None:
    rows = pd.DataFrame({"series": ["rope"] * 4 + ["t5"] * 4, "x": [1, 2] * 4, "seed": [0, 0, 1, 1] * 2})
    rows = rows.assign(encoder=rows["series"], value=0.123456, status="ok", metric="token_accuracy")
    with style.theme():
        figure, (axes,) = chart("Fish & <chips> 0.12345", "", x="x")
        lines.name(axes, lines.draw(axes, rows, "x", style.looks(rows)))
    svg = style.render(figure, "svg")
    assert svg == style.render(figure, "svg")
    assert len(svg) < 12_000
    tree = ElementTree.fromstring(svg)
    texts = [node.text for node in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert {"rope", "t5", "Fish & <chips> 0.12345"} <= set(texts), "no digit of a text is lost"
    (css,) = re.findall(r"@media\(prefers-color-scheme:dark\)\{.*?\}\}", svg.decode())
    for family in ("rotation", "score bias"):
        light, dark = style.FAMILIES[family]
        assert f'[style*="stroke: {light}"]{{stroke:{dark}!important}}' in css
    assert '[style*="fill: #ffffff"]{fill:none!important}' in css, "no white slab on a dark page"


def test_names_stand_free_and_near_their_lines() -> None:
    parts = {
        name: (np.linspace(0, 1, 9), np.linspace(start, end, 9))
        for name, start, end in (("up", 0, 1), ("down", 1, 0), ("flat", 0.5, 0.5))
    }
    with style.theme():
        figure, (axes,) = chart("", "")
        drawn = {name: axes.plot(*part)[0] for name, part in parts.items()}
        lines.name(axes, drawn)
        figure.draw_without_rendering()
    boxes = {text.get_text(): text.get_window_extent() for text in axes.texts}
    assert set(boxes) == set(parts)
    for one, other in combinations(boxes.values(), 2):
        assert not one.overlaps(other)
    for name, box in boxes.items():
        inside = [axes.bbox.x0 <= box.x0, box.x1 <= axes.bbox.x1, axes.bbox.y0 <= box.y0, box.y1 <= axes.bbox.y1]
        assert all(inside)
        near = {
            key: np.abs(line.get_transform().transform(line.get_xydata()) - (box.x0 + box.x1) / 2)[:, 0].min()
            for key, line in drawn.items()
        }
        assert name in near


def test_a_title_names_three_at_most() -> None:
    assert words.brief(["a"], 5) == "a"
    assert words.brief(["a", "b", "c"], 5) == "a, b and c"
    assert words.brief("abcd", 5) == "4 of 5 encoders"
    assert words.brief("abcde", 5) == "all 5 encoders"


def test_dots_are_seen_in_a_picture_too() -> None:
    """A line of length 0 is a dot on the page, and nothing in a PNG."""
    with style.theme():
        figure, (axes,) = chart("title", "caption", alike="xy")
        axes.set(xlim=(0, 2), ylim=(0, 2))
        lines.dots(axes, [1.0, 1.0], [0.5, 1.5], 6, color="#ff0000")
    assert (pixels(figure)[..., :3] == (255, 0, 0)).all(-1).sum() > 30, "of two dots six points wide"


def pixels(figure: style.Chart) -> np.ndarray:  # type: ignore[type-arg]
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())
