"""The catalogue as text: a table for a terminal or a README, and a card for each encoder."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from pe_zoo._encoder import Geometry
from pe_zoo._profile import Profile
from pe_zoo._registry import get

LEGEND = Path(__file__).with_name("_legend.md")
COLUMNS = ("encoder", "family", "acts at", "parameters", "extra work", "claims", "paper")
NUMBERS = ("parameters", "extra work")


def table(profiles: Sequence[Profile], geometry: Geometry) -> str:
    """Format the catalogue for a terminal."""
    rows = [COLUMNS, *(_cells(profile, linked=False) for profile in profiles)]
    columns = [
        [cell.rjust(width) if column[0] in NUMBERS else cell.ljust(width) for cell in column]
        for column, width in ((column, max(map(len, column))) for column in zip(*rows, strict=True))
    ]
    lines = ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]
    remarks = [f"{profile.name}: {profile.remark}" for profile in profiles if profile.remark]
    return "\n".join([*lines, "", *(_filled(note, 118, then="  ") for note in [*notes(profiles, geometry), *remarks])])


def markdown(profiles: Sequence[Profile], geometry: Geometry) -> str:
    """Format the catalogue for a README."""
    right = ["---:" if column in NUMBERS else "---" for column in COLUMNS]
    rows = [COLUMNS, right, *(_cells(profile, linked=True) for profile in profiles)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines, "", "\n\n".join(_filled(note, 120) for note in notes(profiles, geometry))])


def card(profile: Profile, geometry: Geometry, width: int = 100) -> str:
    """Format one encoder: what it does, equation, knobs, departures, claims, papers."""
    entry = profile.entry
    knobs = [
        _filled(f"{name}={knob.default}", width, "  ") + "\n" + _filled(knob.description, width, "      ", "      ")
        for name, knob in entry.knobs.items()
    ]
    papers = [f"  {paper}" + f"  {paper.link}" * (not paper.page) for paper in entry.papers]
    hooks = ", ".join(profile.hooks) or "no hook"
    numbers = f"Learned parameters: {profile.parameters}, extra work: {profile.extra}, {_sizes(geometry)}"
    parts = [
        f"{entry.name}: {get(entry.name).__name__}, {profile.family}, acts at {hooks}",
        _filled(entry.summary, width),
        *(text if text.startswith(" ") else _filled(text, width) for text in entry.paragraphs),
        "\n".join(["Knobs", *knobs]) if knobs else "Knobs: none",
        _filled(f"Departures: {entry.departures or 'not documented'}", width, then="  "),
        "\n".join(["Claims", *_explained(profile.claims, width)]) if profile.claims else "Claims: none",
        _filled(numbers, width),
        f"At this geometry: {profile.remark}" if profile.remark else "",
        "\n".join(["Papers" if len(papers) > 1 else "Paper", *papers]) if papers else "Paper: none given",
    ]
    return "\n\n".join(filter(None, parts))


def _explained(claims: str, width: int) -> Iterator[str]:
    """Yield each claim, and what the legend says that it means."""
    legend = next(part for part in LEGEND.read_text(encoding="utf-8").split("\n\n") if part.startswith("Claims"))
    name = r"[a-z][a-z ]*|< n"
    meanings = re.findall(rf"(?:Claims: |\. )({name}): (.*?)(?=\. (?:{name}): |\. Contract)", " ".join(legend.split()))
    for claim in claims.split(", "):
        meaning = dict(meanings)["< n" if claim.startswith("<") else claim]
        yield _filled(f"  {claim}: {meaning}", width, "", "      ")


def notes(profiles: Sequence[Profile], geometry: Geometry) -> list[str]:
    """Return what the table's words mean; behind the paper of a name that several methods share, who cites it here."""

    def here(cited: re.Match[str]) -> str:
        citing = [f"`{of.name}`" for of in profiles if any(paper.arxiv == cited[1] for paper in of.entry.papers)]
        return f"{cited[0]}, {'here ' + ' and '.join(citing) if citing else 'not here'}"

    paragraphs = [" ".join(text.split()) for text in LEGEND.read_text(encoding="utf-8").split("\n\n")]
    legend = [re.sub(r"arXiv:(\d{4}\.\d{4,5})", here, text) for text in paragraphs]
    return [f"Parameters: learned, {_sizes(geometry)}", *legend]


def _sizes(geometry: Geometry) -> str:
    return (
        f"at model_dim {geometry.model_dim}, {geometry.num_heads} heads, {geometry.num_layers} layers, "
        f"train_length {geometry.train_length}, every knob at its default."
    )


def _cells(profile: Profile, *, linked: bool) -> tuple[str, ...]:
    cited = "; ".join(
        f"{paper.authors} {paper.year}, "
        + (f"[{paper.arxiv or paper.page}]({paper.link})" if linked else paper.arxiv or paper.page)
        for paper in profile.entry.papers
    )
    name, hooks = f"`{profile.name}`" if linked else profile.name, ", ".join(profile.hooks)
    return (name, profile.family, hooks, profile.parameters, profile.extra, profile.claims, cited)


def _filled(text: str, width: int, first: str = "", then: str = "") -> str:
    return textwrap.fill(
        text, width, initial_indent=first, subsequent_indent=then, break_long_words=False, break_on_hyphens=False
    )
