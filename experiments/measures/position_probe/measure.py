"""Can the place of a token be read off a model's inner states, and from which layer on?

A linear probe is fitted on some sequences and asked about others: from the state of a token, before the first layer
and after each, it is to say the token's place in the sequence, counted from 0. Its error says by how many places it
is wrong on average. A small error means that the place is there to be read, whether the encoder put it there or the
model worked it out for itself, as a causal one can without any encoder; it does not mean that the model uses it.

Two controls say what an error is to be compared with. One probe is shown which token stands there and nothing else:
what the text itself gives away. Another is to learn places that were shuffled within each sequence, so that there is
nothing to learn: if it came out below the best constant guess, the method would be reading what is not there; if
above, there were too few sequences for so many features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from experiments.figures.style import Look
    from experiments.rows.row import Row
    from experiments.training.evaluate import Subject

NAME = "position_probe"
NEEDS_TRAINING = True
MAIN = "probe_error"

INITIAL = "initial_probe_error"
TOKENS = "tokens alone"
SHUFFLED = "shuffled labels"
MOST_LAYERS = 5
"""Layers that the report's table has room for."""

CAPTIONS = {
    "probe_error": (
        "By how many places a linear probe is wrong, on average, about the place of a token, reading the state before "
        "the first layer (0) and after each; held-out sequences of the training length. Solid: trained. Dashed: before "
        "training. Grey: probes of tokens alone, of the trained states with shuffled labels, and the best constant "
        "guess. Bands: 95 % intervals over seeds."
    ),
}


def check(*, samples: int) -> None:
    """Refuse knobs out of range."""
    from experiments.measures.position_probe.regression import LEAST
    from pe_zoo._knobs import whole

    whole("position_probe.samples", samples, at_least=LEAST)


def measure(subject: Subject, *, samples: int = 256) -> list[Row]:
    """By how many places a linear probe errs about places, for each layer, before training and after.

    Probing for places: Haviv et al. (2022), arXiv:2203.16634, §4, with a network of two layers that classifies; here
    the probe is linear (ridge regression of the place, in closed form), so that it can work out nothing by itself.
    Labels to learn nothing from: after Hewitt & Liang (2019), arXiv:1909.03368, who draw one for each type of token;
    here they are the places of the sequence, in another order in each, so that they tell nothing at all.

    ``probe_error`` is the mean absolute error in places over the held-out sequences, of readings cut to the places
    there are. ``chance`` is that of the best constant.

    Args:
        subject: the trained model and its task; measured at the training length.
        samples: sequences, at least 4; half to fit on, a quarter to choose the strength of the ridge on, the rest to
            test on. Of a fixed test set, windows.
    """
    import torch

    from experiments.measures.position_probe.regression import (
        LEAST,
        constant_error,
        identities,
        num_tested,
        probe_errors,
        streams,
    )
    from pe_zoo import Unsupported

    batch, positions = subject.question(NAME, samples, subject.task.train_length)
    count, length = batch.tokens.shape
    if count < LEAST:
        raise Unsupported(f"{NAME} needs {LEAST} sequences and the task has {count} to test on; give it more")
    places = torch.arange(length).expand(count, length)
    shuffled = torch.rand(count, length, generator=subject.stream(f"{NAME}/{SHUFFLED}")).argsort(-1)
    labels = torch.stack([places, shuffled], -1)
    trained = probe_errors(streams(subject.model, batch.tokens, positions), labels)
    initial = probe_errors(streams(subject.initial(), batch.tokens, positions), labels)
    tokens = probe_errors(identities(batch.tokens, subject.task.vocab_size), labels)
    found: list[tuple[str, str, int | None, Tensor]] = [(MAIN, TOKENS, None, tokens[0, 0])]
    for layer in range(len(trained)):
        found += [
            (MAIN, "", layer, trained[layer, 0]),
            (INITIAL, "", layer, initial[layer, 0]),
            (MAIN, SHUFFLED, layer, trained[layer, 1]),
        ]
    tested = {"chance": constant_error(length), "n": num_tested(count) * length}
    return [
        subject.row(NAME, metric, condition=condition, layer=layer, value=value.item(), **tested)
        for metric, condition, layer, value in found
    ]


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, interval and number of seeds for each label, metric and layer. See `_stats.by_measurement`."""
    from experiments.rows.row import rows_of
    from experiments.statistics.intervals import by_measurement

    return by_measurement(rows_of(rows, NAME))


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the report's table, with their column's heading in ``head``: layers, controls, constant guess."""
    from experiments.figures.panels import spread, under_heads

    layers = spread([int(layer) for layer in rows["layer"].dropna().unique()], MOST_LAYERS)
    of_main = rows[rows["metric"] == MAIN]
    plain = of_main[of_main["condition"] == ""]
    parts = [plain[plain["layer"] == layer].assign(head=f"layer {layer}") for layer in layers]
    untrained = rows[(rows["metric"] == INITIAL) & rows["layer"].isin(layers[-1:])]
    alone = of_main[of_main["condition"] == TOKENS]
    parts += [
        untrained.assign(head=f"layer {max(layers, default=0)}, untrained"),
        alone.assign(head=TOKENS),
        alone.assign(value=alone["chance"], head="best constant"),
    ]
    return under_heads(parts, rows)


