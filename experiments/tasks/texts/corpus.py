"""Where text comes from: files or Python's own source, and how it is split. A corpus is bytes, in any encoding."""

import hashlib
import math
import os
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

HELD_OUT = 0.1
"""Share of the bytes that is kept for testing, and again for validation."""
SPLITS = ("test", "validation", "train")


@dataclass(frozen=True)
class Corpus:
    """Documents by split, in order.

    Args:
        splits: ``test``, ``validation`` and ``train``, each a list of documents; of Python's library one may be empty.
        provenance: what was read: source, how many documents and bytes, sha256.
        said: what a user called it, for messages.
    """

    splits: dict[str, list[bytes]]
    provenance: dict[str, Any]
    said: str

    @classmethod
    def of_files(cls, path: str | None) -> Self:
        """Of a file or folder; None: of Python's standard library.

        Raises:
            ValueError: it holds no text, or something that is none.
        """
        files = _once(_read_standard_library() if path is None else _read(Path(path)))
        ordered = [files[name] for name in sorted(files, key=lambda name: hashlib.sha256(name.encode()).digest())]
        provenance = {
            "source": "Python standard library" if path is None else Path(path).name,
            "files": len(files),
            "bytes": sum(map(len, files.values())),
            "sha256": _digest(files),
            "not_utf8": sum(not _is_utf8(text) for text in files.values()),
        }
        said = "Python's standard library" if path is None else f"task.path={path!r}"
        return cls(held_out(ordered, SPLITS), provenance, said)

    def joined(self) -> Self:
        """Join the documents of every split into one."""
        return replace(self, splits={name: [b"".join(documents)] for name, documents in self.splits.items()})


def held_out(ordered: list[bytes], names: tuple[str, ...]) -> dict[str, list[bytes]]:
    """Documents by split, the last of which takes what is left: whole ones where that comes near, else cut by place.

    Args:
        ordered: documents; those of a split follow one another.
        names: of splits. All but the last get ``HELD_OUT`` of the bytes: as few whole documents as hold that, or, where
            these would hold less than half of it or more than twice as much, just so many bytes.
    """
    share = HELD_OUT * sum(map(len, ordered))
    whole, rest = {}, ordered
    for place, name in enumerate(names[:-1], 1):
        count = max(0, min(_reaching(rest, share), len(rest) - (len(names) - place)))
        whole[name], rest = rest[:count], rest[count:]
    if all(held and share / 2 <= sum(map(len, held)) <= 2 * share for held in whole.values()):
        return {**whole, names[-1]: rest}
    return dict(zip(names, _by_place(ordered, math.ceil(share), len(names)), strict=True))


def _by_place(documents: list[bytes], size: int, count: int) -> Iterator[list[bytes]]:
    """As many splits, of ``size`` bytes but for the last; a document that two of them share is cut in two."""
    begins = [0, *accumulate(map(len, documents))]
    for split in range(count):
        first, last = split * size, (split + 1) * size if split < count - 1 else begins[-1]
        parts = (
            text[max(0, first - begin) : max(0, last - begin)] for text, begin in zip(documents, begins, strict=False)
        )
        yield [part for part in parts if part]


def _reaching(texts: list[bytes], size: float) -> int:
    """How many texts, from the first, hold at least ``size`` bytes together."""
    counts = (count for count, total in enumerate(accumulate(map(len, texts)), 1) if total >= size)
    return next(counts, len(texts))


def _read_standard_library() -> Iterator[tuple[str, bytes]]:
    root = Path(sysconfig.get_paths()["stdlib"])
    left_out = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if not left_out.intersection(relative.parts) and not relative.name.startswith("_sysconfigdata"):
            yield relative.as_posix(), path.read_bytes()


def _read(path: Path) -> Iterator[tuple[str, bytes]]:
    if not path.exists():
        raise ValueError(f"task.path={str(path)!r} does not exist; give a text file or a folder of them")
    empty = True
    for file in [path] if path.is_file() else sorted(_files(path)):
        try:
            text = file.read_bytes()
        except OSError as error:
            raise _unreadable(file, error) from error
        if b"\0" in text:
            raise ValueError(
                f"task.path: {str(file)!r} is not text, it has zero bytes in it; give text files, in UTF-8 or any "
                f"other encoding without zero bytes, or take it out"
            )
        if text:
            empty = False
            yield file.relative_to(path).as_posix() if file != path else file.name, text
    if empty:
        raise ValueError(f"task.path={str(path)!r} holds no text; give a file or folder with some")


def _files(root: Path) -> Iterator[Path]:
    """Every file below a folder, hidden ones aside. What cannot be looked at is an error and not left out."""

    def refuse(error: OSError) -> None:
        raise _unreadable(error.filename, error) from error

    for folder, below, names in os.walk(root, onerror=refuse):
        linked = [name for name in below if Path(folder, name).is_symlink()]
        below[:] = [name for name in below if not name.startswith(".")]
        for name in [*linked, *names]:
            file = Path(folder, name)
            if name.startswith("."):
                continue
            if file.is_symlink() and not file.is_file():
                raise ValueError(
                    f"task.path: {str(file)!r} is a link to a folder or to nothing; links to folders are not "
                    f"followed, so put the files themselves there or take it out"
                )
            if file.is_file():
                yield file


def _unreadable(file: object, error: OSError) -> ValueError:
    return ValueError(f"task.path: {str(file)!r} cannot be read ({error.strerror}); mend it or leave it out")


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _once(files: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    """By name; of files that hold the same, the first: the rest could end up on both sides of a split."""
    names: dict[bytes, str] = {}
    for name, text in files:
        names.setdefault(text, name)
    return {name: text for text, name in names.items()}


def _digest(files: dict[str, bytes]) -> str:
    whole_corpus = hashlib.sha256()
    for name, text in sorted(files.items()):
        whole_corpus.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(text).digest())
    return whole_corpus.hexdigest()
