"""``checkpoint=``: a model from outside to be measured, a saved one or a function of one's own."""

import hashlib
import importlib
import importlib.util
import inspect
import math
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from experiments.measures.context_extension import NAME as CONTEXT_EXTENSION
from experiments.measures.context_use import NAME as CONTEXT_USE
from experiments.model.guest import Guest, Insight
from experiments.plan.places import FUNCTION, KNOWN, files_of
from experiments.tasks import Task
from experiments.tasks.text import Text
from pe_zoo import Geometry, Unsupported

BLOCKS, BLOCK = 64, 2**16
"""Parts of a large file that are read to tell it from another, and their bytes."""
NEEDED = {CONTEXT_EXTENSION: 1, CONTEXT_USE: 2}
"""Measures of longer texts, and how many times the shortest of these lengths a text must have."""
PIECES = 50
"""Pieces of text that are enough for an answer."""


def label_of(place: str) -> str:
    """The name of a checkpoint in results: its folder's, or the last part of its name on the hub."""
    function = FUNCTION.fullmatch(place)
    name = f"{Path(function[1]).name}.{function[2]}" if function else Path(place).resolve().name
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def digest_of(place: str) -> str:
    """A hash of what the results depend on; of large files, their size and parts from all over them."""
    digest = hashlib.sha256()
    for file in files_of(place):
        size = file.stat().st_size
        digest.update(f"{file.name} {size} ".encode())
        with file.open("rb") as read:
            for part in range(BLOCKS if size > BLOCKS * BLOCK else 0):
                read.seek(part * (size - BLOCK) // (BLOCKS - 1))
                digest.update(read.read(BLOCK))
            if size <= BLOCKS * BLOCK:
                digest.update(read.read())
    return digest.hexdigest()


def defaults(place: str) -> dict[str, Any]:
    """What a saved model brings to a task that reads text, None where it lacks that: its tokenizer and its length.

    Raises:
        ValueError: it is no causal language model.
    """
    if FUNCTION.fullmatch(place):
        return {}
    return {"tokenizer": place, "train_length": _lengths(place)[0]}


def reach(place: str) -> int | None:
    """The positions that a saved model was made for, if it says so."""
    return _lengths(place)[1]


def doubt(place: str, train_length: int) -> str:
    """Say that a model counts as trained to less than it reaches; empty if its configuration has one length."""
    trained, most = _lengths(place)
    if train_length != trained or trained == most:
        return ""
    return (
        f"{label_of(place)} counts as trained to {trained} tokens, original_max_position_embeddings of its "
        f"config.json. By its scaled rotation it may reach {most}: task.train_length= gives another training length"
    )


def _lengths(place: str) -> tuple[int | None, int | None]:
    return (None, None) if FUNCTION.fullmatch(place) else _hub().lengths(place)


def lengthless(place: str) -> str:
    """Say that a saved model does not tell its length, and what to do."""
    text = f"checkpoint={place!r} does not say how many positions it was made for: set task.train_length="
    if why := _hub().refused(place):
        text += f"; but no method to read further can be put into it ({why}), so that it is measured unchanged alone"
    return text


@lru_cache(maxsize=1)
def opened(place: str, digest: str, train_length: int, device: str) -> Guest:
    """Open a checkpoint; ValueError, with what to do, if it cannot be."""
    if function := FUNCTION.fullmatch(place):
        return _function(Path(f"{function[1]}.py"), function[2], train_length, torch.device(device))
    try:
        found = _hub().open_model(place, train_length, torch.device(device))
    except (OSError, ValueError) as error:
        raise ValueError(f"checkpoint={place!r} cannot be opened ({error}); give {KNOWN}") from error
    insight = Insight(
        geometry=found.geometry,
        hidden=found.hidden,
        attention=found.attention,
        last_outputs=found.last_outputs,
        encoder=found.encoder,
        replace=found.replace if found.encoder else None,
        window=found.window if found.encoder else None,
        first=found.first,
        rotating=found.rotating,
        fixed=f"nothing can be put into the model: {found.reason}" if found.reason else "",
        parameters=found.num_parameters(),
        vocabulary=found.model.config.get_text_config().vocab_size,
    )
    return Guest(found.logits, insight, torch.device(device))


def check_begin(place: str, guest: Guest, task: Task, tokenizer: object) -> None:
    """Refuse a text whose first token the model does not have; ValueError."""
    begin, known = getattr(getattr(task, "text", task), "begin", 0), guest.insight.vocabulary
    if known is not None and begin >= known:
        remedy = "set task.tokenizer= to its own"
        if tokenizer == place:
            remedy = "set bos_token_id in its config.json to the token that its training texts began with"
        raise ValueError(
            f"checkpoint={place!r} has {known} tokens, and none of the number {begin} to begin with: {remedy}"
        )


def check_reach(task: Task, experiments: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a text in which nothing fits that is longer than in training, where that is measured; ValueError."""
    if not isinstance(task, Text):
        return
    longest, size = task.splits["test"].longest, task.provenance().get("bytes", 0)
    for name, times in NEEDED.items():
        beyond = [
            round(each * task.train_length) for each in experiments.get(name, {}).get("multiples", ()) if each > 1
        ]
        if beyond and times * min(beyond) > longest:
            wanted = math.ceil(PIECES * min(beyond) * size / max(1, len(task.splits["test"])) / 1000)
            raise ValueError(
                f"the text has {longest:,} tokens, and {name} needs {times * min(beyond):,} or more to read "
                f"{min(beyond):,} at once: give a longer text ({PIECES} pieces of that length have {wanted:,} kB)"
            )


def _function(file: Path, name: str, train_length: int, device: torch.device) -> Guest:
    answer = getattr(_module(file), name, None)
    if not callable(answer):
        raise ValueError(f"{file} has no function {name!r} that makes logits of tokens")
    if isinstance(answer, nn.Module):
        answer = answer.eval().to(device)
    takes_positions = len(inspect.signature(answer).parameters) > 1

    def logits(tokens: Tensor, positions: Tensor | None) -> Tensor:
        if positions is None:
            return answer(tokens)
        if not takes_positions:
            raise Unsupported(f"{name} takes no positions")
        return answer(tokens, positions)

    parameters = sum(p.numel() for p in answer.parameters()) if isinstance(answer, nn.Module) else 0
    geometry = Geometry(model_dim=1, num_heads=1, num_layers=1, train_length=train_length)
    return Guest(logits, Insight(geometry=geometry, parameters=(0, parameters)), device)


def _module(file: Path) -> ModuleType:
    name = f"pe_zoo_checkpoint_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise ValueError(f"checkpoint: there is no file {str(file)!r}")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _hub() -> ModuleType:
    return importlib.import_module("pe_zoo.hf.checkpoint")  # optional, and takes seconds
