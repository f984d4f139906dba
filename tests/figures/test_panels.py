"""Panels: names beside a heat map."""

from __future__ import annotations

import pandas as pd

from experiments.figures import style
from experiments.figures.panels import heat


def test_names_beside_a_heat_map_are_whole_or_keep_what_tells_them_apart() -> None:
    names = ["none", "sinusoidal · randomized(limit=300)", "sinusoidal · coupled"]
    with style.theme():
        figure = heat("What is found", "What is drawn.", {"left": pd.DataFrame({"a": [0.1, 0.2, 0.3]}, names)}, "share")
        figure.draw_without_rendering()
    labels = figure.axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == ["none", "sinusoidal… · randomized", "sinusoidal · coupled"]
    assert min(label.get_window_extent().x0 for label in labels) > -1
