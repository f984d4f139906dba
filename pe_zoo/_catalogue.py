"""The catalogue: what each encoder is, read off its class, docstring and behaviour. Nothing is written twice."""

from __future__ import annotations

import copy
import inspect
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from pe_zoo import _registry
from pe_zoo._contract.bench import Bench
from pe_zoo._contract.claims import HOOKS, depends_on
from pe_zoo._cost import extra_operations
from pe_zoo._encoder import Encoder, Geometry, Unsupported
from pe_zoo._knobs import knobs

CLAIMS = {
    "shift_invariant": "shift",
    "direction_aware": "direction",
    "causal_only": "causal only",
    "static_bias": "static",
}
LEGEND = """\
Extra work: operations that the hooks add to a forward pass over the training length, as a share of the whole model's \
without an encoder, on the plain path: 2·m·n·k for a matrix product, one for each number that anything else makes. \
Counted, not timed: the same on every machine, and no promise of seconds.
Family: what a score gains from position. input: a vector added to the token embeddings. rotation: queries and keys \
transformed. score bias: a term that positions alone decide. relative term: one that queries or keys decide too. \
content: one where content takes part in saying how far away a key is.
Claims: shift: adding one number to all positions changes nothing. direction: a bidirectional model can tell a \
sequence from its reversal. causal only: means nothing without a causal mask. static: neither scores nor queries and \
keys decide what is added to a score, so that fused attention can take it along unless the encoder mixes by itself. \
< n: positions up to n − 1 only. The contract tests hold each claim both ways, but for causal only, which says what \
is not asked."""

COLLISIONS = (
    "Two methods are called CoPE: Contextual Position Encoding (arXiv:2405.18719) and Clipped RoPE (arXiv:2602.05258).",
    "Three are called HoPE: high-frequency rotary (arXiv:2410.21216), hyperbolic rotary (arXiv:2509.05218) and one for "
    "vision-language models (arXiv:2505.20444).",
    "Three things are called partial RoPE: the first dimensions turn, with all frequencies spread over fewer pairs "
    "(GPT-J, GPT-NeoX: RoPE with `fraction` below 1); the same at a quarter of the head in a trunk that does not scale "
    "its scores (Kazemnejad et al. 2023); only the fastest frequencies of the full head turn (p-RoPE, "
    "arXiv:2410.06205).",
)
"""Names that more than one method took. Behind an arXiv id comes which encoder cites it."""


@dataclass(frozen=True)
class Paper:
    """One citation of a docstring."""

    authors: str
    year: str
    arxiv: str
    section: str = ""

    @property
    def link(self) -> str:
        return f"https://arxiv.org/abs/{self.arxiv}"

    def __str__(self) -> str:
        return f"{self.authors} ({self.year}), arXiv:{self.arxiv}" + (f", {self.section}" if self.section else "")


@dataclass(frozen=True)
class Entry:
    """One encoder at one geometry."""

    name: str
    family: str
    hooks: tuple[str, ...]
    parameters: str
    extra: str
    claims: str
    papers: tuple[Paper, ...]
    remark: str = ""


def entries(names: Iterable[str], geometry: Geometry) -> list[Entry]:
    """An entry for each name."""
    return [entry(name, geometry) for name in names]


def entry(name: str, geometry: Geometry) -> Entry:
    """What is known of an encoder; one that refuses the geometry is still listed, with the reason."""
    cls = _registry.get(name)
    hooks = tuple(hook for hook in HOOKS if cls.overrides(hook))
    papers = tuple(papers_in(inspect.getdoc(cls) or ""))
    try:
        with torch.random.fork_rng(devices=[]):
            encoder = cls(geometry)
            extra = f"+{extra_operations(encoder):.1%}"
            return Entry(name, family(encoder), hooks, f"{count(encoder):,}", extra, claims(encoder), papers)
    except (ValueError, Unsupported) as refusal:
        return Entry(name, "–", hooks, "–", "–", "–", papers, " ".join(str(refusal).split()))


