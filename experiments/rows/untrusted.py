"""Reading what somebody else may have written: nothing is executed, and no link is followed out of the folder."""

import csv
import hashlib
import io
import json
import re
import stat
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is ten times as fast, where it is built in
MOST_BYTES = {".json": 2**22, ".log": 2**22, ".yaml": 2**20, ".csv": 2**28}
"""Largest file that is read, by ending; 64 KiB for others."""
DEEPEST = 32
LONGEST_NAME = 500
REPLACED = "\N{REPLACEMENT CHARACTER}"


def one_line(text: str) -> str:
    """Return text as one line of printable characters; ``�`` replaces terminal and direction codes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else REPLACED for c in text)


def message_of(error: object) -> str:
    """Return an error's message as one line."""
    return one_line(" ".join(str(error).split()))


def name_of(text: str) -> str:
    """Return `one_line`, cut to `LONGEST_NAME`; a digest keeps long names apart."""
    line = one_line(text)
    if len(line) <= LONGEST_NAME:
        return line
    return f"{line[:LONGEST_NAME]}… {hashlib.sha256(text.encode(errors='replace')).hexdigest()[:8]}"


def stays_within(path: Path, folder: Path) -> None:
    """Raise ValueError for a link that leads out of a folder."""
    if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{path.name} is a link that leads out of the folder: replace it with what it leads to")


def check_file(path: Path, folder: Path) -> None:
    """Refuse to open a file that is not safe to read.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a link out of ``folder``, not a regular file, or too large.
    """
    path.lstat()
    stays_within(path, folder)
    found, most = path.stat(), MOST_BYTES.get(path.suffix, 2**16)
    if not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for ever
        raise ValueError(f"{path.name} cannot be read: it is not a file")
    if found.st_size > most:
        raise ValueError(f"{path.name} cannot be read: it has {found.st_size:,} bytes, more than {most:,}")


def read_text(path: Path, folder: Path) -> str:
    """Read a file as UTF-8; see `check_file` for what is refused."""
    check_file(path, folder)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from error


def read_mapping(path: Path, folder: Path) -> dict[str, Any]:
    """Read a mapping from a JSON or YAML file, all its text in one line each. Equal files share it: do not change it.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file cannot be read, or holds no mapping.
    """
    text = read_text(path, folder)
    # The runs of a series differ in their first line alone, the seed, and YAML is slow to read.
    seed = re.match(r"seed: (\d{1,18})\n", text) if path.suffix != ".json" else None
    try:
        if seed:
            return {"seed": int(seed[1])} | _from_yaml(text[seed.end() :])
        return _from_yaml(text) if path.suffix != ".json" else _mapping(json.loads(text))
    except RecursionError:
        raise ValueError(f"{path.name} cannot be read: it is nested too deeply") from None
    except (ValueError, TypeError, OverflowError, yaml.YAMLError) as error:
        raise ValueError(f"{path.name} cannot be read: {name_of(message_of(error))}") from None


@lru_cache(maxsize=4096)
def _from_yaml(text: str) -> dict[str, Any]:
    depth = 0
    for event in yaml.parse(text, Loader=Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:  # libyaml would crash the process
            raise ValueError("it is nested too deeply")
        if isinstance(event, yaml.AliasEvent):  # aliases of aliases grow without limit
            raise ValueError(f"it has an alias, *{event.anchor}")
    return _mapping(yaml.load(text, Loader=Loader))


def _mapping(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError("it holds no mapping")
    return {one_line(str(key)): _printable(value) for key, value in content.items()}


def _printable(value: Any) -> Any:
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError("it holds a whole number of more than 64 bits")
    if isinstance(value, dict):
        return _mapping(value)
    if isinstance(value, list):
        return [_printable(item) for item in value]
    return value if value is None or isinstance(value, int | float) else one_line(str(value))


def read_cells(path: Path, folder: Path, *, by_hand: bool = False) -> tuple[list[str], list[list[str]]]:
    """Read the head and the lines of a CSV file.

    Args:
        path: of the file.
        folder: that it must be in.
        by_hand: allow a byte order mark, blank lines at the end, and an end without a newline.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file cannot be read, or a line has more or fewer cells than the head.
    """
    text = read_text(path, folder)
    if by_hand:
        text = text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}").rstrip("\r\n") + "\n"
    try:
        head, *lines = list(csv.reader(io.StringIO(text, newline=""), strict=True)) or [[]]
    except csv.Error as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from None
    for number, line in enumerate(lines, start=2):
        if len(line) != len(head):
            counts = f"line {number} has {len(line)} cells, its head {len(head)}; cut short?"
            raise ValueError(f"{path.name} cannot be read: {counts}")
    if not text.endswith("\n"):
        raise ValueError(f"{path.name} cannot be read: it is cut short")
    return head, lines
