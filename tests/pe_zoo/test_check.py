"""``python -m pe_zoo check``: an encoder of somebody else, in a place of their own, with torch and pe_zoo alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support import QUICK, ROOT, Command, examples

import pe_zoo
from pe_zoo.__main__ import main
from pe_zoo._contract import check as _contract
from pe_zoo._contract.bench import FAILS, HOLDS, NOT_APPLICABLE
from pe_zoo._contract.effect import effect, kin

GOOD = '''
"""Lowers scores with the square root of the distance."""

import pe_zoo
from torch import nn
import torch


@pe_zoo.register("root_distance")
class RootDistance(pe_zoo.Encoder):
    shift_invariant = True
    static_bias = distance_bias = True

    def __init__(self, geometry, *, strength: float = 0.5):
        super().__init__(geometry)
        self.log_slopes = nn.Parameter(torch.full((geometry.num_heads, 1, 1), strength).log())

    def score(self, scores, q, k, site):
        distance = site.distance.abs().to(torch.promote_types(scores.dtype, torch.float32))
        return (scores - self.log_slopes.to(distance.dtype).exp() * distance.sqrt()).to(scores.dtype)
'''
BROKEN = {
    "by_place": (
        GOOD.replace(
            "site.distance.abs()", "(torch.arange(len(site.mask))[:, None] - torch.arange(k.shape[-2])).abs()"
        ),
        [
            "Results depend on the given positions",
            "positions twice as far apart give the same logits",
            "Queries in blocks",
        ],
    ),
    "claims_too_much": (
        GOOD.replace("distance_bias = True", "distance_bias = True\n    direction_aware = True"),
        ["if, and only if, direction_aware is claimed.", "claims direction_aware, but"],
    ),
    "looks_ahead": (
        GOOD.replace("static_bias = distance_bias = True", "").replace(
            "(scores - ", "(scores * scores.mean(-1, keepdim=True) - "
        ),
        ["Under a causal mask no output depends on a later input", "has a gradient from later inputs"],
    ),
}
PER_HEAD = examples()["my_bias"].replace("self.table[row]", "table").replace("zeros", "rand")
PER_HEAD = PER_HEAD.replace("        return", "        table = self.table[row]\n        return")
ONLY_TORCH = ("experiments", "hydra", "omegaconf", "pandas", "matplotlib", "seaborn", "run", "report")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pe_zoo in it, and whatever else this repository has or needs made impossible to import."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "pe_zoo").symlink_to(ROOT / "pe_zoo", target_is_directory=True)
    for name in ONLY_TORCH:
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} is not there')\n")
    return folder


def pe_zoo_command(place: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "pe_zoo", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(place), "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def unwrapped(text: str) -> str:
    return " ".join(text.split())


def test_an_encoder_from_outside_the_repository_passes(place: Path, tmp_path: Path) -> None:
    assert len(GOOD.strip().splitlines()) < 30
    (tmp_path / "my_encoder.py").write_text(GOOD)
    done = pe_zoo_command(place, tmp_path, "check", "my_encoder.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "root_distance: RootDistance, acts at score" in done.stdout
    assert "0 fail" in done.stdout
    assert "FAILS" not in done.stdout
    said = unwrapped(done.stdout)
    for promise in _contract.PROMISES:
        assert f"holds {promise.sentence}" in said


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_one_fails_with_the_promise_and_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    source, sentences = BROKEN[name]
    assert source != GOOD
    (tmp_path / "my_encoder.py").write_text(source)
    assert main(["check", str(tmp_path / "my_encoder.py")]) == 1
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    failing = unwrapped(out).split(" FAILS ")[1:]
    for sentence in sentences:
        assert any(sentence in verdict for verdict in failing), out


def test_one_fault_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my_encoder.py").write_text(GOOD.replace("(scores - ", "(scores + torch.zeros(2, 3) - "))
    assert main(["check", str(tmp_path / "my_encoder.py")]) == 1
    said = unwrapped(capsys.readouterr().out)
    faults = re.findall(
        r"RuntimeError: The size of tensor a \(6\) must match the size of tensor b \(3\) at non-singleton dimension 3",
        said,
    )
    assert len(faults) == 1
    assert re.search(r"broken: .* and \d\d more by a fault that is told above", said)
    assert "(my_encoder.py:20)" in said


@pytest.mark.parametrize(
    ("change", "until"),
    [
        (" * distance.sqrt()).to(scores.dtype)[..., :1]", "hooks keep the shape"),
        (" / 0.0 * distance)", "logits are finite"),
    ],
    ids=["shape", "finite"],
)
def test_what_a_fault_breaks_as_well_is_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, until: str
) -> None:
    wrong = GOOD.replace(" * distance.sqrt()).to(scores.dtype)", change + ".to(scores.dtype)")
    assert wrong != GOOD
    (tmp_path / "my_encoder.py").write_text(wrong)
    assert main(["check", str(tmp_path / "my_encoder.py")]) == 1
    said = unwrapped(capsys.readouterr().out)
    assert said.count("FAILS") == 1
    assert re.search(rf"n/a The other \d\d promises are not judged until {until}\.", said)


def test_a_leak_is_not_taken_for_other_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leak = "\n    def mix(self, scores, v, site):\n        return scores.nan_to_num(neginf=0.0).softmax(-1) @ v\n"
    (tmp_path / "my_encoder.py").write_text(GOOD + leak)
    assert main(["check", str(tmp_path / "my_encoder.py")]) == 1
    said = unwrapped(capsys.readouterr().out)
    assert said.count("FAILS") == 1
    assert "FAILS Under a causal mask no output depends on a later input" in said
    assert said.count("not judged until no output depends on a later input") == 2


def test_a_mistyped_file_is_told_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my_encoder.py").write_text(GOOD)
    assert main(["check", str(tmp_path / "my_encodr.py")]) == 2
    assert f"my_encodr.py' does not exist. Did you mean {str(tmp_path / 'my_encoder.py')!r}?" in capsys.readouterr().err


def test_the_same_file_then_runs(command: Command, tmp_path: Path) -> None:
    (tmp_path / "my_encoder.py").write_text(GOOD)
    done = command("plugin=my_encoder.py", "encoder=root_distance", "encoder.strength=0.25", *QUICK)
    assert done.code == 0, done.err


@pytest.mark.parametrize(("sign", "told"), [("-", "falls"), ("+", "rises")])
def test_a_check_says_what_the_encoder_does_to_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sign: str, told: str
) -> None:
    """No promise knows which sign was meant, so the reader is told: −.5 · √distance, worked by hand."""
    name = f"root_distance_{told}"
    (tmp_path / "mine.py").write_text(GOOD.replace("root_distance", name).replace("scores - ", f"scores {sign} "))
    assert main(["check", str(tmp_path / "mine.py")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    by = ", ".join(f"{'−' if sign == '-' else '+'}{0.5 * distance**0.5:.3g}" for distance in (1, 4, 16, 64))
    assert f"the score of an equal token {told} with distance in 4 of 4 heads; " in shown
    assert f"changes most by {by} at distances 1, 4, 16, 64." in shown


@pytest.mark.parametrize("name", ["none", "axial_rope"])
def test_a_check_of_what_changes_no_score_or_takes_two_axes_says_nothing_of_scores(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main(["check", name]) == 0
    assert "an equal token" not in capsys.readouterr().out


def test_of_an_encoder_from_a_file_others_of_its_kind_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Few of them: twenty others rotate alone. Of an encoder of the zoo they stand in the catalogue."""
    (tmp_path / "root.py").write_text(GOOD)
    assert main(["check", str(tmp_path / "root.py")]) == 0
    said = unwrapped(capsys.readouterr().out)
    assert re.search(
        r"\d+ encodings act in the same place\. .* kerple_power: scores\[h, q, k\] −= .*",
        said,
    )
    assert {"alibi: scores", "kerple_log: scores", "t5: scores"} <= {*re.findall(r"\w+: scores", said)}
    assert main(["check", "alibi"]) == 0
    assert "act in the same place" not in capsys.readouterr().out
    assert [kin(cls) for cls in map(pe_zoo.get, ("rope", "none"))] == ["", ""]


