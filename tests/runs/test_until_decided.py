"""``seeds=until_decided``: looks grow only what is open, the same command resumes, and bad requests are refused."""

import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from support import Command, read_page, write_run

import report
from experiments.rows import results, sweeps
from experiments.rows.row import Row
from experiments.runs import adaptive, status
from experiments.statistics.rule import Rule
from experiments.statistics.scores import scores
from experiments.statistics.statements import schema

RULE = Rule("none", looks=(3, 5), weights=(0.5, 0.5))
MEANS = {"none": 0.3, "rope": 0.9, "alibi": 0.31}


def lengths_only(encoder: str, seed: int) -> object:
    """Rows with a clear mean: as good at every longer length as the encoder's mean says."""
    return partial(lengths_at, MEANS[encoder] + np.random.default_rng([seed, len(encoder)]).normal(0, 0.02))


def lengths_at(beyond: float, rows: list[Row]) -> list[Row]:
    kept = [row for row in rows if row.experiment == "length_extrapolation" and row.metric == "token_accuracy"]
    return [Row(**(vars(row) | {"value": 0.95 if row.eval_length <= 16 else beyond})) for row in kept]


class Sweep:
    """Stands for the engine: writes runs as they are asked for, and notes what was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, list[Mapping[adaptive.Point, range]]()

    def launch(self, asked: Mapping[adaptive.Point, range]) -> tuple[int, dict[adaptive.Point, list[Path]]]:
        self.asked.append(asked)
        found: dict[adaptive.Point, list[Path]] = {}
        for point, seeds in asked.items():
            encoder = point[0].removeprefix("encoder=")
            for seed in seeds:
                run_id = f"{encoder}-copy-seed{seed}"
                if not (self.folder / "runs" / run_id).exists():
                    write_run(self.folder, encoder, seed, run_id=run_id, rows=lengths_only(encoder, seed))
                found.setdefault(point, []).append(self.folder / "runs" / run_id)
        return 0, found


POINTS = [(f"encoder={name}",) for name in MEANS]


def test_only_what_is_open_gets_more_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = Sweep(tmp_path)
    assert adaptive.run(POINTS, RULE, 0, sweep.launch) == 0
    first, second = sweep.asked
    assert first == dict.fromkeys(POINTS, range(3))
    assert second == dict.fromkeys([("encoder=none",), ("encoder=alibi",)], range(3, 5))
    printed = capsys.readouterr().out
    assert "2 comparisons: 1 open, 1 better; the next look takes 4 more runs" in printed
    assert "2 comparisons: 1 undecided, 1 better\n" in printed
    assert "better than none" in printed


def test_statements_get_seeds_until_each_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is open takes more runs of its own contestants; the other statement is decided at the first look."""

    def statement(one: str, delta: float) -> dict[str, object]:
        rows = {"experiment": "length_extrapolation", "metric": "token_accuracy", "multiple": 2}
        contestants = {one: {"encoder": one}, "none": {"encoder": "none"}}
        test = {"of": "twice", "rows": rows, "delta": delta, "contestants": contestants}
        test |= {"rule": {"higher": [[one], ["none"]]}, "published": {one: 0.7}}
        return {"statement": f"{one} is better", "source": "somebody", "numbers": "from memory", "tests": [test]}

    content = {
        "name": "two",
        "parts": ["encoder=rope"],
        "statements": [statement("rope", 0.1), statement("alibi", 0.06)],
    }
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    monkeypatch.setattr(schema, "load", partial(schema.load, tmp_path))
    rule = replace(RULE, question="statements")
    sweep = Sweep(tmp_path)
    note = sweeps.Sweep("python run.py -m …", ("none-copy-seed0",), asdict(rule) | {"first_seed": 0})
    sweeps.write(tmp_path, note)
    assert adaptive.run(POINTS, rule, 0, sweep.launch) == 0
    first, second = sweep.asked
    assert first == dict.fromkeys(POINTS, range(3))
    assert second == dict.fromkeys([("encoder=none",), ("encoder=alibi",)], range(3, 5))
    printed = capsys.readouterr().out
    assert "alibi is better: open\n2 comparisons: 1 holds, 1 open; the next look takes 4 more runs" in printed
    assert "alibi is better: equal\n2 comparisons: 1 holds, 1 equal\n" in printed
    assert "rope is better: holds" in status.text(tmp_path)
    assert report.main([str(tmp_path)]) == 0
    table = read_page(tmp_path).tables["Published statements"]
    assert [(line[1], line[5]) for line in table[1::2]] == [
        ("holds", "0.7 (from memory)"),
        ("equal", "0.7 (from memory)"),
    ]


