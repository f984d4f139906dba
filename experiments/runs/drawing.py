"""The figures of a run: its training curve, and what each of its measures shows."""

import shutil
import tempfile
from pathlib import Path

import pandas as pd

from experiments.rows.row import write_whole


def draw(folder: Path, table: pd.DataFrame) -> None:
    """Draw the rows of a run into its ``figures/``: all of them or none. OSError if the disk does not take them."""
    from experiments.figures import style  # with what it needs, a second that no run without figures waits for
    from experiments.figures.training import training_curves
    from experiments.measures import plot_of

    unfinished = Path(tempfile.mkdtemp(dir=folder, prefix=".figures."))
    try:
        for name in table["experiment"].unique():
            plot = training_curves if name == "training" else plot_of(name)
            for stem, figure in plot(table[table["experiment"] == name]).items():
                write_whole(unfinished / f"{name}_{stem}.png", style.render(figure, "png"), lasting=False)
        unfinished.chmod(0o755)
        unfinished.rename(folder / "figures")
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
