"""What a user of one saved model learns from its rows: how to read a longer text, and how sure that is."""

import json
import math
from collections.abc import Mapping, Sequence
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
from experiments.measures.context_use import NAME as CONTEXT_USE
from experiments.rows.row import main_metric, metric_of
from experiments.statistics import blocks

FAR = 4
"""Training lengths that the answer is about, or the nearest measured."""
ENOUGH = 50
"""Windows of a length below which they are few."""
LEAST = 0.0005
"""Less than what is printed is no cost: a method that changes nothing there differs by rounding."""
UNCHANGED = "unchanged"
NAMES = {AS_TRAINED: UNCHANGED, DROPPED: "no encoding"}
"""How conditions are named where no other name says them."""
FIXED = "nothing can be put into the model: "
REMEDIES = {
    "scaled already": "Measure the model without that scaling, which is rope_parameters (or rope_scaling) in its "
    "config.json.",
    FIXED: "The methods need a rotation that pe_zoo.hf can take out: docs/hugging_face.md lists the families.",
}
"""What to do where no method could be tried, by a part of the reason."""
MATTERS, MISLEADS, UNSHOWN = "matters", "misleads", "is not shown to matter"
"""What distant text does with a way of reading."""
USE = 'pe_zoo.hf.use(model, "{name}"{more})'
BEFORE = [
    "import pe_zoo.hf",
    "from transformers import AutoModelForCausalLM, AutoTokenizer",
    "",
    "model = AutoModelForCausalLM.from_pretrained({place})",
]
AFTER = [
    "model.config.max_position_embeddings = {length}  # without it, generate warns of longer texts",
    'model.save_pretrained("longer")',
    'AutoTokenizer.from_pretrained({place}).save_pretrained("longer")',
    '# pe_zoo.hf.load("longer") reads it again; plain from_pretrained loses the change without a word',
]
"""How the lines that apply a method begin and end."""