def test_the_nearest_of_a_kind_is_named_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A slope in proportion to the distance is ALiBi's; one with its logarithm is KERPLE's."""
    for change, nearest in ((" * distance", "alibi"), (" * (1 + distance).log()", "kerple_log")):
        file = tmp_path / f"{nearest}_like.py"
        file.write_text(GOOD.replace(" * distance.sqrt()", change).replace("root_distance", f"{nearest}_like"))
        assert main(["check", str(file)]) == 0
        assert re.search(rf"a referee will ask for these: {nearest}: ", unwrapped(capsys.readouterr().out))


def test_heads_that_positions_do_not_change_are_counted_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """Half of the heads have no penalty; they neither fall nor rise."""

    class Half(pe_zoo.Encoder):
        def score(self, scores: torch.Tensor, q: object, k: object, site: pe_zoo.Site) -> torch.Tensor:
            some = torch.arange(scores.shape[1])[:, None, None] < 2
            return scores - (some * site.distance.abs()).to(scores.dtype)

    assert "falls with distance in 2 of 4 heads and stays the same in 2; " in effect(Half)


def test_a_registered_encoder_is_checked_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "none"]) == 0
    said = capsys.readouterr().out
    assert "n/a" in said
    assert "0 fail, 1 do not apply" in said


def test_every_encoder_of_a_file_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "two_encoders.py"
    file.write_text(GOOD + GOOD.replace("root_distance", "second").replace("shift_invariant = True", ""))
    for _ in range(2):  # a file that was loaded before is checked again
        assert main(["check", str(file)]) == 1
        said = capsys.readouterr().out
        assert "root_distance: 31 promises hold, 0 fail" in said
        assert "second: 30 promises hold, 1 fail" in said
        assert "does not claim shift_invariant" in said


def test_a_variant_is_checked_by_its_knobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A switch may break a claim that holds without it; the page tells of the check at defaults alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "gated.py"
    gated = GOOD.replace("strength: float = 0.5", "strength: float = 0.5, gate: bool = False")
    gated = gated.replace("super().__init__(geometry)", "super().__init__(geometry)\n        self.gate = gate")
    file.write_text(gated.replace("return (scores - ", "return ((scores.cos() if self.gate else scores) - "))
    assert main(["check", str(file), "encoder.gate=true", "strength=2"]) == 1
    said = unwrapped(capsys.readouterr().out)
    assert "root_distance encoder.gate=true encoder.strength=2: RootDistance, acts at score" in said
    assert "claims static_bias, but what score adds depends on the scores" in said
    assert _contract.outcome(file, "root_distance").startswith("not checked")
    assert main(["check", str(file)]) == 0
    assert "root_distance: RootDistance, acts at score" in capsys.readouterr().out
    assert _contract.outcome(file, "root_distance").startswith("31 promises hold, 0 fail")


@pytest.mark.parametrize(
    ("made", "advised"),
    [("", ["static_bias", "distance_bias, with static_bias"]), ("static_bias = True", ["distance_bias"])],
    ids=["neither", "static_bias alone"],
)
def test_a_missing_claim_of_speed_is_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], made: str, advised: list[str]
) -> None:
    """It costs speed and no correctness; for the encoders of this repository the contract tests refuse it.

    Of two claims both are advised at once.
    """
    (tmp_path / "modest.py").write_text(GOOD.replace("static_bias = distance_bias = True", made))
    assert main(["check", str(tmp_path / "modest.py")]) == 0
    printed = unwrapped(capsys.readouterr().out)
    assert all(f"could claim {claim}: what score adds" in printed for claim in advised)
    assert printed.count(" advice ") == len(advised)
    assert printed.endswith(f"{len(advised)} with advice")
    assert f"{31 - len(advised)} promises hold, 0 fail" in printed


@pytest.mark.parametrize(
    ("learned", "said"),
    [
        ("-distance / self.time", "… at distances of 1000 and more, which training may reach"),
        ("-distance / torch.nn.functional.softplus(self.time)", ""),
    ],
    ids=["any", "positive"],
)
def test_a_time_constant_that_may_become_negative_is_advised_against(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], learned: str, said: str
) -> None:
    """A factor e^(−distance / time) grows with distance where the time is below 0: finite nearby, and not far away."""
    decaying = GOOD.replace("strength).log()", "3.0)").replace("self.log_slopes", "self.time")
    decaying = decaying.replace("static_bias = distance_bias = True", "")
    decaying = decaying.replace(
        "scores - self.time.to(distance.dtype).exp() * distance.sqrt()", f"scores * ({learned}).exp()"
    )
    (tmp_path / "decaying.py").write_text(decaying)
    assert main(["check", str(tmp_path / "decaying.py")]) == 0
    printed = unwrapped(capsys.readouterr().out)
    assert said in printed
    assert ("1 with advice" in printed) == bool(said)


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        (GOOD.replace(".to(scores.dtype)", ""), "`bias.to(scores.dtype)`"),
        (BROKEN["by_place"][0], "`site.distance`"),
        (GOOD.replace("shift_invariant = True", ""), "`shift_invariant = True`"),
        (GOOD.replace("nn.Parameter(", "("), "self.register_buffer('log_slopes', …)"),
        (PER_HEAD.replace("pe_zoo.heads_first(table)", "table.movedim(-1, -3)"), "pe_zoo.heads_first"),
        (PER_HEAD.replace(" + 2**-8", ""), "(distance + 2**-8).floor()"),
        (GOOD.replace("site.distance.abs()", "(-site.distance).clamp(min=0)"), "a distance is query − key"),
        (GOOD.replace("site.distance.abs()", "site.distance.abs().log()"), "look for log(0)"),
        (GOOD.replace("shift_invariant", "shift_invarient"), "did you mean `shift_invariant`?"),
        (
            GOOD.replace("site.distance", "site.distances"),
            "attribute 'distances'. Did you mean 'distance'? (wrong.py:19)",
        ),
    ],
    ids=["dtype", "positions", "claim", "device", "heads", "rounding", "sign", "not finite", "misspelt", "attribute"],
)
def test_the_remedy_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: str, remedy: str) -> None:
    assert wrong != GOOD
    (tmp_path / "wrong.py").write_text(wrong)
    assert main(["check", str(tmp_path / "wrong.py")]) == 1
    assert remedy in unwrapped(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (GOOD.replace("*, strength: float = 0.5", "strength"), "TypeError: .*strength"),
        (
            GOOD.replace("super().__init__(geometry)", "raise ValueError('no size\\nwill do')"),
            "ValueError: no size will do",
        ),
        (GOOD.replace("return (scores - ", "return (missing - "), "NameError: name 'missing' is not defined"),
    ],
)
def test_an_encoder_that_raises_is_told_so_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    file = tmp_path / "raising.py"
    file.write_text(text)
    assert main(["check", str(file)]) == 1
    said = capsys.readouterr()
    assert not said.err
    assert re.search(reason, unwrapped(said.out))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["check", "nowhere.py"], "plug-in file 'nowhere.py' does not exist"),
        (["check", "empty.py"], "registers nothing"),
        (["check", "syntax.py"], "failed to import: SyntaxError"),
        (["check", "ropee"], "no encoder named 'ropee'. Did you mean 'rope'?"),
        (["check"], "check takes one file or one encoder's name; got none"),
        (["check", "rope", "alibi"], "check takes knobs such as encoder.slope=0.5; got 'alibi'"),
        (["check", "rope", "encoder.bas=3"], "rope has no knob 'bas'. Did you mean 'base'?"),
        (["check", "rope", "encoder.base=ten"], "encoder.base takes a number; got 'ten'"),
        (["chekc", "rope"], "Did you mean 'check'?"),
        (["ropee"], "no encoder named 'ropee'. Did you mean 'rope'?"),
        (["tanh_bias"], "Your own: python -m pe_zoo check FILE.py"),
        (["check", "tanh_bias"], "Your own: python -m pe_zoo check FILE.py"),
        (["my_encoder.py"], "error: my_encoder.py is a file; to check it: python -m pe_zoo check my_encoder.py\n"),
        (["--model-dim", "x"], "--model-dim"),
        (["--num-heads", "5"], "num_heads=5 does not divide model_dim=128"),
        (["--nothing"], "--nothing"),
    ],
)
def test_a_bad_request_is_one_line_and_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.py").write_text("x = 1\n")
    (tmp_path / "syntax.py").write_text("def broken(:\n")
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert not said.out
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert reason in said.err


def test_a_check_changes_neither_random_state_nor_encoder() -> None:
    before = torch.random.get_rng_state()
    first, second = ([*_contract.check(pe_zoo.get("learned"))] for _ in range(2))
    assert first == second, "the same check twice says the same"
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_causal_only_encoder_is_checked_for_causal_models() -> None:
    def one_sided(geometry: pe_zoo.Geometry) -> pe_zoo.Encoder:
        return pe_zoo.build("alibi", geometry, form="one_sided")

    verdicts = list(_contract.check(one_sided))
    assert {verdict.outcome for verdict in verdicts} == {HOLDS, NOT_APPLICABLE}
    assert any("Unsupported: alibi form=one_sided" in verdict.reason for verdict in verdicts)


def test_an_encoder_that_refuses_every_model_fails() -> None:
    class Refuses(pe_zoo.Encoder):
        def embed(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            raise pe_zoo.Unsupported("not today")

    verdicts = list(_contract.check(Refuses))
    assert verdicts[-1].outcome == FAILS
    assert "not today" in verdicts[-1].reason
