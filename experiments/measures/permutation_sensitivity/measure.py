"""Does a model see the order of its input, which changes of order hurt it most, and in which layers do they show?

The order of the input is changed in ways that differ in how far things move and in how many neighbours they lose.
The answer asked for remains the one to the untouched input. Measured is how much of the quality goes, how many
answers change, how much the outputs change, before training and after, and how much the representation of the input
changes from layer to layer.

Order is changed in two ways. Either tokens change places and each takes the position of its new place, or tokens stay
and their positions are permuted. Both give each token the same position. So a bidirectional model gives the same
answer to both; outputs at the input merely stand at other places. A causal model does not: what a token
may see goes by its place, which permuted positions leave alone. An encoder that reads no positions, but goes by
the order of the sequence or adds nothing, does not react to permuted positions: the change is exactly 0.

Sensitivity is the quality lost per unit of distance from the untouched order, the slope of a line through the
origin over all changes of order. There are two distances: how far tokens moved, and the share of
neighbours that were parted (Clouatre et al. 2021).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Literal

from experiments.measures.permutation_sensitivity import Change

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from torch import Tensor

    from experiments.measures.permutation_sensitivity.effects import Effects
    from experiments.measures.permutation_sensitivity.permutations import Intervention
    from experiments.rows.row import Row
    from experiments.training.evaluate import Subject
    from pe_zoo import Unsupported

NAME = "permutation_sensitivity"
NEEDS_TRAINING = True
MAIN = "quality_loss"

DISTANCES = ("index_displacement", "neighbours_lost")
SLOPES = {"index_displacement": "displacement_sensitivity", "neighbours_lost": "neighbour_sensitivity"}
"""Distance -> the slope of damage over it."""
FOLDS = 8
"""Parts that the sequences are cut into, so that one seed has an interval too."""
TOKENS, POSITIONS = "tokens", "positions"
LAYERED = ("shuffle", "reversal")
"""Changes of order that are followed through the layers."""

CAPTIONS = {
    "quality_loss": "Quality lost by each change of order, the changes that part the fewest neighbours first. Left: "
    "tokens permuted; right: positions permuted, tokens in place. Dots: mean over seeds; bars: 95 % t interval over "
    "seeds. Further right, or darker: the order of the input is relied upon more.",
    "output_change": "How far the outputs move, relative to what they were: before training, which is what the encoder "
    "and the mask bring along, and after it. Mean and 95 % t interval over seeds.",
    "damage": "Quality lost when tokens are permuted, over how far they moved (share of the length) and over the share "
    "of neighbours parted. A dot is a change of order, mean over seeds; the slope of the line is the sensitivity.",
    "damage_positions": "The same for permuted positions, tokens in place.",
    "sensitivity": "Quality lost per unit of each distance: the slopes of the lines above. Filled: tokens permuted; "
    "hollow: positions permuted. Bars: 95 % t interval, over seeds where there are two or more; over eight parts of "
    "the input sequences where there is one, which says nothing of other trainings.",
    "representation_change": "How much a change of order changes what each layer makes of the input, relative to the "
    "untouched input, token by token; layer 0 is the embedded input. Bands: 95 % t interval over seeds.",
}


def check(*, samples: int, ngrams: Iterable[int], windows: Iterable[int], swap_shares: Iterable[float]) -> None:
    """Refuse knobs out of range."""
    from pe_zoo._knobs import number, whole

    whole("permutation_sensitivity.samples", samples, at_least=1)
    for n in ngrams:
        whole("permutation_sensitivity.ngrams", n, at_least=1)
    for width in windows:
        whole("permutation_sensitivity.windows", width, at_least=2)
    for share in swap_shares:
        number("permutation_sensitivity.swap_shares", share, above=0, at_most=1)


def measure(
    subject: Subject,
    *,
    samples: int = 96,
    ngrams: tuple[int, ...] = (1, 2, 4, 8),
    windows: tuple[int, ...] = (4, 8),
    swap_shares: tuple[float, ...] = (0.1, 0.25, 0.5),
) -> list[Row]:
    """What permuting the input does to quality, answers, outputs and representations.

    The same permutations are put on the tokens (``shuffle``) and on the positions (``positions: shuffle``) of the
    task's input. ``1-gram shuffle`` is ``shuffle`` drawn again: the difference of the two is the noise of sampling.
    At initialisation, positions are permuted by a shuffle and a reversal only.

    Args:
        subject: the model and its task; measured at the training length.
        samples: sequences, at least 1, each with a permutation of its own; of a fixed test set, windows.
        ngrams: sizes of the pieces that are shuffled, each at least 1.
        windows: sizes of the pieces within which order is shuffled, each at least 2.
        swap_shares: shares of neighbouring pairs that are swapped, each in (0, 1].
    """
    from experiments.measures.permutation_sensitivity.effects import effects

    span = subject.task.input_span(subject.task.train_length)
    batch, positions = subject.question(NAME, samples, subject.task.train_length)
    chosen = _interventions(subject, len(batch.tokens), span, (ngrams, windows, swap_shares))
    first = {change: done for change, done in chosen.items() if not done.on_positions or _is_layered(change)}
    trained = effects(subject.model, batch, positions, span, chosen)
    initial = effects(subject.initial(), batch, positions, span, first) if subject.trained else trained
    chance = {metric: subject.best_guess(metric, subject.task.train_length) for metric in subject.task.metrics}
    if batch.counted[: span.stop].any():
        # A guess is known for all places together, and not all are asked. Of text it is the same at each.
        chance |= {metric: math.nan for metric in chance if metric != "bits_per_byte"}
    rows = _qualities(subject, trained[""], Change(""), chance)
    for change, intervention in chosen.items():
        rows += _distances(subject, intervention, change)
        rows += _qualities(subject, trained[change], change, chance)
        rows += _losses(subject, trained[""], trained[change], change)
        rows += _changes(subject, trained[change], change, "")
        if change in first:
            rows += _changes(subject, initial[change], change, "initial_")
    return rows + _sensitivities(subject, trained, chosen)


def _interventions(
    subject: Subject, samples: int, span: slice, family: tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]
) -> dict[Change, Intervention]:
    """Every change of order; positions are permuted as the tokens are."""
    import torch

    from experiments.measures.permutation_sensitivity.permutations import Intervention, makers

    orders = {}
    for change, make in makers(*family).items():
        generator = subject.stream(f"{NAME}/{change.name}")
        orders[change] = torch.stack([make(span.stop - span.start, generator) for _ in range(samples)])
    tokens = {change: Intervention(order) for change, order in orders.items()}
    return tokens | {
        change._replace(condition=f"{POSITIONS}: {change.condition}"): Intervention(order, on_positions=True)
        for change, order in orders.items()
    }


def _is_layered(change: Change) -> bool:
    return change.condition.removeprefix(f"{POSITIONS}: ") in LAYERED


def _distance(metric: str, orders: Tensor) -> float:
    from experiments.measures.permutation_sensitivity import permutations

    value: float = getattr(permutations, metric)(orders)
    return value


def _distances(subject: Subject, intervention: Intervention, change: Change) -> list[Row]:
    orders = intervention.orders
    return [
        subject.row(NAME, metric, **change._asdict(), value=_distance(metric, orders), n=len(orders))
        for metric in DISTANCES
    ]


def _qualities(subject: Subject, effect: Effects | Unsupported, change: Change, chance: dict[str, float]) -> list[Row]:
    """How good the answers are."""
    from pe_zoo import Unsupported

    where, metrics = change._asdict(), subject.task.metrics
    if isinstance(effect, Unsupported):
        return [subject.cannot(NAME, metric, effect, **where) for metric in metrics]
    return [
        subject.row(
            NAME, metric, **where, value=effect.quality(metric), chance=chance[metric], n=effect.scored.n(metric)
        )
        for metric in metrics
    ]


def _losses(
    subject: Subject, before: Effects | Unsupported, effect: Effects | Unsupported, change: Change
) -> list[Row]:
    """What a change of order does to the answers."""
    from pe_zoo import Unsupported

    where = change._asdict()
    if isinstance(effect, Unsupported):
        return [subject.cannot(NAME, metric, effect, **where) for metric in ("quality_loss", "answers_changed")]
    damage, scored = _damage(subject, before, effect), effect.scored
    return [
        subject.row(NAME, "quality_loss", **where, value=damage, n=scored.num_sequences),
        subject.row(NAME, "answers_changed", **where, value=effect.share_changed(), n=scored.num_tokens),
    ]


def _damage(subject: Subject, before: Effects | Unsupported, after: Effects, part: Tensor | None = None) -> float:
    """Quality lost, in the task's main metric; positive is worse."""
    from experiments.rows.row import lost
    from pe_zoo import Unsupported

    assert not isinstance(before, Unsupported)
    main = subject.task.metrics[0]
    return lost(main, before.quality(main, part), after.quality(main, part))


