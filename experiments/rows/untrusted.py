"""Reading what somebody else may have written: nothing is executed, expanded, or followed out of the folder."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import stat
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    _Loader = yaml.SafeLoader
else:  # libyaml, where PyYAML was built with it, is ten times as fast
    _Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MOST_BYTES = {".json": 2**22, ".yaml": 2**20, ".csv": 2**28}
"""No file of ours comes near these sizes."""
MOST_VALUES = 100_000
DEEPEST = 32
LONGEST_NAME = 500
REPLACED = "\N{REPLACEMENT CHARACTER}"


def one_line(text: str) -> str:
    """Text as one line of printable characters: what steers a terminal or turns text around becomes ``�``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else REPLACED for c in text)


def message_of(error: object) -> str:
    """What an error says, as one line that a terminal or a page may have."""
    return one_line(" ".join(str(error).split()))


def name_of(text: str) -> str:
    """`one_line`, and cut where it is longer than any name; what differs stays different."""
    line = one_line(text)
    if len(line) <= LONGEST_NAME:
        return line
    return f"{line[:LONGEST_NAME]}… {hashlib.sha256(text.encode(errors='replace')).hexdigest()[:8]}"


def stays_within(path: Path, folder: Path) -> None:
    """Refuse a link that leads out of a folder.

    Raises:
        ValueError: it does.
    """
    if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{path.name} is a link that leads out of the folder: put what it leads to in its place")


def check_file(path: Path, folder: Path) -> None:
    """Refuse what should not even be opened.

    Raises:
        FileNotFoundError: there is none.
        ValueError: a link that leads out of ``folder``, no regular file, or larger than any of ours.
    """
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        stays_within(path, folder)
        found = path.stat()
    if not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for ever
        raise ValueError(f"{path.name} cannot be read: it is no file")
    most = MOST_BYTES.get(path.suffix, 2**16)
    if found.st_size > most:
        raise ValueError(f"{path.name} cannot be read: it has {found.st_size:,} bytes, more than {most:,}")


def read_text(path: Path, folder: Path) -> str:
    """A file's text.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it should not be opened, see `check_file`, or is not UTF-8.
    """
    check_file(path, folder)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from error


def read_mapping(path: Path, folder: Path) -> dict[str, Any]:
    """A mapping from a JSON or YAML file, all its text in one line each. Not to be changed: files alike share it.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it cannot be read, see `read_text`; no mapping; too many values, or too deeply nested.
    """
    text = read_text(path, folder)
    try:
        if path.suffix == ".json":
            return _mapping(json.loads(text))
        # Runs of a sweep differ in their first line alone, the seed, and YAML is slow to read.
        seed = re.match(r"seed: (\d{1,18})\n", text)
        return {"seed": int(seed[1])} | _from_yaml(text[seed.end() :]) if seed else _from_yaml(text)
    except RecursionError:
        raise ValueError(f"{path.name} cannot be read: it is nested too deeply") from None
    except (ValueError, TypeError, OverflowError, yaml.YAMLError) as error:
        raise ValueError(f"{path.name} cannot be read: {name_of(message_of(error))}") from None


@lru_cache(maxsize=4096)
def _from_yaml(text: str) -> dict[str, Any]:
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):  # libyaml takes the process down with it if it nests too deeply
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError("it is nested too deeply")
    return _mapping(yaml.load(text, Loader=_Loader))


def _mapping(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError("it holds no mapping")
    plain = _plain(content, [0], 0)
    assert isinstance(plain, dict)
    return plain


def _plain(value: Any, seen: list[int], depth: int) -> Any:
    """Numbers, text, lists and mappings with names; counted as often as an alias repeats them."""
    seen[0] += 1
    if seen[0] > MOST_VALUES or depth > DEEPEST:
        raise ValueError("it holds more values than any of ours, or is nested too deeply")
    if isinstance(value, dict):
        return {one_line(str(key)): _plain(item, seen, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, seen, depth + 1) for item in value]
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError("it holds a whole number larger than any of ours")
    return value if value is None or isinstance(value, int | float) else one_line(str(value))


def read_cells(path: Path, folder: Path, *, by_hand: bool = False) -> tuple[list[str], list[list[str]]]:
    """The head and the lines of a CSV file.

    Args:
        path: of the file.
        folder: which it stays in.
        by_hand: whether it was typed or comes from a spreadsheet: a byte order mark, blank lines at its end and an end
            without a newline mean nothing then.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it cannot be read, see `read_text`, or is cut short.
    """
    text = read_text(path, folder)
    if by_hand:
        text = text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")
    try:
        head, *lines = list(csv.reader(io.StringIO(text, newline=""), strict=True)) or [[]]
    except csv.Error as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from None
    if by_hand:
        while lines and not lines[-1]:
            del lines[-1]
        for number, line in enumerate(lines, start=2):
            if len(line) != len(head):
                raise ValueError(
                    f"{path.name} cannot be read: line {number} has {len(line)} cells, its head {len(head)}"
                )
    elif not text.endswith("\n") or set(map(len, lines)) - {len(head)}:
        raise ValueError(f"{path.name} cannot be read: it is cut short")
    return head, lines
