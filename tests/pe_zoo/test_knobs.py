"""Knobs: each is documented, each changes something when turned, and a value it cannot take is refused by name."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import pe_zoo
from experiments.tasks import tasks
from pe_zoo import Encoder, Geometry, Knob, Site, Unsupported, _catalogue, knobs
from pe_zoo._contract import bench
from pe_zoo._knobs import Count, Positive, Several, Share, check_knobs, check_value, number, one_of, whole
from pe_zoo.rope import RoPE

GEOMETRY = Geometry(model_dim=32, num_heads=4, num_layers=2, train_length=64)
COMPANIONS: dict[tuple[str, str], dict[str, Any]] = {
    ("copy", "unique"): {"num_symbols": 40},
    ("dynamic_bias", "num_frequencies"): {"input": "fourier"},
    ("llama3_rope", "high_freq_factor"): {"base": 100.0},
    ("llama3_rope", "low_freq_factor"): {"base": 100.0},
    ("llama3_rope", "original_length"): {"base": 100.0},
    ("rope", "spectrum"): {"fraction": 0.5},
    ("tupe", "max_distance"): {"num_buckets": 8},
    ("yarn", "beta_fast"): {"original_length": 12000},
    ("text", "vocabulary"): {"tokenizer": "bpe"},
    ("digits", "min_length"): {"train_length": 24},
    ("mqar", "min_length"): {"train_length": 24},
    ("parity", "index_hints"): {"scratchpad": True},
    ("yarn", "beta_slow"): {"original_length": 48},
}
"""Knobs that matter only where another is turned."""
REFUSED_ALONE = {("dynamic_bias", "num_frequencies"), ("tupe", "max_distance")}
"""Those of them that are refused where they would not matter."""
CLASSES: dict[str, type] = {
    **{f"encoder {name}": pe_zoo.get(name) for name in pe_zoo.names(None)},
    **{f"numbering {name}": pe_zoo.numberings.get(name) for name in pe_zoo.numberings.names()},
    **{f"task {name}": tasks.get(name) for name in tasks.names()},
}
DATA_SETS = {("task text", "dataset"), ("task text", "column"), ("task needles", "dataset")}
"""What these do is seen in test_text_dataset: they take a data set and not a value."""
EVERY_KNOB = [(owner, knob) for owner, cls in CLASSES.items() for knob in knobs(cls) if (owner, knob) not in DATA_SETS]

Fingerprint = tuple[Any, ...]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two small folders of text, of which a tenth is the same sentence."""
    folders = []
    for factor in range(1, 3):
        folder, drawn = tmp_path_factory.mktemp("corpus"), random.Random(factor)
        for file in range(4):
            sentence = b"What stands here stands in every file, again and again."
            parts = [bytes(drawn.choices(range(1, 252), k=500)) + sentence for _ in range(7)]
            (folder / f"{file}.txt").write_bytes(b"".join(parts))
        folders.append(str(folder))
    return folders


# ------------------------------------------------------------------------------------------------ fingerprints


def attempt(answer: Callable[[], Any]) -> Any:
    """An answer as plain data, or the refusal."""
    try:
        found = answer()
    except Unsupported as refusal:
        return str(refusal)
    return found.detach().double().tolist() if isinstance(found, torch.Tensor) else found


def mixed(encoder: Encoder, scores: torch.Tensor, v: torch.Tensor, site: Site) -> torch.Tensor:
    return encoder.mix(scores.masked_fill(~site.mask, -torch.inf), v, site)


