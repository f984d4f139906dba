"""What a user of one saved model learns from its rows: where in the context it finds things, and how far back."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from experiments.figures import words
from experiments.measures.place_bias import LOST, U_INDEX
from experiments.measures.place_bias import NAME as PLACES
from experiments.measures.retrieval import EASIEST, ERRORS, NAME, finds

MEASURES = (NAME, PLACES)
OF_TOKENS = "needles"
"""The task whose lengths count tokens, so that a depth is a number of tokens."""


@dataclass(eq=False)
class Answer:
    """A heading and sentences; ``known`` is false of a model that finds next to nothing even in range."""

    heading: str
    sentences: list[str]
    known: bool = True


def easier(task: str) -> str:
    """Return what to do where a model finds too few needles; blank of other tasks."""
    if not task.startswith(OF_TOKENS):
        return ""
    if set(re.split("[(), ]+", task)).issuperset(EASIEST):
        told = "The text hides only one line such as @a=b already: this task has no easier question. The model cannot "
        return told + "look up, so no method can be judged by what it finds: decide by text (task=text)."
    told = "For an easier question, add task.num_needles=1 task.num_letters=1: the text then hides only one line, such "
    return told + "as @a=b, and the model is asked which token stands after @a=."


def answer(rows: pd.DataFrame) -> Answer | None:
    """Return the answer of one run's rows; None where neither measure has an accuracy at the training length."""
    rows = rows[(rows["status"] == "ok") & rows["experiment"].isin(MEASURES)]
    accuracy = rows[rows["metric"] == "token_accuracy"]
    mean = accuracy.sort_values("experiment", ascending=False).groupby(["eval_length", "experiment"], sort=False)
    by_length = mean["value"].mean().groupby("eval_length").first()  # retrieval's, which has more lengths
    in_range = accuracy[accuracy["eval_length"] == accuracy["train_length"]]
    if in_range.empty:
        return None
    model, task, own = (in_range[column].iloc[0] for column in ("encoder", "task", "train_length"))
    task, guess = str(task).partition("(")[0], float(in_range["chance"].iloc[0])
    lengths = words.listed(f"{_percent(value)} at {length}" for length, value in by_length.items())
    if not finds(by_length[own], guess):
        why = f"it finds too few {task} at its own length ({_percent(by_length[own])}, guessing {_percent(guess)})"
        text = f"Of the answers' tokens {lengths} are right. A model that gets less than about half of them right in "
        text += f"range is not asked where it finds them. {easier(str(in_range['task'].iloc[0]))}"
        return Answer(f"{model}: cannot tell where it finds things: {why}", [text.rstrip()], known=False)
    far = max(by_length.index)
    ends = [own] if far == own else [own, far]
    heading = words.listed(f"{_percent(by_length[length])} at {length}" for length in ends)
    sentences = [f"Of the answers' tokens {lengths} are right, {_percent(guess)} by guessing; trained to {own}."]
    for length in ends:
        sentences += _by_depth(accuracy[accuracy["eval_length"] == length], task, length)
    index = rows[(rows["metric"] == U_INDEX) & (rows["eval_length"] == own)]["value"]
    sentences += [_middle(float(value), own) for value in index]
    return Answer(f"{model} on {task}: finds {heading}", sentences)


def _by_depth(accuracy: pd.DataFrame, task: str, length: int) -> Iterator[str]:
    """Say at which depths of one length more is found than by guessing, of the measure with lengths if it is there."""
    first = NAME if NAME in set(accuracy["experiment"]) else PLACES
    line = accuracy[(accuracy["experiment"] == first) & accuracy["depth"].notna()].sort_values("depth")
    error = (line["chance"] * (1 - line["chance"]) / line["n"]) ** 0.5
    found = list(line["value"] > line["chance"] + ERRORS * error)
    depths, values = [float(depth) for depth in line["depth"]], list(line["value"])
    if not any(found):
        yield f"At {length} it finds nothing at any depth."
    elif all(found):
        by_value = sorted(zip(values, depths, strict=True))
        (least, low), (most, high) = by_value[0], by_value[-1]
        span = f": from {_percent(least)} at depth {low:.2g} to {_percent(most)} at {high:.2g}" * (least < most)
        yield f"At {length} it finds evidence at every depth (0 the beginning, 1 the end){span}."
    elif found == sorted(found):
        lost, near = depths[found.index(True) - 1], depths[found.index(True)]
        back = 1 - (lost + near) / 2
        where = f"about {float(f'{back * length:.2g}'):g} tokens" if task == OF_TOKENS else f"{100 * back:.0f} % of it"
        nearer = sum(value for value, there in zip(values, found, strict=True) if there) / sum(found)
        yield f"At {length} it finds nothing further back than {where}, and {_percent(nearer)} of what is nearer."
    else:
        at = words.listed(f"{depth:.2g}" for depth, there in zip(depths, found, strict=True) if there)
        yield f"At {length} it finds evidence at depth {at} alone (0 the beginning, 1 the end)."


def _middle(index: float, length: int) -> str:
    points = f"{100 * abs(index):.0f} points"
    if index > LOST:
        return f"At {length} it is lost in the middle: {points} less is right there than at the ends."
    if index < -LOST:
        return f"At {length} it finds most in the middle: {points} more than at the ends."
    return f"At {length} it is not lost in the middle: ends and middle differ by {points}."


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if 0 < share < 0.0995 else f"{100 * share:.0f} %"
