"""What a user of one saved model learns from its rows: how to read a longer text, and how sure that is."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

import pandas as pd

from experiments.figures import words
from experiments.measures.context_extension import (
    AS_TRAINED,
    CONTENT,
    END,
    FIRST_TOKENS,
    LIMITS,
    NAME,
    REPLACED,
    WINDOW,
    WITH_FIRST,
)
from experiments.measures.context_extension.lines import code, configured, next_command, windowed
from experiments.measures.context_extension.pieces import beyond, hint, read, too_few
from experiments.measures.context_extension.ranking import (
    GAIN,
    UNCHANGED,
    Ranking,
    content,
    difference,
    is_share,
    level,
    named,
    number,
    ranked,
    shown,
    times_of,
)
from experiments.measures.context_use import NAME as CONTEXT_USE
from experiments.measures.retrieval import finds
from experiments.measures.retrieval.answer import easier
from experiments.rows.read import refusals as refusals_of
from experiments.rows.read import rotating, used, used_as
from experiments.rows.row import main_metric, metric_of
from experiments.rows.stretches import ENOUGH
from experiments.statistics import blocks

FAR = 4
"""Training lengths of the second table, or the nearest measured: the answer is about the longest."""
FIXED = "nothing can be put into the model: "
REMEDIES = {
    "scaled already": "To compare methods, measure the model without the scaling: in its config.json, set rope_type to "
    '"default" and max_position_embeddings to its training length. A model that was trained with the scaling is '
    "extended already.",
    "not in all of these layers": "A method can be put into those, and the model measured again: "
    'pe_zoo.hf.use(model, "yarn", layers=[…]), save_pretrained, checkpoint=.',
    "in use in some of its layers": "",  # what was put in is said with what it means
    FIXED: "The methods need a rotation that pe_zoo.hf can take out: docs/families.md lists them.",
}
"""What to do where no method could be tried, by a part of the reason."""
IN_SOME = "{} of the {} layers of this model rotate: a method was put into those, and a window limits all."
"""Where a model's layers do not all rotate."""
WAYS = {
    WINDOW: "a window, which ignores what is further back",
    WITH_FIRST: f"a window and the first {FIRST_TOKENS} tokens, which ignores what is between",
}
RISES, FALLS, UNSHOWN = "rise with", "fall with", "may stay the same with"
"""What bits per byte do where other text stands in the place of distant text."""


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
        rows = rows[~rows["condition"].isin(LIMITS) & ~rows["metric"].isin((END, CONTENT))]
    lengths = sorted({trained, *(int(length) for length in rows["eval_length"].unique() if length > trained)})
    found = {length: ranked(rows, metric, length, trained) for length in lengths}
    found = {length: ranking for length, ranking in found.items() if AS_TRAINED in ranking.table.index}
    own = found.pop(trained, None)
    missing = sorted(length for length in asked - set(found) if length > trained)
    at_home = _inside(own, metric)
    opening = f"{model}, trained to {trained}"

    def without(heading: str, advice: list[str]) -> Answer:
        return Answer(f"{opening}: {heading}", advice, [], [], metric, trained, trained)

    if not found:
        unread = [*beyond(missing, trained, refusals), *at_home]
        return without("no longer text could be measured", unread) if missing else None
    last = found[max(found)]
    enough = [ranking for ranking in found.values() if ranking.blocks >= blocks.FEWEST]
    main = enough[-1] if enough else last
    sizes = rows.loc[(rows["condition"] == WINDOW) & rows["size"].notna(), "size"]
    window = int(sizes.iloc[0]) if len(sizes) else trained
    counts = [
        *read({own.length: own, **found} if own else found, trained, corpus),
        *beyond(missing, trained, refusals),
    ]
    if not enough:
        return without(*too_few(main, corpus, counts))
    unanswered = [f"This is not about {last.length} tokens: {too_few(last, corpus, [])[0]}."] * (main is not last)
    guess = float(rows.loc[(rows["metric"] == metric) & (rows["eval_length"] == trained), "chance"].mean())
    if own and is_share(metric) and not finds(own.line(AS_TRAINED)["value"], 0.0 if math.isnan(guess) else guess):
        why = "Methods are compared only where the model is right about half of the time at its own length."
        found_there = f"{_at(own, AS_TRAINED, metric)} at {trained}"
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
            *_advice(main, window, metric, refusals),
            *hint(main, trained, corpus),
            *unanswered,
            *_served(main, metric, in_use, f"a window of {window}" if windowed(main, window, family) else ""),
            *_in_use(used_as(record), windowed=limit is not None),
            *_in_some(layers),
        ],
        evidence=[
            *_levels(main, metric, window),
            *at_home,
            *_changes(main, metric, window),
            *_short(main, metric, trained),
            *_gain(main, metric, window),
            *_distant(main, window),
            *(_elsewhere(other, metric, window) if other is not main else []),
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
        return (
            f"{opening}, reads {main.length} {UNCHANGED} at {_at(main, AS_TRAINED, metric)}; no method could be tried"
        )
    if main.best == AS_TRAINED:
        return f"{opening}, reads {main.length} best {UNCHANGED}: {_at(main, AS_TRAINED, metric)}"
    if main.first is None:
        return f"{opening}, reads {main.length} {UNCHANGED} at {_at(main, AS_TRAINED, metric)}; {_none(metric)}"
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
        return f"{told}; to attend to all of it, {_none(metric)}"
    if _nothing_gains(main):
        return f"{told}; no method gains from text further back"
    return f"{told}; to attend to all of it, with {main.chosen}"


def _none(metric: str) -> str:
    """Return that no method is worth a change of the model."""
    return f"no method is shown to gain {_least(metric)}"


def _least(metric: str) -> str:
    return "1 point" if is_share(metric) else f"{GAIN:g} {metric_of(metric).label}"


def _at(ranking: Ranking, name: str, metric: str) -> str:
    return number(ranking.line(name)["value"], metric)


def _advice(main: Ranking, window: int, metric: str, refusals: Sequence[str]) -> list[str]:
    """Return what to do, as instructions."""
    limited = f"To read {main.length} tokens, limit attention to the last {window} tokens, a window"
    limited += f", and to the first {FIRST_TOKENS}" * (main.limit == WITH_FIRST) + _time(main, main.limit)
    by = f"sliding_window={window}" + f", first_tokens={FIRST_TOKENS}" * (main.limit == WITH_FIRST)
    limited += "." if main.methods else f"; pe_zoo.hf.use sets it by {by}."
    if not main.methods:
        why = next(iter(refusals), "the measure was asked for none")
        remedy = next((text for part, text in REMEDIES.items() if part in why), "")
        tried = f"No {'other ' * (main.limit in main.table.index)}method could be tried: {why.removeprefix(FIXED)}."
        return [limited] * (main.limit in main.better) + [f"{tried} {remedy}".rstrip()]
    if main.chosen is None:
        same = f"{_none(metric)} at {main.length} tokens."
        if main.limit not in main.better:
            reach = f"Set max_position_embeddings to {main.length} in its config.json, and nothing else: without that, "
            return [
                f"Leave the model as it is: {same} {reach}generate warns of longer texts, and a server may cut them."
            ]
        return [f"{limited} Where text further back must be attended to, leave the model as it is: {same}"]
    factor = main.line(main.chosen)["factor"]
    method = f"{main.chosen}{'' if factor != factor else f' with factor {factor:g}'}{_time(main, main.chosen)}"
    if main.first == main.limit:
        if _nothing_gains(main):
            here = f"On this text no method gains from text further back; where yours must attend to it, use {method}."
            return [f"{limited} {here}"]
        unshown = ", though it is not shown to matter" * (main.line(main.chosen)["content_low"] <= 0)
        return [f"{limited} Use {method} instead where text further back must be attended to{unshown}."]
    text = f"To read {main.length} tokens, use {method}."
    if main.limit in (main.best, *main.alike):
        limit = f"{named(main.limit, window).capitalize()}{_time(main, main.limit)}"
        text += (
            f" {limit} may do as well, but attends to nothing {'further back' if main.limit == WINDOW else 'between'}."
        )
    return [text]


def _served(main: Ranking, metric: str, in_use: Sequence[Mapping[str, Any]], limit: str) -> list[str]:
    """Say how far the advice goes, and what a server without pe_zoo can do: ``limit`` attention, perhaps."""
    used = [name for name in dict.fromkeys((main.first, main.chosen)) if name]
    if not used or in_use:
        return []
    factor = main.line(main.chosen)["factor"] if main.chosen else math.nan
    far = ["A window reads texts of any length; here it is a mask, so that a server's own is faster."] * (
        main.limit in used
    )
    far += [f"{main.chosen} with factor {factor:g} is made for up to {main.length} tokens."] * (factor == factor)
    plain = configured(main.better)
    held = [limit] if limit else []
    if plain and plain not in used:
        held.append(f"{plain} ({number(main.line(plain)['value'], metric)} at {main.length})")
    if held:
        where = "the last lines of the code say how."
        far += [f"For a server without pe_zoo, config.json can hold {' or '.join(held)}: {where}"]
    return [" ".join(far)] * bool(far)


def _in_use(held: str, *, windowed: bool) -> list[str]:
    """Say what a model has that `pe_zoo.hf.use` changed: it was measured so, and every method keeps its window."""
    if not held:
        return []
    return [
        f"{UNCHANGED.capitalize()} means as it was saved, with {held} by pe_zoo.hf.use"
        f"{'; every method keeps the window' * windowed}. "
        "To see what that change gains, measure the model before it as well."
    ]


def _in_some(layers: tuple[list[int], list[int]] | None) -> list[str]:
    return [] if layers is None else [IN_SOME.format(len(layers[0]), sum(map(len, layers)))]


def _time(main: Ranking, name: str) -> str:
    """Return how long a way of reading takes, if that was measured."""
    times = times_of(main.line(name)) if name in main.table.index else ""
    about = "about as long" if times == "1" else f"about {times} times as long"
    return f" (takes {about} to read as {UNCHANGED})" * bool(times)


def _levels(main: Ranking, metric: str, window: int) -> list[str]:
    label = metric_of(metric).label
    names = dict.fromkeys([main.best, *([main.chosen] if main.chosen else []), AS_TRAINED])
    each = [
        f"{level(main.line(name), metric)} {'' if name == AS_TRAINED else 'with '}{named(name, window)}"
        for name in names
    ]
    unit = f"{label[0].upper()}{label[1:]}{', %,' * is_share(metric)}"
    return [f"{unit} at {main.length}: {words.listed(each)} (95 % intervals over {main.blocks} blocks of the text)."]


def _inside(own: Ranking | None, metric: str) -> list[str]:
    if own is None:
        return []
    unit = " %" if is_share(metric) else f" {metric_of(metric).label}"
    return [f"At its training length, {own.length}, the model has {level(own.line(AS_TRAINED), metric)}{unit}."]


def _changes(main: Ranking, metric: str, window: int) -> list[str]:
    of = "paired by block; tests with Holm's correction over the methods, intervals without"
    others = [f"{named(name, window)} ({difference(main.line(name), 'best_', metric)})" for name in main.alike]
    best = named(main.best, window)
    if others:
        return [f"No significant difference from {best}: {words.few(others)} ({of})."]
    if len(main.table) < 2:
        return []
    second = str(main.table.index[1])
    less = difference(main.line(second), "best_", metric)
    few = f" on these {main.windows} pieces, which are few" * (0 < main.windows < ENOUGH)
    small = main.best != AS_TRAINED and not main.first
    ahead = f"is {'ahead of' if small else 'better than'} every other way"
    ahead += " by too little to change the model for" * small
    text = f"{best[0].upper()}{best[1:]} {ahead}{few}: the next, {named(second, window)}, is at {less} ({of})."
    return [text + f" Below {_least(metric)} no change is advised." * small]


def _short(main: Ranking, metric: str, trained: int) -> list[str]:
    """Say what the method that is saved for a long text costs in a short one, where that is shown."""
    if main.chosen is None:
        return []
    line = main.line(main.chosen)
    worse = (line["saved_difference"] < 0) == metric_of(metric).higher_is_better
    if not worse or not shown(line, "saved_"):
        return []
    text = f"As saved for {main.length}, {main.chosen} reads {trained} tokens worse than {UNCHANGED}: "
    unit = "" if is_share(metric) else f" {metric_of(metric).label}"
    return [f"{text}{difference(line, 'saved_', metric)}{unit}. For texts of that length, keep the model as it is."]


def _gain(main: Ranking, metric: str, window: int) -> list[str]:
    """Say whether any way of reading gains from text that a window does not see, where each has most text before it."""
    others = sorted(main.known("window_difference"), key=lambda name: main.line(name)["window_difference"])
    if not others:
        return []

    def told(name: str) -> str:
        return f"{_way(name, window)} ({difference(main.line(name), 'window_', metric)})"

    distant = f"ext further back than {window} tokens"
    how = f"bits per byte in the last quarter of each piece of {main.length}, less those of a window of {window}, "
    how += "no layer of which attends to it"
    better = [name for name in others if _gains(main, name)]
    if better:
        return [f"T{distant} helps {words.few(map(told, better))}: {how}."]
    if main.line(others[0])["window_difference"] >= 0:
        return [f"No method gains from t{distant}; {told(others[0])} loses least ({how})."]
    p = words.p_value(main.line(others[0])["window_p_holm"])
    sure = f"p {p if p.startswith('<') else f'= {p}'} after Holm's correction"
    return [f"No method is shown to gain from t{distant}: at best {told(others[0])}, {sure} ({how})."]


def _nothing_gains(main: Ranking) -> bool:
    """Whether every way of reading was measured beside a window and none gains from what a window does not see."""
    known = main.known("window_difference")
    return bool(known) and not any(_gains(main, name) for name in known)


def _gains(main: Ranking, name: str) -> bool:
    """Whether a way of reading is shown better than a window where each piece has most text before it."""
    line = main.line(name)
    return line["window_difference"] < 0 and shown(line, "window_")


def _distant(main: Ranking, window: int) -> list[str]:
    """Say which ways of reading use distant text.

    The unchanged model is left out where a method is better: it loses most by other text, since it reads all badly.
    """
    measured = main.known("content")
    known = [name for name in measured if name != AS_TRAINED or not main.better]
    if not known:
        return []
    told: dict[str, list[str]] = {RISES: [], FALLS: [], UNSHOWN: []}
    for name in known:
        line = main.line(name)
        verdict = RISES if line["content_low"] > 0 else FALLS if line["content_high"] < 0 else UNSHOWN
        told[verdict].append(f"{_way(name, window)} ({content(line)})")
    if not (told[RISES] or told[FALLS]):
        return []
    with_each = [f"{verdict} {words.listed(each)}" for verdict, each in told.items() if each]
    others = f"these and {UNCHANGED}" if len(known) < len(measured) else "these"
    corrected = f", with Bonferroni's correction over {others}" * (len(measured) > 1)
    text = (
        f"Where other text takes the place of all further back than {window} tokens, bits per byte "
        f"{'; they '.join(with_each)}"
    )
    none = main.limit in main.table.index and not any(_gains(main, name) for name in known)
    but = f"Methods that use distant text need more bits here than a window of {window}, which does not. "
    below = " A layer of a window passes on what the layers below saw, so that some distant text comes through."
    reaches = any(name in LIMITS for name in known if main.line(name)["content_low"] > 0)
    return [f"{but * (none and bool(told[RISES]))}{text} (95 % intervals{corrected}).{below * reaches}"]


def _way(name: str, window: int) -> str:
    return f"the model {UNCHANGED}" if name == AS_TRAINED else named(name, window)


def _elsewhere(other: Ranking, metric: str, window: int) -> list[str]:
    line, others = other.line(other.best), [named(name, window) for name in other.alike]
    less = "" if other.best == AS_TRAINED else f", {difference(line, 'trained_', metric)} against {UNCHANGED}"
    text = f"At {other.length} ({other.multiple:g} times), {named(other.best, window)} is best: "
    text += number(line["value"], metric)
    return [text + less + (f"; no significant difference: {words.listed(others)}." if others else ".")]
