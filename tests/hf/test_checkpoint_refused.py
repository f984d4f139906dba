"""``checkpoint=`` says in one line why a model cannot be measured, or why nothing can be put into it."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from support import ROOT, Command

import pe_zoo.hf
from experiments.plan.refusal import BadRequest
from experiments.runs import names
from pe_zoo import Unsupported
from pe_zoo.hf.checkpoint import open_model
from pe_zoo.hf.families import SIZES, _of_size

TEXT = "".join(f"def add_{a}(x):\n    return x + {a * 37}\n\n" for a in range(900))


YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 32}


def saved(family: str, folder: Path, **more: Any) -> Path:
    _of_size(family, SIZES | {"vocab_size": 320} | more).save_pretrained(folder)
    return folder


def written(folder: Path) -> Path:
    (folder / "text.txt").write_text(TEXT)
    return folder / "text.txt"


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
    text = f"task.path={written(tmp_path)}"
    for name, what in (("t5", "T5ForConditionalGeneration"), ("bert", "BertForMaskedLM")):
        said = refused(command, f"checkpoint={tmp_path / name}", "task=text", text, "task.tokenizer=bytes")
        assert f"is a {what}; give a causal language model" in said


def test_a_model_that_sees_later_tokens_is_refused(tmp_path: Path) -> None:
    bert(tmp_path / "bert", "BertLMHeadModel")
    with pytest.raises(ValueError, match="bert sees later tokens; give a causal language model"):
        open_model(str(tmp_path / "bert"), 32, torch.device("cpu"))
    bert(tmp_path / "decoder", "BertLMHeadModel", is_decoder=True)
    assert open_model(str(tmp_path / "decoder"), 32, torch.device("cpu")).encoder is None


def test_a_folder_without_a_tokenizer_says_so(command: Command, tmp_path: Path) -> None:
    place = saved("llama", tmp_path / "bare")
    said = refused(command, f"checkpoint={place}", "task=text", f"task.path={written(tmp_path)}")
    assert f"{str(place)!r} has no tokenizer" in said
    assert "tokenizer.save_pretrained(folder)" in said
    assert "task.tokenizer=" in said


def test_a_family_without_methods_is_told_with_its_length(command: Command, tmp_path: Path) -> None:
    place = saved("bloom", tmp_path / "bloom")
    said = refused(
        command, f"checkpoint={place}", "task=text", f"task.path={written(tmp_path)}", "task.tokenizer=bytes"
    )
    assert "set task.train_length=; but no method to read further can be put into it (bloom does not attend" in said


def test_a_wrong_path_offers_what_lies_beside_it(command: Command, tmp_path: Path) -> None:
    saved("llama", tmp_path / "my-llama")
    assert f"Did you mean '{tmp_path / 'my-llama'}'?" in refused(command, f"checkpoint={tmp_path / 'my-lama'}")


def test_a_name_of_the_hub_without_files_here_says_how_to_get_them(command: Command, tmp_path: Path) -> None:
    said = refused(command, "checkpoint=owner/my-llama", "task=text")
    assert (
        "'owner/my-llama': its files are not on this machine, and pe-zoo downloads nothing; first: hf download" in said
    )
    (tmp_path / "owner").mkdir()
    assert "names nothing that is here" in refused(command, f"checkpoint={tmp_path}/owner/my-llama", "task=text")


def test_a_length_beyond_the_models_own_is_no_training_length(command: Command, tmp_path: Path) -> None:
    place = saved("llama", tmp_path / "my-llama", max_position_embeddings=32)
    words = [f"checkpoint={place}", "task=text", f"task.path={written(tmp_path)}", "task.tokenizer=bytes"]
    said = refused(command, *words, "task.train_length=64")
    assert "was made for 32 positions, and task.train_length=64 is more; leave it out" in said
    assert "context_extension.multiples=[1,4]" in said


@pytest.mark.parametrize("nested", [False, True])
def test_a_scaled_model_was_trained_to_the_length_before(command: Command, tmp_path: Path, nested: bool) -> None:
    """Transformers keeps the length of pretraining beside that of the scaled rotation."""
    rotation = {"full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    family, more = ("gemma3_text", rotation) if nested else ("llama", YARN)
    place = saved(family, tmp_path / "my-model", max_position_embeddings=128, rope_parameters=more)
    words = [f"checkpoint={place}", "task=text", f"task.path={written(tmp_path)}", "task.tokenizer=bytes"]
    words += ["experiment=length_extrapolation", "length_extrapolation.samples=2", "figures=false"]
    done = command(*words)
    assert "at length 32" in done.out, done.out + done.err
    assert "note: my-model counts as trained to 32 tokens, original_max_position_embeddings of its" in done.err
    assert "may reach 128: task.train_length= gives another" in done.err
    done = command(*words, "task.train_length=128")
    assert (done.code, "note:" in done.err) == (0, False), done.err
    assert "was made for 128 positions" in refused(command, *words[:-1], "task.train_length=256")


def test_a_saved_model_is_asked_about_a_text_of_ones_own(command: Command, tmp_path: Path) -> None:
    """Neither symbols without a meaning for its tokenizer nor a text that nobody named are measured."""
    place = saved("llama", tmp_path / "my-llama")
    said = refused(command, f"checkpoint={place}")
    assert "task=copy has symbols of its own" in said
    assert "add task=text task.path=file.txt" in said
    said = refused(command, f"checkpoint={place}", "task=passkey", "experiment=[retrieval,place_bias]")
    assert "add task=needles task.path=file.txt" in said
    for task in ("text", "needles"):
        said = refused(command, f"checkpoint={place}", f"task={task}")
        assert f"task={task} does not say which text to read; add task.path=file.txt" in said


def test_a_place_is_looked_up_before_torch_is_imported(tmp_path: Path) -> None:
    place = saved("llama", tmp_path / "my-llama")
    (tmp_path / "empty").mkdir()
    text = written(tmp_path)
    for given, path, reason in (
        (tmp_path / "my-lama", text, f"Did you mean '{place}'?"),
        (tmp_path / "empty", text, "is a folder without config.json"),
        (place, tmp_path / "txt.txt", f"does not exist; give a text file or a folder of them. Did you mean '{text}'?"),
    ):
        with pytest.raises(BadRequest) as refusal:
            names.check([f"checkpoint={given}", "task=text", f"task.path={path}"], ROOT / "configs")
        assert reason in str(refusal.value)
    with pytest.raises(BadRequest, match="add task=text"):
        names.check([f"checkpoint={place}"], ROOT / "configs")
    with pytest.raises(BadRequest, match=r"no tokenizer\.json is there"):
        names.check([f"checkpoint={place}", "task=text", f"task.path={written(tmp_path)}"], ROOT / "configs")
    code = "import sys; from experiments.runs import names; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.filterwarnings("ignore:alibi is new to these weights")
@pytest.mark.parametrize("family", ["gpt2", "opt", "biogpt"])
def test_lengths_beyond_a_table_are_unsupported_with_the_reason(command: Command, tmp_path: Path, family: str) -> None:
    """Lengths within are measured; with an encoder in its place, the table has no end."""
    place = saved(family, tmp_path / family)
    words = [f"checkpoint={place}", "task=text", f"task.path={written(tmp_path)}", "task.tokenizer=bytes"]
    knobs = ["context_extension.samples=2", "context_extension.multiples=[0.5,1,2]", "figures=false"]
    done = command(*words, *knobs, "experiment=context_extension")
    assert done.code == 0, done.err
    (file,) = tmp_path.glob("results/*/runs/*/rows.csv")
    with file.open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["condition"] == "as trained"]
    assert {row["eval_length"]: row["status"] for row in rows} == {"64": "ok", "128": "ok", "256": "unsupported"}
    assert "unsupported:" not in done.err, "the answer says it"
    assert ": not measured: " in (file.parent / "run.log").read_text()
    why = json.loads((file.parent / "run.json").read_text())["unsupported"]["context_extension"]
    table = f"{family} has a table of 128 positions and cannot read 256 tokens; pe_zoo.hf.use(model, 'alibi') replaces"
    assert any(reason.startswith(table) for reason in why)
    with pytest.raises(Unsupported, match=f"{family} has a table of 128 positions and none from 128 on"):
        open_model(str(place), 128, torch.device("cpu")).logits(torch.arange(128)[None], torch.arange(128) + 1)
    model = transformers.AutoModelForCausalLM.from_pretrained(place)
    tokens = torch.arange(256)[None]
    pe_zoo.hf.use(model, "alibi")
    model.save_pretrained(tmp_path / "alibi")
    with torch.no_grad():
        far = model.eval()(tokens).logits
    opened = open_model(str(tmp_path / "alibi"), 128, torch.device("cpu"))
    torch.testing.assert_close(opened.logits(tokens), far)


def test_a_first_token_that_the_model_lacks_is_told(command: Command, tmp_path: Path) -> None:
    place = saved("llama", tmp_path / "my-llama", vocab_size=300)
    with_tokenizer(place)
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(config | {"bos_token_id": 50256}))
    words = [f"checkpoint={place}", "task=text", f"task.path={written(tmp_path)}"]
    said = refused(command, *words)
    assert "has 300 tokens, and none of the number 50256 to begin with: set bos_token_id in its config.json" in said
    saved("llama", tmp_path / "small", vocab_size=64)
    said = refused(command, f"checkpoint={tmp_path / 'small'}", *words[1:], "task.tokenizer=bytes")
    assert "none of the number 256 to begin with: set task.tokenizer= to its own" in said


def with_tokenizer(folder: Path) -> None:
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(dict(zip(sorted(alphabet), range(256), strict=True)), []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))


def test_use_refuses_what_is_for_grids() -> None:
    for plane, said in (("grid", "grids"), ("segments", "segments")):
        for name in pe_zoo.names(axes=2, plane=plane):
            with pytest.raises(
                pe_zoo.Unsupported, match=f"{name} is for {said}, positions of 2 axes; a language model reads"
            ):
                pe_zoo.hf.use(_of_size("llama", SIZES), name)


def test_use_names_the_option_that_was_meant() -> None:
    with pytest.raises(ValueError, match="Did you mean 'sliding_window'"):
        pe_zoo.hf.use(_of_size("llama", SIZES), "rope", sliding_windw=8)


def test_load_says_that_there_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its folder is here, a mistyped name does not wait for the network."""

    def reached(*_: object, **__: object) -> None:
        raise AssertionError("asked the network")

    monkeypatch.setattr("socket.getaddrinfo", reached)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "longer" / "yarn").mkdir(parents=True)
    (tmp_path / "longer" / "yarn" / "config.json").touch()
    said = {
        "longer/yarm": r" Did you mean 'longer/yarn'\? Beside it: longer/yarn\.",
        "yarn_512": "",
        "./missing": "",
        str(tmp_path / "missing" / "folder"): "",
        "missing/my folder": "",
    }
    for place, near in said.items():
        with pytest.raises(FileNotFoundError, match=f"^there is no folder '{place}'; give .* on the hub .*{near}$"):
            pe_zoo.hf.load(place)


@pytest.mark.parametrize("given", [{}, {"sliding_window": 8}])
def test_rope_replaces_no_scaled_rotation_without_being_told(given: dict[str, int]) -> None:
    """A window alone would lose the scaling, and with it what the model reads; a base says that it is to be trained."""
    model = _of_size("llama", SIZES | {"rope_parameters": YARN})
    with pytest.raises(
        pe_zoo.Unsupported, match=r"scaled already \(rope_type yarn\), so rope cannot start.*name base="
    ):
        pe_zoo.hf.use(model, "rope", **given)
    assert pe_zoo.hf.use(model, "rope", base=10000.0, pairing="half", **given).name == "rope"


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
        told = [line.partition(": not measured: ")[2] for line in log.splitlines() if ": not measured: " in line]
        noted = json.loads((file.parent / "run.json").read_text())["unsupported"]["context_extension"]
        assert noted == list(dict.fromkeys(told)) != []
        assert all(reason in why for why in noted), noted
        shutil.rmtree(tmp_path / "results")
