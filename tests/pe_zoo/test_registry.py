"""The registry: names lead to classes, mistakes are named, outside encoders come in or stop the run."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

import pe_zoo
from pe_zoo import Encoder, Geometry, PluginError, Registry

GEOMETRY = Geometry(model_dim=8, num_heads=2, num_layers=1, train_length=4)

PLUGIN = '''
import pe_zoo

@pe_zoo.register("{name}")
class Outside(pe_zoo.Encoder):
    """Nothing. Nobody (2020), arXiv:2001.00001, §1."""

    def __init__(self, geometry, *, strength: float = 1.0):
        super().__init__(geometry)
        self.strength = strength
'''


def python(program: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh interpreter that sees this repository and some folders."""
    path = os.pathsep.join(map(str, [*paths, ROOT]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program], env=environment, capture_output=True, text=True, check=False
    )


# ------------------------------------------------------------------------------------------------- names


def test_names_are_sorted_and_every_one_can_be_built() -> None:
    names = pe_zoo.names(None)
    assert names == sorted(set(names))
    assert sorted([*pe_zoo.names(), *pe_zoo.names(2), *pe_zoo.names(2, "segments")]) == names
    assert {"none", "sinusoidal", "learned", "rope", "alibi", "t5"} <= set(names)
    for name in names:
        encoder = pe_zoo.build(name, GEOMETRY)
        assert isinstance(encoder, pe_zoo.get(name))
        assert encoder.name == name
        assert encoder.geometry == GEOMETRY


def test_every_encoder_has_a_file_of_its_name() -> None:
    files = {file.stem for file in (ROOT / "pe_zoo").glob("*.py") if not file.stem.startswith("_")}
    modules = {pe_zoo.get(name).__module__ for name in pe_zoo.names(None)}
    assert files == {module.removeprefix("pe_zoo.") for module in modules if module.startswith("pe_zoo.")}


@pytest.mark.parametrize(
    ("given", "meant"),
    [("ropee", "rope"), ("sinusodial", "sinusoidal"), ("ALIBI", "alibi"), ("learnt", "learned"), ("zzz", None)],
)
def test_an_unknown_name_gets_the_nearest(given: str, meant: str | None) -> None:
    with pytest.raises(ValueError, match=f"no encoder named '{given}'") as refusal:
        pe_zoo.build(given, GEOMETRY)
    message = str(refusal.value)
    assert ("Did you mean" in message) == (meant is not None)
    assert meant is None or f"Did you mean '{meant}'?" in message
    assert f"Nearest of {len(pe_zoo.names(None))}: {meant or ''}" in message
    assert message.count(", ") == 2, "three names, not all"
    assert "\n" not in message


def test_an_unknown_knob_gets_the_nearest_and_the_list() -> None:
    with pytest.raises(
        ValueError,
        match=r"rope has no knob 'bass'\. Did you mean 'base'\? Its knobs: base, fraction, pairing, spectrum\.",
    ):
        pe_zoo.build("rope", GEOMETRY, bass=3)
    with pytest.raises(ValueError, match=r"none has no knob 'base'\. Its knobs: none\."):
        pe_zoo.build("none", GEOMETRY, base=3)


def test_a_second_registration_names_both() -> None:
    with pytest.raises(
        ValueError, match=r"'rope' is already pe_zoo\.rope\.RoPE; .*Impostor needs another name"
    ) as refusal:

        @pe_zoo.register("rope")
        class Impostor(Encoder): ...

    assert "\n" not in str(refusal.value)
    assert pe_zoo.get("rope").__qualname__ == "RoPE"


def test_only_encoders_are_registered_as_encoders() -> None:
    with pytest.raises(TypeError, match="Stranger must extend Encoder"):

        @pe_zoo.register("stranger")
        class Stranger: ...

    assert "stranger" not in pe_zoo.names()


@pytest.mark.parametrize("name", ["", "RoPE", "my-rope", "my rope", "2d", "_rope", "rope.half", "ropé", "rope\n"])
def test_a_name_that_is_not_lower_snake_case_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="lower snake case"):
        pe_zoo.register(name)


def test_a_decorator_without_a_name_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match=r"name <class .*Unnamed'>: use lower snake case, such as 'rope'"):

        @pe_zoo.register  # type: ignore[arg-type]
        class Unnamed(pe_zoo.Encoder): ...


def test_registration_gives_the_class_its_name_and_nothing_else() -> None:
    @pe_zoo.register("fresh_one")
    class Fresh(Encoder): ...

    assert Fresh.name == "fresh_one"
    assert pe_zoo.get("fresh_one") is Fresh
    assert "fresh_one" in pe_zoo.names()
    assert pe_zoo.get("rope").name == "rope"


def test_registries_are_separate() -> None:
    mine: Registry[Encoder] = Registry("toy", Encoder)

    @mine.register("rope")
    class Toy(Encoder): ...

    assert mine.names() == ["rope"]
    assert pe_zoo.get("rope") is not Toy
    with pytest.raises(ValueError, match=r"no toy named 'alibi'\. Known: rope\."):
        mine.get("alibi")


# ------------------------------------------------------------------------------------------------- files