def plot(rows: pd.DataFrame) -> dict[str, Figure]:
    """Error over layers, a panel a label: stem -> figure, for each task.

    Args:
        rows: of this experiment, of one run or of many.
    """
    from experiments.figures.style import looks, slug
    from experiments.rows.row import rows_of
    from experiments.statistics.intervals import labelled

    rows = labelled(rows_of(rows, NAME))
    return {
        f"{slug(str(task))}_{MAIN}": _over_layers(of_task, looks(of_task))
        for task, of_task in rows.groupby("task")
        if (of_task["status"] == "ok").any()
    }


def _over_layers(rows: pd.DataFrame, looks: dict[str, Look]) -> Figure:
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    from experiments.figures.panels import GREY, highest, line, small_multiples
    from experiments.rows.row import metric_of
    from experiments.statistics.intervals import over_seeds

    layered = over_seeds(rows[rows["layer"].notna()], ["label", "metric", "condition", "layer"])
    alone = over_seeds(rows[rows["condition"] == TOKENS], ["label"]).set_index("label")["mean"]
    constant = rows.groupby("label")["chance"].mean()
    top = max(highest(layered), alone.max(), constant.max())
    tokens_style: dict[str, Any] = {"color": GREY, "linewidth": 1.2, "linestyle": "-."}
    constant_style: dict[str, Any] = {"color": GREY, "linewidth": 1.0, "linestyle": (0, (1, 1.5))}

    def draw(axes: Axes, label: str, look: Look) -> None:
        of_label = layered[layered["label"] == label]
        for condition, metric, colour, style in (
            (SHUFFLED, MAIN, GREY, {"linewidth": 1.0, "marker": "x", "markersize": 4}),
            ("", INITIAL, look.colour, {"linewidth": 1.4, "linestyle": (0, (3, 2))}),
            ("", MAIN, look.colour, {"linewidth": 1.8, **look.marking(), "markersize": 5}),
        ):
            part = of_label[(of_label["condition"] == condition) & (of_label["metric"] == metric)]
            line(axes, part, "layer", colour, **style)
        if label in alone.index and alone.notna()[label]:
            axes.axhline(alone[label], **tokens_style)
        if constant.notna()[label]:
            axes.axhline(constant[label], **constant_style)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))
        axes.set_ylim(-0.03 * top, 1.04 * top)

    key = [
        Line2D([], [], color="#222222", linewidth=1.8, marker="o", markersize=5, label="trained"),
        Line2D([], [], color="#222222", linewidth=1.4, linestyle=(0, (3, 2)), label="before training"),
        Line2D([], [], **tokens_style, label=TOKENS),
        Line2D([], [], color=GREY, linewidth=1.0, marker="x", markersize=4, label=SHUFFLED),
        Line2D([], [], **constant_style, label="best constant guess"),
    ]
    metric = metric_of(MAIN)
    what = {"title": "places read by a linear probe", "x": "layer"}
    return small_multiples(rows, looks, draw, **what, y=f"mean error ({metric.unit})", key=key)
