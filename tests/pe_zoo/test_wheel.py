"""The wheel is the library: torch is all it asks for, and ``pe_zoo`` is all it brings."""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("pe_zoo", "experiments"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    subprocess.run(build, cwd=folder, check=True, timeout=300, capture_output=True)
    (built,) = (folder / "dist").glob("*.whl")
    return built


def test_it_brings_the_library_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        (about,) = (name for name in names if name.endswith("METADATA"))
        needs = email.message_from_bytes(packed.read(about)).get_all("Requires-Dist") or []
    assert {name.split("/")[0] for name in names} == {"pe_zoo", Path(about).parent.name}
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "pe_zoo").rglob("*.py")}
    assert files | {"pe_zoo/py.typed"} <= set(names)
    assert [need.split(">")[0].split("<")[0] for need in needs if "extra" not in need] == ["torch"]


def test_it_works_where_it_is_unpacked(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path)
    code = "import pe_zoo; print(pe_zoo.__file__, len(pe_zoo.names()), 'transformers' in __import__('sys').modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    place, count, imported = done.stdout.split()
    assert Path(place).is_relative_to(tmp_path)
    assert int(count) >= 39
    assert imported == "False"
