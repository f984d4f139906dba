"""What a command line names on this disk, looked up without torch, which takes seconds: a model and a text."""

import json
import re
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from experiments.rows.saved import file_of
from pe_zoo._knobs import hint

FUNCTION = re.compile(r"([\w./-]+?)(?:\.py)?:(\w+)")
"""``my_model:logits``: a file and what it has."""
KNOWN = "a folder that save_pretrained wrote, a name on the hub (owner/name), or my_model:logits"
TEXTS, SOURCE = ("task.path", "task.dataset"), "task.source"
"""Options that name a text; the last has a default, so that it names one only where it is given."""
TOKENIZER = "task.tokenizer"
ON_THE_HUB = re.compile(r"\w[\w.-]*/\w[\w.-]*")
"""``owner/name``."""
OF_PLACES = re.compile("retrieval|place_bias")
"""Experiments that need a question whose evidence has a place in the text."""
OF_THE_HUB = ("config.json", "model.safetensors", "model.safetensors.index.json")


def as_typed(file: Path) -> str:
    """Return a path as it is typed here: below the working folder without that folder's own."""
    return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)


def files_of(place: str) -> list[Path]:
    """Return the files of a checkpoint, configuration and weights; ValueError if it is not here."""
    if function := FUNCTION.fullmatch(place):
        files = [Path(f"{function[1]}.py")]
    elif Path(place).is_dir():
        files = sorted(file for file in Path(place).iterdir() if file.suffix in (".safetensors", ".json", ".bin"))
        if Path(place, "config.json") not in files:
            raise ValueError(f"checkpoint={place!r} is a folder without config.json; give {KNOWN}.{_models(place)}")
    else:
        files = [file for name in OF_THE_HUB if (file := file_of(place, name))]
    if not files and ON_THE_HUB.fullmatch(place) and not Path(place).parent.is_dir():
        why = "its files are not on this machine, and pe-zoo downloads nothing"
        raise ValueError(f"checkpoint={place!r}: {why}; first: hf download {place}. Or give {KNOWN}")
    if not files or not all(file.is_file() for file in files):
        raise ValueError(f"checkpoint={place!r} names nothing that is here; give {KNOWN}.{_models(place)}")
    if not function and find_spec("transformers") is None:
        raise ValueError("checkpoint= needs the package transformers: pip install 'pe-zoo[hf]'")
    return files


def in_use(place: str) -> list[dict[str, Any]]:
    """Return what `pe_zoo.hf.use` has put into a saved model, as it is noted in its configuration."""
    return [spec for config in _configs(place) for spec in config.get("pe_zoo", [])]


def windowed_as(place: str) -> str | None:
    """Return the family of Transformers that computes the same with a saved model's weights, and can have a window.

    A Mistral is a Llama without biases. Its default number of key heads is another, so that this must be written down.
    """
    for config in _configs(place):
        biased = config.get("attention_bias") or config.get("mlp_bias")
        if config.get("model_type") == "llama" and not biased and config.get("num_key_value_heads"):
            return "mistral"
    return None


def _configs(place: str) -> list[dict[str, Any]]:
    files = [file for file in files_of(place) if file.name == "config.json"]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def check_question(
    place: str, task: str, knobs: Collection[str], experiment: object, has_text: bool, has_tokenizer: bool
) -> None:
    """Refuse what a saved model, which has a tokenizer of its own, cannot be asked.

    ``knobs`` are those of the task, ``experiment`` is what is measured, as it was given.
    """
    if FUNCTION.fullmatch(place):
        return
    if "tokenizer" not in knobs:
        why = f"task={task} has symbols of its own, which mean nothing to a saved language model"
        instead = "needles" if OF_PLACES.search(str(experiment)) else "text"
        raise ValueError(f"checkpoint={place!r}: {why}; add task={instead} task.path=file.txt")
    if not has_text:
        more = "task.path=file.txt (a file or a folder), or task.dataset="
        raise ValueError(f"checkpoint={place!r}: task={task} does not say which text to read; add {more}")
    if not has_tokenizer and file_of(place) is None:
        remedy = f"write one beside it, tokenizer.save_pretrained(folder), or set {TOKENIZER}="
        raise ValueError(f"checkpoint={place!r} has no tokenizer (no tokenizer.json is there): {remedy}")


def check_text(path: str) -> None:
    """Refuse a text that is not here."""
    if not Path(path).exists():
        folder = Path(path).parent
        beside = [str(file) for file in folder.iterdir()] if folder.is_dir() else []
        more = f".{hint(path, beside, 'Beside it')}" if beside else ""
        raise ValueError(f"task.path={path!r} does not exist; give a text file or a folder of them{more}")


def _models(place: str) -> str:
    """The name that was meant, perhaps: of models in a folder or beside the place, and of files with functions."""
    within = Path(place).is_dir()
    folder = Path(place) if within else Path(place.partition(":")[0]).parent
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    known = [str(path) for path in found if (path / "config.json").is_file()]
    known += [f"{path}:logits" for path in found if path.suffix == ".py" and FUNCTION.fullmatch(place)]
    return hint(place, known, "In it" if within else "Beside it") if known else ""
