"""``python -m experiments answers``: what a trained model says to one sequence."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch
import yaml
from support import TINY, Command, run_of

import pe_zoo
from experiments.__main__ import main
from experiments.model.transformer import Transformer


def test_every_symbol_is_shown_with_the_model_s_answer(
    command: Command, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert command(*TINY, "encoder=alibi", "figures=false").code == 0
    assert main(["answers", str(run_of(tmp_path)), "23"]) == 0
    head, _, reads, *tables = capfd.readouterr().out.splitlines()
    word = reads.split()[2:-1]  # within the begin token and the bar
    lines: dict[str, list[str]] = {}
    for name, *cells in (line.split() for line in tables if line):
        lines.setdefault(name, []).extend(cells)
    assert lines["right"] == word
    assert lines["symbol"] == [str(place) for place in range(1, 24)]
    same = sum(right == answer for right, answer in zip(word, lines["answer"], strict=True))
    assert f": {same} of 23 right at length 23, each after the true ones" in head
    assert lines["wrong"] == ["x"] * (23 - same)


def test_of_many_sequences_the_right_share_is_shown_by_symbol(
    command: Command, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert command(*TINY, "encoder=alibi", "figures=false").code == 0
    run = str(run_of(tmp_path))
    assert main(["answers", run, "23", "sequences=40"]) == 0
    head, *tables = filter(None, capfd.readouterr().out.splitlines())
    shares = [int(share) for line in tables if line.startswith("right, %") for share in line.split()[2:]]
    assert len(shares) == 23
    right = int(head.partition(": ")[2].split()[0])
    assert right == pytest.approx(sum(shares) / 23, abs=1)
    assert head.endswith(" % of the symbols of 40 sequences right at length 23, each after the true ones")


def test_the_answer_s_positions_may_be_those_of_a_shorter_sequence(
    command: Command, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A word of 9 with the bar and the answer where a word of 6 has them: by hand, from the weights."""
    assert command(*TINY, "encoder=sinusoidal", "figures=false").code == 0
    run = run_of(tmp_path)
    assert main(["answers", str(run), "9", "positions_of=9"]) == 0
    unchanged = capfd.readouterr().out
    assert main(["answers", str(run), "9"]) == 0
    assert unchanged.splitlines()[2:] == capfd.readouterr().out.splitlines()[2:]
    assert main(["answers", str(run), "9", "positions_of=6"]) == 0
    head, _, reads, _, _, right, answers, *_ = capfd.readouterr().out.splitlines()
    assert head.endswith("; positions from the first answer on as at length 6")
    word = right.split()[1:]
    tokens = torch.tensor([[*map(int, reads.split()[1:]), *map(int, word[:-1])]])
    weights = safetensors.torch.load_file(run / "model.safetensors")
    sizes = yaml.safe_load((run / "config.yaml").read_text())["model"]
    geometry = pe_zoo.Geometry(
        **{name: sizes[name] for name in ("model_dim", "num_heads", "num_layers")}, train_length=9
    )
    model = Transformer(len(weights["token_embedding.weight"]), geometry, pe_zoo.build("sinusoidal", geometry))
    model.load_state_dict(weights)
    positions = torch.tensor([*range(10), *range(7, 16)]).float()
    assert positions[10] == 7, "where the bar of a word of 6 stands"
    with torch.no_grad():
        expected = model(tokens, positions=positions)[0, 10:].argmax(-1)
    assert answers.split()[1:] == [str(int(answer)) for answer in expected]
    for wrong, said in (
        ("positions_of=10", "positions_of=10 must be at most the length, 9"),
        ("sequences=0", "sequences takes a whole number of at least 1; got 'sequences=0'"),
        ("position_of=6", "answers has no option 'position_of'. Did you mean 'positions_of'? Its options: plugin, "),
    ):
        assert main(["answers", str(run), "9", wrong]) == 2
        assert said in capfd.readouterr().err


def test_what_has_no_answers_is_refused(command: Command, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["answers", str(tmp_path), "8"]) == 2
    assert "no trained weights in" in capfd.readouterr().err
    assert command(*TINY, "task=text", "task.train_length=32", "name=text", "figures=false").code == 0
    assert main(["answers", str(run_of(tmp_path, "text")), "8"]) == 2
    assert "task=text has no right answers to compare with" in capfd.readouterr().err
    assert main(["answers", str(tmp_path), "x"]) == 2
    assert "answers takes a length after the run, such as 20; got 'x'" in capfd.readouterr().err
    assert main(["answers", str(tmp_path), str(tmp_path / "results"), "8"]) == 2
    assert f"answers takes one run; 2 match: {tmp_path.name}, results" in capfd.readouterr().err
    assert main(["answers", str(tmp_path)]) == 2
    assert "answers results/NAME/runs/RUN LENGTH" in capfd.readouterr().err
