"""A request that cannot be run gets one line that says what to do, exit code 2, and leaves nothing behind."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
from support import QUICK as FEW
from support import ROOT, Command, examples, run_of

import pe_zoo
from experiments.measures.length_extrapolation import measure as length_extrapolation
from experiments.model import precision
from experiments.model.layout import Layout
from experiments.plan.prepare import prepare
from experiments.plan.refusal import BadRequest
from experiments.plan.request import LATER, RESULTS, ModelConfig, RunConfig
from experiments.runs import arguments, config, job, names, options, summary
from experiments.runs.outcome import Outcome
from experiments.training.config import TrainConfig

QUICK = ["model=tiny", "train.steps=10", "train.rounds=1"]

BAD = {
    "seeds=until_decided": "seeds=until_decided is a sweep: add -m",
    "against=rope": "against=rope changes nothing without seeds=until_decided",
    "seeds=many": "seeds must be a whole number, or seeds=until_decided; got 'many'",
    "seeds=untill_decided": "got 'untill_decided'. Did you mean 'seeds=until_decided'?",
    "-m seeds=untill_decided against=none": "got 'untill_decided'. Did you mean 'seeds=until_decided'?",
    "seed=until_decided": "got 'until_decided'. Did you mean 'seeds=until_decided'?",
    "multiples=[1,8]": "no option 'multiples'. Did you mean 'length_extrapolation.multiples'?",
    "multiples=[1,8] experiment=retrieval": "no option 'multiples'. Did you mean 'retrieval.multiples'?",
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
    "task.path=x": "'task.path' is an option of task=needles, text: add that; task=copy, given or by default, has",
    "+encoder.thta=3": "sinusoidal has no knob 'thta'",
    "+model.widht=3": "no option model.widht",
    "+zzz=1": "no option 'zzz'",
    "-m sweep=hello": "sweep=hello is a list of runs: write -m +sweep=hello",
    "train_length=32": "Did you mean 'task.train_length'?",
    "encoder=alibi max_bias=4": "Did you mean 'encoder.max_bias'?",
    "-m encoder=rope,alibi max_bias=4": "Did you mean 'encoder.max_bias'?",
    "plugin=my_encoder.py encoder=log_distance slope=3": "Did you mean 'encoder.slope'?",
    "-m plugin=my_encoder.py encoder=rope,log_distance slope=3": "Did you mean 'encoder.slope'?",
    "plugin=my_encoder.py train_length=32": "Did you mean 'task.train_length'?",
    "plugin=my_encoder.py stepps=3": "Did you mean 'train.steps'?",
    "plugin=my_task.py task=last_repeat num_symbol=3": "Did you mean 'task.num_symbols'?",
    "plugin=my_measure.py experiment=confidence multiple=[1]": "confidence.multiples",
    "train.length=32": "Did you mean 'task.train_length'?",
    "trian.steps=5": "Did you mean 'train.steps'?",
    "train.stepps=3": "Did you mean 'train.steps'?",
    "length_extrapolation.sample=3": "Did you mean 'length_extrapolation.samples'?",
    "length_extrapolation.during=[0]": "during must be a finite number above 0",
    "length_extrapolation.during=[50000]": "during=50000.0 comes after the last of 10 steps; lower it",
    "length_extrapolation.during=[2.5]": "during=2.5 must be a share of train.steps, up to 1, or a whole step",
    "train.steps=0 length_extrapolation.during=[0.5]": "during=[0.5] changes nothing where nothing is trained",
    "encoder.base=abc": "encoder.base=abc: a number is needed",
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
    "length_extrapolation.multiples=[a]": "length_extrapolation.multiples=[a]: a number is needed",
    "length_extrapolation.multiples=4": "a list is needed, as in 'length_extrapolation.multiples=[4]'",
    "figures=maybe": "figures=maybe: true or false is needed",
    "train.steps=abc": "train.steps=abc: a whole number is needed",
    "permutation_sensitivity.swap_shares=[2]": "swap_shares must be a finite number above 0 and at most 1",
    "seed=-1": "seed must be a whole number of at least 0; got -1",
    "seed=a": "seed must be a whole number, or seeds=until_decided; got 'a'",
    "seed=1.5": "seed=1.5: a whole number is needed",
    "seeds=0": "seeds must be a whole number of at least 1",
    "name=../elsewhere": "must be a plain folder name",
    "name=a/b": "must be a plain folder name",
    "name=''": "must be a plain folder name",
    "device=abacus": "is not on this machine",
    "plugin=/no/such/file.py": "plug-in file '/no/such/file.py' does not exist",
    "encoder=rope,alibi": "a list of values needs -m",
    "+sweep=classic": "add -m to run them all",
    "-m +sweep=clasic": "no sweep named 'clasic'. Did you mean 'classic'?",
    "-m encoder=rope,ropee": "no encoder named 'ropee'",
    "-m encoder=rope,alibi,none encoder.base=3,4": "alibi has no knob 'base', unlike rope; run two commands with the "
    "same name=: -m name=mine encoder=rope encoder.base=3,4, then -m name=mine encoder=alibi,none",
    "-m encoder=rope,none encoder.base=3,4 seeds=until_decided against=none": "run two commands with the same name=: "
    "-m name=mine encoder=none, then -m name=mine encoder=rope encoder.base=3,4",
    "-m plugin=my_encoder.py encoder=log_distance,rope encoder.slope=1,4 name=x": "rope has no knob 'slope', unlike "
    "log_distance; run two commands with the same name=: -m name=x encoder=log_distance encoder.slope=1,4, "
    "then -m name=x encoder=rope",
    "-m encoder=rope,alibi encoder.bsae=3": "no option 'encoder.bsae'. Did you mean 'encoder.base'?",
    "-m task=copy,text task.path=my_task.py": "copy has no knob 'path', unlike text; run",
    "-m name=../elsewhere seed=1,2": "must be a plain folder name",
    "encoder=[": "a bracket or a quote is missing",
    "foo": "'foo' is no option; write option=value",
    "-m encoder=alibi, none": "'none' follows a space: write no space after a comma, encoder=alibi,none\n",
    "-m encoder=alibi, none, rope seed=1": "write no space after a comma, encoder=alibi,none,rope\n",
    "rope": "'rope' is no option; write encoder=rope",
    "reverse": "'reverse' is no option; write task=reverse",
    "encoder=RoPE": "Did you mean 'rope'?",
    f"seed={2**53}": f"seed must be a whole number of at most {2**53 - 1}",
    f"seed={2**53 - 1} seeds=2": f"the last of seeds must be a whole number of at most {2**53 - 1}",
    "force=7": "force must be true or false; got 7",
    "figures=3": "figures must be true or false; got 3",
    "model.causal=3": "model.causal must be true or false; got 3",
    "model={causal:3}": "model.causal must be true or false; got 3",
    "-m model={causal:3} seed=1,2": "model.causal must be true or false; got 3",
    "-m force=7 seed=1,2": "force must be true or false; got 7",
    "encoder.name=rope": "encoder.name is no option of its own: write encoder=rope",
    "task.name=copy": "task.name is no option of its own: write task=copy",
    "structure.reach=4": "structure.reach changes nothing without experiment=structure (or all)",
    "structure.reach=-4": "reach",
    "-m structure.reach=-4 seed=1,2": "reach",
    "experiment=structure permutation_sensitivity.samples=-5": "samples must be a whole number of at least",
    "-m hydra.sweeper.max_batch_size=0 seed=1,2": "max_batch_size must be a whole number of at least 1",
    "-m hydra.sweeper.params={seed:'0,1'}": "hydra.sweeper.params is Hydra's own and fixed here",
    "-m +sweep=classic.v2": "no sweep named 'classic.v2'",
    "-m plugin=a.py,b.py": "plugin=a.py,b.py is more than one file",
    "recipe=gemma4": "recipe= only names a file of configs/encoder: choose a recipe by encoder=<name>",
    "-m recipe=gemma4,llama4 seed=1,2": "recipe= only names a file of configs/encoder",
    "--foo": "unrecognized arguments: --foo",
    "--checkpoint my_model": "--checkpoint is an option, which has no dashes here: write checkpoint=my_model",
    "--tune seed=2": "write tune=…",
}


@pytest.mark.parametrize("request_line", BAD)
def test_a_bad_request_is_one_line_and_exit_code_2(command: Command, tmp_path: Path, request_line: str) -> None:
    given = request_line.split()
    keys = {word.partition("=")[0] for word in given}
    for name, text in examples().items():
        (tmp_path / f"{name}.py").write_text(text)
    before = {*tmp_path.iterdir()}
    done = command(*(word for word in QUICK if word.partition("=")[0] not in keys), *given)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1, done.err
    assert BAD[request_line] in done.err
    assert {*tmp_path.iterdir()} == before, "something was written"
    assert not list(tmp_path.parent.glob("elsewhere"))


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["encoder=none", "encoder=rope"], "encoder is given twice (none, rope): give one, or -m encoder=none,rope"),
        (["seed=1", "train.steps=5", "seed=2"], "seed is given twice (1, 2): give one, or -m seed=1,2"),
        (["-m", "+sweep=classic", "+sweep=tasks"], "sweep is given twice (classic, tasks): give one"),
        (["plugin=a.py", "plugin=b.py"], "plugin is given twice (a.py, b.py): give one"),
    ],
)
def test_an_option_given_twice_is_refused(typed: list[str], said: str) -> None:
    with pytest.raises(BadRequest) as refused:
        arguments.read(typed)
    assert str(refused.value) == said


def test_what_is_typed_still_replaces_what_a_sweep_file_says() -> None:
    typed = arguments.read(["-m", "+sweep=claims_untrained", "seed=7", "structure.reach=4"])
    for line in arguments.expand(typed.overrides, ROOT / "configs"):
        assert [word for word in line if word.startswith("seed=")] == ["seed=7"]


def test_an_option_of_some_runs_of_a_sweep_is_taken(command: Command, asked: list[RunConfig]) -> None:
    assert command("-m", "experiment=structure,cost", "structure.reach=4", "model=tiny").code == 0
    assert [run.experiments["structure"]["reach"] for run in asked if "structure" in run.experiments] == [4]
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        ([], "its question: against=<series>, best or statements"),
        (["against=none", "looks=[2,5]"], "looks=(2, 5)"),
        (["against=none", "looks=3,5"], "looks=3,5 must be a list: 'looks=[3,5]'"),
        (["encoder=none,rope", "against=rop"], "no encoder named 'rop' to compare with. Did you mean"),
        (["encoder=none,rope", "against=alibi"], "against=alibi: no run of this sweep has that encoder. Known: "),
    ],
)
def test_a_rule_that_means_nothing_is_refused(command: Command, tmp_path: Path, typed: list[str], named: str) -> None:
    done = command("-m", *QUICK, "seeds=until_decided", *typed)
    assert (done.code, named in done.err) == (2, True)
    assert not list(tmp_path.rglob("runs")), "nothing was trained"


def test_runs_that_differ_in_values_alone_are_composed_once(
    command: Command, asked: list[RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    composed: set[tuple[str, ...]] = set()
    choose = config.chosen
    noted = wraps(choose)(lambda *overrides: composed.add(overrides) or choose(*overrides))
    monkeypatch.setattr(config, "chosen", noted)
    assert command("-m", *QUICK, "encoder=none,rope", "seed=0,1,2", "name=at${seed}").code == 0
    assert len(composed) == 3, "two encoders, and the engine's options"
    together = [(run.run_id, run.name) for run in asked]
    asked.clear()
    for encoder in ("none", "rope"):
        for seed in range(3):
            assert command(*QUICK, f"encoder={encoder}", f"seed={seed}", "name=at${seed}").code == 0
    assert [(run.run_id, run.name) for run in asked] == together


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """Runs that a command line asks for; none of them is done."""
    found: list[RunConfig] = []

    def note(config: RunConfig, **_: object) -> Outcome:
        found.append(config)
        return Outcome("ok", config.run_id, RESULTS / config.name / "runs" / config.run_id)

    monkeypatch.setattr(job, "run", note)
    monkeypatch.setattr(summary, "show", lambda outcome, brief: None)
    return found


ENCODER = """
import pe_zoo

