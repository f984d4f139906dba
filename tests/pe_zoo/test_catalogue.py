"""``python -m pe_zoo``: the catalogue says what classes, docstrings and behaviour say, and README has the same."""

from __future__ import annotations

import itertools
import re
from contextlib import suppress
from typing import Any

import pytest
import torch
from support import ROOT
from torch import Tensor

import pe_zoo
from experiments import measures
from experiments.tasks import tasks
from pe_zoo import Encoder, Geometry, Site, Unsupported, _catalogue
from pe_zoo.__main__ import main
from pe_zoo._catalogue import Entry, Paper
from pe_zoo._contract.bench import Bench, site_of, some_inputs
from pe_zoo._contract.claims import depends_on
from pe_zoo._cost import extra_operations
from pe_zoo._encoder import raw_scores
from pe_zoo._knobs import knobs
from pe_zoo._numberings import numberings
from pe_zoo._pages import notes
from pe_zoo._profile import CLAIMS, family, observed_family, profile

GEOMETRY = Geometry(model_dim=128, num_heads=4, num_layers=3, train_length=33)
OWN = [entry.name for entry in _catalogue.encoders()]
FAMILIES = {"no position", "input", "rotation", "score bias", "relative term", "content"}
KNOWN = {
    "none": ("no position", (), "0"),
    "sinusoidal": ("input", ("embed",), "0"),
    "learned": ("input", ("embed",), "262,144"),
    "rope": ("rotation", ("rotate",), "0"),
    "alibi": ("score bias", ("score",), "0"),
    "t5": ("score bias", ("score",), "128"),
}


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    said = capsys.readouterr()
    assert not said.err
    return said.out


# ------------------------------------------------------------------------------------------------ the table


def test_the_table_has_a_line_for_every_encoder(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys).splitlines()
    first = [line.split()[0] for line in lines[1 : 1 + len(pe_zoo.names(None))]]
    assert lines[0].split()[:2] == ["encoder", "family"]
    assert first == pe_zoo.names(None)


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known_of_the_classics(name: str) -> None:
    found = profile(name, GEOMETRY)
    assert (found.family, found.hooks, found.parameters) == KNOWN[name]


@pytest.mark.parametrize("name", OWN)
def test_every_encoder_has_family_hooks_claims_and_paper(name: str) -> None:
    found = profile(name, GEOMETRY)
    encoder = pe_zoo.build(name, GEOMETRY)
    assert not found.remark
    assert found.family == encoder.family == observed_family(encoder)
    assert found.family in FAMILIES
    assert found.hooks == tuple(hook for hook in ("embed", "rotate", "score", "mix") if encoder.overrides(hook))
    assert found.parameters == f"{sum(parameter.numel() for parameter in encoder.parameters()):,}"
    for claim, word in CLAIMS.items():
        assert (word in found.claims.split(", ")) == getattr(encoder, claim)
    for plane in ("grid", "segments"):
        assert (plane in found.claims.split(", ")) == (name in pe_zoo.names(2, plane))


def test_what_classes_declare_of_others_is_read_without_importing_them() -> None:
    names = ("relative_of", "extends", "fine_tuned", "control")
    for entry in _catalogue.encoders():
        cls, set_there = pe_zoo.get(entry.name), {name: entry.declared.get(name) for name in names}
        assert set_there == {name: getattr(cls, name) or None for name in names}
    assert profile("yarn", GEOMETRY).claims == "shift, direction, extends rope"


def test_parameters_are_counted_at_the_geometry_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    said = printed(capsys, "--model-dim", "64", "--num-heads", "8", "--num-layers", "1", "--train-length", "9")
    (t5,) = (line for line in said.splitlines() if line.startswith("t5 "))
    (learned,) = (line for line in said.splitlines() if line.startswith("learned "))
    assert " 256 " in t5
    assert " 131,072 " in learned
    assert "model_dim 64, 8 heads, 1 layers, train_length 9" in said


class AddsOne(Encoder):
    name = "fake"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + 1


class AsksAMatrix(Encoder):
    name = "fake"

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return scores + q @ k.mT


def test_extra_work_is_what_a_count_by_hand_gives() -> None:
    geometry = Geometry(model_dim=8, num_heads=2, num_layers=3, train_length=5)
    square, heads, layers = 5 * 5, 2, 3
    # Two products, the scale, the mask turned round, the masked scores, softmax; -inf stays where it is.
    attention = layers * (2 * 2 * heads * square * 4 + heads * square + square + heads * square + heads * square)
    whole = 24 * 5 * 8 * 8 * layers + attention + 5 * 8 + 3 * 5 * 8 + 5 + square + square  # and what it is fed
    assert extra_operations(Encoder(geometry)) == 0
    assert extra_operations(AddsOne(geometry)) == pytest.approx(5 * 8 / whole, rel=0.02)
    asked = layers * (2 * heads * square * 4 + heads * square + heads * 5 * 4)  # product, sum, keys laid out anew
    assert extra_operations(AsksAMatrix(geometry)) == pytest.approx(asked / whole, rel=0.02)


