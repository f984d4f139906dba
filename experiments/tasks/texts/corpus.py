"""Where text comes from: files or Python's own source, and how it is split. A corpus is bytes, in any encoding."""

import hashlib
import math
import os
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

HELD_OUT = 0.1
"""Share of the bytes that is kept for testing, and again for validation."""
PACKAGES = ("torch", "sympy")
"""What this program needs anyway, by size: 73 MB in 3800 files, of which the constraints file fixes the versions."""
SPLITS = ("test", "validation", "train")


@dataclass(frozen=True)
class Corpus:
    """Documents by split, in order: ``test``, ``validation`` and ``train``; of Python's library one may be empty.

    The provenance has source, number of documents and bytes, sha256; the label is the source as a user named it.
    """

    splits: dict[str, list[bytes]]
    provenance: dict[str, Any]
    label: str

    @classmethod
    def of_files(cls, path: str | None, *, divided: bool = True) -> Self:
        """Read a file or folder; None: Python's standard library. ValueError if it holds no text, or something else.

        One that is not ``divided`` into splits has all documents in ``train``.
        """
        about = {"source": "Python standard library" if path is None else Path(path).name}
        label = "Python's standard library" if path is None else f"task.path={path!r}"
        read = _read_standard_library() if path is None else _read(Path(path))
        return cls._of(read, label, about, divided=divided)

    @classmethod
    def of_packages(cls, *, divided: bool = True) -> Self:
        """Read the Python sources of ``PACKAGES``, which are installed wherever this program is."""
        versions = {name: version(name) for name in PACKAGES}
        about = {"source": "installed packages", "packages": versions}
        return cls._of(_read_packages(), f"the sources of {' and '.join(PACKAGES)}", about, divided=divided)

    @classmethod
    def _of(cls, read: Iterable[tuple[str, bytes]], label: str, about: dict[str, Any], *, divided: bool) -> Self:
        # Of files with the same content only the first: the rest could end up on both sides of a split.
        files = {name: text for text, name in {text: name for name, text in reversed([*read])}.items()}
        ordered = [files[name] for name in sorted(files, key=lambda name: hashlib.sha256(name.encode()).digest())]
        whole = hashlib.sha256()
        for name, text in sorted(files.items()):
            whole.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(text).digest())
        provenance = about | {
            "files": len(files),
            "bytes": sum(map(len, ordered)),
            "sha256": whole.hexdigest(),
            "not_utf8": sum(text.decode(errors="ignore").encode() != text for text in ordered),
        }
        return cls(held_out(ordered, SPLITS) if divided else {"train": ordered}, provenance, label)

    def undivided(self) -> Self:
        """Return the corpus with the documents of all splits in ``train``."""
        return replace(self, splits={"train": [text for name in SPLITS for text in self.splits.get(name, [])]})

    def joined(self) -> Self:
        return replace(self, splits={name: [b"".join(documents)] for name, documents in self.splits.items()})


def digest_of(documents: Mapping[str, Sequence[bytes]]) -> str:
    """Return a sha256 of all documents of all splits, and of where each ends."""
    digest = hashlib.sha256()
    for name, texts in sorted(documents.items()):
        digest.update(f"{name} {len(texts)} ".encode())
        for text in texts:
            digest.update(hashlib.sha256(text).digest())
    return digest.hexdigest()


def held_out(ordered: list[bytes], names: tuple[str, ...]) -> dict[str, list[bytes]]:
    """Split documents, in order, by whole documents where the sizes come out near, else by place.

    All splits but the last get ``HELD_OUT`` of the bytes: as few whole documents as hold that, or, where these would
    hold less than half of it or more than twice as much, exactly that many bytes.
    """
    share = HELD_OUT * sum(map(len, ordered))
    whole, rest = {}, ordered
    for place, name in enumerate(names[:-1], 1):
        totals = enumerate(accumulate(map(len, rest)), 1)
        enough = next((count for count, total in totals if total >= share), len(rest))
        count = max(0, min(enough, len(rest) - (len(names) - place)))
        whole[name], rest = rest[:count], rest[count:]
    if all(part and share / 2 <= sum(map(len, part)) <= 2 * share for part in whole.values()):
        return {**whole, names[-1]: rest}
    return dict(zip(names, _by_place(ordered, math.ceil(share), len(names)), strict=True))


def _by_place(documents: list[bytes], size: int, count: int) -> Iterator[list[bytes]]:
    """Splits of ``size`` bytes each but the last; a document that two of them share is cut in two."""
    begins = [0, *accumulate(map(len, documents))]
    for split in range(count):
        first, last = split * size, (split + 1) * size if split < count - 1 else begins[-1]
        placed = zip(documents, begins, strict=False)
        yield [part for text, at in placed if (part := text[max(0, first - at) : max(0, last - at)])]


def _read_standard_library() -> Iterator[tuple[str, bytes]]:
    root = Path(sysconfig.get_paths()["stdlib"])
    left_out = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if not left_out.intersection(relative.parts) and not relative.name.startswith("_sysconfigdata"):
            yield relative.as_posix(), path.read_bytes()


def package_folder(name: str) -> Path:
    """Return where a package is installed."""
    spec = find_spec(name)
    return Path((spec and spec.origin) or "").parent


def _read_packages() -> Iterator[tuple[str, bytes]]:
    for name in PACKAGES:
        folder = package_folder(name)
        for path in sorted(folder.rglob("*.py")):
            if text := path.read_bytes():
                yield path.relative_to(folder.parent).as_posix(), text


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
            remedy = "give text files, in UTF-8 or any other encoding without zero bytes, or remove it"
            raise ValueError(f"task.path: {str(file)!r} is not text, it has zero bytes in it; {remedy}")
        if text:
            empty = False
            yield file.relative_to(path).as_posix() if file != path else file.name, text
    if empty:
        raise ValueError(f"task.path={str(path)!r} holds no text; give a file or folder with some")


def _files(root: Path) -> Iterator[Path]:
    """Every file below a folder, hidden ones aside; one that cannot be read is an error and not left out."""

    def refuse(error: OSError) -> None:
        raise _unreadable(error.filename, error) from error

    for folder, below, names in os.walk(root, onerror=refuse):
        links = [name for name in below if Path(folder, name).is_symlink()]
        below[:] = [name for name in below if not name.startswith(".")]
        for file in (Path(folder, name) for name in [*links, *names] if not name.startswith(".")):
            if file.is_file():
                yield file
            elif file.is_symlink():
                remedy = "links to folders are not followed, so put the files themselves there or remove it"
                raise ValueError(f"task.path: {str(file)!r} is a link to a folder or to nothing; {remedy}")


def _unreadable(file: object, error: OSError) -> ValueError:
    return ValueError(f"task.path: {str(file)!r} cannot be read ({error.strerror}); repair it or leave it out")
