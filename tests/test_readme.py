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
from support import QUICK, ROOT, Command, examples

import pe_zoo
from experiments.rows.read import read_rows, run_folders
from experiments.rows.row import Row
from experiments.runs import summary
from experiments.runs.outcome import Outcome

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
EXAMPLES = examples()
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


@pytest.mark.parametrize("path", [ROOT / "README.md", CHINESE], ids=lambda path: path.name)
def test_what_the_first_command_prints(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(ROOT / "results" / "classic" / "runs.tar.xz", tmp_path)
    (run,) = (place for place in run_folders(tmp_path) if place.name.startswith("sinusoidal-copy-seed0"))
    table = read_rows(run / "rows.csv", tmp_path, run.name)
    rows = [Row(**dict(zip(table, cells, strict=True))) for cells in zip(*table.values(), strict=True)]
    summary.show(Outcome("ok", run.name, run, rows))
    shown = re.search(r"^```\n(sinusoidal on .*?)^```", path.read_text(encoding="utf-8"), flags=re.M | re.S)[1]  # type: ignore[index]
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize("arguments", RUNS)
def test_every_run_command_composes(command: Command, tmp_path: Path, arguments: str) -> None:
    (tmp_path / "README.md").write_text(README, encoding="utf-8")
    write_examples(tmp_path)
    words = shlex.split(arguments)
    if words == ["--help"] or "--verify" in words:  # neither composes a run
        return
    for key, _, named in (word.partition("=") for word in words):  # the reader's own
        if key == "task.path":
            (tmp_path / named).write_text("a text")
        elif key == "checkpoint" and ":" not in named:
            (tmp_path / named).mkdir(parents=True)
            for name in ("config.json", "tokenizer.json"):
                (tmp_path / named / name).touch()
    flags = [word for word in words if word == "-m"]
    done = command("--cfg", "job", *[word for word in words if word not in flags])
    # --cfg does not go with -m, and a list of values is refused there for that reason alone.
    if flags and done.code:
        assert "a list of values needs -m" in done.err or "is a list of runs: add -m" in done.err
    else:
        assert done.code == 0, done.err


def test_the_example_encoder_runs(command: Command, tmp_path: Path) -> None:
    (tmp_path / "my_encoder.py").write_text(EXAMPLES["my_encoder"].replace("log_distance", "log_distance_once"))
    done = command("plugin=my_encoder.py", "encoder=log_distance_once", "encoder.slope=0.5", *QUICK)
    assert done.code == 0, done.err


def test_the_example_can_learn_its_slope(tmp_path: Path) -> None:
    (learned,) = re.findall(r"```python\n( +self\.slope = .*\n)```", (ROOT / "docs/test_your_own.md").read_text())
    source = EXAMPLES["my_encoder"].replace("        self.slope = slope\n", learned)
    (tmp_path / "learns.py").write_text(source.replace("log_distance", "log_distance_learned"))
    assert ", 0 fail" in outside(tmp_path, "-m", "pe_zoo", "check", "learns.py")


def write_examples(folder: Path) -> None:
    (folder / "docs").mkdir(exist_ok=True)
    shutil.copy(ROOT / "docs" / "my_encoder.py", folder / "docs")
    for name, source in EXAMPLES.items():
        (folder / f"{name}.py").write_text(source, encoding="utf-8")


def outside(folder: Path, *words: str, **environment: str) -> str:
    """What a command says that is called in another folder, as a user would."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_examples_are_complete_and_short() -> None:
    most = {"my_encoder": 30, "my_bias": 30, "my_task": 30, "my_measure": 30, "my_model": 40}
    assert set(EXAMPLES) == set(most)
    assert all(len(source.splitlines()) < most[name] for name, source in EXAMPLES.items())


def test_encoder_task_and_measure_of_ones_own_run_and_are_reported(tmp_path: Path) -> None:
    assert examples("test_your_own") == {"my_encoder": (ROOT / "docs" / "my_encoder.py").read_text("utf-8")}
    write_examples(tmp_path)
    words = ["encoder=log_distance", "task=last_repeat", "experiment=[length_extrapolation,confidence]", *QUICK[:-1]]
    files = "plugin=[my_encoder.py,my_task.py,my_measure.py]"
    assert "answer_probability at 32" in outside(tmp_path, str(ROOT / "run.py"), files, *words, "confidence.samples=4")
    (run,) = (tmp_path / "results" / "scratch" / "runs").iterdir()
    assert run.name.startswith("log_distance-last_repeat-")
    with (run / "rows.csv").open(newline="") as file:
        lengths = [row["eval_length"] for row in csv.DictReader(file) if row["metric"] == "answer_probability"]
    assert lengths == ["16", "32", "64"]
    turned = "plugin=[my_measure.py,my_task.py,my_encoder.py]"
    assert "equal, bit for bit" in outside(tmp_path, str(ROOT / "run.py"), "--rerun", str(run), turned)
    outside(tmp_path, str(ROOT / "report.py"), "results/scratch")
    table = (tmp_path / "results" / "scratch" / "report" / "tables" / "last_repeat_confidence.csv").read_text()
    assert table.count("answer_probability") == 3
    page = (tmp_path / "results" / "scratch" / "report" / "tasks" / "last_repeat.html").read_text()
    assert "Tell whether the last symbol stood in the word before" in page, "the task is described, without its file"
    assert "How sure is the model of its answers" in page
    assert (tmp_path / "results" / "scratch" / "report" / "figures" / "last_repeat_confidence.svg").is_file()


def test_installed_packages_run_as_the_guide_says(tmp_path: Path) -> None:
    """A folder as pip leaves it, with the guide's examples and entry points."""
    groups: dict[str, dict[str, str]] = {}
    for project in (block for language, block in BLOCKS if language == "toml"):
        groups |= tomllib.loads(project)["project"]["entry-points"]
    assert set(groups) == {"pe_zoo.encoders", "pe_zoo.tasks", "pe_zoo.measures"}
    write_examples(tmp_path)
    info = tmp_path / "my_own-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-own\nVersion: 1.0\n")
    lines = [f"[{group}]\n{name} = {module}\n" for group, of in groups.items() for name, module in of.items()]
    (info / "entry_points.txt").write_text("".join(lines))
    words = [
        "encoder=log_distance",
        "task=last_repeat",
        "experiment=[confidence]",
        *(word for word in QUICK if ".samples" not in word and "generated" not in word),
    ]
    path = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    assert "answer_probability" in outside(tmp_path, str(ROOT / "run.py"), *words, "confidence.samples=4", **path)
    for topic, (name, *_) in zip(("encoders", "tasks", "experiments"), groups.values(), strict=True):
        assert re.search(rf"{name} .*my-own", outside(tmp_path, str(ROOT / "run.py"), "--help", topic, **path))


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

    own = [name for name in pe_zoo.names(None) if pe_zoo.get(name).__module__.startswith("pe_zoo.")]
    for name in [*own, *tasks.names(), *pe_zoo.numberings.names(), *experiment_names()]:
        assert f"`{name}`" in README
    assert f"{len(own)} encoders" in README


def test_the_changelog_has_the_version() -> None:
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE)
    assert version
    assert f"## {version[1]} " in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {version[1]}" in (ROOT / "CITATION.cff").read_text()