def count(encoder: Encoder) -> int:
    """Learned parameters."""
    return sum(parameter.numel() for parameter in encoder.parameters())


def claims(encoder: Encoder) -> str:
    """Claims in short words, see ``LEGEND``.

    Claims may be set on the instance, where a knob decides.
    """
    words = [word for claim, word in CLAIMS.items() if getattr(encoder, claim)]
    return ", ".join([*words, f"< {encoder.max_length}"] if encoder.max_length is not None else words)


def family(encoder: Encoder) -> str:
    """Where a method belongs: as the class says, or else by its hooks and by what their outcome depends on."""
    declared = getattr(encoder, "family", None)
    if isinstance(declared, str):
        return declared
    hooks = {hook for hook in HOOKS if encoder.overrides(hook)}
    if hooks <= {"embed"}:
        return "input" if hooks else "no position"
    depends = _dependence(encoder)
    if "positions" not in depends or "scores" in depends:
        return "content"
    if "own product" in depends or hooks <= {"embed", "rotate"}:
        return "content" if "x" in depends else "rotation"
    return "relative term" if depends & {"x", "queries"} or "mix" in hooks else "score bias"


def _dependence(encoder: Encoder) -> frozenset[str]:
    stirred = Bench(geometry=encoder.geometry).fresh(lambda _: copy.deepcopy(encoder))
    try:
        return depends_on(stirred, encoder.causal_only)
    except Unsupported:
        return depends_on(stirred, not encoder.causal_only)


# ------------------------------------------------------------------------------------------------- docstrings


CITATION = re.compile(
    r"((?:[A-Z][\w'’-]+ et al\.|(?:[A-Z][\w'’-]+, )*[A-Z][\w'’-]+ and [A-Z][\w'’-]+|[A-Z][\w'’-]+))"
    r" \((\d{4})\),? arXiv:(\d{4}\.\d{4,5})(?:, (§[\d.]*\d))?"
)
"""Authors, year, arXiv id, section: ``Su et al. (2021), arXiv:2104.09864, §3.2``."""


def papers_in(docstring: str) -> list[Paper]:
    """The citations of a docstring's first paragraph.

    >>> print(*papers_in("Adds. Shaw et al. (2018), arXiv:1803.02155, §3; X, by Ann and Bo (2018), arXiv:1809.04281."))
    Shaw et al. (2018), arXiv:1803.02155, §3 Ann and Bo (2018), arXiv:1809.04281
    """
    text = " ".join(docstring.split("\n\n")[0].split())
    return [Paper(cited[1], cited[2], cited[3], cited[4] or "") for cited in CITATION.finditer(text)]


@dataclass(frozen=True)
class Page:
    """A docstring in its parts."""

    summary: str
    body: str
    knobs: dict[str, str]
    departures: str


def page(cls: type[Encoder]) -> Page:
    """Take a docstring of the project's order apart: summary and papers, equation, ``Args``, ``Departures``."""
    text = inspect.getdoc(cls) or ""
    text, _, departures = text.partition("\nDepartures:")
    text, _, arguments = text.partition("\nArgs:\n")
    summary, _, body = text.partition("\n\n")
    described = re.findall(r"^ {4}(\w+): ((?:.*\n?)(?: {8}.*\n?|\n)*)", textwrap.dedent(arguments), flags=re.MULTILINE)
    if not described:  # dedent took the indentation of a section that has nothing else
        described = re.findall(r"^(\w+): ((?:.*\n?)(?: {4}.*\n?|\n)*)", textwrap.dedent(arguments), flags=re.MULTILINE)
    told = {name: " ".join(words.split()) for name, words in described}
    return Page(" ".join(summary.split()), body.strip("\n"), told, " ".join(departures.split()))


# --------------------------------------------------------------------------------------------------- as text

COLUMNS = ("encoder", "family", "acts at", "parameters", "extra work", "claims", "paper")
NUMBERS = ("parameters", "extra work")


