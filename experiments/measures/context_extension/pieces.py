"""How much of which text was read, in which pieces, and how much more an answer needs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.figures import words
from experiments.measures.context_extension.ranking import Ranking
from experiments.rows.stretches import ENOUGH, samples_for
from experiments.statistics import blocks


def read(found: Mapping[int, Ranking], trained: int, corpus: Mapping[str, Any]) -> list[str]:
    """Say how much of which text was read, in which pieces, and how to read enough of it, or all."""
    counts = {length: ranking.windows for length, ranking in found.items() if ranking.windows}
    if not counts:
        return []
    read = max(count * length for length, count in counts.items())
    size, source = _size(corpus), corpus.get("source", "the text")
    share = f", {min(1, read / size):.0%} of the {size:,} in {source}".replace("%", " %") if size else f" of {source}"
    pieces = words.listed([f"{words.count(count, 'piece')} of {length}" for length, count in counts.items()])
    text = f"Read: {read:,} tokens{share}, spread over all of it and cut into {pieces}. "
    text += "Each piece is read by itself, so its first tokens have little before them."
    few = [length for length, count in counts.items() if count < ENOUGH and length > trained]
    if not few:
        whole = f" context_extension.samples={-(-size // trained)} reads all of it."
        return [text + (whole if read < 0.9 * size else "")]
    return [f"{text} Fewer than {ENOUGH} pieces say little: {_enough(max(few), trained, size)}."]


def _enough(length: int, trained: int, size: int) -> str:
    """Say what gives enough pieces of a length."""
    samples = samples_for(length / trained)
    needed = samples * trained
    more = f"context_extension.samples={samples}"
    if size < needed:
        more = f"{f'a text of {needed:,} tokens' if size else 'more text'} and {more} or more"
    return f"{more} gives {ENOUGH} of {length}"


def hint(main: Ranking, trained: int, corpus: Mapping[str, Any]) -> list[str]:
    """Say so where an answer has an interval, but few pieces."""
    if not 0 < main.windows < ENOUGH:
        return []
    pieces = words.count(main.windows, "piece")
    return [f"Take it as a first hint: {pieces} say little. {_enough(main.length, trained, _size(corpus))}."]


def too_few(main: Ranking, corpus: Mapping[str, Any], counts: list[str]) -> tuple[str, list[str]]:
    """Return heading and sentences where the intervals would have too few blocks."""
    many = words.count(main.windows, "piece")
    few = f"{many} of {main.length} {'is' if main.windows == 1 else 'are'}" if main.windows else "the sequences are"
    why = f"An interval needs {blocks.FEWEST} of them or more, so no way of reading is ranked or recommended."
    if main.windows and 0 < _size(corpus) < blocks.FEWEST * main.length:
        why += f" Only {many} of {main.length} {'fits' if main.windows == 1 else 'fit'} into a text of "
        why += f"{_size(corpus):,} tokens; at least {blocks.FEWEST * main.length:,} are needed."
    return f"{few} too few for an answer", [why, *counts]


def beyond(missing: Sequence[int], trained: int, refusals: Sequence[str]) -> list[str]:
    """Say which lengths could not be read, and why."""
    told = []
    for length in missing:
        why = next((each for each in refusals if f" {length} tokens" in each), "").removeprefix("text: ")
        why = f"could not be read: {why}" if why else "are out of reach of this text"
        told.append(f"{length} tokens, {length / trained:g} times its length, {why}.")
    return told


def _size(corpus: Mapping[str, Any]) -> int:
    """Return how many tokens a text has, 0 where that is not known."""
    return round(corpus.get("bytes", 0) / (corpus.get("bytes_per_token") or math.inf))