def test_a_refused_geometry_is_listed_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    said = printed(capsys, "--model-dim", "12", "--num-heads", "4")
    (rope,) = (line for line in said.splitlines() if line.startswith("rope "))
    assert "–" in rope
    assert "needs an even head_dim; got 3" in " ".join(said.split())


class ByContent(Encoder):
    """Lowers scores by how many keys between look like the query."""

    name = "fake"

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return scores - scores.sigmoid().masked_fill(~site.mask, 0).flip(-1).cumsum(-1).flip(-1)


class ByQuery(Encoder):
    name = "fake"

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return scores + q.mean(-1, keepdim=True) * site.distance.to(q.dtype)


class TurnedByContent(Encoder):
    name = "fake"

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        assert site.x is not None
        return q, k * site.x.mean() * site.key_positions.to(k.dtype)[:, None]


class Says(Encoder):
    name = "fake"
    family = "a family of its own"


@pytest.mark.parametrize(
    ("fake", "expected"),
    [(ByContent, "content"), (ByQuery, "relative term"), (TurnedByContent, "content"), (Says, "a family of its own")],
)
def test_the_family_comes_from_behaviour_unless_it_is_said(fake: type[Encoder], expected: str) -> None:
    assert family(fake(GEOMETRY)) == expected


def test_what_the_outcome_depends_on_is_found() -> None:
    small = Geometry(model_dim=16, num_heads=2, num_layers=1, train_length=8)
    expected = {"rope": {"positions"}, "alibi": {"positions"}, "none": set()}
    for name, depends in expected.items():
        assert depends_on(pe_zoo.build(name, small).double(), True) == depends
    assert depends_on(ByContent(small), True) == {"scores"}
    assert depends_on(ByQuery(small), True) == {"positions", "queries"}
    assert depends_on(TurnedByContent(small), True) == {"positions", "x"}


def test_counting_leaves_the_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    profile("learned", GEOMETRY)
    assert torch.equal(before, torch.random.get_rng_state())


# ------------------------------------------------------------------------------------------------ source files


def as_registered(registry: Any, names: list[str]) -> list[tuple[str, dict[str, str]]]:
    return [(name, {knob.name: str(knob.default) for knob in knobs(registry.get(name)).values()}) for name in names]


def as_read(entries: tuple[Entry, ...]) -> list[tuple[str, dict[str, str]]]:
    return [(entry.name, {name: knob.default for name, knob in entry.knobs.items()}) for entry in entries]


def test_source_files_say_what_is_registered() -> None:
    read = _catalogue.registered(*(ROOT / "experiments" / "tasks").rglob("*.py"))
    assert as_read(_catalogue.encoders()) == as_registered(pe_zoo, OWN)
    assert as_read(_catalogue.numberings()) == as_registered(numberings, numberings.names())
    assert as_read(read) == as_registered(tasks, tasks.names())
    assert [name for name in pe_zoo.names(None) if pe_zoo.get(name).__module__ == f"pe_zoo.{name}"] == OWN


@pytest.mark.parametrize("entry", [*_catalogue.encoders(), *_catalogue.numberings()], ids=lambda entry: entry.name)
def test_the_parts_of_a_docstring_are_there(entry: Entry) -> None:
    assert entry.sentence
    assert all(knob.description for knob in entry.knobs.values())
    cited = set(re.findall(r"arXiv:(\d{4}\.\d{4,5})|((?:github|kexue)\.\S*\w)", entry.summary))
    assert len(entry.papers) == len(cited), "a citation is not read"
    assert not entry.papers or (entry.departures and entry.equation)


def test_measures_say_what_they_ask() -> None:
    assert all(entry.sentence for entry in measures.entries())


# ----------------------------------------------------------------------------------------------------- no two alike