@dataclass(eq=False)
class Ranking:
    """The changes of a model at one length, best first.

    Args:
        length: in the task's unit.
        multiple: of the training length.
        table: by condition: ``value``, ``factor``, ``end`` (the value in the last quarter of each window), ``time`` (of
            reading, over that of the unchanged model) with ``time_low`` and ``time_high`` (the range of its readings),
            ``content`` with ``content_low`` and ``content_high`` (bits that distant text saves, with Bonferroni's
            correction), ``saved`` (the value at the training length with the factor of this one), and for ``trained_``
            (less unchanged), ``best_`` (less the best) and ``saved_`` (at the training length, less unchanged)
            ``difference``, ``low``, ``high``, ``p`` and ``p_holm``.
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
        """The conditions that do not differ significantly from the best."""
        return [str(name) for name in self.table.index[1:] if blocks.alike(self.line(name)["best_p_holm"])]

    @property
    def better(self) -> list[str]:
        """The conditions that are better than the unchanged model, best first."""
        names = [str(name) for name in self.table.index]
        ahead = names[: names.index(AS_TRAINED)]
        return [name for name in ahead if not blocks.alike(self.line(name)["trained_p_holm"])]

    @property
    def helped(self) -> bool:
        """Whether the best is better than the unchanged model."""
        return self.best in self.better

    @property
    def methods(self) -> list[str]:
        """The replacements, best first."""
        return [str(name) for name in self.table.index if name not in (AS_TRAINED, WINDOW, DROPPED)]

    @property
    def chosen(self) -> str | None:
        """The replacement to use, better than the unchanged model: beside a window, one that uses distant text."""
        better = [name for name in self.better if name in self.methods]
        using = [name for name in better if self.line(name)["content_low"] > 0]
        return next(iter([*using * (self.best == WINDOW), *better]), None)


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

    @property
    def covers(self) -> set[str]:
        """The experiments whose question it answers: with ``context_use``, which reads other windows, two would."""
        distant = any(ranking.table["content"].notna().any() for ranking in self.rankings)
        return {NAME, *([CONTEXT_USE] if distant else [])}


def named(condition: str, window: int) -> str:
    """Return how a condition is named to a reader."""
    return f"a window of {window}" if condition == WINDOW else NAMES.get(condition, condition)


def answer(
    rows: pd.DataFrame, corpus: Any = None, refusals: Sequence[str] = (), place: str | None = None
) -> Answer | None:
    """Return what the rows of one run say; None where nothing beyond the training length was to be measured.

    ``corpus`` is what the run has noted of its text, ``refusals`` the reasons of what it could not measure, and
    ``place`` what ``checkpoint=`` was given.
    """
    rows = rows[(rows["experiment"] == NAME) & (rows["condition"] != REPLACED)]
    asked = set(rows.loc[rows["condition"] == AS_TRAINED, "eval_length"].astype(int))
    rows = rows[rows["status"] == "ok"]
    metric = main_metric(rows["metric"].unique())
    if metric is None or rows.empty:
        return None
    model, trained = str(rows["encoder"].iloc[0]), int(rows["train_length"].iloc[0])
    lengths = sorted(int(length) for length in rows["eval_length"].unique() if length > trained)
    found = {length: _ranking(rows, metric, length, trained) for length in lengths}
    found = {length: ranking for length, ranking in found.items() if AS_TRAINED in ranking.table.index}
    missing = sorted(length for length in asked - set(found) if length > trained)
    corpus = corpus if isinstance(corpus, dict) else {}
    inside = rows[(rows["condition"] == AS_TRAINED) & (rows["eval_length"] == trained) & rows["part"].isna()]
    at_home = _inside(inside.loc[inside["metric"] == metric, "value"].tolist(), metric, trained)
    if not found:
        if not missing:
            return None
        heading = f"{model}, trained to {trained}: no longer text could be measured"
        return Answer(heading, [*_unread(missing, trained, corpus, refusals), *at_home], [], metric, trained, trained)
    wanted = min(found, key=lambda length: abs(length - FAR * trained))
    main, last = found[wanted], found[max(found)]
    sizes = rows.loc[(rows["condition"] == WINDOW) & rows["size"].notna(), "size"]
    window = int(sizes.iloc[0]) if len(sizes) else trained
    counts = _counts(found, trained, corpus)
    for length in missing:
        why = _reason(length, refusals)
        why = f"could not be read: {why}" if why else "are out of reach of this text"
        counts.append(f"{length} tokens, {length / trained:g} times its length, {why}.")
    if main.blocks < blocks.FEWEST:
        many = words.count(main.windows, "window")
        few = f"{many} of {main.length} {'is' if main.windows == 1 else 'are'}" if main.windows else "the sequences are"
        why = f"An interval needs {blocks.FEWEST} of them or more, so no way of reading is ranked or recommended."
        if main.windows and 0 < _size(corpus) < blocks.FEWEST * main.length:
            why += f" Only {many} of {main.length} {'fits' if main.windows == 1 else 'fit'} into a text of "
            why += f"{_size(corpus):,} tokens; at least {blocks.FEWEST * main.length:,} are needed."
        return Answer(
            f"{model}, trained to {trained}: {few} too few for an answer", [why, *counts], [], metric, trained, window
        )
    ranked = [ranking for ranking in dict.fromkeys([main, last]) if ranking.blocks >= blocks.FEWEST]
    return Answer(
        heading=_heading(model, main, metric, trained, window),
        sentences=[
            *_advice(main, window, refusals),
            *_changes(main, metric, window),
            *at_home,
            *_short(main, metric, trained),
            *_window(main, metric, window),
            *_distant(main, window),
            *(_further(last, metric, window) if last in ranked[1:] else []),
            *counts,
        ],
        rankings=ranked,
        metric=metric,
        train_length=trained,
        window=window,
        code=_code(main, window, place or "path/to/model"),
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
    saved, of_parts = gains[gains["part"].isna()].set_index("condition")["value"], _parts(gains)
    table["content"] = [float(saved.get(name, math.nan)) for name in table.index]
    ends = [
        blocks.interval(saved[name], of_parts[name], len(saved)) if name in of_parts else (math.nan, math.nan)
        for name in table.index
    ]
    table["content_low"], table["content_high"] = zip(*ends, strict=True)
    for column, name in (("end", END), ("time", TIME)):
        of_metric = here[here["metric"] == name]
        known = of_metric[of_metric["part"].isna()].set_index("condition")["value"]
        table[column] = [float(known.get(condition, math.nan)) for condition in table.index]
    ratios = here[(here["metric"] == TIME) & here["part"].notna()].groupby("condition")["value"]
    table = table.join(ratios.agg(time_low="min", time_high="max"))
    table = table.join(_as_saved(rows[rows["metric"] == metric], table["factor"], trained))
    text = metric == "bits_per_byte"
    windows = int(whole["n"].iloc[0]) // length if text else 0
    return Ranking(length, length / trained, table, windows, len(parts))


def _as_saved(rows: pd.DataFrame, factors: "pd.Series[float]", trained: int) -> pd.DataFrame:
    """Return the values at the training length with such factors, and their differences from the unchanged model."""
    here = rows[rows["eval_length"] == trained]
    factor = here["condition"].map(factors)
    here = here[(here["factor"] == factor) | (here["factor"].isna() & factor.isna())]
    whole = here[here["part"].isna()].drop_duplicates("condition").set_index("condition")["value"]
    return blocks.against(whole, _parts(here), AS_TRAINED).add_prefix("saved_").assign(saved=whole)


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
    text = _signed(mean, low, high, 1 if share else 3)
    return f"{text} points" if share else text


def content(line: Mapping[str, float]) -> str:
    """Return the bits that distant text saves, with their interval; blank where that was not measured."""
    mean, low, high = (line[name] for name in ("content", "content_low", "content_high"))
    return _signed(mean, low, high, 3)


def _signed(mean: float, low: float, high: float, digits: int) -> str:
    """Return a difference with its interval: each with its sign, and what rounds to zero with none."""
    zero = f"{0:.{digits}f}"
    return words.interval(mean, low, high, f"+z.{digits}f").replace(f"+{zero}", zero)


def _heading(model: str, main: Ranking, metric: str, trained: int, window: int) -> str:
    opening, line = f"{model}, trained to {trained}", main.line(main.best)
    value = number(line["value"], metric)
    if len(main.table) == 1:
        return f"{opening}, reads {main.length} {UNCHANGED} at {value}; no method could be tried"
    if main.best == AS_TRAINED:
        return f"{opening}, reads {main.length} best {UNCHANGED}: {value}"
    if not main.helped:
        value = number(main.line(AS_TRAINED)["value"], metric)
        return f"{opening}, reads {main.length} {UNCHANGED} no worse than with any method, by this text: {value}"
    told = f"{value}, {difference(line, 'trained_', metric)} against {UNCHANGED}"
    if main.best != WINDOW or not main.methods:
        return f"{opening}, reads {main.length} best with {named(main.best, window)}: {told}"
    opening = f"{opening}: at {main.length}, {named(WINDOW, window)} is best ({told})"
    if main.chosen is None:
        return f"{opening}; to attend to all of it, no method is shown better than {UNCHANGED}"
    second = main.line(main.chosen)
    return (
        f"{opening}; to attend to all of it, {main.chosen} "
        f"({number(second['value'], metric)}, {difference(second, 'trained_', metric)})"
    )


def _advice(main: Ranking, window: int, refusals: Sequence[str]) -> list[str]:
    """Return what to do, as instructions."""
    limited = f"To read {main.length} tokens, limit attention to the last {window} tokens, a window"
    limited += f"{_time(main, WINDOW)}."
    if not main.methods:
        why = next(iter(refusals), "the measure was asked for none")
        remedy = next((text for part, text in REMEDIES.items() if part in why), "")
        tried = f"No {'other ' * (WINDOW in main.table.index)}method could be tried: {why.removeprefix(FIXED)}."
        return [limited] * (WINDOW in main.better) + [f"{tried} {remedy}".rstrip()]
    if main.chosen is None:
        same = f"no method is shown to read {main.length} tokens better than {UNCHANGED}."
        if WINDOW not in main.better:
            return [f"Leave the model as it is: {same}"]
        return [f"{limited} Where text further back must be attended to, leave the model as it is: {same}"]
    factor = main.line(main.chosen)["factor"]
    method = f"{main.chosen}{'' if factor != factor else f' with factor {factor:g}'}{_time(main, main.chosen)}"
    if main.best == WINDOW:
        unshown = ", though it is not shown to matter" * (main.line(main.chosen)["content_low"] <= 0)
        return [f"{limited} Use {method} instead where text further back must be attended to{unshown}."]
    text = f"To read {main.length} tokens, use {method}."
    if WINDOW in main.alike:
        text += f" A window of {window}{_time(main, WINDOW)} may do as well, but attends to nothing further back."
    return [text]


def _time(main: Ranking, name: str) -> str:
    """Return how long a way of reading takes, if that was measured."""
    times = times_of(main.line(name)) if name in main.table.index else ""
    about = "about as long" if times == "1" else f"about {times} times as long"
    return f" (takes {about} to read as {UNCHANGED})" * bool(times)


def times_of(line: Mapping[str, float]) -> str:
    """Return in how many times the time of the unchanged model a text is read, to one digit: a machine is not steadier.

    ``1`` where some readings took longer and others less; blank where nothing was timed several times.
    """
    if line["time_low"] != line["time_low"]:
        return ""
    return "1" if line["time_low"] <= 1 <= line["time_high"] else f"{float(format(line['time'], '.1g')):g}"


def _changes(main: Ranking, metric: str, window: int) -> list[str]:
    of = f"95 % intervals over {main.blocks} blocks of the text, paired; Holm's correction over the methods"
    others = [f"{named(name, window)} ({difference(main.line(name), 'best_', metric)})" for name in main.alike]
    best = named(main.best, window)
    if others:
        return [f"No significant difference from {best}: {words.listed(others)} ({of})."]
    if len(main.table) < 2:
        return []
    second = str(main.table.index[1])
    less = difference(main.line(second), "best_", metric)
    text = f"{best[0].upper()}{best[1:]} is better than every other way: the next, {named(second, window)}, is at "
    return [f"{text}{less} ({of})."]


def _inside(inside: list[float], metric: str, trained: int) -> list[str]:
    return [f"At its training length, {trained}, the model has {number(inside[0], metric)}."] * bool(len(inside))


def _short(main: Ranking, metric: str, trained: int) -> list[str]:
    """Say what the method that is saved for a long text costs in a short one, where that is shown."""
    if main.chosen is None:
        return []
    line = main.line(main.chosen)
    cost, p = line["saved_difference"], line["saved_p_holm"]
    worse = cost < 0 if metric_of(metric).higher_is_better else cost > 0
    if not worse or abs(cost) < LEAST or blocks.alike(p):
        return []
    text = f"As saved for {main.length}, {main.chosen} reads {trained} tokens worse than {UNCHANGED}: "
    unit = "" if metric_of(metric).bounds == (0, 1) else f" {metric_of(metric).label}"
    return [f"{text}{difference(line, 'saved_', metric)}{unit}. For texts of that length, keep the model as it is."]


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
    """Say with which ways of reading distant text is shown to matter.

    The unchanged model is left out where a method is better: it loses most by other text, since it reads all badly.
    """
    measured = [str(name) for name in main.table.index if main.table["content"].notna()[name]]
    known = [name for name in measured if name != AS_TRAINED or not main.better]
    if not known:
        return []
    told: dict[str, list[str]] = {MATTERS: [], MISLEADS: [], UNSHOWN: []}
    for name in known:
        line = main.line(name)
        verdict = MATTERS if line["content_low"] > 0 else MISLEADS if line["content_high"] < 0 else UNSHOWN
        way = "the model unchanged" if name == AS_TRAINED else named(name, window)
        told[verdict].append(f"{way} ({content(line)})")
    with_each = [f"it {verdict} with {words.listed(each)}" for verdict, each in told.items() if each]
    if len(told[UNSHOWN]) == len(known) > 1:
        with_each = [f"it is shown to matter with none of {words.listed(told[UNSHOWN])}"]
    lost = "by the bits per byte that are lost where other text stands in its place"
    text = f"Text further back than {window} tokens, {lost}: {'; '.join(with_each)}."
    corrected = f", with Bonferroni's correction over the {len(measured)} measured" * (len(measured) > 1)
    layers = " In a window it can matter through stacked layers, each of which looks back." * (WINDOW in known)
    return [f"{text} 95 % intervals{corrected}.{layers}"]


def _further(last: Ranking, metric: str, window: int) -> list[str]:
    line, others = last.line(last.best), [named(name, window) for name in last.alike]
    less = "" if last.best == AS_TRAINED else f", {difference(line, 'trained_', metric)} against {UNCHANGED}"
    text = f"At {last.length} ({last.multiple:g} times), {named(last.best, window)} is best: "
    text += number(line["value"], metric)
    return [text + less + (f"; no significant difference: {words.listed(others)}." if others else ".")]


def _counts(found: Mapping[int, Ranking], trained: int, corpus: Mapping[str, Any]) -> list[str]:
    """Say how much of which text was read, and how to read enough of it, or all."""
    counts = {length: ranking.windows for length, ranking in found.items() if ranking.windows}
    if not counts:
        return []
    read = max(count * length for length, count in counts.items())
    size = _size(corpus)
    windows = words.listed([f"{words.count(count, 'window')} of {length}" for length, count in counts.items()])
    share = f", {min(1, read / size):.0%} of its {size:,}".replace("%", " %") if size else ""
    text = f"Read: {read:,} tokens of {corpus.get('source', 'the text')}{share} ({windows})."
    few = [length for length, count in counts.items() if count < ENOUGH]
    if not few:
        whole = f" context_extension.samples={-(-size // trained)} reads all of it."
        return [text + (whole if read < 0.9 * size else "")]
    return [f"{text} Fewer than {ENOUGH} windows say little: {_enough(max(few), trained, size)}."]


def _enough(length: int, trained: int, size: int) -> str:
    """Say what gives enough windows of a length."""
    needed = ENOUGH * length
    more = f"context_extension.samples={-(-needed // trained)}"
    if size < needed:
        more = f"a text of {needed:,} tokens and {more}" if size else f"more text and {more}"
    return f"{more} gives {ENOUGH} windows of {length}"


def _unread(missing: Sequence[int], trained: int, corpus: Mapping[str, Any], refusals: Sequence[str]) -> list[str]:
    """Say why no text beyond the training length could be measured, and what to do."""
    length, size = min(missing, key=lambda length: abs(length - FAR * trained)), _size(corpus)
    told = [f"{length} tokens, {length / trained:g} times its length, could not be read: {_reason(length, refusals)}."]
    if 0 < size < missing[0]:
        more = _enough(length, trained, size)
        told.append(f"{more[0].upper()}{more[1:]}; with fewer than {blocks.FEWEST} windows nothing is ranked.")
    return told


def _reason(length: int, refusals: Sequence[str]) -> str:
    """Return the reason why a length could not be measured; empty where none was noted."""
    found = (why for why in refusals if f" {length} tokens" in why)
    return next(found, "").removeprefix("text: ")


def _size(corpus: Mapping[str, Any]) -> int:
    """Return how many tokens a text has, 0 where that is not known."""
    return round(corpus.get("bytes", 0) / (corpus.get("bytes_per_token") or math.inf))


def _code(main: Ranking, window: int, place: str) -> list[str]:
    """Return the lines that apply the best replacement, and a window where that is as good or better: one or other."""
    limit = USE.format(name="rope", more=f", sliding_window={window}")
    plain = len(main.methods) > 1  # several extend rope alone; a model with another encoder must keep that one
    lines = {WINDOW: [f"# attends to the last {window} tokens", limit]} if plain and WINDOW in main.better else {}
    if main.chosen:
        factor = main.line(main.chosen)["factor"]
        more = f", train_length={window}" + ("" if factor != factor else f", factor={factor!r}")
        lines[main.chosen] = ["# attends to all of the text", USE.format(name=main.chosen, more=more)]
        if WINDOW not in (main.best, *main.alike):
            lines.pop(WINDOW, None)
    if not lines:
        return []
    first, *others = lines.values() if main.best == WINDOW else reversed(lines.values())
    instead = [f"# or, instead: {note.removeprefix('# ')}\n# {line}".splitlines() for note, line in others]
    whole = [*BEFORE, *(first if others else first[1:]), *(line for each in instead for line in each), *AFTER]
    written = json.dumps(place, ensure_ascii=False)
    return [line.replace("{place}", written).replace("{length}", str(main.length)) for line in whole]
