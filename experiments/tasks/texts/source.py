"""Which text a task asks for: read once for all runs of a process, and again only if its files have changed."""

import json
import os
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import torch

from experiments.tasks.texts.cache import Packed, cached
from experiments.tasks.texts.corpus import PACKAGES, Corpus, digest_of, package_folder
from experiments.tasks.texts.dataset import corpus_of
from experiments.tasks.texts.duplicates import without_duplicates

COLUMN = "text"
LIBRARY, INSTALLED = "library", "installed"
Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Source:
    """Knobs of the task `Text` that decide which bytes its splits have."""

    path: str | None = None
    dataset: str | None = None
    column: str = COLUMN
    documents: str = "joined"
    duplicates: str = "removed"
    source: str = LIBRARY
    measured: str = "split"

    def corpus(self) -> Corpus:
        """Return the documents; ValueError if they cannot be read. The text that was read last stays in memory."""
        return _read(self, self._stamp())

    def sha256(self) -> str:
        """Return a hash of all splits as they are used."""
        return _sha256(self, self._stamp())

    def _stamp(self) -> Stamp:
        """Return what changes with the files of a folder: nothing for text that is not ours to change."""
        if self.source == INSTALLED:
            named = [(f"{name} {version(name)}", package_folder(name) / "__init__.py") for name in PACKAGES]
            return tuple((f"{name} {file}", file.stat().st_size, file.stat().st_mtime_ns) for name, file in named)
        root = Path(self.path or self.dataset or "")
        if not (self.path or self.dataset) or not root.exists():
            return ()
        files = [root, *(Path(folder, name) for folder, _, names in os.walk(root) for name in names)]
        known = [(file, file.stat()) for file in files if file.exists()]
        return tuple((str(file.absolute()), of.st_size, of.st_mtime_ns) for file, of in known)


@lru_cache(maxsize=256)
def _sha256(source: Source, stamp: Stamp) -> str:
    return digest_of(_read(source, stamp).splits)


@lru_cache(maxsize=1)
def _read(source: Source, stamp: Stamp) -> Corpus:
    path, dataset, column = source.path, source.dataset, source.column
    if "" in (path, dataset):
        knob = "task.path" if path == "" else "task.dataset"
        raise ValueError(f"{knob}='' names nothing; give one, or null for the default corpus")
    if path is not None and dataset is not None:
        raise ValueError(f"task.path={path!r} and task.dataset={dataset!r} cannot both be read; give one of them")
    if dataset is None and column != COLUMN:
        raise ValueError(f"task.column={column!r} changes nothing without a data set; set task.dataset")
    if source.source == INSTALLED:
        if path or dataset:
            raise ValueError(
                "task.source=installed reads installed packages: leave out task.path and task.dataset, or add "
                "task.source=library, which reads them"
            )
        return cached(f"{source} {stamp}", lambda: _made(source), pack, unpack)
    return _made(source)


def _made(source: Source) -> Corpus:
    joined, divided = source.documents == "joined", source.measured != "all"
    if source.dataset is not None:
        corpus = corpus_of(source.dataset, source.column, joined=joined)
    else:
        whole = source.source == INSTALLED
        corpus = Corpus.of_packages(divided=divided) if whole else Corpus.of_files(source.path, divided=divided)
    if not divided:
        return corpus.undivided()
    return without_duplicates(corpus, joined=joined) if source.duplicates == "removed" else corpus


def pack(corpus: Corpus) -> Packed:
    """Return a corpus as tensors of bytes, and of where each document ends."""
    tensors = {}
    for name, documents in corpus.splits.items():
        tensors[name] = torch.frombuffer(bytearray(b"".join(documents)), dtype=torch.uint8)
        tensors[f"{name}.sizes"] = torch.tensor([len(document) for document in documents])
    names = json.dumps([*corpus.splits])
    return tensors, {"splits": names, "provenance": json.dumps(corpus.provenance), "label": corpus.label}


def unpack(packed: Packed) -> Corpus:
    """Return the corpus that `pack` was given."""
    tensors, texts = packed
    splits = {}
    for name in json.loads(texts["splits"]):
        whole, ends = tensors[name].numpy().tobytes(), [0, *tensors[f"{name}.sizes"].cumsum(0).tolist()]
        splits[name] = [whole[start:end] for start, end in pairwise(ends)]
    return Corpus(splits, json.loads(texts["provenance"]), texts["label"])
