"""Panels: names beside a heat map, room on an axis."""

from __future__ import annotations

import pandas as pd
import pytest
from matplotlib.figure import Figure

from experiments.figures import style
from experiments.figures.lines import value_axis
from experiments.figures.panels import heat


def test_names_beside_a_heat_map_are_whole_or_keep_what_tells_them_apart() -> None:
    names = ["none", "sinusoidal · randomized(limit=300)", "sinusoidal · coupled"]
    with style.theme():
        figure = heat("What is found", "What is drawn.", {"left": pd.DataFrame({"a": [0.1, 0.2, 0.3]}, names)}, "share")
        figure.draw_without_rendering()
    labels = figure.axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == ["none", "sinusoidal… · randomized", "sinusoidal · coupled"]
    assert min(label.get_window_extent().x0 for label in labels) > -1


@pytest.mark.parametrize("value", [0.0, -1.5, 3.25])
def test_an_axis_of_equal_values_has_room_around_them(value: float) -> None:
    rows = pd.DataFrame({"series": ["rope"] * 2, "shift": [1, 2], "value": value, "status": "ok", "metric": "loss"})
    axes = Figure().add_subplot()
    value_axis(axes, rows, "shift")
    low, high = axes.get_ylim()
    assert low < value < high
