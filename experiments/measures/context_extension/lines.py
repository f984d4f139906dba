"""The lines that apply the recommended method to a model of Transformers, and the command to type next."""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.measures.context_extension import FIRST_TOKENS, NAME, WINDOW, WITH_FIRST
from experiments.measures.context_extension.ranking import GAIN, Ranking
from experiments.measures.retrieval import EASIEST
from pe_zoo import _catalogue

BEFORE = [
    "import pe_zoo.hf",
    "from transformers import AutoModelForCausalLM, AutoTokenizer",
    "",
    "model = AutoModelForCausalLM.from_pretrained({place})",
]
BEFORE_AGAIN = [
    "import pe_zoo.hf",
    "from transformers import AutoTokenizer",
    "",
    "model = pe_zoo.hf.load({place})  # with what `use` put into it, which the next line replaces",
]
AFTER = [
    "model.config.max_position_embeddings = {length}  # without it, generate warns of longer texts",
    "model.save_pretrained({new})",
    "AutoTokenizer.from_pretrained({place}).save_pretrained({new})",
    "# pe_zoo.hf.load({new}) reads it again; plain from_pretrained loses the change without a word",
]
"""The first and the last lines of the code that applies a method."""
CHECKED = "# check that folder, or one with a changed config.json: {value:.3f} bits per byte at {length} are expected"
SERVED = (
    "# for a server without pe_zoo, {name}: in config.json give max_position_embeddings {length}, and",
    "# rope_parameters, beside its rope_theta: {held}",
)
FAMILIES = {"mistral": {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}}
"""What config.json says of a family that can have a window."""
WINDOWED = (
    "# for a server without pe_zoo, a window of {window}: in config.json give max_position_embeddings {length},",
    "# and {held}: the same weights compute the same",
)
OPTIONS = ("name", "layers", "train_length", "sliding_window", "first_tokens", "halves")
"""What a note of `pe_zoo.hf.use` has beside knobs; ``halves`` where these are those of the model's own rotation."""
ROTATION = ("base", "fraction")
ALIKE = ("low_freq_factor", "high_freq_factor")
"""Knobs that Transformers asks for under the same name."""


def code(
    main: Ranking,
    window: int,
    place: str,
    in_use: Sequence[Mapping[str, Any]] = (),
    family: str | None = None,
    rotating: tuple[list[int], list[int]] | None = None,
    text: str = "",
) -> list[str]:
    """Return the lines that apply the best replacement, and a window where that is as good or better: one or other.

    ``in_use`` is what `pe_zoo.hf.use` has put into the model: methods were measured in its place, beneath its window.
    ``family`` is one that computes the same and can have a window by its configuration. ``rotating`` are the layers
    that take a method, and the others, which can have a window alone; None: all take it. ``text`` is the option that
    names the text: with it a line tells how to measure what was saved.
    """
    held = dict(in_use[0]) if in_use else {"name": "rope"}
    seen = held.get("sliding_window")
    own = ROTATION if "halves" in held else ()
    knobs = {knob: value for knob, value in held.items() if knob not in (*OPTIONS, *own)}
    length = {"train_length": window} if in_use else {}
    lines = dict[str, list[str]]()
    # With a method that can take its place the model's encoder is rope, or in use.
    if main.methods and _limits(main):
        limits = {"sliding_window": window} | ({"first_tokens": FIRST_TOKENS} if main.limit == WITH_FIRST else {})
        limit = _use(held["name"], length | knobs | limits)
        if rotating:
            limit = f'for name, layers in (("rope", {rotating[0]}), ("none", {rotating[1]})): '
            limit += f"pe_zoo.hf.use(model, name, layers=layers{_given(limits)})"
        note = f"# attends to the last {window} tokens"
        note += f", and to the first {FIRST_TOKENS}" * (main.limit == WITH_FIRST)
        lines[main.limit] = [note, limit]
    if main.chosen:
        factor = main.line(main.chosen)["factor"]
        given: dict[str, Any] = {"train_length": window, **({} if factor != factor else {"factor": factor})}
        given |= {"base": knobs["base"]} if "base" in knobs else {}
        given |= {"layers": rotating[0]} if rotating else {}
        note = f"# attends to the last {seen} tokens" if seen else "# attends to all of the text"
        lines[main.chosen] = [note, _use(main.chosen, given | ({"sliding_window": seen} if seen else {}))]
    if not lines:
        return []
    names = list(lines) if main.first == main.limit else list(reversed(lines))
    first, *others = (lines[name] for name in names)
    instead = [f"# or, instead: {note.removeprefix('# ')}\n# {line}".splitlines() for note, line in others]
    before = BEFORE_AGAIN if in_use else BEFORE
    whole = [*before, *(first if others else first[1:]), *(line for each in instead for line in each), *AFTER]
    new = f"{Path(place).name}_{main.length}"
    written = {"{place}": place, "{length}": main.length, "{new}": new}
    for blank, value in written.items():
        whole = [line.replace(blank, json.dumps(value, ensure_ascii=False)) for line in whole]
    value = main.line(names[0])["value"]
    checked = ["", CHECKED.format(value=value, length=main.length), f"# {_check(main, window, new, text)}"]
    whole += checked if text else []
    if in_use:
        return whole
    entries = windowed(main, window, family)
    alone = [line.format(window=window, length=main.length, held=entries) for line in WINDOWED] if entries else []
    served = alone + _served(main, window)
    return [*whole, *[""] * bool(served), *served]


