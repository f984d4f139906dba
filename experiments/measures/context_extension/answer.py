"""What a user of one saved model learns from its rows: how to read a longer text, and how sure that is."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from experiments.figures import words
from experiments.measures.context_extension import (
    AS_TRAINED,
    CONTENT,
    DROPPED,
    END,
    NAME,
    REPLACED,
    TIME,
    WINDOW,
)
from experiments.rows.row import main_metric, metric_of
from experiments.statistics import blocks

FAR = 4
"""Training lengths that the answer is about, or the nearest measured."""
ENOUGH = 50
"""Windows of a length below which they are few."""
UNCHANGED = "unchanged"
NAMES = {AS_TRAINED: UNCHANGED, DROPPED: "no encoding"}
"""How conditions are named where no other name says them."""
USE = 'pe_zoo.hf.use(model, "{name}"{more})'


@dataclass(eq=False)
class Ranking:
    """The changes of a model at one length, best first.

    Args:
        length: in the task's unit.
        multiple: of the training length.
        table: by condition: ``value``, ``factor``, ``end`` (the value in the last quarter of each window), ``time`` (of
            reading, over that of the unchanged model), ``content`` with ``content_low`` and ``content_high`` (bits that
            distant text saves), and for ``trained_`` (less unchanged) and ``best_`` (less the best) ``difference``,
            ``low``, ``high``, ``p`` and ``p_holm``.
        windows: how many windows were measured; 0 where sequences are no text.
        blocks: of how many blocks the intervals are.
    """

    length: int
    multiple: float
    table: pd.DataFrame
    windows: int
    blocks: int

    def line(self, name: str) -> dict[str, float]:
        """Return the numbers of a condition."""
        return self.table.loc[[name]].to_dict("records")[0]  # type: ignore[return-value]

    @property
    def best(self) -> str:
        """The condition with the best value."""
        return str(self.table.index[0])

    @property
    def alike(self) -> list[str]:
        """The conditions that are not told apart from the best."""
        return [str(name) for name in self.table.index[1:] if blocks.alike(self.line(name)["best_p_holm"])]

    @property
    def helped(self) -> bool:
        """Whether the best is better than the unchanged model."""
        return self.best != AS_TRAINED and not blocks.alike(self.line(self.best)["trained_p_holm"])


@dataclass
class Answer:
    """What the rows of one model say: a heading, sentences, rankings by length, and the lines that apply the best."""

    heading: str
    sentences: list[str]
    rankings: list[Ranking]
    metric: str
    train_length: int
    window: int
    code: list[str] = field(default_factory=list)


def named(condition: str, window: int) -> str:
    """Return how a condition is named to a reader."""
    return f"a window of {window}" if condition == WINDOW else NAMES.get(condition, condition)


def answer(rows: pd.DataFrame, corpus: Any = None) -> Answer | None:
    """Return what the rows of one run say; None where nothing was measured beyond the training length.

    ``corpus`` is what the run has noted of its text.
    """
    rows = rows[(rows["experiment"] == NAME) & (rows["status"] == "ok") & (rows["condition"] != REPLACED)]
    metric = main_metric(rows["metric"].unique())
    if metric is None or rows.empty:
        return None
    model, trained = str(rows["encoder"].iloc[0]), int(rows["train_length"].iloc[0])
    lengths = sorted(int(length) for length in rows["eval_length"].unique() if length > trained)
    found = {length: _ranking(rows, metric, length, trained) for length in lengths}
    found = {length: ranking for length, ranking in found.items() if AS_TRAINED in ranking.table.index}
    if not found:
        return None
    wanted = min(found, key=lambda length: abs(length - FAR * trained))
    main, last = found[wanted], found[max(found)]
    sizes = rows.loc[(rows["condition"] == WINDOW) & rows["size"].notna(), "size"]
    window = int(sizes.iloc[0]) if len(sizes) else trained
    counts = _counts(found, trained, corpus if isinstance(corpus, dict) else {})
    if main.blocks < blocks.FEWEST:
        few = f"{main.windows} windows of {main.length} are" if main.windows else "the sequences measured are"
        why = f"An interval needs {blocks.FEWEST} of them or more, so no way of reading is ranked or recommended."
        return Answer(
            f"{model}, trained to {trained}: {few} too few for an answer", [why, *counts], [], metric, trained, window
        )
    inside = rows[(rows["condition"] == AS_TRAINED) & (rows["eval_length"] == trained) & rows["part"].isna()]
    inside = inside[inside["metric"] == metric]
    ranked = [ranking for ranking in dict.fromkeys([main, last]) if ranking.blocks >= blocks.FEWEST]
    return Answer(
        heading=_heading(model, main, metric, trained, window),
        sentences=[
            _advice(main, window),
            *_changes(main, metric, window),
            *_inside(inside["value"].tolist(), metric, trained),
            *_window(main, metric, window),
            *_distant(main, window),
            *(_further(last, metric, window) if last in ranked[1:] else []),
            *counts,
        ],
        rankings=ranked,
        metric=metric,
        train_length=trained,
        window=window,
        code=_code(main, window),
    )


def _ranking(rows: pd.DataFrame, metric: str, length: int, trained: int) -> Ranking:
    here = rows[rows["eval_length"] == length]
    quality = here[here["metric"] == metric]
    whole = quality[quality["part"].isna()].drop_duplicates("condition").set_index("condition")
    up = bool(metric_of(metric).higher_is_better)
    whole = whole.sort_values("value", ascending=not up, kind="stable")
    parts = _parts(quality)
    table = whole[["value", "factor"]].astype(float)
    for prefix, baseline in (("trained_", AS_TRAINED), ("best_", str(whole.index[0]))):
        table = table.join(blocks.against(whole["value"], parts, baseline).add_prefix(prefix))
    gains = here[here["metric"] == CONTENT]
    content, of_parts = gains[gains["part"].isna()].set_index("condition")["value"], _parts(gains)
    table["content"] = [float(content.get(name, math.nan)) for name in table.index]
    ends = [
        blocks.interval(content[name], of_parts[name]) if name in of_parts.columns else (math.nan, math.nan)
        for name in table.index
    ]
    table["content_low"], table["content_high"] = zip(*ends, strict=True)
    for column, name in (("end", END), ("time", TIME)):
        known = here[here["metric"] == name].set_index("condition")["value"]
        table[column] = [float(known.get(condition, math.nan)) for condition in table.index]
    text = metric == "bits_per_byte"
    windows = int(whole["n"].iloc[0]) // length if text else 0
    return Ranking(length, length / trained, table, windows, len(parts))


def _parts(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows[rows["part"].notna()]
    return rows.pivot_table(index="part", columns="condition", values="value")


def number(value: float, metric: str) -> str:
    """Return a quality with its unit."""
    of = metric_of(metric)
    return f"{100 * value:.1f} %" if of.bounds == (0, 1) else f"{value:.3f} {of.label}"


def difference(line: Mapping[str, float], prefix: str, metric: str) -> str:
    """Return a difference with its interval, in points where the metric is a share."""
    share = metric_of(metric).bounds == (0, 1)
    mean, low, high = ((100 if share else 1) * line[f"{prefix}{end}"] for end in ("difference", "low", "high"))
    text = words.interval(mean, low, high, "+.1f" if share else "+.3f").replace("-", "−")
    return f"{text} points" if share else text


def _heading(model: str, main: Ranking, metric: str, trained: int, window: int) -> str:
    opening, line = f"{model}, trained to {trained}", main.line(main.best)
    value = number(line["value"], metric)
    if main.best == AS_TRAINED:
        return f"{opening}, reads {main.length} best {UNCHANGED}: {value}"
    if not main.helped:
        value = number(main.line(AS_TRAINED)["value"], metric)
        return f"{opening}, reads {main.length} {UNCHANGED} no worse than with any method, by this text: {value}"
    told = f"{value}, {difference(line, 'trained_', metric)} against {UNCHANGED}"
    if main.best != WINDOW or not (methods := _methods(main)):
        return f"{opening}, reads {main.length} best with {named(main.best, window)}: {told}"
    second = main.line(methods[0])
    return (
        f"{opening}: at {main.length}, {named(WINDOW, window)} is best ({told}); of the ways to read all of it, "
        f"{methods[0]} ({number(second['value'], metric)}, {difference(second, 'trained_', metric)})"
    )


def _methods(main: Ranking) -> list[str]:
    """Return the replacements, best first."""
    return [str(name) for name in main.table.index if name not in (AS_TRAINED, WINDOW, DROPPED)]


def _advice(main: Ranking, window: int) -> str:
    """Return what to do, as an instruction."""
    methods, windowed = _methods(main), WINDOW in (main.best, *main.alike)
    if not methods or not main.helped:
        return f"Leave the model as it is: no method is shown to read {main.length} tokens better."
    factor = main.line(methods[0])["factor"]
    method = methods[0] if factor != factor else f"{methods[0]} with factor {factor:g}"
    if main.best == WINDOW:
        text = f"To read {main.length} tokens, limit attention to the last {window} tokens, a window."
        return f"{text} Use {method} instead where text further back must be attended to."
    text = f"To read {main.length} tokens, use {method}."
    return f"{text} A window of {window} may do as well, but attends to nothing further back." if windowed else text


def _changes(main: Ranking, metric: str, window: int) -> list[str]:
    of = f"95 % intervals over {main.blocks} blocks of the text, paired; Holm's correction over the methods"
    others = [f"{named(name, window)} ({difference(main.line(name), 'best_', metric)})" for name in main.alike]
    best = named(main.best, window)
    if others:
        return [f"Not told apart from {best}: {words.listed(others)} ({of})."]
    if len(main.table) < 2:
        return []
    second = str(main.table.index[1])
    less = difference(main.line(second), "best_", metric)
    text = f"{best[0].upper()}{best[1:]} is better than every other way: the next, {named(second, window)}, is at "
    return [f"{text}{less} ({of})."]


def _inside(inside: list[float], metric: str, trained: int) -> list[str]:
    return [f"At its training length, {trained}, the model has {number(inside[0], metric)}."] * bool(len(inside))


def _window(main: Ranking, metric: str, window: int) -> list[str]:
    if WINDOW not in main.table.index:
        return []
    line = main.line(WINDOW)
    less = difference(line, "trained_", metric)
    return [
        f"A window of {window} tokens has {number(line['value'], metric)} ({less} against {UNCHANGED}): no "
        "layer attends to a token further back."
    ]


def _distant(main: Ranking, window: int) -> list[str]:
    known = main.table[main.table["content"].notna()]
    methods = [name for name in known.index if name not in (AS_TRAINED, WINDOW)]
    if not methods:
        return []
    told = []
    for name in dict.fromkeys([methods[0], *([WINDOW] if WINDOW in known.index else [])]):
        line = main.line(str(name))
        gain = words.interval(line["content"], line["content_low"], line["content_high"], "+.3f").replace("-", "−")
        helps = line["content_low"] > 0
        verdict = "helps" if helps else "hurts" if line["content_high"] < 0 else "is not shown to help"
        told.append(f"under {named(str(name), window)} it {verdict}: {gain}")
    return [f"Text further back than {window} tokens, in bits per byte that it saves: {'; '.join(told)}."]


def _further(last: Ranking, metric: str, window: int) -> list[str]:
    line, others = last.line(last.best), [named(name, window) for name in last.alike]
    less = "" if last.best == AS_TRAINED else f", {difference(line, 'trained_', metric)} against {UNCHANGED}"
    text = f"At {last.length} ({last.multiple:g} times), {named(last.best, window)} is best: "
    text += number(line["value"], metric)
    return [text + less + (f"; not told apart: {words.listed(others)}." if others else ".")]


def _counts(found: Mapping[int, Ranking], trained: int, corpus: Mapping[str, Any]) -> list[str]:
    """Say how much of which text was read, and how to read enough of it, or all."""
    counts = {length: ranking.windows for length, ranking in found.items() if ranking.windows}
    if not counts:
        return []
    read = max(count * length for length, count in counts.items())
    size = round(corpus.get("bytes", 0) / (corpus.get("bytes_per_token") or math.inf))
    windows = words.listed([f"{count} windows of {length}" for length, count in counts.items()])
    share = f", {min(1, read / size):.0%} of its {size:,}".replace("%", " %") if size else ""
    text = f"Read: {read:,} tokens of {corpus.get('source', 'the text')}{share} ({windows})."
    few = [length for length, count in counts.items() if count < ENOUGH]
    if not few:
        whole = f" context_extension.samples={-(-size // trained)} reads all of it."
        return [text + (whole if read < 0.9 * size else "")]
    needed = ENOUGH * max(few)
    more = f"context_extension.samples={-(-needed // trained)}"
    if size < needed:
        more = f"a text of {needed:,} tokens and {more}" if size else f"more text and {more}"
    return [f"{text} Fewer than {ENOUGH} windows say little: {more} gives {ENOUGH} of {max(few)}."]


def _code(main: Ranking, window: int) -> list[str]:
    """Return the lines that apply the best replacement, and a window where that is as good or better: one or other."""
    methods = _methods(main)
    if not methods or not main.helped:
        return []
    factor = main.line(methods[0])["factor"]
    method = USE.format(name=methods[0], more="" if factor != factor else f", factor={factor!r}")
    if WINDOW not in (main.best, *main.alike):
        return ["import pe_zoo.hf", "", method]
    limited = [f"# attends to the last {window} tokens", USE.format(name="rope", more=f", sliding_window={window}")]
    lines = [limited, ["# attends to all of the text", method]]
    first, second = lines if main.best == WINDOW else reversed(lines)
    return ["import pe_zoo.hf", "", *first, "", f"# or, instead: {second[0].removeprefix('# ')}", f"# {second[1]}"]
