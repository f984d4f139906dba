"""What README says can be done can be done: its commands compose, its paths exist, its example runs."""

from __future__ import annotations

import csv
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from support import QUICK, ROOT, Command

import pe_zoo

CHINESE = ROOT / "README.zh-CN.md"
DOCS = sorted((ROOT / "docs").rglob("*.md"))
FILES = [ROOT / "README.md", *DOCS]
README = "\n".join(path.read_text(encoding="utf-8") for path in FILES)
LINKS = [
    (path, link)
    for path in [*FILES, CHINESE, ROOT / "CONTRIBUTING.md"]
    for link in sorted(set(re.findall(r"\]\(((?!http)[^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))))
]
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)
LINES = [line.split(" #")[0].strip() for language, block in BLOCKS if language == "bash" for line in block.splitlines()]
RUNS = [line.split("run.py", 1)[1] for line in LINES if "run.py" in line]


def test_there_are_commands_to_check() -> None:
    assert len(RUNS) >= 10


def test_the_chinese_readme_says_the_same() -> None:
    """The same commands, links and numbers under as many headings; what it says in words is for readers to judge."""
    english, chinese = (path.read_text(encoding="utf-8") for path in (FILES[0], CHINESE))

    def commands(text: str) -> list[str]:
        blocks = re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)
        return [line.split(" #")[0].strip() for block in blocks for line in block.splitlines()]

    def tables(text: str) -> list[list[str]]:
        lines = [line for line in text.splitlines() if line.startswith("|")]
        return [re.findall(r"[−+]?\d*\.?\d+(?:e-\d+)?|`[^`]+`", line) for line in lines]

    def named(text: str) -> list[str]:
        words = re.sub(r"```.*?```", "", text.partition("**")[2], flags=re.DOTALL)
        return sorted(found[0] for found in re.finditer(r"`[^`\n]+`|\]\([^)#][^)]*\)", words))

    assert commands(chinese) == commands(english)
    assert [sorted(found) for found in tables(chinese)] == [sorted(found) for found in tables(english)]
    assert len(re.findall(r"^## ", chinese, re.M)) == len(re.findall(r"^## ", english, re.M))
    assert named(chinese) == named(english)
    files = [re.findall(r"\b_?\w+\.py\b", text) for text in (english, chinese)]
    assert files[0] == files[1]


def test_the_headline_is_what_was_measured() -> None:
    """Every area, interval and range of places of the table is that of the report, best first."""
    with (ROOT / "results" / "reference" / "report" / "tables" / "standings.csv").open(newline="") as file:
        measured = {(line["task"], line["series"]): line for line in csv.DictReader(file)}
    results = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    head, _, *lines = re.search(r"(?:^\|.*\n)+", results, flags=re.M)[0].splitlines()  # type: ignore[index]
    tasks = re.findall(r"`(\w+)`", head)
    told = {cells[1].strip(" `"): [cell.strip() for cell in cells[2:-1]] for cells in (row.split("|") for row in lines)}
    for series, cells in told.items():
        assert cells == [headline(measured[task, series]) for task in tasks], series
    first = [float(measured[tasks[0], series]["area"]) for series in told]
    assert first == sorted(first, reverse=True)
    assert {"none", "sinusoidal", "rope", "alibi", "t5"} <= set(told)


def headline(line: dict[str, str]) -> str:
    """Area, interval and places, or why there is none, as README gives them."""
    if line["status"] != "ok":
        return line["status"]
    places = "–".join(dict.fromkeys(f"{float(line[name]):g}" for name in ("place_low", "place_high")))
    interval = f" [{short(line['low'])}, {short(line['high'])}]" if line["low"] else ""
    return f"{short(line['area'])}{interval} · {places}"


def short(number: str) -> str:
    return f"{float(number):.2f}".replace("0.", ".", 1).replace("-", "−")


@pytest.mark.parametrize("arguments", RUNS)
def test_every_run_command_composes(command: Command, tmp_path: Path, arguments: str) -> None:
    (tmp_path / "README.md").write_text(README, encoding="utf-8")
    (tmp_path / "my_encoder.py").write_text(example_encoder(), encoding="utf-8")
    words = shlex.split(arguments)
    if words == ["--help"]:
        return
    flags = [word for word in words if word == "-m"]
    done = command("--cfg", "job", *[word for word in words if word not in flags])
    # --cfg does not go with -m, and a list of values is refused there for that reason alone.
    if flags and done.code:
        assert "a list of values needs -m" in done.err or "is a list of runs: add -m" in done.err
    else:
        assert done.code == 0, done.err


def test_the_example_encoder_runs(command: Command, tmp_path: Path) -> None:
    (tmp_path / "my_encoder.py").write_text(example_encoder().replace("log_distance", "log_distance_once"))
    done = command("plugin=my_encoder.py", "encoder=log_distance_once", "encoder.slope=0.5", *QUICK)
    assert done.code == 0, done.err


def example_encoder() -> str:
    (source,) = (block for language, block in BLOCKS if language == "python" and "register" in block)
    return source


def test_the_example_model_runs() -> None:
    (source,) = (block for language, block in BLOCKS if language == "python" and "register" not in block)
    names: dict[str, object] = {}
    exec(source, names)
    output = names["output"]
    assert isinstance(output, torch.Tensor)
    assert output.shape == (2, 4, 10, 16)
    assert output.isfinite().all()


def test_an_installed_package_runs_as_readme_says(tmp_path: Path) -> None:
    """A folder as pip leaves it, with README's encoder and README's entry point."""
    (project,) = (block for language, block in BLOCKS if language == "toml")
    (entry,) = tomllib.loads(project)["project"]["entry-points"]["pe_zoo.encoders"].items()
    (tmp_path / "my_encoder.py").write_text(example_encoder())
    info = tmp_path / "my_encoders-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-encoders\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[pe_zoo.encoders]\n{entry[0]} = {entry[1]}\n")
    quick = ["model=tiny", "train.steps=2", "train.rounds=1", "experiment=length_extrapolation", "figures=false"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "run.py"), f"encoder={entry[0]}", *quick],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "results" / "scratch" / "runs").iterdir()
    assert run.name.startswith("log_distance-copy-")


