"""A request that cannot be run gets one line that says what to do, exit code 2, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Command

QUICK = ["model=tiny", "train.steps=10"]

BAD = {
    "encoder=ropee": "no encoder named 'ropee'. Did you mean 'rope'?",
    "task=copyy": "no task named 'copyy'. Did you mean 'copy'?",
    "positions=offsett": "no numbering named 'offsett'. Did you mean 'offset'?",
    "train=fulll": "no train named 'fulll'. Did you mean 'full'?",
    "experiment=lenght_extrapolation": "Did you mean 'length_extrapolation'?",
    "experiment=[permutation_sensitivity,foo]": "no experiment named 'foo'",
    "experiment=[]": "experiment=[] measures nothing",
    "experiment=null": "no experiment named None",
    "encdoer=rope": "no option 'encdoer'. Did you mean 'encoder'?",
    "encoder.bsae=3": "no option 'encoder.bsae'. Did you mean 'encoder.base'?",
    "+encoder.thta=3": "sinusoidal has no knob 'thta'",
    "+model.widht=3": "no option model.widht",
    "+zzz=1": "no option 'zzz'",
    "train.stepps=3": "Did you mean 'train.steps'?",
    "length_extrapolation.sample=3": "Did you mean 'length_extrapolation.samples'?",
    "encoder.base=abc": "encoder.base: Value 'abc'",
    "encoder.base=-1": "base must be a finite number above 0; got -1.0",
    "encoder.base=nan": "base must be a finite number above 0; got nan",
    "encoder.channels=mixed": "channels must be one of interleaved, concatenated; got 'mixed'",
    "encoder=learned encoder.num_rows=10": "too few for the 33 positions of the training length",
    "encoder=learned positions=offset positions.num_offsets=5000": "takes positions up to 2047",
    "encoder=t5 encoder.num_buckets=3": "num_buckets must be a whole number of at least 4",
    "encoder=null": "encoder=null is no name",
    "model.model_dim=31 model.num_heads=1": "needs an even model_dim; got 31, use 30 or 32",
    "model.num_heads=3": "num_heads=3 does not divide model_dim=32",
    "model.num_layers=0": "model.num_layers must be a whole number of at least 1",
    "layout=nope_every_4th": "changes nothing in a model of 2 layers",
    "positions=randomized positions.limit=5": "draws 33 different positions out of limit=5",
    "task.train_length=0": "task.train_length must be a whole number of at least 1; got 0",
    "task.train_length=-4": "task.train_length must be a whole number of at least 1; got -4",
    "task.min_length=17": "exceeds task.train_length=16",
    "task.num_symbols=1": "task.num_symbols must be a whole number of at least 2",
    "task=text task.path=/no/such/file": "does not exist",
    "task=text model.causal=false": "needs a causal model",
    "train.steps=-1": "train.steps must be a whole number of at least 0",
    "train.steps=0 train.drop_encoder_after=0.5": "changes nothing without training",
    "train.learning_rate=nan": "train.learning_rate must be a finite number above 0",
    "length_extrapolation.multiples=[0]": "multiples must be a finite number above 0",
    "length_extrapolation.multiples=[a]": "could not be converted to Float",
    "permutation_sensitivity.swap_shares=[2]": "swap_shares must be a finite number above 0 and at most 1",
    "seed=-1": "seed must be a whole number of at least 0; got -1",
    "seed=a": "seed: Value 'a'",
    "seed=1.5": "seed: Value '1.5'",
    "seeds=0": "seeds must be a whole number of at least 1",
    "name=../elsewhere": "must be a plain folder name",
    "name=a/b": "must be a plain folder name",
    "name=''": "must be a plain folder name",
    "device=abacus": "is not on this machine",
    "plugin=/no/such/file.py": "encoder file '/no/such/file.py' does not exist",
    "encoder=rope,alibi": "a list of values needs -m",
    "+sweep=classic": "add -m to run them all",
    "-m +sweep=clasic": "no sweep named 'clasic'. Did you mean 'classic'?",
    "-m encoder=rope,ropee": "no encoder named 'ropee'",
    "-m encoder=rope,alibi encoder.base=3": "no option 'encoder.base'",
    "-m name=../elsewhere seed=1,2": "must be a plain folder name",
    "encoder=[": "no viable alternative",
    "foo": "Error parsing override 'foo'",
    "--foo": "unrecognized arguments: --foo",
}


@pytest.mark.parametrize("request_line", BAD)
def test_a_bad_request_is_one_line_and_exit_code_2(command: Command, tmp_path: Path, request_line: str) -> None:
    done = command(*QUICK, *request_line.split())
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1, done.err
    assert BAD[request_line] in done.err
    assert not list(tmp_path.iterdir()), "something was written"
    assert not list(tmp_path.parent.glob("elsewhere"))


def test_text_that_is_empty_or_too_short(command: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = command(*QUICK, "task=text", "task.path=empty")
    assert (done.code, done.err) == (2, "error: task.path='empty' holds no text; give a file or folder with some\n")
    (tmp_path / "short.txt").write_text("too short")
    done = command(*QUICK, "task=text", "task.path=short.txt")
    assert done.code == 2
    assert "not enough for windows of task.train_length=128" in done.err


def test_results_that_cannot_be_written(command: Command, tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file where a folder should be")
    done = command(*QUICK)
    assert done.code == 2
    assert done.err.startswith("error: results cannot be written: ")
    assert done.err.count("\n") == 1


def test_a_plugin_that_fails_to_import_is_named(command: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import no_such_module\n")
    done = command(*QUICK, "plugin=mine.py", "encoder=none")
    assert done.code == 2
    assert "encoder file 'mine.py' failed to import: ModuleNotFoundError" in done.err


def test_help_names_everything_there_is(command: Command) -> None:
    import pe_zoo
    from experiments._plan import experiment_names
    from experiments.tasks import tasks

    done = command("--help")
    assert done.code == 0
    lines = {line.split()[0] for line in done.out.splitlines() if line.startswith("  ")}
    own = pe_zoo.names()
    assert lines >= {*tasks.names(), *pe_zoo.numberings.names(), *experiment_names(), "classic", "tiny", "quick"}
    assert lines >= {name for name in own if pe_zoo.get(name).__module__.startswith("pe_zoo.")}