def windowed(main: Ranking, window: int, family: str | None) -> str:
    """Return the entries of config.json that hold the window that is recommended; empty if none can."""
    if not (family and main.methods and _limits(main)):
        return ""
    values = main.table["value"]
    near = WINDOW in values and abs(values[WINDOW] - values[main.limit]) < GAIN  # it has no first tokens
    return held_window(window, family) if near else ""


def held_window(window: int, family: str) -> str:
    """Return the entries of config.json that make a model one of a family that has a window."""
    return json.dumps(FAMILIES[family] | {"sliding_window": window})[1:-1]


def _limits(main: Ranking) -> bool:
    """Whether a window is recommended, alone or beside a method."""
    return main.limit in main.better and (main.chosen is None or main.limit in (main.best, *main.alike))


def _served(main: Ranking, trained: int) -> list[str]:
    """Return what a configuration alone can hold, in lines."""
    if (name := configured(main.better)) is None:
        return []
    entry = next(entry for entry in _catalogue.encoders() if entry.name == name)
    held = {"rope_type": entry.declared["rope_type"], "factor": float(main.line(name)["factor"])}
    held |= {knob: float(entry.knobs[knob].default) for knob in ALIKE if knob in entry.knobs}
    held["original_max_position_embeddings"] = trained
    return [line.format(name=name, length=main.length, held=json.dumps(held)) for line in SERVED]


def _use(name: str, given: Mapping[str, Any]) -> str:
    return f'pe_zoo.hf.use(model, "{name}"{_given(given)})'


def _given(values: Mapping[str, Any]) -> str:
    return "".join(f", {knob}={value!r}" for knob, value in values.items())


def next_command(main: Ranking, place: str, text: str) -> str:
    """Return the command that measures under each method what share of facts in a long text is found."""
    knobs = [*(f"task.{knob}" for knob in EASIEST), f"{NAME}.multiples=[1,{main.multiple:g}]"]
    return _command(place, "facts", "task=needles", text, f"experiment={NAME}", *knobs)


def _check(main: Ranking, trained: int, place: str, text: str) -> str:
    """Return the command that reads text with a model as it was saved; a server's folder does not say its length."""
    lengths = ["experiment=length_extrapolation", f"length_extrapolation.multiples=[1,{main.multiple:g}]"]
    return _command(place, "check", "task=text", text, f"task.train_length={trained}", *lengths)


def _command(place: str, purpose: str, *words: str) -> str:
    """Return a command whose results have the name of the model's folder and a purpose."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", Path(place).name)
    return shlex.join(["python", "run.py", f"checkpoint={place}", *words, f"name={plain}_{purpose}"])


def configured(names: Iterable[str]) -> str | None:
    """Return the first method that a model's configuration can hold by itself, if one can."""
    held = {entry.name for entry in _catalogue.encoders() if entry.declared.get("rope_type")}
    return next((name for name in names if name in held), None)