def test_statements_that_nothing_measures_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path, "shaw", rows=lambda rows: [row for row in rows if row.experiment == "training"])
    with pytest.raises(ValueError, match="against=statements: no file of configs/statements/"):
        status.decisions([results.load(tmp_path)], replace(RULE, question="statements"), 0)


def test_the_same_sweep_resumes_without_new_runs(tmp_path: Path) -> None:
    adaptive.run(POINTS, RULE, 0, Sweep(tmp_path).launch)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}
    adaptive.run(POINTS, RULE, 0, Sweep(tmp_path).launch)
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()} == before


def test_a_run_without_rows_ends_the_sweep(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)

    def launch(asked: Mapping[adaptive.Point, range]) -> tuple[int, dict[adaptive.Point, list[Path]]]:
        _, found = sweep.launch(asked)
        (found[POINTS[0]][0] / "rows.csv").unlink(missing_ok=True)
        return 1, found

    assert adaptive.run(POINTS, RULE, 0, launch) == 1
    assert len(sweep.asked) == 1


def test_status_and_page_say_what_the_rule_decided(tmp_path: Path) -> None:
    adaptive.run(POINTS, RULE, 0, Sweep(tmp_path).launch)
    note = {"question": "none", "looks": [3, 5], "weights": [0.5, 0.5], "delta": 0.06, "first_seed": 0}
    runs = tuple(path.name for path in (tmp_path / "runs").iterdir())
    sweeps.write(tmp_path, sweeps.Sweep("python run.py -m …", runs, note))
    assert "2 comparisons: 1 equal, 1 better" in status.text(tmp_path)
    assert report.main([str(tmp_path)]) == 0
    table = pd.read_csv(tmp_path / "report/tables/standings.csv").set_index("series")
    assert table["verdict"].dropna().to_dict() == {"rope": "better", "alibi": "equal"}
    assert (table.loc["rope", "place_low"], table.loc["none", "place_low"]) == (1, 2)
    assert table["baseline_seeds"].dropna().to_dict() == {"rope": 3, "alibi": 5}
    page = read_page(tmp_path).text
    three = [results.load(tmp_path).quality.query(f"series == '{name}' and seed < 3") for name in ("rope", "none")]
    kept = [100 * scores(rows)["kept"].mean() for rows in three]
    said = f"{kept[0] - kept[1]:+.1f} ["
    assert page.count(said) >= 2, "in the headline and in the table"
    assert page.count(", 3 runs each") >= 2, "in the headline and in the table"
    assert page.count(", 5 runs each") >= 2
    assert "Δ, interval and p are of the look that decided" in page
    assert f"{kept[0] - kept[1]:+.1f} [" in status.text(tmp_path)


