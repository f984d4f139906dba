"""Two folders side by side: a line for each series from its number in one to that in the other."""

import pandas as pd

from experiments.figures import lines, style
from experiments.figures.panels import chart
from experiments.figures.style import Chart


def slopes(table: pd.DataFrame, names: tuple[str, str], title: str, y: str) -> Chart:
    """Return a chart of the columns ``theirs`` and ``ours`` by ``series``; ``names`` are those of ours and theirs.

    Up to six series that ``changed``, by the largest ``difference``, have a colour, and the others are grey.
    """
    changed = table[table["changed"]]
    largest = changed.loc[changed["difference"].abs().sort_values(ascending=False).index, "series"]
    looks = style.looks(table.assign(encoder=table["series"].str.partition(" · ")[0]))
    named = style.dashed(looks, list(largest)[:6])
    caption = (
        f"From {names[1]} (left) to {names[0]} (right), mean beyond the training length. Colour: what changed beyond "
        "noise, the largest first; grey: the others."
    )
    parts = [table.assign(place=place, value=table[side]) for place, side in enumerate(("theirs", "ours"))]
    with style.theme():
        figure, (axes,) = chart(title, caption, y=y, height=2.0)
        drawn = lines.draw(axes, pd.concat(parts).assign(seed=0, status="ok"), "place", named, seeds=False)
        axes.set_xlim(-0.08, 1.08)
        axes.set_xticks([0, 1], [names[1], names[0]])
        lines.name(axes, drawn)
    return figure