def behaviour(name: str) -> dict[tuple[bool, int], list[Tensor]]:
    """What an encoder does to fixed content near and far, where it can be asked: embeddings, mixed values."""
    torch.manual_seed(0)
    encoder = Bench(geometry=GEOMETRY).fresh(lambda geometry: pe_zoo.build(name, geometry))
    torch.manual_seed(1)
    found = {}
    for step, causal in itertools.product((1, 3), (True, False)):
        positions = step * torch.arange(33.0)
        if encoder.axes == 2:
            positions = torch.stack([positions // 6, positions % 6], -1).unsqueeze(0)
        q, k, x = some_inputs(GEOMETRY, 33)
        v = torch.randn_like(q)
        with suppress(Unsupported), torch.no_grad():
            x = encoder.embed(x, positions)
            site = site_of(positions, causal, x, layer=GEOMETRY.num_layers - 1)
            masked = raw_scores(encoder, q, k, site).masked_fill(~site.mask, -torch.inf)
            found[causal, step] = [x, encoder.mix(masked, v, site)]
    return found


def test_no_two_encoders_compute_the_same() -> None:
    """With parameters drawn alike, and knobs at their published values."""
    done = {name: behaviour(name) for name in OWN}
    assert all(done.values())
    axes = {name: pe_zoo.get(name).axes for name in OWN}
    for one, other in itertools.combinations(OWN, 2):
        if axes[one] != axes[other]:
            continue
        asked = done[one].keys() & done[other].keys()
        pairs = [pair for at in asked for pair in zip(done[one][at], done[other][at], strict=True)]
        assert asked, f"{one} and {other} cannot be asked the same"
        assert not all(torch.allclose(a, b, atol=1e-9) for a, b in pairs), f"{one} and {other} compute the same"


# ------------------------------------------------------------------------------------------------- citations


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Turns. Su et al. (2021), arXiv:2104.09864, §3.2.", [Paper("Su et al.", "2021", "2104.09864", "§3.2")]),
        ("Turns.\nSu et al.\n(2021), arXiv:2104.09864, §3.", [Paper("Su et al.", "2021", "2104.09864", "§3")]),
        (
            "Adds. Ann (2023), arXiv:2305.19466, §2; Bo and Cy (2022), arXiv:2203.16634.",
            [Paper("Ann", "2023", "2305.19466", "§2"), Paper("Bo and Cy", "2022", "2203.16634")],
        ),
        ("Learns. LeRoPE, Karypis (2026), arXiv:2607.10134.", [Paper("Karypis", "2026", "2607.10134")]),
        ('Clips. "Clipped RoPE", Li et al. (2026), arXiv:2602.05258.', [Paper("Li et al.", "2026", "2602.05258")]),
        ("Adds.\n\nAs Su et al. (2021), arXiv:2104.09864, say.", []),
        ("Nobody wrote of it.", []),
    ],
)
def test_papers_are_read_off_the_first_paragraph(text: str, found: list[Paper]) -> None:
    assert list(_catalogue.parse("rope", text).papers) == found


# ------------------------------------------------------------------------------------------------- one on a card


@pytest.mark.parametrize("name", OWN)
def test_a_card_has_everything_that_the_docstring_has(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = printed(capsys, name)
    told = " ".join(said.split())
    cls = pe_zoo.get(name)
    for knob in knobs(cls).values():
        assert f"{knob.name}={knob.default}" in said
    for word in (cls.__doc__ or "").replace("Args:", "").split():
        assert word.rstrip(":") in told, word
    for paper in _catalogue.parse(name, cls.__doc__).papers:
        assert paper.link in said
    assert not [line for line in said.splitlines() if len(line) > 120]


def test_a_card_keeps_the_equation_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    said = printed(capsys, "rope")
    assert "\n    (a, b) → (a · cos − b · sin, a · sin + b · cos),      angle = p · base^(−2i/rotated_dim)\n" in said
    assert "\n  base=10000.0\n      above 0; 10000 as published (500000 in Llama 3).\n" in said
    assert "\nDepartures: none. Angles are computed in float64.\n" in said
    assert "https://arxiv.org/abs/2104.09864" in said


def test_an_encoder_from_outside_without_a_word_has_a_card_too(capsys: pytest.CaptureFixture[str]) -> None:
    @pe_zoo.register("wordless")
    class Wordless(Encoder):
        def __init__(self, geometry: Geometry, *, strength: float = 1.0) -> None:
            super().__init__(geometry)
            self.strength = strength

    Wordless.__doc__ = None
    said = printed(capsys, "wordless")
    assert "strength=1.0" in said
    assert "Paper: none given" in said
    assert "wordless" in printed(capsys)
    assert "wordless" not in printed(capsys, "--markdown"), "README has this package's own"


# ------------------------------------------------------------------------------------- names with two meanings


def test_names_that_collide_are_told_apart() -> None:
    listed = [profile(name, GEOMETRY) for name in OWN]
    told = " ".join(notes(listed, GEOMETRY))
    for name in ("CoPE", "HoPE", "partial RoPE"):
        assert name in told
    for found in listed:
        for paper in found.entry.papers:
            if paper.arxiv and paper.arxiv in told:
                assert re.search(rf"arXiv:{paper.arxiv}, here [^)]*`{found.name}`", told)
    assert all("not here" in sentence or "arXiv" not in sentence for sentence in notes([], GEOMETRY))


# ---------------------------------------------------------------------------------------------------- README


def test_readme_has_the_catalogue_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """If this fails: put the output of ``python -m pe_zoo --markdown`` between the two markers in docs/encoders.md."""
    readme = (ROOT / "docs" / "encoders.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"<!-- catalogue -->\n(.*?)\n<!-- /catalogue -->", readme, flags=re.DOTALL)
    assert section.strip() == printed(capsys, "--markdown").strip()