@pytest.mark.parametrize(
    ("path", "link"), LINKS, ids=lambda value: getattr(value, "parent", ROOT).name + "-" + str(value)
)
def test_every_linked_path_exists(path: Path, link: str) -> None:
    assert (path.parent / link).exists()


def test_every_path_of_the_tree_exists() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (tree,) = re.findall(r"```\n(run.py .*?)```", contributing, flags=re.DOTALL)
    folder = ROOT
    named = 0
    for line in tree.splitlines():
        top = re.match(r"(\w[\w.]*/?)\s", line)
        if top:
            folder = ROOT / top[1] if top[1].endswith("/") else ROOT
            assert (ROOT / top[1]).exists(), line
        first = re.findall(r"^  (\w[\w.]*/?)\s", line)
        for name in first + re.findall(r"(?<![\w<>/.])_\w+\.py", line):
            named += 1
            assert (folder / name).exists(), line
    assert named > 20


def test_the_documents_make_a_site(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    done = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.relative_to(tmp_path / "docs").with_suffix(".html") for path in (tmp_path / "docs").rglob("*.md")}
    site = tmp_path / "site"
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}
    assert 'src="http' not in (site / "index.html").read_text(encoding="utf-8")


def test_the_test_command_is_what_ci_runs() -> None:
    (tests,) = (line for line in LINES if line.endswith("-m pytest"))
    ci = (ROOT / ".ci" / "run").read_text()
    assert tests.replace("pip install ", "pip install -q ") in ci


def test_every_encoder_task_numbering_and_experiment_is_named() -> None:
    from experiments.plan.measures import experiment_names
    from experiments.tasks import tasks

    own = [name for name in pe_zoo.names() if pe_zoo.get(name).__module__.startswith("pe_zoo.")]
    for name in [*own, *tasks.names(), *pe_zoo.numberings.names(), *experiment_names()]:
        assert f"`{name}`" in README
    assert f"{len(own)} encoders" in README


def test_the_changelog_has_the_version() -> None:
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE)
    assert version
    assert f"## {version[1]} " in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {version[1]}" in (ROOT / "CITATION.cff").read_text()
