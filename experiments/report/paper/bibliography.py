"""The papers behind a report, as BibTeX: those of its encoders, numberings, variants and methods, and no others."""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import bibtexparser
import yaml
from bibtexparser.bibdatabase import BibDatabase
from bibtexparser.bwriter import BibTexWriter

from experiments.report import documented
from experiments.rows.results import Results
from experiments.rows.untrusted import one_line
from pe_zoo import _catalogue

ROOT = Path(__file__).resolve().parents[3]
FILE = Path(__file__).resolve().parents[1] / "assets" / "bibliography.bib"
OURS = "pezoo"
"""The key of the entry for this project itself."""

Fields = dict[str, str]
"""An entry as bibtexparser has it: ``ID``, ``ENTRYTYPE``, and its fields by name."""


@dataclass
class Cited:
    """The entries of a report by key, and the keys of each encoder, numbering and variant."""

    entries: dict[str, Fields] = field(default_factory=dict)
    of: dict[str, list[str]] = field(default_factory=dict)

    def text(self) -> str:
        """Return the BibTeX file: a comment for each name, then the entries, by key."""
        comments = [f"% {one_line(name)}: {', '.join(keys) or 'no paper is cited'}" for name, keys in self.of.items()]
        database, writer = BibDatabase(), BibTexWriter()
        for entry in self.entries.values():
            shown = {name: value for name, value in entry.items() if name != "keywords"}
            if arxiv := shown.get("eprint"):
                shown |= {"archiveprefix": "arXiv", "url": f"https://arxiv.org/abs/{arxiv}"}
            database.entries.append(shown)
        writer.indent = "  "
        return "\n".join([*comments, "", writer.write(database).strip(), ""]).lstrip()


@lru_cache(maxsize=1)
def known() -> dict[str, Fields]:
    """Return the entries of bibliography.bib by key."""
    entries: dict[str, Fields] = bibtexparser.loads(FILE.read_text(encoding="utf-8")).entries_dict
    return entries


def entry_of(paper: _catalogue.Paper) -> Fields:
    """Return the entry of bibliography.bib, or else one with what the citation itself has: no title, few authors."""
    for entry in known().values():
        if paper.arxiv and entry.get("eprint") == paper.arxiv:
            return entry
    authors = paper.authors.replace(" et al.", " and others").replace(", ", " and ")
    key = re.sub(r"[^a-z]", "", authors.split()[0].lower()) + paper.year + re.sub(r"[^a-z\d]", "", paper.number.lower())
    fields = {"title": paper.number, "author": authors, "year": paper.year}
    fields |= {"eprint": paper.arxiv} if paper.arxiv else {"url": paper.link}
    return {"ENTRYTYPE": "misc", "ID": key, **fields}


def calls_for(text: str, entry: Fields) -> bool:
    """Return whether one of an entry's keywords stands in a text."""
    words = [word.strip() for word in entry.get("keywords", "").split(",") if word.strip()]
    return any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, flags=re.IGNORECASE) for word in words)


def cited(results: Results, text: str) -> Cited:
    """Collect the papers of a folder's runs, and of the methods that ``text``, all words of its report, names."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    authors = " and ".join(f"{{{author['name']}}}" for author in citation["authors"])
    ours = {"ENTRYTYPE": "misc", "ID": OURS, "title": f"{{{citation['title']}}}", "author": authors}
    found = Cited({OURS: ours | {"year": str(citation["date-released"])[:4], "note": f"Version {citation['version']}"}})
    for name, papers in _papers(results).items():
        entries = {entry["ID"]: entry for entry in map(entry_of, papers)}
        found.of[name] = list(entries)
        found.entries |= entries
    pairs = {pair for config in results.configs.values() for pair in config.items()}
    settings = {f"{key} {value}" for key, value in pairs if value not in ("null", "false")}
    whole = " ".join([text, *settings])
    found.entries |= {key: entry for key, entry in known().items() if calls_for(whole, entry)}
    return found


def _papers(results: Results) -> dict[str, tuple[_catalogue.Paper, ...]]:
    """Return the papers of each encoder, numbering or variant; only an encoder of someone else's may have none."""
    own = {
        "encoder": {entry.name: entry for entry in _catalogue.encoders()},
        "positions": {entry.name: entry for entry in _catalogue.numberings()},
    }
    found: dict[str, dict[_catalogue.Paper, None]] = {}
    for run in results.runs.to_dict("records"):
        config = results.configs.get(str(run["run_id"]), {})
        for key in ("encoder", "positions", "choice", "layout"):
            name = str(run[key] or "").partition("(")[0]
            if key in own:
                entry = own[key].get(name := config.get(f"{key}.name", name))
            else:
                entry = documented.variant("encoder" if key == "choice" else key, name)
            if (entry and entry.papers) or (key == "encoder" and name and entry is None):
                found.setdefault(name, {}).update(dict.fromkeys(entry.papers if entry else ()))
    return {name: tuple(found[name]) for name in sorted(found)}
