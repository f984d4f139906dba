"""Which text a task asks for: read once for all runs of a process, and again only if its files have changed."""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from experiments.tasks.texts.corpus import Corpus, digest_of
from experiments.tasks.texts.dataset import corpus_of
from experiments.tasks.texts.duplicates import without_duplicates

COLUMN = "text"
Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Source:
    """Knobs of the task `Text` that decide which bytes its splits have."""

    path: str | None = None
    dataset: str | None = None
    column: str = COLUMN
    documents: str = "joined"
    duplicates: str = "removed"

    def corpus(self) -> Corpus:
        """Return the documents; ValueError if they cannot be read. The text that was read last stays in memory."""
        return _read(self, self._stamp())

    def sha256(self) -> str:
        """Return a hash of all splits as they are used."""
        return _sha256(self, self._stamp())

    def _stamp(self) -> Stamp:
        """Return what changes with the files of a folder: nothing for text that is not ours to change."""
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
    path, dataset, column, joined = source.path, source.dataset, source.column, source.documents == "joined"
    if "" in (path, dataset):
        knob = "task.path" if path == "" else "task.dataset"
        raise ValueError(f"{knob}='' names nothing; give one, or null for the default corpus")
    if path is not None and dataset is not None:
        raise ValueError(f"task.path={path!r} and task.dataset={dataset!r} cannot both be read; give one of them")
    if dataset is None and column != COLUMN:
        raise ValueError(f"task.column={column!r} changes nothing without a data set; set task.dataset")
    corpus = Corpus.of_files(path) if dataset is None else corpus_of(dataset, column, joined=joined)
    return without_duplicates(corpus, joined=joined) if source.duplicates == "removed" else corpus