def encoder_fingerprint(encoder: Encoder) -> Fingerprint:
    """Claims, parameters and what the hooks do, near and far, in both kinds of model."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(1, 12, GEOMETRY.model_dim, generator=generator)
    q, k = (torch.randn(1, GEOMETRY.num_heads, 12, GEOMETRY.head_dim, generator=generator) for _ in range(2))
    answers = []
    for positions in (torch.arange(12.0), 9 * torch.arange(12.0)):
        if encoder.axes == 2:
            positions = torch.stack([positions // 5, positions % 5], -1).unsqueeze(0)
        answers.append(attempt(lambda positions=positions: encoder.embed(x, positions)))  # type: ignore[misc]
        for causal in (True, False):
            answers.append(
                attempt(lambda p=positions, c=causal: pe_zoo.scores(encoder, q, k, p, x=x, causal=c))  # type: ignore[misc]
            )
            answers.append(attempt(lambda p=positions, c=causal: mixed(encoder, q @ k.mT, k, bench.site_of(p, c, x))))  # type: ignore[misc]
    claims = (
        encoder.shift_invariant,
        encoder.direction_aware,
        encoder.causal_only,
        encoder.static_bias,
        encoder.distance_bias,
        encoder.blockwise_rotation,
        encoder.max_length,
    )
    parameters = [(name, tuple(p.shape), p.double().std(correction=0).item()) for name, p in encoder.named_parameters()]
    return (claims, parameters, answers)


def numbering_fingerprint(numbering: pe_zoo.Numbering) -> Fingerprint:
    generator = torch.Generator().manual_seed(1)
    axes = numbering.axes
    numbering = numbering.bound(lambda kind, places: torch.arange(places * axes).unflatten(0, (places, axes)).squeeze())
    return tuple(attempt(lambda draw=draw: draw(3, 5, generator)) for draw in (numbering.train, numbering.evaluate))  # type: ignore[misc]


def task_fingerprint(task: Any) -> Fingerprint:
    generator = torch.Generator().manual_seed(1)
    length = max(6, task.shortest)
    batch = task.sample(4, length, generator, split="train", causal=True)
    guesses = [task.chance(metric, length) for metric in task.metrics] + [
        task.position_guess(metric, length) for metric in task.metrics
    ]
    return (
        task.train_length,
        task.min_length,
        task.vocab_size,
        attempt(lambda: batch.tokens),
        attempt(lambda: batch.targets),
        guesses,
    )


def build(owner: str, **turned: Any) -> Any:
    """A component, its parameters drawn from the same state each time."""
    kind, name = owner.split()
    torch.manual_seed(3)
    if kind == "encoder":
        return pe_zoo.build(name, GEOMETRY, **turned)
    return (pe_zoo.numberings if kind == "numbering" else tasks).build(name, **turned)


def fingerprint(owner: str, **turned: Any) -> Fingerprint:
    kind = owner.split()[0]
    read = {"encoder": encoder_fingerprint, "numbering": numbering_fingerprint, "task": task_fingerprint}[kind]
    return read(build(owner, **turned))  # type: ignore[operator]


def other_values(owner: str, knob: Knob) -> Iterator[Any]:
    """Values to turn a knob to; words are read off the refusal of a word that cannot be one."""
    if isinstance(knob.default, str):
        with pytest.raises(ValueError, match="must be one of") as refusal:
            build(owner, **{knob.name: "no such word"})
        listed = re.search(r"must be one of (.*?); got", str(refusal.value))
        assert listed, "the words are not listed"
        yield from (word for word in listed[1].split(", ") if word != knob.default)
    elif "bool" in str(knob.type):
        yield from (value for value in (True, False) if value != knob.default)
    elif isinstance(knob.default, tuple):
        yield from (("none", "alibi"), ("rope base=100",))
    elif knob.default is None:
        yield 300 if knob.name == "vocabulary" else 48
    elif isinstance(knob.default, int):
        yield 64 if knob.name == "index_hints" else 2 * knob.default + 4
    else:
        yield 1.0 if owner == "task mqar" else knob.default / 2 or 0.5


# ------------------------------------------------------------------------------------------------ every knob


@pytest.mark.parametrize("owner", list(dict.fromkeys(owner for owner, _ in EVERY_KNOB)))
def test_every_knob_changes_something(owner: str, corpora: list[str]) -> None:
    for of, knob in EVERY_KNOB:
        if of == owner and knob != "source":  # whose other corpus takes a minute to read: tests/tasks/test_installed.py
            check_knob_matters(owner, knob, corpora)


def check_knob_matters(owner: str, knob: str, corpora: list[str]) -> None:
    """Every value gives another component than the default does, and than any other value."""
    described = knobs(CLASSES[owner])[knob]
    companions = dict(COMPANIONS.get((owner.split()[1], knob), {}))
    has_path = "path" in knobs(CLASSES[owner])
    if has_path and knob != "path":
        companions["path"] = corpora[0]
    values = corpora if knob == "path" else [described.default, *other_values(owner, described)]
    assert len(values) > 1
    seen = [fingerprint(owner, **companions, **{knob: value}) for value in values]
    for index, one in enumerate(seen):
        assert one == fingerprint(owner, **companions, **{knob: values[index]}), "the fingerprint is not repeatable"
        for place, other in enumerate(seen[:index]):
            assert one != other, f"{owner}: {knob}={values[index]!r} is no different from {knob}={values[place]!r}"


@pytest.mark.parametrize("owner", [owner for owner in CLASSES if owner.split()[0] == "encoder"])
def test_companions_are_needed(owner: str, corpora: list[str]) -> None:
    """No knob stands in the table of companions that would matter without them."""
    name = owner.split()[1]
    for of, knob in COMPANIONS:
        if of == name:
            for value in other_values(owner, knobs(CLASSES[owner])[knob]):
                if (of, knob) in REFUSED_ALONE:
                    with pytest.raises(ValueError, match=f"{knob}={value} changes nothing without"):
                        build(owner, **{knob: value})
                else:
                    assert str(fingerprint(owner, **{knob: value})) == str(fingerprint(owner))


class IgnoresItsKnob(RoPE):
    """Has a base, checks it, and does not use it."""

    def __init__(self, geometry: Geometry, *, base: float = 10000.0) -> None:
        number("fake base", base, above=0)
        super().__init__(geometry)


class IgnoresAWord(RoPE):
    """Takes three words and knows two."""

    def __init__(self, geometry: Geometry, *, pairing: str = "interleaved") -> None:
        one_of("fake pairing", pairing, ("interleaved", "half", "neox"))
        super().__init__(geometry, pairing="half" if pairing == "neox" else pairing)


@pytest.mark.parametrize(("fake", "knob"), [(IgnoresItsKnob, "base"), (IgnoresAWord, "pairing")])
def test_a_dead_knob_is_caught(fake: type[Encoder], knob: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CLASSES, "encoder fake", fake)
    monkeypatch.setattr(pe_zoo, "build", lambda name, geometry, **turned: fake(geometry, **turned))
    with pytest.raises(AssertionError, match="is no different from"):
        check_knob_matters("encoder fake", knob, [])


# --------------------------------------------------------------------------------------------------- refusals


def wrong_values(knob: Knob) -> list[Any]:
    """What no knob of a type can take."""
    if knob.name == "path":
        return ["/no/such/place", ""]
    if isinstance(knob.default, str):
        return ["no such word", "", 3, True, None, [knob.default]]
    if "bool" in str(knob.type):
        return ["yes", 3, 0.5, [True]]
    never: list[Any] = [
        "3",
        [3],
        True,
        float("nan"),
        float("inf"),
        -float("inf"),
        1j,
        10**400 if knob.default.__class__ is float else 1.5,
    ]
    if knob.default is not None:
        never.append(None)
    return never


OUT_OF_RANGE: dict[tuple[str, str], list[Any]] = {
    ("encoder alibi", "max_bias"): [0, 0.0, -8.0],
    ("encoder bipe", "base"): [0, -10000.0],
    ("encoder bipe", "num_rows"): [0, -1, 63],
    ("encoder cope", "p_max"): [0, -1, 1],
    ("encoder dape", "width"): [0, -1],
    ("encoder dape_v2", "width"): [0, -1],
    ("encoder dape_v2", "neighbours"): [-1],
    ("encoder dual_chunk", "chunk"): [0, -1],
    ("encoder dual_chunk", "window"): [0, -1],
    ("encoder dual_chunk", "base"): [0, -10000.0],
    ("encoder fope", "gain"): [-0.1],
    ("encoder fope", "base"): [0, -10000.0],
    ("encoder gape", "base"): [0, -10000.0],
    ("encoder gape", "fraction"): [0, -0.5, 1.01, 2],
    ("encoder grape_ap", "dim"): [0, -2, 1, 3],
    ("encoder grape_m", "base"): [0, -10000.0],
    ("encoder mla_rope", "rotary_dim"): [0, -2, 1, 3],
    ("encoder mla_rope", "base"): [0, -10000.0],
    ("encoder repo", "width"): [0, -1],
    ("encoder repo", "base"): [0, -10000.0],
    ("encoder rerope", "window"): [0, -1],
    ("encoder rerope", "leak"): [-0.1, 1, 1.5],
    ("encoder rerope", "base"): [0, -10000.0],
    ("encoder resonance_rope", "base"): [0, -10000.0],
    ("encoder self_extend", "factor"): [0, 0.5],
    ("encoder self_extend", "window"): [0, -1, 64],
    ("encoder self_extend", "base"): [0, -10000.0],
    ("encoder dynamic_bias", "hidden_dim"): [0, -1],
    ("encoder dynamic_bias", "depth"): [0, -1],
    ("encoder dynamic_bias", "num_frequencies"): [0, -1],
    ("encoder fire", "hidden_dim"): [0, -1],
    ("encoder fire", "init_c"): [0, 0.0, -0.1],
    ("encoder fire", "init_limit"): [0, -1],
    ("encoder fox", "initial_gate"): [0, 0.0, 1, 1.5, -0.5],
    ("encoder learnable_fourier", "num_features"): [0, -2, 1, 3],
    ("encoder learnable_fourier", "hidden_dim"): [0, -1],
    ("encoder learnable_fourier", "gamma"): [0, 0.0, -10.0],
    ("encoder learned", "num_rows"): [0, -1, 63],
    ("encoder learned", "init_std"): [0, 0.0, -1.0],
    ("encoder liere", "block_fraction"): [0, -0.5, 1.01],
    ("encoder liere", "span"): [0, -1],
    ("encoder path", "rank"): [0, -1],
    ("encoder path", "conv_width"): [0, -1],
    ("encoder pope", "base"): [0, -10000.0],
    ("encoder random_fourier", "scale"): [0, 0.0, -10.0],
    ("encoder relative_projection", "rank"): [0, -1],
    ("encoder relative_projection", "window"): [0, -1],
    ("encoder rope", "base"): [0, -10000.0],
    ("encoder rope_id", "fraction"): [0, -0.5, 1.01, 2],
    ("encoder rope_id", "turns"): [0, -2.0],
    ("encoder rope_id", "shortest"): [0, -1],
    ("encoder tapa", "alpha"): [0, -0.1],
    ("encoder tapa", "fraction"): [0, -0.5, 1, 1.5],
    ("encoder rope", "fraction"): [0, -0.5, 1.01, 2, 0.1],
    ("encoder p_rope", "fraction"): [0, -0.5, 1.01, 2],
    ("encoder p_rope", "base"): [0, -10000.0],
    ("encoder wavelet", "scales"): [0, -1],
    ("encoder xpos", "scale_base"): [0, -512.0],
    ("encoder xpos", "gamma"): [0, -0.4],
    ("encoder xpos", "base"): [0, -10000.0],
    ("encoder rope_linear", "factor"): [0, 0.5, -4.0],
    ("encoder rope_linear", "base"): [0, -10000.0],
    ("encoder rope_ntk", "factor"): [0, 0.5, -4.0],
    ("encoder rope_ntk", "base"): [0, -10000.0],
    ("encoder rope_dynamic_ntk", "factor"): [0, -1.0],
    ("encoder rope_dynamic_ntk", "original_length"): [0, -1],
    ("encoder rope_dynamic_ntk", "base"): [0, -10000.0],
    ("encoder yarn", "factor"): [0, 0.5, -16.0],
    ("encoder yarn", "original_length"): [0, -1],
    ("encoder yarn", "beta_fast"): [0, -1.0, 1, 0.5],
    ("encoder yarn", "beta_slow"): [0, -1.0, 32, 40.0],
    ("encoder yarn", "base"): [0, 1, 0.5],
    ("encoder llama3_rope", "factor"): [0, 0.5, -8.0],
    ("encoder llama3_rope", "original_length"): [0, -1],
    ("encoder llama3_rope", "low_freq_factor"): [-1.0, 4, 5.0],
    ("encoder llama3_rope", "high_freq_factor"): [0, -1.0, 1, 0.5],
    ("encoder llama3_rope", "base"): [0, -10000.0],
    ("encoder longrope", "factor"): [0, 0.5, -8.0],
    ("encoder longrope", "original_length"): [0, -1, 1],
    ("encoder longrope", "base"): [0, 1, 0.5],
    ("encoder hope", "longest_wavelength"): [0, -1],
    ("encoder hope", "base"): [0, 0.5],
    ("encoder clipped_rope", "fraction"): [0, -0.5, 1, 1.5],
    ("encoder clipped_rope", "base"): [0, -10000.0],
    ("encoder learned_rope", "base"): [0, -10000.0],
    ("encoder sandwich", "dim"): [0, -2, 1, 3],
    ("encoder sandwich", "base"): [0, -10000.0],
    ("encoder sandwich", "max_ratio"): [0, 0.0, -8.0],
    ("encoder selective_rope", "rank"): [0, -1],
    ("encoder selective_rope", "conv_width"): [0, -1],
    ("encoder selective_rope", "base"): [0, -500000.0],
    ("encoder short_convolution", "rank"): [0, -1],
    ("encoder short_convolution", "conv_width"): [0, -1],
    ("encoder sinusoidal", "base"): [0, -10000.0],
    ("encoder t5", "num_buckets"): [0, -4, 2, 3, 5, 6, 33],
    ("encoder t5", "max_distance"): [0, -1, 16],
    ("encoder shaw", "max_distance"): [0, -1],
    ("encoder transformer_xl", "base"): [0, -10000.0],
    ("encoder transformer_xl", "clamp_len"): [0, -1],
    ("encoder deberta", "max_distance"): [0, -1],
    ("encoder deberta", "num_buckets"): [0, -4, 2, 5, 7, 126],
    ("encoder tupe", "num_rows"): [0, -1, 63],
    ("encoder tupe", "num_buckets"): [0, -4, 2, 6, 33],
    ("encoder tupe", "max_distance"): [0, -1],
    ("numbering cape", "max_jitter"): [-0.1, 0.51],
    ("numbering cape", "max_shift"): [-1.0],
    ("numbering cape", "max_stretch"): [-0.01],
    ("numbering chunked", "limit"): [0, -1],
    ("numbering offset", "num_offsets"): [0, -1],
    ("numbering offset", "evaluate_at"): [-1],
    ("numbering random_float", "limit"): [0, 0.0, -1.0],
    ("numbering randomized", "limit"): [0, -1],
    ("numbering scaled", "factor"): [0, -1.0, 0.99],
    ("task copy", "min_length"): [0, -1, 17],
    ("task copy", "train_length"): [0, -1],
    ("task copy", "num_symbols"): [0, 1, -1],
    ("task text", "train_length"): [0, 1, -1, 10**9],
}


@pytest.mark.parametrize("owner", list(dict.fromkeys(owner for owner, _ in EVERY_KNOB)))
def test_a_wrong_value_is_refused_and_the_knob_named(owner: str, corpora: list[str]) -> None:
    for of, knob in EVERY_KNOB:
        companions = {"path": corpora[0]} if "path" in knobs(CLASSES[owner]) and knob != "path" else {}
        values = [*wrong_values(knobs(CLASSES[of])[knob]), *OUT_OF_RANGE.get((of, knob), [])]
        for value in values if of == owner else []:
            refusal = refused(owner, **companions, **{knob: value})
            assert type(refusal) is ValueError, f"{knob}={value!r}: {refusal!r}"
            assert re.search(rf"\b{knob}\b", str(refusal)), f"{knob}={value!r}: {refusal}"
            assert "\n" not in str(refusal)


def refused(owner: str, **turned: Any) -> Exception | None:
    try:
        build(owner, **turned)
    except Exception as error:  # noqa: BLE001  another exception than a ValueError fails the test
        return error
    return None


@pytest.mark.parametrize(
    ("owner", "turned", "reason"),
    [
        ("encoder tupe", {"max_distance": 64}, "tupe max_distance=64 changes nothing without num_buckets; set both"),
        ("encoder alibi", {"max_bias": 4.0, "form": "asymmetric"}, "max_bias=4 changes nothing with form=asymmetric"),
        ("encoder dynamic_bias", {"num_frequencies": 8}, "num_frequencies=8 changes nothing without input=fourier"),
        ("encoder dynamic_bias", {"num_frequencies": 8, "input": "linear"}, "nothing without input=fourier; set both"),
    ],
)
def test_a_knob_that_would_change_nothing_is_refused_in_one_line(
    owner: str, turned: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as refusal:
        build(owner, **turned)
    assert "\n" not in str(refusal.value)


def test_closed_limits_are_allowed(corpora: list[str]) -> None:
    allowed: list[tuple[str, dict[str, Any]]] = [
        ("encoder rope", {"fraction": 1}),
        ("encoder rope", {"fraction": 0.25}),
        ("encoder rope", {"base": 1}),
        ("encoder learned", {"num_rows": 64}),
        ("encoder t5", {"num_buckets": 4, "max_distance": 3}),
        ("encoder t5", {"max_distance": 17}),
        ("numbering offset", {"num_offsets": 1, "evaluate_at": 0}),
        ("numbering randomized", {"limit": 1}),
        ("task copy", {"train_length": 1, "min_length": 1, "num_symbols": 2}),
        ("task text", {"train_length": 2, "path": corpora[0]}),
    ]
    for owner, turned in allowed:
        assert build(owner, **turned) is not None


def test_the_checks_say_what_was_given_and_what_is_allowed() -> None:
    with pytest.raises(ValueError, match=r"^x must be a finite number above 0 and at most 1; got 2$"):
        number("x", 2, above=0, at_most=1)
    with pytest.raises(ValueError, match=r"^x must be a finite number; got 'a'$"):
        number("x", "a")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^n must be a whole number of at least 1; got 0$"):
        whole("n", 0, at_least=1)
    with pytest.raises(ValueError, match=r"^w must be one of left, right; got 'rihgt'. Did you mean 'right'\?$"):
        one_of("w", "rihgt", ("left", "right"))
    assert number("x", 1, above=0, at_most=1) == 1


def test_knobs_are_read_off_the_signature() -> None:
    found = knobs(RoPE)
    assert list(found) == ["base", "pairing", "fraction", "spectrum"]
    assert found["base"] == Knob("base", float, 10000.0)
    assert knobs(pe_zoo.get("none")) == {}

    def lacks_a_default(geometry: Geometry, *, base: float) -> None: ...

    with pytest.raises(TypeError, match="base"):
        knobs(lacks_a_default)
    with pytest.raises(ValueError, match=r"rope has no knob 'bsae'. Did you mean 'base'\?"):
        check_knobs("rope", knobs(RoPE), ["bsae"])


# -------------------------------------------------------------------------------------------------- docstrings


def entry(cls: type) -> _catalogue.Entry:
    return _catalogue.parse(cls.__name__, cls.__doc__, {name: _catalogue.Knob("") for name in knobs(cls)})


def documented(cls: type) -> set[str]:
    """The knobs that a class or one that it extends describes."""
    parents = [one for one in cls.__mro__ if one.__module__.startswith(("pe_zoo", "experiments"))]
    known = {name: _catalogue.Knob("") for name in knobs(cls)}
    of = [_catalogue.parse(one.__name__, one.__doc__, known) for one in parents]
    return {name for one in of for name, knob in one.knobs.items() if knob.description}


@pytest.mark.parametrize("owner", CLASSES)
def test_every_knob_and_no_other_is_documented(owner: str) -> None:
    cls = CLASSES[owner]
    arguments = (cls.__doc__ or "").partition("Args:\n")[2].partition("\n\n")[0]
    assert documented(cls) == set(knobs(cls))
    own = set(re.findall(r"^ {8}(\w+): ", arguments, flags=re.MULTILINE))
    assert own <= set(knobs(cls)), "documents a knob that it does not have"


@pytest.mark.parametrize("owner", [owner for owner in CLASSES if owner.split()[0] == "encoder"])
def test_an_encoder_says_who_when_where_and_what_departs(owner: str) -> None:
    said = entry(CLASSES[owner])
    assert said.papers
    assert said.departures, "no departures, not even none"


@pytest.mark.parametrize(
    "owner", [owner for owner in CLASSES if owner.split()[0] == "numbering" and knobs(CLASSES[owner])]
)
def test_a_numbering_from_a_paper_names_it(owner: str) -> None:
    assert entry(CLASSES[owner]).papers
    assert entry(CLASSES[owner]).departures


def test_defaults_that_a_paper_published_stand_in_the_docstring() -> None:
    for owner, knob, published in [
        ("encoder rope", "base", "10000"),
        ("encoder sinusoidal", "base", "10000"),
        ("encoder alibi", "max_bias", "8"),
        ("encoder t5", "num_buckets", "32"),
        ("encoder learned", "num_rows", "2048"),
        ("numbering offset", "num_offsets", "500"),
        ("numbering randomized", "limit", "2048"),
    ]:
        assert float(knobs(CLASSES[owner])[knob].default) == float(published)
        assert re.search(rf"\b{published}\b", entry(CLASSES[owner]).knobs[knob].description)


def test_t5_says_which_numbers_of_buckets_it_takes() -> None:
    """The docstring's own bounds must be the ones that hold."""
    says_even = entry(CLASSES["encoder t5"]).knobs["num_buckets"].description.startswith("even, at least 4")
    takes_six = True
    try:
        build("encoder t5", num_buckets=6)
    except ValueError:
        takes_six = False
    assert says_even == takes_six


def test_the_corpus_path_is_a_knob_of_text(corpora: list[str]) -> None:
    assert build("task text", path=corpora[0]).provenance()["source"] == Path(corpora[0]).name


def test_limits_in_types_are_checked() -> None:
    for annotation, fine, wrong in (
        (Count, 1, (0, None, 1.5)),
        (Count | None, None, (0,)),
        (Several[Positive], (0.5, 2), ((), (0.0,))),
        (tuple[Share, ...], (), ((1.5,),)),
    ):
        check_value("knob", annotation, fine)
        for value in wrong:
            with pytest.raises(ValueError, match=r"^knob "):
                check_value("knob", annotation, value)