def test_a_file_brings_its_encoder_and_its_hash(tmp_path: Path) -> None:
    file = tmp_path / "outside_file.py"
    file.write_text(PLUGIN.format(name="outside_file"))
    digest = pe_zoo.load_file(file)
    assert digest == hashlib.sha256(file.read_bytes()).hexdigest()
    assert pe_zoo.build("outside_file", GEOMETRY, strength=2.0).strength == 2.0
    assert pe_zoo.load_file(str(file)) == digest, "a second time is no second registration"
    file.write_text(file.read_text() + "# edited while a sweep runs")
    with pytest.raises(pe_zoo.PluginError, match="has changed since it was read: start again"):
        pe_zoo.load_file(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"nowhere\.py.*does not exist"):
        pe_zoo.load_file(tmp_path / "nowhere.py")
    with pytest.raises(PluginError, match="does not exist"):
        pe_zoo.load_file(tmp_path)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("import no_such_package_anywhere", "ModuleNotFoundError.*no_such_package_anywhere"),
        ("def broken(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        (PLUGIN.format(name="rope"), "ValueError.*already"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        (PLUGIN.format(name="bare").replace(" = 1.0", ""), "TypeError: Outside: knob 'strength' needs a default"),
        (
            PLUGIN.format(name="bare").replace(": float = 1.0", "=1.0"),
            "TypeError: Outside: knob 'strength' needs a type",
        ),
    ],
)
def test_a_file_that_fails_to_import_is_named_with_the_cause(tmp_path: Path, text: str, cause: str) -> None:
    file = tmp_path / "failing.py"
    file.write_text(text)
    with pytest.raises(PluginError, match=rf"failing\.py.*failed to import: {cause}") as failure:
        pe_zoo.load_file(file)
    assert failure.value.__cause__ is not None


def test_a_plugin_that_fails_half_way_registers_nothing(tmp_path: Path) -> None:
    before = pe_zoo.names()
    file = tmp_path / "half_way.py"
    file.write_text(PLUGIN.format(name="half_way") + "\n1 / 0\n")
    with pytest.raises(PluginError, match="ZeroDivisionError"):
        pe_zoo.load_file(file)
    assert pe_zoo.names() == before
    file.write_text(PLUGIN.format(name="half_way"))
    pe_zoo.load_file(file)
    assert "half_way" in pe_zoo.names()


def test_a_file_without_an_encoder_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "empty.py"
    file.write_text("x = 1\n")
    for _ in range(2):
        with pytest.raises(PluginError, match=r"empty\.py.*registers nothing"):
            pe_zoo.load_file(file)


# ---------------------------------------------------------------------------------------------- plug-ins


def distribution(folder: Path, name: str, source: str) -> Path:
    """A folder as pip leaves it: a package and its metadata, with one entry point."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(source)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[pe_zoo.encoders]\n{name} = {name}\n")
    return folder


def test_an_installed_package_adds_its_encoder(tmp_path: Path) -> None:
    folder = distribution(tmp_path, "good_plugin", PLUGIN.format(name="from_a_package"))
    program = """
import pe_zoo
geometry = pe_zoo.Geometry(model_dim=8, num_heads=2, num_layers=1, train_length=4)
encoder = pe_zoo.build("from_a_package", geometry, strength=3.0)
print(encoder.strength, "from_a_package" in pe_zoo.names(), pe_zoo.names() == pe_zoo.names())
"""
    done = python(program, folder)
    assert (done.returncode, done.stdout.split()) == (0, ["3.0", "True", "True"]), done.stderr


def test_an_installed_plugin_that_fails_stops_and_is_named(tmp_path: Path) -> None:
    folder = distribution(tmp_path, "bad_plugin", "raise RuntimeError('out of order')")
    program = """
import pe_zoo
geometry = pe_zoo.Geometry(model_dim=8, num_heads=2, num_layers=1, train_length=4)
for ask in (pe_zoo.names, lambda: pe_zoo.build("rope", geometry), lambda: pe_zoo.get("rope"), pe_zoo.names):
    try:
        ask()
    except pe_zoo.PluginError as error:
        print(error)
"""
    done = python(program, folder)
    lines = done.stdout.strip().splitlines()
    assert len(lines) == 4, done.stdout + done.stderr
    for line in lines:
        assert "'bad_plugin' of bad_plugin failed to import: RuntimeError: out of order" in line


def test_the_package_imports_torch_and_nothing_of_the_harness() -> None:
    heavy = ["experiments", "hydra", "omegaconf", "pandas", "seaborn", "matplotlib", "transformers"]
    done = python(f"import sys, pe_zoo; pe_zoo.names(); print([m for m in {heavy} if m in sys.modules])")
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


# ---------------------------------------------------------------------------------------------- geometry


def test_geometry_says_what_does_not_fit() -> None:
    assert GEOMETRY.head_dim == 4
    with pytest.raises(ValueError, match=r"num_heads=5 does not divide model_dim=12; the nearest that do are 3, 4, 6"):
        Geometry(model_dim=12, num_heads=5, num_layers=1, train_length=4)
    for field in ("model_dim", "num_heads", "num_layers", "train_length"):
        for wrong in (0, -1, 1.5, True, "4", None):
            with pytest.raises(ValueError, match=f"{field} must be a whole number of at least 1"):
                Geometry(**{"model_dim": 8, "num_heads": 2, "num_layers": 1, "train_length": 4, field: wrong})  # type: ignore[arg-type]
