"""Whatever is wrong with a request: exit code 2, one line that says what, nothing written, nothing trained.

Requests are made from the options themselves, so that new ones are covered too: for each option a value that its type
or its limits do not allow, drawn from a seed; and by hand what no type tells of.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from support import ROOT, Command

import pe_zoo
from experiments import pipeline
from experiments.plan.measures import experiment_names
from experiments.runs.options import MENUS, Request, schema

QUICK = ("model=tiny", "train.steps=1", "train.curve_points=1")

NESTED = ("{a:{b:1}}", "{a:1}")
WRONG: dict[Any, tuple[str, ...]] = {
    int: ("x", "1.5", "[1]", *NESTED, "nan", "inf", "1e309", "''", "1_0x", f"{10**18}", f"{10**400}", f"-{10**18}"),
    float: ("x", "[1]", *NESTED, "nan", "inf", "-inf", "1e309", "-1e300", "1e300", "''", "0x"),
    bool: ("maybe", "[true]", *NESTED, "1.5", "nan", "''", "truee", "-"),
    str: ("[a]", "[[a],[b]]", *NESTED),
    list: ("x", "3", *NESTED, "[[1]]", "[{a:1}]", "''", "[1,x]"),
}
"""What no option of a type may be, by the type."""


def wrong_values(kind: Any) -> tuple[str, ...]:
    parts = [part for part in get_args(kind) if part is not type(None)]
    if get_origin(kind) in (list, tuple):
        return WRONG[list]
    if type(None) in get_args(kind):
        return wrong_values(parts[0])[: None if get_origin(parts[0]) else -1]
    return (*WRONG[kind], "null")


def of_the_schema() -> Iterator[list[str]]:
    """Every option that is there whatever is chosen, with one or two wrong values."""
    draw = random.Random(0)
    for group in fields(schema()):
        if group.name in MENUS or group.name in ("experiment", "name", "device", "plugin", "tracker"):
            continue  # chosen by name, or any text: below
        node = group.default_factory if callable(group.default_factory) else None  # type: ignore[comparison-overlap]
        chosen = [f"experiment={group.name}"] if group.name in experiment_names() else []
        if node is None or not is_dataclass(node):
            kind = int if group.name == "seeds" else get_type_hints(Request)[group.name]
            yield from ([f"{group.name}={value}"] for value in draw.sample(wrong_values(kind), 3))
            continue
        for option, kind in get_type_hints(node).items():
            value = draw.choice(wrong_values(kind))
            yield [*chosen, f"{group.name}.{option}={value}"]


AT_MOST = 15
"""Of a menu, so many are tried: composing takes a fifth of a second."""


def of_the_menus() -> Iterator[list[str]]:
    """Of encoders, tasks and numberings one option each with a wrong value, and a name next to one of theirs."""
    draw = random.Random(1)
    for group, (names, get) in MENUS.items():
        for name in draw.sample(names(), min(AT_MOST, len(names()))):
            if not get(name).__module__.startswith(("pe_zoo.", "experiments.")):
                continue  # an installed package's
            knobs = list(pe_zoo.knobs(get(name)).values())
            if knobs:
                knob = draw.choice(knobs)
                yield [f"{group}={name}", f"{group}.{knob.name}={draw.choice(wrong_values(knob.type))}"]
        yield [f"{group}={draw.choice(names())}x"]


NO_NAMES = [
    f"{group}={given}"
    for group in ("encoder", "task", "positions", "layout", "model", "train")
    for given in ("null", "[]", "[1]", "3", "", "{}x", "../x", "/etc/passwd", "no_such")
]
FOLDERS = [
    "../x",
    "..",
    ".",
    "a/b",
    "/tmp/pe_zoo",
    "~",
    "~/x",
    "a" * 300,
    "''",
    "null",
    ".hidden",
    "[a]",
    "{a:1}",
    "a b",
]
FOLDERS += ["${oc.env:HOME}", "${hydra_folder:}", "${hydra:runtime.cwd}", "${no_such}", "${name}", "${", "'a\\nb'", "ü"]
NAMES = [f"name={folder}" for folder in FOLDERS]

BY_HAND = [
    *("tracker=no_such", "tracker=3", "tracker={a:1}", "tracker=[[a]]", "tracker=''", "tracker=[null]"),
    # Hydra's own syntax, and its own options
    *("++x=1", "+x=1", "~encoder", "~model", "~seed", "~train.steps", "=3", "=", "++="),
    *("x", "encoder", "encoder==rope"),
    *("encoder=(", "encoder=]", "encoder={", 'encoder="', "encoder=rope,", "encoder=rope=alibi", "train.steps==1"),
    *("encoder@x=rope", "+encoder@x=rope", "encoder.name=null", "encoder.=3", ".base=3", "encoder..base=3"),
    *("+sweep=../x", "-m +sweep=../../x", "+sweep=/etc/passwd", "+sweep=", "+sweep=null"),
    *("+statements=no_such", "+statements=haviv_probe", "-m +reproduce=haviv_probe"),
    *("hydra.run.dir=../evil", "-m hydra.sweep.dir=../evil", "hydra.output_subdir=.hydra", "hydra.job.chdir=true"),
    *("hydra={run:{dir:../evil}}", "++hydra.run.dir=../evil", "hydra=null", "hydra.searchpath=[/tmp]", "hydra.x=1"),
    *("hydra/launcher=no_such", "hydra/callbacks=x", "+hydra.callbacks.x._target_=os.getcwd", "hydra.mode=BOTH"),
    *("--config-name=x", "--config-dir=/no/such", "--config-path=/", "--package=x"),
    *("--experimental-rerun=x", "--info=x"),
    *("--no-such-flag", "-x", "--multirunn", "-m encoder=rope,ropee", "-m seed=0,x", "-m x=1,2"),
    # names, experiments, files
    *("experiment=[]", "experiment=[[cost]]", "experiment={a:1}", "experiment=3"),
    *("experiment=../cost", "experiment=''"),
    *("experiment=[all,cost]", "experiment=_cost", "experiment=null", "device=", "device=meta", "device=cuda:99"),
    *("device=${oc.env:HOME}", "device=[cpu]", "plugin=/no/such.py", "plugin=.", "plugin=${no_such}", "plugin=[no.py]"),
    *("seeds=0", "seed=-1", "seed=${oc.env:NO_SUCH}", "seed=${oc.env:HOME}", "seed=0,1"),
    *("seed=range(3)", "seeds=1000000"),
    *("task=text task.path=/no/such", "task=text task.path="),
    *("task=text task.dataset=../x", "task=text task.path=/dev/null"),
    *("encoder=绳", "encoder=r\x07ope", "encoder=ro\npe", "encоder=rope"),
    *("encoder.base=\x1b[31m", "encoder.base=１０x"),
    # sizes that no machine has, and what would never end
    *("model.model_dim=1000000000", "model.num_layers=100000000"),
    *("model.ffn_multiple=1000000000", "seeds=1000000000"),
    *("task.train_length=1000000000", "task.train_length=1000000", "train.tokens_per_step=1000000000"),
    *("train.tokens_per_step=1000000000000", "length_extrapolation.multiples=[1e9]", "task.num_symbols=1000000000"),
    *("length_extrapolation.samples=2000000000", "encoder=learned encoder.num_rows=2000000000"),
    *("encoder=t5 encoder.num_buckets=2000000000", "encoder=dynamic_bias encoder.depth=1000000000"),
    *("positions=randomized positions.limit=2000000000", "positions=offset positions.num_offsets=2000000000"),
    *("experiment=cost cost.memory_lengths=[2000000000]", "experiment=cost cost.seconds=1e30"),
    *("experiment=structure structure.reach=2000000000", "model.model_dim=2000000000 train.steps=0"),
]  # fmt: skip

REQUESTS = [
    *of_the_schema(),
    *of_the_menus(),
    *([request] for request in (*NO_NAMES, *NAMES)),
    *(request.split(" ") for request in BY_HAND),
]


def test_there_are_enough_of_them() -> None:
    assert len({tuple(request) for request in REQUESTS}) >= 200
    assert len(REQUESTS) == len({tuple(request) for request in REQUESTS})


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that passes fails its test at once."""

    def reached(*_: object, **__: object) -> None:
        pytest.fail("the request was run")

    monkeypatch.setattr(pipeline, "execute", reached)


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize("request_words", REQUESTS, ids=lambda words: ascii(" ".join(words))[:80])
def test_a_malformed_request(command: Command, tmp_path: Path, request_words: list[str]) -> None:
    around = set(tmp_path.parent.iterdir())
    done = command(*QUICK, *request_words)
    assert done.code == 2
    assert is_one_error(done.err)
    assert any(names_what_was_given(done.err, word) for word in request_words), done.err
    assert not list(tmp_path.iterdir()), "something was written"
    assert set(tmp_path.parent.iterdir()) == around, "something was written elsewhere"


def is_one_error(said: str) -> bool:
    return said.startswith("error: ") and said.count("\n") == 1 and said.endswith("\n") and said[:-1].isprintable()


def names_what_was_given(said: str, word: str) -> bool:
    option, _, value = word.lstrip("+~-").partition("=")
    last = option.rpartition(".")[2].partition("@")[0]
    return any(part and part in said for part in (word, option, last, last.replace("_", "-"), value.strip("'\"[]")))


@pytest.mark.parametrize(
    "words",
    [
        ["hydra.run.dir=../elsewhere"],
        ["encoder=[", "train.steps=nan"],
    ],
    ids=" ".join,
)
def test_a_process_of_its_own(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "here").mkdir()
    done = subprocess.run(
        [sys.executable, str(ROOT / "run.py"), *QUICK, *words],
        cwd=tmp_path / "here",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert is_one_error(done.stderr), done.stderr
    assert not done.stdout
    assert [path.name for path in tmp_path.rglob("*")] == ["here"]
