"""What a user of one saved model learns from its rows: how to read a longer text, and how sure that is."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

import pandas as pd

from experiments.figures import words
from experiments.measures.context_extension import AS_TRAINED, DISTANT, LIMITS, NAME, REPLACED, WINDOW, advice, evidence
from experiments.measures.context_extension.conditions import UNCHANGED, WAYS, named
from experiments.measures.context_extension.lines import code, next_command, windowed
from experiments.measures.context_extension.pieces import beyond, hint, read, too_few
from experiments.measures.context_extension.ranking import Ranking, at, difference, level, none_gains, number, ranked
from experiments.measures.context_use import NAME as CONTEXT_USE
from experiments.measures.retrieval import finds
from experiments.measures.retrieval.answer import easier
from experiments.rows.read import refusals as refusals_of
from experiments.rows.read import rotating, used, used_as
from experiments.rows.row import is_share, main_metric, metric_of
from experiments.rows.stretches import ENOUGH
from experiments.statistics import blocks

FAR = 4
"""Training lengths of the second table, or the nearest measured: the answer is about the longest."""


@dataclass
class Answer:
    """What the rows of one model say: a heading, what to do, its evidence, rankings by length, and lines to type."""

    heading: str
    advice: list[str]
    evidence: list[str]
    rankings: list[Ranking]
    metric: str
    train_length: int
    window: int
    code: list[str] = field(default_factory=list)
    command: str = ""
    """What to type next, to answer `next`."""
    next: ClassVar[str] = (
        "Next: under each method, does the model find a fact anywhere in a long text? This asks for one line, "
        "such as @a=b, the easiest question. A small model may fail even at its own length; the command then says so."
    )

    @property
    def sentences(self) -> list[str]:
        """What to do, then why."""
        return [*self.advice, *self.evidence]

    @property
    def table(self) -> list[list[str]]:
        """The ways of reading at the length of the answer, best first: name, quality, difference from unchanged.

        Then what each, as it would be saved, has at the training length, where that was measured.
        """
        main, label = self.rankings[0], metric_of(self.metric).label
        saved = main.known("saved")
        head = [f"at {main.length}", f"{label}, {'%, ' * is_share(self.metric)}95 % interval", f"minus {UNCHANGED}"]
        found = [head + [f"at {self.train_length}, as saved"] * bool(saved)]
        for name in map(str, main.table.index):
            less = "" if name == AS_TRAINED else difference(main.line(name), "trained_", self.metric)
            found.append([named(name, self.window), level(main.line(name), self.metric), less])
            at_home = number(main.line(name)["saved"], self.metric).removesuffix(f" {label}") if name in saved else ""
            found[-1] += [at_home] * bool(saved)
        return found

    @property
    def covers(self) -> set[str]:
        """The experiments whose question it answers: with ``context_use``, which reads other windows, two would."""
        return {NAME, *([CONTEXT_USE] if any(ranking.known("content") for ranking in self.rankings) else [])}


def answer(
    rows: pd.DataFrame, record: Mapping[Any, Any] = MappingProxyType({}), text: str | None = None
) -> Answer | None:
    """Return what the rows of one run say; None where nothing beyond the training length was to be measured.

    ``record`` is its run.json, and ``text`` the option that named its text.
    """
    refusals = refusals_of(record, NAME)
    rows = rows[(rows["experiment"] == NAME) & (rows["condition"] != REPLACED)]
    asked = set(rows.loc[rows["condition"] == AS_TRAINED, "eval_length"].astype(int))
    rows = rows[rows["status"] == "ok"]
    metric = main_metric(rows["metric"].unique())
    if metric is None or rows.empty:
        return None
    model, trained = str(rows["encoder"].iloc[0]), int(rows["train_length"].iloc[0])
    corpus, place, in_use = record.get("corpus"), record.get("checkpoint"), used(record)
    corpus = corpus if isinstance(corpus, dict) else {}
    limit = min((spec["sliding_window"] for spec in in_use if spec.get("sliding_window")), default=None)
    if limit is not None and limit <= trained:  # every way of reading has it: none sees what a window would not
        rows = rows[~rows["condition"].isin(LIMITS) & ~rows["metric"].isin(DISTANT)]
    lengths = sorted({trained, *(int(length) for length in rows["eval_length"].unique() if length > trained)})
    found = {length: ranked(rows, metric, length, trained) for length in lengths}
    found = {length: ranking for length, ranking in found.items() if AS_TRAINED in ranking.table.index}
    own = found.pop(trained, None)
    missing = sorted(length for length in asked - set(found) if length > trained)
    at_home = evidence.inside(own, metric)
    opening = f"{model}, trained to {trained}"

    def without(heading: str, said: list[str]) -> Answer:
        return Answer(f"{opening}: {heading}", said, [], [], metric, trained, trained)

    if not found:
        unread = [*beyond(missing, trained, refusals), *at_home]
        return without("no longer text could be measured", unread) if missing else None
    last = found[max(found)]
    enough = [ranking for ranking in found.values() if ranking.blocks >= blocks.FEWEST]
    main = enough[-1] if enough else last
    sizes = rows.loc[(rows["condition"] == WINDOW) & rows["size"].notna(), "size"]
    window = int(sizes.iloc[0]) if len(sizes) else trained
    counts = [*read({own.length: own, **found} if own else found, trained, corpus), *beyond(missing, trained, refusals)]
    if not enough:
        return without(*too_few(main, corpus, counts))
    unanswered = [f"This is not about {last.length} tokens: {too_few(last, corpus, [])[0]}."] * (main is not last)
    guess = float(rows.loc[(rows["metric"] == metric) & (rows["eval_length"] == trained), "chance"].mean())
    if own and is_share(metric) and not finds(own.line(AS_TRAINED)["value"], 0.0 if math.isnan(guess) else guess):
        why = "Methods are compared only where the model is right about half of the time at its own length."
        found_there = f"{at(own, AS_TRAINED, metric)} at {trained}"
        found_there += "" if math.isnan(guess) else f"; a guess: {number(guess, metric)}"
        return without(
            f"right too rarely to compare methods ({found_there})",
            [f"{why} {easier(str(rows['task'].iloc[0]))}".rstrip(), *counts],
        )
    other = min(enough, key=lambda ranking: abs(ranking.multiple - FAR))
    place = place if isinstance(place, str) else "path/to/model"
    family = record.get("windowed_as")
    layers = rotating(record)
    text = text or f"task.path={corpus.get('source', 'file.txt')}"
    lines = code(main, window, place, in_use, family, layers, text if metric == "bits_per_byte" else "")
    return Answer(
        heading=_heading(opening, main, metric),
        advice=[
            *advice.what_to_do(main, window, metric, refusals),
            *hint(main, trained, corpus),
            *unanswered,
            *advice.served(main, metric, in_use, f"a window of {window}" if windowed(main, window, family) else ""),
            *advice.in_use(used_as(record), windowed=limit is not None),
            *advice.in_some_layers(layers),
        ],
        evidence=[
            *evidence.levels(main, metric, window),
            *at_home,
            *evidence.differences(main, other, metric, window, trained),
            *counts,
        ],
        rankings=list(dict.fromkeys([main, other])),
        metric=metric,
        train_length=trained,
        window=window,
        code=lines,
        command=next_command(main, place, text) if metric == "bits_per_byte" and main.methods else "",
    )


def _heading(opening: str, main: Ranking, metric: str) -> str:
    """Return the answer in a line, with one measured number: levels and intervals are below."""
    if len(main.table) == 1:
        return f"{opening}, reads {main.length} {UNCHANGED} at {at(main, AS_TRAINED, metric)}; no method could be tried"
    if main.best == AS_TRAINED:
        return f"{opening}, reads {main.length} best {UNCHANGED}: {at(main, AS_TRAINED, metric)}"
    if main.first is None:
        return f"{opening}, reads {main.length} {UNCHANGED} at {at(main, AS_TRAINED, metric)}; {none_gains(metric)}"
    less = main.line(main.first)["trained_difference"]
    gain = f"{words.signed(100 * less, math.nan, math.nan, 1)} points" if is_share(metric) else ""
    gain = gain or f"{words.signed(less, math.nan, math.nan, 3)} {metric_of(metric).label}"
    way = WAYS.get(main.first) or named(main.first, 0)
    better = "best" if main.first == main.best else "better"
    few = f" on {words.count(main.windows, 'piece')}" * (0 < main.windows < ENOUGH)
    told = f"{opening}, reads {main.length} {better} with {way} ({gain} against {UNCHANGED}{few})"
    if main.first != main.limit or not main.methods:
        return told
    if main.chosen is None:
        return f"{told}; to attend to all of it, {none_gains(metric)}"
    if main.nothing_gains:
        return f"{told}; no method gains from text further back"
    return f"{told}; to attend to all of it, with {main.chosen}"
