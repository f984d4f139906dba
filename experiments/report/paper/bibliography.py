"""The papers behind a report: only those of its encoders, numberings and methods, as BibTeX."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from experiments.rows.untrusted import one_line
from pe_zoo import _catalogue

if TYPE_CHECKING:
    from experiments.rows.results import Results

ROOT = Path(__file__).resolve().parents[3]
FILE = Path(__file__).resolve().parents[1] / "assets" / "bibliography.bib"
OURS = "pezoo"
"""The key of the entry for this project itself."""
_ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")


@dataclass(frozen=True)
class Entry:
    """One entry of the bibliography.

    Args:
        key: what LaTeX cites.
        kind: ``misc`` or ``article``.
        fields: as they are written, ``keywords`` among them.
    """

    key: str
    kind: str
    fields: dict[str, str]

    @property
    def arxiv(self) -> str | None:
        return self.fields.get("eprint")

    def is_called_for(self, text: str) -> bool:
        """Whether one of its keywords stands in a text."""
        words = [word.strip() for word in self.fields.get("keywords", "").split(",") if word.strip()]
        return any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, flags=re.IGNORECASE) for word in words)

    def __str__(self) -> str:
        shown = {name: value for name, value in self.fields.items() if name != "keywords"}
        if self.arxiv:
            shown |= {"archiveprefix": "arXiv", "url": f"https://arxiv.org/abs/{self.arxiv}"}
        lines = [f"  {name} = {{{value}}}," for name, value in shown.items()]
        return "\n".join([f"@{self.kind}{{{self.key},", *lines, "}"])


@dataclass
class Cited:
    """What a report cites: entries by key, and of each encoder, numbering and variant the keys that it goes back to."""

    entries: dict[str, Entry] = field(default_factory=dict)
    of: dict[str, list[str]] = field(default_factory=dict)

    def text(self) -> str:
        """The BibTeX file: a line for each name, then the entries, by key."""
        lines = [f"% {one_line(name)}: {', '.join(keys) or 'no paper is known'}" for name, keys in self.of.items()]
        return "\n\n".join(["\n".join(lines), *(str(self.entries[key]) for key in sorted(self.entries))]).strip() + "\n"


@lru_cache(maxsize=1)
def known() -> dict[str, Entry]:
    """Every entry there is, by key."""
    text = FILE.read_text(encoding="utf-8")
    found = {}
    for kind, key, body in re.findall(r"^@(\w+)\{(\w+),\n(.*?)^\}$", text, flags=re.MULTILINE | re.DOTALL):
        found[key] = Entry(key, kind, dict(re.findall(r"^  (\w+) = \{(.*)\},$", body, flags=re.MULTILINE)))
    return found


def cited(results: Results, text: str) -> Cited:
    """What a folder's runs and the words of its report go back to.

    Args:
        results: of `experiments.rows.results.load`.
        text: everything the report says; names of methods in it call for their entries.
    """
    found = Cited({OURS: ours()})
    by_arxiv = {entry.arxiv: entry for entry in known().values() if entry.arxiv}
    for name, sources in _sources(results).items():
        papers = dict.fromkeys(number for source in sources for number in _ARXIV.findall(source))
        entries = [by_arxiv[number] for number in papers if number in by_arxiv]
        found.of[name] = [entry.key for entry in entries]
        found.entries |= {entry.key: entry for entry in entries}
    settings = " ".join(f"{key} {value}" for keys in results.configs.values() for key, value in _set(keys))
    found.entries |= {key: entry for key, entry in known().items() if entry.is_called_for(f"{text} {settings}")}
    return found


def _set(config: dict[str, str]) -> list[tuple[str, str]]:
    return [(key, value) for key, value in config.items() if value not in ("null", "false")]


def ours() -> Entry:
    """The entry for this project, from ``CITATION.cff``."""
    said = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    authors = " and ".join(f"{{{author['name']}}}" for author in said["authors"])
    fields = {"title": f"{{{said['title']}}}", "author": authors, "year": str(said["date-released"])[:4]}
    return Entry(OURS, "misc", fields | {"note": f"Version {said['version']}"})


def _sources(results: Results) -> dict[str, list[str]]:
    """Encoder, numbering or variant -> texts that cite its papers; an empty list where it is none of ours."""
    found: dict[str, list[str]] = {}
    for run in results.runs.to_dict("records"):
        config = results.configs.get(str(run["run_id"]), {})
        for key, folder in (("encoder", "encoder"), ("positions", None), ("choice", "encoder"), ("layout", "layout")):
            name = str(run[key] or "").partition("(")[0]
            name = config.get(f"{key}.name", name) if key in ("encoder", "positions") else name
            if key in ("encoder", "positions"):
                entries = _catalogue.encoders() if key == "encoder" else _catalogue.numberings()
                texts = [entry.summary for entry in entries if entry.name == name]
            else:
                texts = _comments(folder or "", name)
            if texts or (key == "encoder" and name):
                found[name] = list(dict.fromkeys([*found.get(name, []), *texts]))
    plain = [name for name, texts in found.items() if texts and not any(map(_ARXIV.search, texts))]
    return {name: found[name] for name in sorted(found) if name not in plain}


def _comments(folder: str, name: str) -> list[str]:
    """The comments of a variant's file."""
    path = ROOT / "configs" / folder / f"{name}.yaml"
    if not re.fullmatch(r"\w+", name) or not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    said = " ".join(line.lstrip("# ") for line in lines if line.startswith("#"))
    return [said] if _ARXIV.search(said) else []