def test_a_look_that_is_half_done_counts_what_is_left(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    sweep.launch({("encoder=none",): range(3), ("encoder=rope",): range(2)})
    sweeps.write(tmp_path, sweeps.Sweep("python run.py -m …", ("x",), asdict(RULE) | {"first_seed": 0}))
    assert "the next look takes 1 more run\n" in status.text(tmp_path) + "\n"


@pytest.mark.parametrize(
    ("baseline", "reason"), [("none", "no run of none has ended well"), ("nope", "no baseline named")]
)
def test_a_baseline_whose_runs_failed_is_not_an_unknown_one(tmp_path: Path, baseline: str, reason: str) -> None:
    write_run(tmp_path, "rope")
    write_run(tmp_path, "none", record={"status": "failed"})
    with pytest.raises(ValueError, match=f"^against={baseline}: {reason}"):
        status.decisions([results.load(tmp_path)], replace(RULE, question=baseline), 0)


def test_before_the_baseline_has_runs_nothing_is_decided(tmp_path: Path) -> None:
    Sweep(tmp_path).launch({("encoder=rope",): range(3), ("encoder=alibi",): range(3)})
    note = asdict(RULE) | {"first_seed": 0}
    sweeps.write(tmp_path, sweeps.Sweep("python run.py -m …", ("none-copy-seed0",), note))
    assert "Nothing to decide yet: against=none" in status.text(tmp_path)
    assert "No run has ended yet of none-copy," in status.text(tmp_path)
    assert report.main([str(tmp_path)]) == 0


@pytest.mark.parametrize("plan", [(), ("--plan",)])
def test_looks_are_not_moved_after_results_are_seen(command: Command, tmp_path: Path, plan: tuple[str, ...]) -> None:
    folder = tmp_path / "results" / "p"
    run = write_run(folder, "none").name
    asked = ["-m", "name=p", "model=tiny", "encoder=none,rope", "seeds=until_decided", "against=none", *plan]
    sweeps.write(folder, sweeps.Sweep("python run.py -m …", (run,), asdict(RULE) | {"first_seed": 0}))
    moved = command(*asked, "looks=[3,5,8]")
    assert moved.code == 2
    assert "was begun with against=none looks=[3,5] weights=[0.5,0.5] seed=0, and this command has" in moved.err
    assert [path.name for path in (folder / "runs").iterdir()] == [run], "nothing was trained"


@pytest.mark.parametrize("plan", [(), ("--plan",)], ids=["run", "plan"])
def test_what_measures_no_lengths_is_refused_before_it_is_trained(
    command: Command, tmp_path: Path, plan: tuple[str, ...]
) -> None:
    asked = ["name=p", "model=tiny", "encoder=none,rope", "experiment=structure", "train.steps=0"]
    refused = command("-m", *asked, "seeds=until_decided", "against=none", *plan)
    assert refused.code == 2
    assert "seeds=until_decided needs experiment=length_extrapolation" in refused.err
    assert not (tmp_path / "results").exists()


def test_a_rule_without_results_can_still_be_changed(command: Command, tmp_path: Path) -> None:
    rule = asdict(RULE) | {"first_seed": 0}
    sweeps.write(tmp_path / "results" / "p", sweeps.Sweep("python run.py -m …", ("a",), rule))
    asked = ["name=p", "model=tiny", "encoder=none,rope", "seeds=until_decided", "against=none", "looks=[3,5,8]"]
    assert command("-m", *asked, "--plan").code == 0


def test_a_resumed_sweep_keeps_the_note_of_seeds_that_it_added(tmp_path: Path) -> None:
    rule, first = asdict(RULE) | {"first_seed": 0}, ("a", "b")
    grown, lost = write_run(tmp_path, "none").name, "c"
    sweeps.write(tmp_path, sweeps.Sweep("same", (*first, grown, lost), rule, 60.0))
    sweeps.write(tmp_path, sweeps.Sweep("same", first, rule))
    assert sweeps.read(tmp_path)[0] == [sweeps.Sweep("same", (*first, grown), sweeps.read(tmp_path)[0][0].rule, 60.0)]
    before = sweeps.read(tmp_path)
    sweeps.write(tmp_path, sweeps.Sweep("same", first, rule, 7.0, planned=True))
    assert sweeps.read(tmp_path) == before, "a plan changes nothing that was begun"


def test_what_no_look_decides_says_which_difference_it_would_have_seen(tmp_path: Path) -> None:
    rule = Rule("none", looks=(4,), weights=(1.0,))
    rng = np.random.default_rng(0)
    for encoder in ("none", "rope"):
        for seed in range(4):
            change = partial(lengths_at, 0.5 + rng.normal(0, 0.05))
            write_run(tmp_path, encoder, seed, run_id=f"{encoder}-copy-seed{seed}", rows=change)
    found = [results.load(tmp_path)]
    decided, named = status.decisions(found, rule, 0)
    (line,) = decided.to_dict("records")
    told, more = status.decisions_text(decided, named, 0, found).splitlines()[-2:]
    (seen,) = (float(number) for number in re.findall(r"about ([\d.]+) ", told))
    assert told.startswith("rope on copy: 4 seeds would show a difference of about ")
    assert seen == pytest.approx(50 * (line["high"] - line["low"]), abs=0.05), "half the interval, in points"
    assert "the same command with name=again seed=100 'looks=[N]' 'weights=[1]'" in more
