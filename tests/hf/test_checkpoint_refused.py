"""``checkpoint=`` says in one line why a model cannot be measured, or why nothing can be put into it."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from support import Command

import pe_zoo.hf
from pe_zoo.hf.checkpoint import open_model
from pe_zoo.hf.families import SIZES, _of_size

TEXT = "".join(f"def add_{a}(x):\n    return x + {a * 37}\n\n" for a in range(900))


def saved(family: str, folder: Path, **more: Any) -> Path:
    _of_size(family, SIZES | {"vocab_size": 320} | more).save_pretrained(folder)
    return folder


def t5(folder: Path) -> None:
    sizes = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4}
    transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes)).save_pretrained(folder)


def bert(folder: Path, cls: str = "BertForMaskedLM", **more: Any) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = transformers.BertConfig(**sizes, vocab_size=64, max_position_embeddings=64, **more)
    getattr(transformers, cls)(config).save_pretrained(folder)


def refused(command: Command, *words: str) -> str:
    done = command(*words, "figures=false")
    assert (done.code, len(done.err.strip().splitlines())) == (2, 1), done.err
    return done.err


def test_only_causal_language_models_are_taken(command: Command, tmp_path: Path) -> None:
    t5(tmp_path / "t5")
    bert(tmp_path / "bert")
    for name, what in (("t5", "T5ForConditionalGeneration"), ("bert", "BertForMaskedLM")):
        for task in ("text", "copy"):
            said = refused(command, f"checkpoint={tmp_path / name}", f"task={task}")
            assert f"is a {what}; give a causal language model" in said


def test_a_model_that_sees_later_tokens_is_refused(tmp_path: Path) -> None:
    bert(tmp_path / "bert", "BertLMHeadModel")
    with pytest.raises(ValueError, match="bert sees later tokens; give a causal language model"):
        open_model(str(tmp_path / "bert"), 32, torch.device("cpu"))
    bert(tmp_path / "decoder", "BertLMHeadModel", is_decoder=True)
    assert open_model(str(tmp_path / "decoder"), 32, torch.device("cpu")).encoder is None


def test_a_folder_without_a_tokenizer_says_so(command: Command, tmp_path: Path) -> None:
    place = saved("llama", tmp_path / "bare")
    said = refused(command, f"checkpoint={place}", "task=text")
    assert f"{str(place)!r} has no tokenizer" in said
    assert "tokenizer.save_pretrained(folder)" in said
    assert "task.tokenizer=" in said


def test_a_wrong_path_offers_what_lies_beside_it(command: Command, tmp_path: Path) -> None:
    saved("llama", tmp_path / "my-llama")
    assert f"Did you mean '{tmp_path / 'my-llama'}'?" in refused(command, f"checkpoint={tmp_path / 'my-lama'}")


def test_load_says_that_there_is_no_folder() -> None:
    for place in ("missing/folder", "/tmp/a/missing/folder"):
        with pytest.raises(FileNotFoundError, match=f"there is no folder '{place}'"):
            pe_zoo.hf.load(place, local_files_only=True)


YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 32}


@pytest.mark.parametrize(
    ("family", "more", "reason"),
    [
        ("gemma2", {}, "caps its scores (softcapping)"),
        ("llama", {"rope_parameters": YARN}, "rotation is scaled already (rope_type yarn)"),
        ("gpt2", {}, "gpt2 has no rotation"),
    ],
)
def test_rows_say_why_nothing_can_be_put_in(
    command: Command, tmp_path: Path, family: str, more: dict[str, Any], reason: str
) -> None:
    place = saved(family, tmp_path / family, **more)
    (tmp_path / "text.py").write_text(TEXT)
    words = [f"checkpoint={place}", "task=text", f"task.path={tmp_path / 'text.py'}", "task.duplicates=kept"]
    words += ["task.tokenizer=bytes", "task.train_length=32", "experiment=context_extension"]
    words += ["context_extension.samples=2", "context_extension.multiples=[1,2]", "figures=false"]
    for given in ([], ["context_extension.replacements=[yarn]", "force=true"]):
        done = command(*words, *given)
        assert done.code == 0, done.err
        (file,) = tmp_path.glob("results/*/runs/*/rows.csv")
        with file.open(newline="") as lines:
            rows = [row for row in csv.DictReader(lines) if row["condition"] != "as trained"]
        assert {row["status"] for row in rows} == {"unsupported"}
        log = (file.parent / "run.log").read_text()
        told = [line for line in log.splitlines() if "unsupported: " in line]
        assert told
        assert all(reason in line for line in told), told
        shutil.rmtree(tmp_path / "results")