@pe_zoo.register("mine")
class Mine(pe_zoo.Encoder):
    def __init__(self, geometry, *, strength: float = 1.0):
        super().__init__(geometry)
        {build}

    def embed(self, x, positions):
        {embed}
"""
BROKEN = {
    "embed must return (1, 33, 32), the shape of x; got (1, 33, 3)": ("", "return x[..., :3]"),
    "embed must return (1, 33, 32), the shape of x; got NoneType": ("", "pass"),
    "encoder=mine cannot be tried: TypeError: unsupported operand type(s) for +: 'Tensor' and 'str' (mine.py:11)": (
        "",
        "return x + 'a'",
    ),
    "encoder=mine cannot be tried: KeyError: 'no' (mine.py:8)": ("{}['no']", "return x"),
    "encoder=mine cannot be tried: strength is too much (mine.py:8)": (
        "raise ValueError('strength is too much')",
        "return x",
    ),
}


@pytest.mark.parametrize("said", BROKEN)
def test_a_mistake_in_a_plugin_is_one_line_before_anything_is_trained(
    command: Command, tmp_path: Path, said: str
) -> None:
    build, embed = BROKEN[said]
    (tmp_path / "mine.py").write_text(ENCODER.format(build=build or "pass", embed=embed))
    done = command("-m", "model=tiny", "train.steps=0", "plugin=mine.py", "encoder=mine,none", "experiment=structure")
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert said in done.err
    assert not (tmp_path / "results").exists()


LEAKS = {
    "embed": "return x + x.mean(1, keepdim=True)",
    "score": "return x\n    def score(self, s, q, k, site):\n        return s + s.mean(-1, keepdim=True).cos()",
    "bits": "return x + (x.detach().sum(1, keepdim=True) > 0)",
}


@pytest.mark.parametrize("leak", LEAKS)
def test_a_plugin_that_shows_a_causal_model_the_future_is_refused(command: Command, tmp_path: Path, leak: str) -> None:
    (tmp_path / "mine.py").write_text(ENCODER.format(build="pass", embed=LEAKS[leak]))
    asked = ("model=tiny", "train.steps=0", "plugin=mine.py", "encoder=mine", "experiment=structure")
    swept = ("-m", *asked[:3], "encoder=none,mine", asked[-1])
    for words in (asked, (*asked, "--plan"), swept, (*swept, "--plan")):
        done = command(*words)
        assert done.code == 2
        assert done.err.count("\n") == 1
        assert "encoder=mine breaks a promise: Under a causal mask no output depends on a later input" in done.err
        assert not (tmp_path / "results").exists(), "the other encoder was not trained for nothing"
        assert "python -m pe_zoo check mine.py" in done.err
    assert not (tmp_path / "results").exists()
    assert command(*asked, "model.causal=false").code == 0


FALSE = {
    "score returns torch.float64 for inputs of torch.float32: ": "def score(self, s, q, k, site): return s.double()",
    "score returns torch.float32 for inputs of torch.bfloat16: ": "def score(self, s, q, k, site): return s.float()",
    "what score adds depends on the scores": "static_bias = True\n    def score(self, s, q, k, site): return s * 2",
}


def test_a_refused_variant_is_told_how_to_check_it(command: Command, tmp_path: Path) -> None:
    gated = ENCODER.replace("1.0", "1.0, gate: bool = False")
    leak = "return x + x.mean(1, keepdim=True) * self.gate"
    (tmp_path / "mine.py").write_text(gated.format(build="self.gate = gate", embed=leak))
    done = command("model=tiny", "train.steps=0", "plugin=mine.py", "encoder=mine", "encoder.gate=true")
    assert done.code == 2
    assert "python -m pe_zoo check mine.py encoder.gate=true checks every promise" in done.err


@pytest.mark.parametrize("said", FALSE)
def test_a_plugin_of_another_dtype_or_with_a_false_claim_is_refused(
    command: Command, tmp_path: Path, said: str
) -> None:
    (tmp_path / "mine.py").write_text(ENCODER.format(build="pass", embed=f"return x\n    {FALSE[said]}"))
    done = command("-m", "model=tiny", "train.steps=0", "plugin=mine.py", "encoder=none,mine", "experiment=structure")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "error: encoder=mine breaks a promise: " in done.err
    assert said in done.err
    assert not (tmp_path / "results").exists()


def test_a_plugin_that_keeps_the_future_hidden_runs(command: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        ENCODER.format(build="pass", embed="return x + positions.cos()[..., None].to(x.dtype)")
    )
    assert command("model=tiny", "train.steps=0", "plugin=mine.py", "encoder=mine", "experiment=structure").code == 0


def test_a_plugin_in_a_folder_with_brackets(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "a (1)=b"
    folder.mkdir()
    (folder / "mine.py").write_text(ENCODER.format(build="pass", embed="return x"))
    done = command("--cfg", "job", "plugin='a (1)=b/mine.py'", "encoder=mine")
    assert (done.code, "name: mine" in done.out) == (0, True), done.err


def config_of(**changed: Any) -> RunConfig:
    given: dict[str, Any] = {
        "encoder": {"name": "rope"},
        "task": {"name": "copy"},
        "positions": {"name": "sequential"},
        "layout": Layout(),
        "model": ModelConfig(model_dim=32, num_heads=2, num_layers=2),
        "train": TrainConfig(steps=1),
        "experiments": {"length_extrapolation": {}},
        "seed": 0,
        "name": "x",
        "device": "cpu",
    }
    return RunConfig(**given | changed)


def test_the_id_depends_on_what_changes_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = {"model": ModelConfig(), "train": TrainConfig(steps=1)}
    changes: list[dict[str, Any]] = [{}, {"seed": 1}, {"threads": 2}, {"train": TrainConfig(steps=1, rounds=1)}, wide]
    changes.append({**wide, "train": TrainConfig(steps=1, precision="float32")})
    monkeypatch.setattr(precision, "_multiplies_bfloat16", lambda: True)
    ids = [config_of(**changed).run_id for changed in changes]
    assert len(set(ids)) == len(ids)
    assert config_of(**wide).train.precision == "bfloat16", "what auto is here"
    monkeypatch.setattr(precision, "_multiplies_bfloat16", lambda: False)
    assert config_of(**wide).run_id == ids[-1], "and what it is elsewhere"
    assert config_of(name="y", choice="rope").run_id == ids[0], "where it is written, and how it was typed"


def test_a_knob_that_came_later_leaves_ids_as_they_were() -> None:
    every = [pe_zoo.knobs(pe_zoo.get(name)) for name in pe_zoo.names()]
    for option, before in LATER.items():
        assert all(of[option].default == before for of in every if option in of)
    encoder = {"name": "selective_rope", "rank": 16}
    ids = [config_of(encoder=encoder | told).run_id for told in ({}, {"rotate_values": False}, {"rotate_values": True})]
    assert ids[0] == ids[1] != ids[2]


def test_the_same_rows_however_many_threads_there_were(command: Command, tmp_path: Path) -> None:
    rows, few = [], [*FEW, "model.model_dim=64"]
    for threads, name in ((1, "one"), (2, "two")):
        torch.set_num_threads(threads)
        done = command(*few, f"name={name}")
        assert (done.code, torch.get_num_threads()) == (0, threads), done.err
        rows.append((run_of(tmp_path, name) / "rows.csv").read_text())
    torch.set_num_threads(1)
    assert rows[0] == rows[1]
    assert command(*few, "threads=2", "name=one").code == 0
    assert len(list((tmp_path / "results" / "one" / "runs").iterdir())) == 2
    assert "threads must be a whole number of at least 1; got 0" in command(*few, "threads=0").err


def test_a_configuration_of_an_earlier_release_gets_new_knobs() -> None:
    knobs = prepare(config_of()).config.experiments["length_extrapolation"]
    assert (
        knobs
        == prepare(config_of(experiments={"length_extrapolation": knobs})).config.experiments["length_extrapolation"]
    )
    assert set(knobs) == set(pe_zoo.knobs(length_extrapolation.measure))


@pytest.mark.parametrize(
    "changed",
    [
        {"experiments": {"length_extrapolation": {"multiples": None}}},
        {"experiments": {"cost": {"memory_lengths": 3}}},
        {"encoder": {"name": None}},
        {"encoder": {}},
        {"task": {"name": ["copy"]}},
    ],
    ids=str,
)
def test_a_malformed_configuration_is_one_line(changed: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=r"another version|no (encoder|task) named") as refused:
        prepare(config_of(**changed))
    assert "\n" not in str(refused.value)


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
    assert "plug-in file 'mine.py' failed to import: ModuleNotFoundError" in done.err


def test_help_names_everything_there_is(command: Command) -> None:
    import pe_zoo
    from experiments.plan.measures import experiment_names
    from experiments.tasks import tasks

    own = {name for name in pe_zoo.names(None) if pe_zoo.get(name).__module__.startswith("pe_zoo.")}
    topics = {"encoders": own, "tasks": tasks.names(), "positions": pe_zoo.numberings.names()}
    topics |= {"experiments": experiment_names(), "sweeps": ["classic"], "models": ["tiny"], "train": ["quick"]}
    first = command("--help")
    assert first.code == 0
    assert first.out.count("\n") < 30, "one screen"
    files = [path.stem for path in (ROOT / "configs" / "encoder").glob("*.yaml")]
    assert f"encoder={len(own):>8}: " in first.out
    assert f"variants{len(files):>6}: {sorted(files)[0]}, " in first.out
    recipes = [name for name in files if "\nrecipe:" in (ROOT / "configs" / "encoder" / f"{name}.yaml").read_text()]
    guide = (ROOT / "docs" / "encoders.md").read_text(encoding="utf-8")
    told = re.search(r"`encoder=` takes (\d+) encoders and (\d+) variants of them, of which (\d+) are \[recipes", guide)
    assert told is not None
    assert told.groups() == tuple(map(str, map(len, (own, files, recipes))))
    for topic, expected in topics.items():
        assert topic in first.out
        done = command("--help", topic)
        assert {line.split()[0] for line in done.out.splitlines() if line.startswith("  ")} >= set(expected)
    assert "steps" in command("--help", "train").out
    refused = command("--help", "encodrs")
    assert (refused.code, "Did you mean 'encoders'?" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["encoder=ropee"], "no encoder named 'ropee'"),
        (["-m", "encoder=rope", "seeds=until_decided", "against=ropee"], "no encoder named 'ropee' to compare with"),
        (["-m", "+sweep=helo", "plugin=mine.py"], "no sweep named 'helo'"),
        (["train.stepps=3", "plugin=mine.py", "encoder=mine"], "no option 'train.stepps'"),
    ],
)
def test_names_are_checked_without_torch(tmp_path: Path, typed: list[str], said: str) -> None:
    """What the sources say is what the classes are, so that a good request is never refused."""
    asked = [sys.executable, "-X", "importtime", str(ROOT / "run.py"), *typed]
    found = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert said in found.stderr
    assert not re.search(r"\b(torch|hydra|pandas)\n", found.stderr)


def test_options_in_the_sources_are_those_of_the_classes() -> None:
    assert names.options() == set(signature(options.schema()).parameters) | set(names.LISTS)
    for group, node in {"layout": Layout, "model": ModelConfig, "train": TrainConfig}.items():
        assert list(names.fields(*names.PARTS[group])) == list(signature(node).parameters)
    for group, (known, get) in options.MENUS.items():
        for name in known():
            if (entry := names.entries(group).get(name)) is not None:
                assert set(entry.knobs) == set(pe_zoo.knobs(get(name)))
