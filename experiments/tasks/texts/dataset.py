"""Text of any set that ``datasets.load_dataset`` reads: named on the Hugging Face hub, or a local folder."""

from pathlib import Path
from typing import Any

from experiments.tasks.texts.corpus import HELD_OUT, SPLITS, Corpus, digest_of, held_out

LOCAL = "or give a local folder of parquet, json, csv or text files"


def corpus_of(dataset: str, column: str, *, joined: bool) -> Corpus:
    """Read the rows of a set, each a document, in the set's own splits; a missing split is cut from its train split.

    Args:
        dataset: ``name``, ``name:configuration`` or a local folder.
        column: that holds the text; rows without any (null) are left out.
        joined: True keeps all rows in place and ends each in a line break. False leaves out empty rows, and repeated
            ones in a train split that is cut.

    Raises:
        ValueError: it cannot be loaded, has no such column, or no train split.
    """
    loaded = _load(dataset)
    if "train" not in loaded:
        raise ValueError(f"task.dataset={dataset!r} has no split named train, only {', '.join(loaded)}")
    rows = {name: _texts(loaded[name], dataset, column) for name in SPLITS if name in loaded}
    missing = tuple(name for name in SPLITS if name not in rows)
    if not joined:
        rows = {name: [text for text in texts if text] for name, texts in rows.items()}
        if missing:
            rows["train"] = list(dict.fromkeys(rows["train"]))
    end = "\n" if joined else ""
    encoded = {name: [_encode(text.removesuffix(end) + end) for text in texts] for name, texts in rows.items()}
    splits = encoded | held_out(encoded["train"], (*missing, "train"))
    provenance = {
        "source": Path(dataset).name if Path(dataset).exists() else dataset,
        "column": column,
        "rows": sum(map(len, rows.values())),
        "splits": {name: f"{HELD_OUT:.0%} of train" if name in missing else "own" for name in SPLITS},
        "bytes": sum(len(text) for texts in splits.values() for text in texts),
        "sha256": digest_of({name: [_encode(text) for text in texts] for name, texts in rows.items()}),
    }
    return Corpus(splits, provenance, f"task.dataset={dataset!r}")


def _load(dataset: str) -> Any:
    try:
        from datasets import exceptions, load_dataset
    except ImportError as error:
        raise ValueError('task.dataset needs the package datasets: pip install "pe_zoo[datasets]"') from error
    name, _, configuration = (dataset, "", "") if Path(dataset).exists() else dataset.partition(":")
    try:
        return load_dataset(name, configuration or None)
    except (OSError, ValueError, RuntimeError, exceptions.DatasetsError) as error:
        cause = error.__cause__ if isinstance(error, exceptions.DatasetGenerationError) else None
        reason = " ".join(str(cause or error).split()).partition(" Example of usage")[0]
        advice = f"check the name, {LOCAL}"
        if isinstance(error, ConnectionError):
            advice = f"go online once (what was loaded is kept), {LOCAL}"
        elif isinstance(error, RuntimeError):
            advice = f"a set that is a program is not run: take one that is stored as files, {LOCAL}"
        elif isinstance(error, ValueError) and not isinstance(error, OSError) and "onfig" in str(error):
            advice = f"name one of them as in task.dataset={name}:configuration"
        raise ValueError(f"task.dataset={dataset!r} cannot be loaded: {reason}; {advice}") from error


def _texts(split: Any, dataset: str, column: str) -> list[str]:
    if column not in split.column_names:
        known = ", ".join(split.column_names)
        raise ValueError(f"task.dataset={dataset!r} has no column {column!r}; set task.column to one of {known}")
    kind = getattr(split.features[column], "dtype", type(split.features[column]).__name__)
    if kind not in ("string", "large_string"):
        raise ValueError(f"task.column={column!r} of task.dataset={dataset!r} holds {kind}; name a column of strings")
    return [text for text in split.select_columns([column])[:][column] if text is not None]


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