def table(listed: list[Entry], geometry: Geometry) -> str:
    """The catalogue for a terminal."""
    rows = [COLUMNS, *(_cells(entry, linked=False) for entry in listed)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = [
        "  ".join(
            cell.rjust(width) if COLUMNS[column] in NUMBERS else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    remarks = [f"{entry.name}: {entry.remark}" for entry in listed if entry.remark]
    notes = [_counted(geometry), *LEGEND.splitlines(), *remarks, *collisions(listed)]
    return "\n".join([*lines, "", *(_filled(note, 118, then="  ") for note in notes)])


def markdown(listed: list[Entry], geometry: Geometry) -> str:
    """The catalogue for a page."""
    right = ["---:" if column in NUMBERS else "---" for column in COLUMNS]
    rows = [COLUMNS, right, *(_cells(entry, linked=True) for entry in listed)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    notes = [_counted(geometry), *LEGEND.splitlines(), *collisions(listed)]
    wrapped = [_filled(note, 120) for note in notes]
    return "\n".join([*lines, "", "\n\n".join(wrapped)])


def _filled(text: str, width: int, first: str = "", then: str = "") -> str:
    return textwrap.fill(
        text, width, initial_indent=first, subsequent_indent=then, break_long_words=False, break_on_hyphens=False
    )


def _cells(entry: Entry, *, linked: bool) -> tuple[str, ...]:
    cited = [
        f"{paper.authors} {paper.year}, [{paper.arxiv}]({paper.link})"
        if linked
        else f"{paper.authors} {paper.year}, {paper.arxiv}"
        for paper in entry.papers
    ]
    name = f"`{entry.name}`" if linked else entry.name
    return (name, entry.family, ", ".join(entry.hooks), entry.parameters, entry.extra, entry.claims, "; ".join(cited))


def _counted(geometry: Geometry) -> str:
    return (
        f"Parameters: learned ones, at model_dim {geometry.model_dim}, {geometry.num_heads} heads, "
        f"{geometry.num_layers} layers, train_length {geometry.train_length}, every knob at its published value."
    )


def collisions(listed: list[Entry]) -> list[str]:
    """Names that mean more than one thing, and which of them are here, told by the papers that docstrings cite."""

    def here(cited: re.Match[str]) -> str:
        holders = [f"`{entry.name}`" for entry in listed if any(paper.arxiv == cited[1] for paper in entry.papers)]
        return f"{cited[0]}, {'here ' + ' and '.join(holders) if holders else 'not here'}"

    return [re.sub(r"arXiv:(\d{4}\.\d{4,5})", here, sentence) for sentence in COLLISIONS]


def card(name: str, geometry: Geometry, width: int = 100) -> str:
    """One encoder on a page: what it does, equation, knobs, departures, papers."""
    cls = _registry.get(name)
    about, told = entry(name, geometry), page(cls)
    head = f"{name}: {cls.__name__}, {about.family}, acts at {', '.join(about.hooks) or 'no hook'}"
    parts = [head, _filled(told.summary, width)]
    parts += [
        block if block.startswith(" ") else _filled(" ".join(block.split()), width)
        for block in re.split(r"\n\n", told.body)
        if block.strip()
    ]
    turnable = [
        _filled(f"{knob.name}={knob.default}", width, first="  ")
        + "\n"
        + _filled(told.knobs.get(knob.name, ""), width, first="      ", then="      ")
        for knob in knobs(cls).values()
    ]
    parts.append("\n".join(["Knobs", *turnable]) if turnable else "Knobs: none")
    parts.append(_filled(f"Departures: {told.departures or 'not said'}", width, then="  "))
    parts.append(f"Claims: {about.claims or 'nothing'}")
    counted = _counted(geometry).removeprefix("Parameters: learned ones, ")
    parts.append(_filled(f"Learned parameters: {about.parameters}, extra work: {about.extra}, {counted}", width))
    if about.remark:
        parts.append(f"At this geometry: {about.remark}")
    papers = [f"  {paper}  {paper.link}" for paper in about.papers]
    parts.append("\n".join(["Papers" if len(papers) > 1 else "Paper", *papers]) if papers else "Paper: none given")
    return "\n\n".join(parts)