def _changes(subject: Subject, effect: Effects | Unsupported, change: Change, stage: str) -> list[Row]:
    """How far outputs and representations move."""
    from experiments.measures.permutation_sensitivity.effects import relative
    from pe_zoo import Unsupported

    wanted: list[tuple[str, str, int | None]] = [("output_change", "output", None)]
    if change.condition in LAYERED:
        wanted.append(("equivariance_error", "equivariance", None))
    if _is_layered(change):
        layers = range(subject.model.geometry.num_layers + 1)
        wanted += [("representation_change", "representation", layer) for layer in layers]
    rows = []
    for metric, of_what, layer in wanted:
        where = {**change._asdict(), "layer": layer}
        if isinstance(effect, Unsupported):
            rows.append(subject.cannot(NAME, f"{stage}{metric}", effect, **where))
            continue
        squares: Tensor = getattr(effect, of_what)
        value = relative(squares if layer is None else squares[:, layer])
        rows.append(subject.row(NAME, f"{stage}{metric}", **where, value=value, n=len(squares)))
    return rows


def _sensitivities(
    subject: Subject, trained: Mapping[Change | Literal[""], Effects | Unsupported], chosen: dict[Change, Intervention]
) -> list[Row]:
    """The slopes of damage over each distance, of all sequences and of each fold, for tokens and for positions."""
    import torch

    from experiments.measures.permutation_sensitivity.permutations import slope
    from pe_zoo import Unsupported

    everything = torch.arange(len(next(iter(chosen.values())).orders))
    folds = everything.tensor_split(min(FOLDS, len(everything)))
    parts: dict[int | None, Tensor] = {None: everything}
    if len(folds) > 1:
        parts |= dict(enumerate(folds, 1))
    rows = []
    for kind in (TOKENS, POSITIONS):
        of_kind = {change: done for change, done in chosen.items() if done.on_positions == (kind == POSITIONS)}
        found = [trained[change] for change in of_kind]
        refused = next((reason for reason in found if isinstance(reason, Unsupported)), None)
        if next(iter(of_kind.values())).orders.shape[1] < 2:
            refused = Unsupported("an input of one token has no order; give task.train_length more")
        for (distance, metric), (number, part) in product(SLOPES.items(), parts.items()):
            if refused is not None:
                rows.append(subject.cannot(NAME, metric, refused, condition=kind, part=number))
                continue
            far = [_distance(distance, done.orders[part]) for done in of_kind.values()]
            lost = [_damage(subject, trained[""], e, part) for e in found if not isinstance(e, Unsupported)]
            rows.append(subject.row(NAME, metric, condition=kind, part=number, value=slope(far, lost), n=len(part)))
    return rows


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, interval and number of seeds for each label, metric and condition. See `_stats.by_measurement`.

    A sensitivity of one seed has an interval over the parts of its inputs. Column ``interval_over`` says which it is:
    ``seeds``, ``inputs``, or blank where there is none.
    """
    from experiments.rows.row import rows_of
    from experiments.statistics.intervals import by_measurement, half_width, labelled

    rows = rows_of(rows, NAME)
    table = by_measurement(rows, ("layer", "part", "size", "share"))
    table["interval_over"] = ["seeds" if seeds > 1 else "" for seeds in table["seeds"]]
    slopes = labelled(rows[rows["metric"].isin(SLOPES.values()) & (rows["status"] == "ok")])
    folds = slopes[slopes["part"].notna()]
    keys = ["task", "metric", "label", "train_length", "eval_length", "condition"]
    spread = folds.groupby(keys)["value"].agg(["std", "count"])
    for place, line in table[
        (table["seeds"] == 1) & table["metric"].isin(SLOPES.values()) & table["part"].isna()
    ].iterrows():
        key = tuple(line[keys])
        if key in spread.index:
            half = half_width(float(spread.loc[key, "std"]), int(spread.loc[key, "count"]))
            bounds = [line["mean"] - half, line["mean"] + half, half, "inputs"]
            table.loc[[place], ["low", "high", "half_width", "interval_over"]] = [bounds]
    return table


def plot(rows: pd.DataFrame) -> dict[str, Figure]:
    """Damage, sensitivity, and changes of outputs and representations: stem -> figure, for each task.

    Args:
        rows: of this experiment, of one run or of many.
    """
    from experiments.figures.style import slug
    from experiments.measures.permutation_sensitivity.figures import figures
    from experiments.rows.row import rows_of
    from experiments.statistics.intervals import labelled

    return {
        f"{slug(str(task))}_{stem}": figure
        for task, of_task in labelled(rows_of(rows, NAME)).groupby("task")
        for stem, figure in figures(of_task, summarise(of_task)).items()
    }


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """What stands for the experiment in one table: two changes of order, and the sensitivities."""
    heads = {
        ("quality_loss", "shuffle"): "quality lost, tokens shuffled",
        ("quality_loss", "positions: shuffle"): "quality lost, positions shuffled",
        ("answers_changed", "shuffle"): "answers changed, tokens shuffled",
        ("answers_changed", "positions: shuffle"): "answers changed, positions shuffled",
        ("displacement_sensitivity", TOKENS): "displacement sensitivity, tokens",
        ("neighbour_sensitivity", TOKENS): "neighbour sensitivity, tokens",
        ("displacement_sensitivity", POSITIONS): "displacement sensitivity, positions",
        ("neighbour_sensitivity", POSITIONS): "neighbour sensitivity, positions",
    }
    place = {key: number for number, key in enumerate(heads)}
    rows = rows[rows["part"].isna()]
    keys = list(zip(rows["metric"], rows["condition"], strict=True))
    found = rows.assign(head=[heads.get(key, "") for key in keys], place=[place.get(key, -1) for key in keys])
    return found[found["head"] != ""].sort_values("place", kind="stable").drop(columns="place")


def change_names(rows: pd.DataFrame) -> list[str]:
    """The change of order of each row in words, see `Change`; blank where there was none."""
    columns = (rows[column].astype(object).where(rows[column].notna(), None) for column in Change._fields)
    names = cache(lambda cells: Change(*cells).name)
    return [names(cells) for cells in zip(*columns, strict=True)]


def order(rows: pd.DataFrame) -> list[str]:
    """The changes of order, the gentlest first: by the neighbours lost, then by how far tokens move."""
    distances = rows[rows["metric"].isin(DISTANCES) & (rows["condition"] != "")]
    distances = distances.assign(change=change_names(distances))
    table = distances.pivot_table(index="change", columns="metric", values="value", aggfunc="mean")
    table = table.reindex(columns=["neighbours_lost", "index_displacement"]).sort_values(
        ["neighbours_lost", "index_displacement"]
    )
    known = [str(change) for change in table.index]
    others = set(change_names(rows[rows["metric"].isin(["quality_loss", "output_change"])]))
    return [*known, *sorted(others - {"", *known})]
