"""What to do to read a longer text, in sentences, and how far the advice goes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.measures.context_extension import FIRST_TOKENS, WINDOW, WITH_FIRST
from experiments.measures.context_extension.conditions import UNCHANGED, named
from experiments.measures.context_extension.lines import configured
from experiments.measures.context_extension.ranking import Ranking, none_gains, number, times_of

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


def what_to_do(main: Ranking, window: int, metric: str, refusals: Sequence[str]) -> list[str]:
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
        same = f"{none_gains(metric)} at {main.length} tokens."
        if main.limit not in main.better:
            reach = f"Set max_position_embeddings to {main.length} in its config.json, and nothing else: without that, "
            reach += "generate warns of longer texts, and a server may cut them."
            return [f"Leave the model as it is: {same} {reach}"]
        return [f"{limited} Where text further back must be attended to, leave the model as it is: {same}"]
    factor = main.line(main.chosen)["factor"]
    method = f"{main.chosen}{'' if factor != factor else f' with factor {factor:g}'}{_time(main, main.chosen)}"
    if main.first == main.limit:
        if main.nothing_gains:
            here = f"On this text no method gains from text further back; where yours must attend to it, use {method}."
            return [f"{limited} {here}"]
        unshown = ", though it is not shown to matter" * (main.line(main.chosen)["content_low"] <= 0)
        return [f"{limited} Use {method} instead where text further back must be attended to{unshown}."]
    text = f"To read {main.length} tokens, use {method}."
    if main.limit in (main.best, *main.alike):
        limit = f"{named(main.limit, window).capitalize()}{_time(main, main.limit)}"
        unseen = "further back" if main.limit == WINDOW else "between"
        text += f" {limit} may do as well, but attends to nothing {unseen}."
    return [text]


def served(main: Ranking, metric: str, in_use: Sequence[Mapping[str, Any]], limit: str) -> list[str]:
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


def in_use(held: str, *, windowed: bool) -> list[str]:
    """Say what a model has that `pe_zoo.hf.use` changed: it was measured so, and every method keeps its window."""
    if not held:
        return []
    return [
        f"{UNCHANGED.capitalize()} means as it was saved, with {held} by pe_zoo.hf.use"
        f"{'; every method keeps the window' * windowed}. "
        "To see what that change gains, measure the model before it as well."
    ]


def in_some_layers(layers: tuple[list[int], list[int]] | None) -> list[str]:
    """Say so where a model's layers do not all rotate."""
    if layers is None:
        return []
    some = f"{len(layers[0])} of the {sum(map(len, layers))} layers of this model rotate"
    return [f"{some}: a method was put into those, and a window limits all."]


def _time(main: Ranking, name: str) -> str:
    """Return how long a way of reading takes, if that was measured."""
    times = times_of(main.line(name)) if name in main.table.index else ""
    about = "about as long" if times == "1" else f"about {times} times as long"
    return f" (takes {about} to read as {UNCHANGED})" * bool(times)
