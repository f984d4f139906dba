"""The main job from the command line: what a run writes, that it repeats bit for bit, and that nothing is lost."""

from __future__ import annotations

import csv
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
import yaml
from support import ROOT, Command, record_of

import pe_zoo
import report
from experiments.rows.results import read
from experiments.rows.row import COLUMNS, slice_name
from experiments.runs import config as composition
from experiments.runs import provenance
from experiments.tasks.texts.corpus import Corpus
from experiments.training import loop
from pe_zoo import _registry

TINY = [
    "figures=false",
    "model=tiny",
    "train.steps=8",
    "train.rounds=1",
    "train.curve_points=2",
    "length_extrapolation.samples=4",
    "length_extrapolation.multiples=[1,2]",
    "permutation_sensitivity.samples=4",
]


def only_run(folder: Path, name: str = "scratch") -> Path:
    (found,) = (folder / "results" / name / "runs").iterdir()
    return found


def rows_of(run: Path) -> list[dict[str, str]]:
    with (run / "rows.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_writes_rows_record_config_model_log_and_figures(command: Command, tmp_path: Path) -> None:
    done = command(*TINY, "figures=true", "encoder=rope", "encoder.base=500000", "seed=3")
    assert done.code == 0, done.err
    run = only_run(tmp_path)
    assert run.name.startswith("rope-copy-seed3-")
    rows = rows_of(run)
    assert list(rows[0]) == COLUMNS
    assert {row["encoder"] for row in rows} == {"rope(base=500000)"}
    assert {row["experiment"] for row in rows} == {"training", "length_extrapolation", "permutation_sensitivity"}
    assert {(row["run_id"], row["seed"], row["task"]) for row in rows} == {(run.name, "3", "copy")}
    assert all(row["status"] == "ok" and math.isfinite(float(row["value"])) for row in rows)
    record = record_of(run)
    assert record["status"] == "ok"
    assert (record["encoder_parameters"], record["positions"], record["layout"]) == (0, "sequential", "uniform")
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["encoder"] == {
        "name": "rope",
        "base": 500000.0,
        "pairing": "interleaved",
        "fraction": 1.0,
        "spectrum": "compressed",
    }
    assert (config["seed"], config["train"]["steps"], config["task"]["train_length"]) == (3, 8, 16)
    state = safetensors.torch.load_file(run / "model.safetensors")
    assert sum(tensor.numel() for tensor in state.values()) == record["model_parameters"]
    stems = {path.stem for path in (run / "figures").glob("*.png")}
    assert {stem.split("_copy")[0] for stem in stems} == {"training", "length_extrapolation", "permutation_sensitivity"}
    assert "right, %" in done.out
    assert "reversal" in done.out
    assert str(run.relative_to(tmp_path)) in done.out
    assert not [path for path in run.rglob(".*") if path.is_file()], "temporary files left behind"


def test_a_sign_that_training_changed_is_told() -> None:
    learned, first = (
        pe_zoo.build("learned", pe_zoo.Geometry(model_dim=8, num_heads=2, num_layers=1, train_length=4))
        for _ in range(2)
    )
    assert provenance.turned(learned, learned) == {}
    with torch.no_grad():
        (table,) = learned.parameters()
        for parameter in (table, *first.parameters()):
            parameter.fill_(1.0)
        table[0, :3] = -0.5
    ((name, told),) = provenance.turned(learned, first).items()
    assert told == f"3 of {table.numel()}", name


def test_a_run_notes_how_far_training_moved_the_encoder(command: Command, tmp_path: Path) -> None:
    """grape_m's frequencies are RoPE's before training, whatever the seed."""
    assert command(*TINY, "encoder=grape_m", "train.steps=40").code == 0
    run = only_run(tmp_path)
    sizes = yaml.safe_load((run / "config.yaml").read_text())["model"]
    shape = {name: sizes[name] for name in ("model_dim", "num_heads", "num_layers")}
    before = pe_zoo.build("grape_m", pe_zoo.Geometry(**shape, train_length=33)).state_dict()["log_frequency"]
    after = safetensors.torch.load_file(run / "model.safetensors")["encoder.log_frequency"]
    noted = record_of(run)["moved"]
    assert set(noted) == {"log_frequency", "weight", "bias"}
    assert noted["log_frequency"] == pytest.approx(float((after - before).norm() / before.norm()), rel=1e-2)
    assert noted["log_frequency"] > 1e-4
    for listed, whole in zip(record_of(run)["values"]["log_frequency"], (before, after), strict=True):
        assert listed == pytest.approx(whole.flatten().tolist(), rel=1e-2)
    changed = int((before * after < 0).sum())
    told = record_of(run)["turned"].get("log_frequency")
    assert told == (f"{changed} of {before.numel()}" if changed else None)
    assert command(*TINY, "encoder=rope", "name=plain").code == 0
    assert record_of(only_run(tmp_path, "plain"))["moved"] is None


def test_the_same_command_twice_is_one_run_and_bit_identical(command: Command, tmp_path: Path) -> None:
    command(*TINY, "positions=randomized", "encoder=t5")
    run = only_run(tmp_path)
    first = (run / "rows.csv").read_bytes()
    weights = (run / "model.safetensors").read_bytes()
    stamp = (run / "rows.csv").stat().st_mtime_ns
    again = command(*TINY, "positions=randomized", "encoder=t5")
    assert again.code == 0
    assert "finished before; force=true" in again.out
    assert "right, %" in again.out
    assert (run / "rows.csv").stat().st_mtime_ns == stamp
    forced = command(*TINY, "positions=randomized", "encoder=t5", "force=true")
    assert forced.code == 0
    assert only_run(tmp_path) == run
    assert (run / "rows.csv").stat().st_mtime_ns != stamp
    assert (run / "rows.csv").read_bytes() == first
    assert (run / "model.safetensors").read_bytes() == weights


def test_runs_of_a_sweep_get_figures_when_they_are_asked_for(command: Command, tmp_path: Path) -> None:
    tiny = [word for word in TINY if not word.startswith(("permutation_sensitivity.", "figures="))]
    short = [*tiny, "experiment=length_extrapolation", "encoder=none"]
    assert command("-m", *short, "seed=0,1").code == 0
    first, second = sorted((tmp_path / "results" / "scratch" / "runs").iterdir())
    assert not list(first.rglob("*.png")) + list(second.rglob("*.png"))
    rows = (first / "rows.csv").read_bytes()
    assert "finished before" in command(*short).out
    late = {path.name for path in (first / "figures").iterdir()}
    assert late
    assert (first / "rows.csv").read_bytes() == rows
    assert command(*short, "seed=1", "figures=false").code == 0
    assert not (second / "figures").exists()
    assert command("-m", *short, "seed=1,2", "figures=true", "force=true").code == 0
    assert {path.name for path in (second / "figures").iterdir()} == late
    assert len(list((tmp_path / "results" / "scratch" / "runs").glob("*/figures"))) == 3


def test_the_id_depends_on_what_results_depend_on(command: Command, tmp_path: Path) -> None:
    command(*TINY, "encoder=none", "name=a")
    command(*TINY, "encoder=none", "name=b", "device=cpu")
    command(*TINY, "encoder=none", "name=c", "train.learning_rate=0.01")
    same, also, other = (only_run(tmp_path, name).name for name in "abc")
    assert same == also
    assert other != same


def test_a_seed_has_one_trunk_and_one_order_of_data(command: Command, tmp_path: Path) -> None:
    command("-m", *TINY, "train.learning_rate=1e-30", "encoder=none,t5,learned")
    states = {
        run.name.split("-")[0]: safetensors.torch.load_file(run / "model.safetensors")
        for run in (tmp_path / "results" / "scratch" / "runs").iterdir()
    }
    for name, tensor in states["none"].items():
        torch.testing.assert_close(states["t5"][name], tensor, rtol=0, atol=1e-6)
        torch.testing.assert_close(states["learned"][name], tensor, rtol=0, atol=1e-6)


def test_a_sweep_runs_everything_and_survives_a_failure(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pe_zoo.alibi import ALiBi

    def broken(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(ALiBi, "score", broken)
    done = command("-m", *TINY, "encoder=none,alibi,rope", "seed=0,1")
    assert done.code == 1
    records = {run.name: record_of(run) for run in (tmp_path / "results" / "scratch" / "runs").iterdir()}
    assert len(records) == 6
    failed = {name for name, record in records.items() if record["status"] == "failed"}
    assert {name.split("-")[0] for name in failed} == {"alibi"}
    assert len(failed) == 2
    assert all("planted" in records[name]["message"] for name in failed)
    log = (tmp_path / "results" / "scratch" / "runs" / min(failed) / "run.log").read_text()
    assert "Traceback" in log
    assert "Traceback" not in done.err
    assert "6 runs: 4 done, 2 failed" in done.out


def test_seeds_is_the_same_as_so_many_runs(command: Command, tmp_path: Path) -> None:
    command(*TINY, "encoder=none", "seed=5", "name=alone")
    command(*TINY, "encoder=none", "seed=4", "seeds=2", "name=together")
    alone = only_run(tmp_path, "alone")
    together = tmp_path / "results" / "together" / "runs"
    assert len(list(together.iterdir())) == 2
    assert (together / alone.name / "rows.csv").read_bytes() == (alone / "rows.csv").read_bytes()


def test_a_loss_that_is_not_finite_ends_the_run_as_diverged(command: Command, tmp_path: Path) -> None:
    done = command(*TINY, "train.learning_rate=1e30", "train.gradient_clip=1e30")
    assert done.code == 1
    run = only_run(tmp_path)
    record = record_of(run)
    assert record["status"] == "diverged"
    assert record["converged"] is False
    measured = [row for row in rows_of(run) if row["experiment"] != "training"]
    assert {row["status"] for row in measured} == {"diverged"}
    assert {row["value"] for row in measured} == {""}
    lengths = {(row["metric"], row["eval_length"]) for row in measured if row["experiment"] == "length_extrapolation"}
    assert lengths == {(metric, length) for metric in ("token_accuracy", "exact_match") for length in ("16", "32")}
    assert "finished before" in command(*TINY, "train.learning_rate=1e30", "train.gradient_clip=1e30").out


def test_what_an_encoder_cannot_do_is_a_row(command: Command, tmp_path: Path) -> None:
    assert command(*TINY, "encoder=learned", "encoder.num_rows=40").code == 0
    rows = [row for row in rows_of(only_run(tmp_path)) if row["experiment"] == "length_extrapolation"]
    beyond = [row for row in rows if row["eval_length"] == "32"]
    assert {(row["status"], row["value"]) for row in beyond} == {("unsupported", "")}
    assert {row["metric"] for row in beyond} == {"token_accuracy", "exact_match"}
    assert {row["status"] for row in rows if row["eval_length"] == "16"} == {"ok"}


@pytest.mark.parametrize("encoder", ["none", "sinusoidal", "learned", "rope", "alibi", "t5"])
@pytest.mark.parametrize("causal", ["true", "false"])
def test_every_encoder_in_both_kinds_of_model(command: Command, tmp_path: Path, encoder: str, causal: str) -> None:
    tiny = [word for word in TINY if not word.startswith("length_extrapolation.")]
    tiny.append("experiment=permutation_sensitivity")
    assert command(*tiny, f"encoder={encoder}", f"model.causal={causal}").code == 0
    errors = {
        row["metric"]: float(row["value"])
        for row in rows_of(only_run(tmp_path))
        if row["metric"] in ("equivariance_error", "initial_equivariance_error")
    }
    if encoder == "none" and causal == "false":
        assert all(error < 1e-5 for error in errors.values())
    else:
        assert all(error > 1e-3 for error in errors.values())


def test_text_records_its_corpus_and_measures_bits_per_byte(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for i in range(12):
        (folder / f"{i}.txt").write_text(f"{i} some words that are not quite the same in every file {i * i}\n" * 20)
    done = command(*TINY, "task=text", "task.train_length=16", "task.path=corpus")
    assert done.code == 0, done.err
    record = record_of(only_run(tmp_path))
    assert record["corpus"]["files"] == 12
    assert record["corpus"]["bytes"] == sum(path.stat().st_size for path in folder.iterdir())
    assert len(record["corpus"]["sha256"]) == 64
    assert record["corpus"]["test_bytes_removed"] > 0
    rows = [row for row in rows_of(only_run(tmp_path)) if row["metric"] == "bits_per_byte"]
    assert {row["eval_length"] for row in rows} == {"16", "32"}
    assert all(0 < float(row["chance"]) < 8 for row in rows)


def test_a_changed_corpus_is_another_run_and_a_sweep_reads_it_once(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, of_files = [], Corpus.of_files
    monkeypatch.setattr(Corpus, "of_files", lambda path, **options: read.append(path) or of_files(path, **options))
    (tmp_path / "own.txt").write_text("".join(f"{n} times {n} is {n * n}\n" for n in range(900)))
    sweep = (*TINY, "-m", "task=text", "task.path=own.txt", "encoder=none,rope", "seed=0,1", "task.train_length=16,24")
    assert command(*sweep).code == 0
    assert read == ["own.txt"]
    runs = tmp_path / "results" / "scratch" / "runs"
    first = {run.name: (run / "rows.csv").read_bytes() for run in runs.iterdir()}
    assert len(first) == 8
    hashes = {yaml.safe_load((run / "config.yaml").read_text())["data"] for run in runs.iterdir()}
    assert hashes == {record_of(run)["corpus"]["splits_sha256"][:12] for run in runs.iterdir()}
    assert command(*sweep).out.count("finished before") >= 8
    with (tmp_path / "own.txt").open("a") as file:
        file.write("one line more")
    assert command(*sweep, "seed=0").code == 0
    assert len(list(runs.iterdir())) == 12
    assert {run: (runs / run / "rows.csv").read_bytes() for run in first} == first


def test_data_that_change_between_command_and_run_are_refused(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(composition, "data_sha256", lambda task: "of another machine")
    done = command(*TINY, "task=text")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "error: task=text reads other data here (" in done.err
    assert "than when the command was read (of another machine): give all machines the same data" in done.err
    assert not (tmp_path / "results").exists()


def test_a_plugin_runs_and_its_source_is_part_of_the_id(command: Command, tmp_path: Path) -> None:
    source = '''
import pe_zoo
@pe_zoo.register("{name}")
class Shift(pe_zoo.Encoder):
    """Adds the position itself."""
    def embed(self, x, positions):
        return x + {factor} * positions.unsqueeze(-1).to(x.dtype)
'''
    (tmp_path / "mine.py").write_text(source.format(name="mine_a", factor=0.01))
    assert command(*TINY, "plugin=mine.py", "encoder=mine_a", "name=first").code == 0
    assert only_run(tmp_path, "first").name.startswith("mine_a-copy-")
    config = yaml.safe_load((only_run(tmp_path, "first") / "config.yaml").read_text())
    assert len(config["plugin"]) == 64
    assert command(*TINY, "plugin=mine.py", "encoder=none", "name=first").code == 0
    (tmp_path / "mine.py").write_text(source.format(name="mine_a", factor=0.02))
    del _registry.encoders._classes["mine_a"]  # of the old file, which a new process does not know
    done = command("-m", *TINY, "plugin=mine.py", "encoder=none,mine_a", "name=first")
    assert re.search(r"none-copy-seed0-\w+ finished before", done.out), "an edit changes the runs of its encoder alone"
    labels = set(read(tmp_path / "results" / "first").runs["series"])
    assert {label.partition(" ")[0] for label in labels} == {"none", "mine_a"}
    assert len(labels) == 3
    assert all(re.fullmatch(r"none|mine_a · plugin=[0-9a-f]{8}", label) for label in labels)
    done = command(
        "-m", *TINY, "plugin=mine.py", "encoder=none,mine_a", "seeds=until_decided", "against=none", "name=first"
    )
    assert done.code == 2
    assert "error: mine.py changed since 1 run of mine_a-copy in results/first: seeds are added to runs of" in done.err


def test_rows_survive_an_interruption_of_another_run(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(*TINY, "encoder=none")
    kept = (only_run(tmp_path) / "rows.csv").read_bytes()

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop, "train", interrupted)
        done = command(*TINY, "encoder=rope")
    assert done.code == 130
    assert "interrupted" in done.err
    runs = {run.name.split("-")[0]: run for run in (tmp_path / "results" / "scratch" / "runs").iterdir()}
    assert (runs["none"] / "rows.csv").read_bytes() == kept
    assert record_of(runs["rope"])["status"] == "interrupted"
    assert not (runs["rope"] / "rows.csv").exists()
    assert command(*TINY, "encoder=rope").code == 0
    assert record_of(runs["rope"])["status"] == "ok"


def test_from_a_shell_and_in_a_report(tmp_path: Path) -> None:
    words = ["-m", *TINY, "encoder=none,rope", "name=shell"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "run.py"), *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr
    assert report.main([str(tmp_path / "results" / "shell")]) == 0
    assert {path.name for path in (tmp_path / "results" / "shell" / "report").iterdir()} >= {"index.html", "report.md"}


def test_what_needs_no_training_is_not_trained(command: Command, tmp_path: Path) -> None:
    done = command("model=tiny", "encoder=alibi", "experiment=structure")
    assert done.code == 0, done.err
    assert "not trained" in done.out
    assert "only distance counts" in done.out
    run = only_run(tmp_path)
    record = record_of(run)
    assert (record["trained"], record["converged"], record["train_seconds"]) == (False, None, 0.0)
    assert not (run / "model.safetensors").exists()
    assert yaml.safe_load((run / "config.yaml").read_text())["train"] is None
    assert (run / "run.log").read_text().count("adds no vectors to the embeddings") == 1, "a reason is said once"
    again = command("model=tiny", "encoder=alibi", "experiment=structure", "train.steps=7")
    assert "finished before" in again.out, "how it would be trained changes nothing"


def test_zero_steps_measure_the_untrained_model(command: Command, tmp_path: Path) -> None:
    tiny = [word for word in TINY if not word.startswith(("train.steps", "length_extrapolation."))]
    done = command(*tiny, "train.steps=0", "encoder=rope", "experiment=[permutation_sensitivity,structure]")
    assert done.code == 0, done.err
    rows = rows_of(only_run(tmp_path))
    value = {(row["metric"], slice_name(row)): row["value"] for row in rows}
    assert value["output_change", "shuffle"] == value["initial_output_change", "shuffle"] != ""
    assert {row["experiment"] for row in rows} == {"permutation_sensitivity", "structure"}


def test_options_of_encoders_that_are_swept_over_are_theirs(command: Command, tmp_path: Path) -> None:
    """And not those of the default encoder, with which Hydra composes before it sweeps."""
    sweep = ["-m", "encoder=learned,tupe", "encoder.num_rows=64", "model=tiny", "train.steps=0", "experiment=structure"]
    done = command(*sweep)
    assert done.code == 0, done.err
    assert "2 runs: 2 done" in done.out
    configs = [yaml.safe_load(path.read_text()) for path in (tmp_path / "results").rglob("config.yaml")]
    assert [config["encoder"]["num_rows"] for config in configs] == [64, 64]
    refused = command("-m", "encoder=learned,rope", "encoder.num_rows=64")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "rope has no knob 'num_rows', unlike learned" in refused.err


def test_a_run_waits_for_nothing_it_does_not_need(tmp_path: Path) -> None:
    """Statistics, figures and torch's compiler take seconds to import, which only other processes and reports need."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import run; run.main(); print(*sys.modules)"
    words = [sys.executable, "-c", code, *TINY, "encoder=rope"]
    found = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    imported = set(found.stdout.split())
    assert "torch" in imported
    assert not imported & {"torch._dynamo", "torch._inductor", "sympy", "scipy", "matplotlib", "seaborn", "jinja2"}


@pytest.mark.parametrize("options", [[], ["tune=true", "train.learning_rates=[0.001,0.003]"]], ids=["plain", "tuned"])
def test_measuring_on_the_way_changes_nothing_else(command: Command, tmp_path: Path, options: list[str]) -> None:
    """Rows with a step come first and end with what the trained model does; the weights are the same, bit for bit."""
    tiny = [*TINY, "experiment=length_extrapolation", *options]
    tiny.remove("permutation_sensitivity.samples=4")
    assert command(*tiny, "encoder=learned", "encoder.num_rows=40", "name=without").code == 0
    done = command(*tiny, "encoder=learned", "encoder.num_rows=40", "length_extrapolation.during=[0.25,5]", "name=with")
    assert done.code == 0, done.err
    without, run = only_run(tmp_path, "without"), only_run(tmp_path, "with")
    assert (without / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
    before, after = ([{**row, "run_id": ""} for row in rows_of(place)] for place in (without, run))
    on_the_way = [row for row in after if row["experiment"] == "length_extrapolation" and row["step"]]
    assert [row for row in after if row not in on_the_way] == before
    lengths = {"token_accuracy": ["16", "32"], "exact_match": ["16", "32"], "tokens_seen": ["16"]}
    places = {(row["step"], row["metric"], row["eval_length"]) for row in on_the_way}
    assert places == {(step, name, at) for step in "258" for name, known in lengths.items() for at in known}
    assert {row["status"] for row in on_the_way if row["eval_length"] == "32"} == {"unsupported"}
    last = [{**row, "step": ""} for row in on_the_way if row["step"] == "8" and row["metric"] != "tokens_seen"]
    assert all(row in before for row in last)
    tokens = {row["step"]: float(row["value"]) for row in on_the_way if row["metric"] == "tokens_seen"}
    assert 0 < tokens["2"] < tokens["5"] < tokens["8"] <= 8 * 256
