"""``checkpoint=``: a saved model, or a function of one's own, measured as models of the bench are."""

from __future__ import annotations

import csv
import html
import json
import math
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import huggingface_hub
import pandas as pd
import pytest
import tokenizers
import torch
import transformers
from scipy import stats
from support import Command
from torch.nn import functional

import pe_zoo.hf
import report
from experiments.measures.context_extension import measure as extension
from experiments.measures.context_extension.answer import answer
from experiments.measures.place_bias.influence import profile
from experiments.model.guest import Guest, Insight
from experiments.model.streams import stream
from experiments.rows.results import load
from experiments.rows.stretches import samples_for
from experiments.runs import config as requests
from experiments.runs import forecast, pool, timing
from experiments.statistics import blocks
from experiments.tasks import tasks
from experiments.training import heartbeat
from pe_zoo.hf.checkpoint import lengths, open_model
from pe_zoo.hf.families import SIZES, _of_size

TEXT = "".join(f"def add_{a}(x):\n    return x + {a * 37}\n\n" for a in range(900))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama with random weights, and a tokenizer made on the spot."""
    folder = tmp_path_factory.mktemp("models") / "my-llama"
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=320, special_tokens=["<s>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator([TEXT], trainer)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>").save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(**sizes, vocab_size=320, max_position_embeddings=32, bos_token_id=0)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    (folder.parent / "text.py").write_text(TEXT)
    return folder


def rows_of(folder: Path, name: str = "*") -> list[dict[str, str]]:
    (file,) = folder.glob(f"results/{name}/runs/*/rows.csv")
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def bits_of(folder: Path, name: str = "*") -> dict[tuple[str, str], dict[str, str]]:
    """The rows of context_extension about all of the text."""
    rows = [row for row in rows_of(folder, name) if row["experiment"] == "context_extension" and not row["part"]]
    return {(row["condition"], row["eval_length"]): row for row in rows if row["metric"] == "bits_per_byte"}


MEASURED = "context_extension,shift_sensitivity,context_use,attention_pattern,permutation_sensitivity,position_probe"
SMALL = (
    *("length_extrapolation.samples=4", "length_extrapolation.multiples=[1,2]", "context_extension.samples=4"),
    *("context_extension.multiples=[1,2]", "context_use.samples=4", "context_use.multiples=[1,2]", "figures=false"),
    *("shift_sensitivity.samples=4", "permutation_sensitivity.samples=4", "attention_pattern.samples=4"),
    "position_probe.samples=16",
)


EXTENSION = (
    *("experiment=context_extension", "context_extension.samples=4", "context_extension.multiples=[1,2]"),
    "figures=false",
)


def measure(command: Command, saved: Path, *more: str) -> Any:
    text = f"task.path={saved.parent / 'text.py'}"
    words = [f"checkpoint={saved}", "task=text", text, "task.duplicates=kept", *SMALL]
    return command(*words, f"experiment=[length_extrapolation,{MEASURED}]", *more)


def test_a_plan_gives_up_on_a_large_model(command: Command, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells what is known: that it takes longer than the parts that were timed say."""
    monkeypatch.setattr(timing, "MOST", 0.0)
    monkeypatch.setattr(forecast, "SLOW", -1.0)
    monkeypatch.setattr(pool, "cores", lambda: 4)
    planned = measure(command, saved, "--plan")
    assert "Estimated time: more than " in planned.out, planned.err
    assert "It uses one of 4 cores: threads=4 takes all." in planned.out


def test_a_saved_model_is_measured(command: Command, saved: Path, tmp_path: Path) -> None:
    done = measure(command, saved)
    assert done.code == 0, done.err
    assert "my-llama, trained to 32" in done.out
    assert "python report.py results/scratch" in done.out
    rows = rows_of(tmp_path)
    assert {row["encoder"] for row in rows} == {"my-llama"}
    assert {row["experiment"] for row in rows} == {"length_extrapolation", *MEASURED.split(",")}
    assert {row["status"] for row in rows} <= {"ok", "unsupported"}
    extended = {row["condition"] for row in rows if row["experiment"] == "context_extension" and row["status"] == "ok"}
    assert {"as trained", "window", "dropped", "yarn", "rope_ntk", "rope_linear", "llama3_rope"} <= extended
    assert {row["train_length"] for row in rows} == {"32"}
    assert report.main([str(tmp_path / "results" / "scratch")]) == 0
    (run,) = (tmp_path / "results" / "scratch" / "runs").iterdir()
    again = command("--rerun", str(run))
    assert (again.code, "measured a model from outside" in again.err) == (2, True)
    page = (tmp_path / "results" / "scratch" / "report" / "index.html").read_text(encoding="utf-8")
    assert "my-llama" in page
    said = (tmp_path / "results" / "scratch" / "report" / "methods.txt").read_text(encoding="utf-8")
    assert "measured as they are" in " ".join(said.split()) or "were measured as they are" in said


def test_bits_are_those_of_the_model_by_itself(command: Command, saved: Path, tmp_path: Path) -> None:
    measure(command, saved)
    bits = float(bits_of(tmp_path)["as trained", "64"]["value"])
    path = str(saved.parent / "text.py")
    task = tasks.build("text", path=path, tokenizer=str(saved), train_length=32, measured="all")
    tokenizer = transformers.AutoTokenizer.from_pretrained(saved)
    model = transformers.AutoModelForCausalLM.from_pretrained(saved)
    batch = task.evaluation(4, 64, stream(0, "length_extrapolation"), causal=True)
    assert set(batch.tokens[:, 0].tolist()) == {tokenizer.bos_token_id}
    with torch.no_grad():
        logits = model(input_ids=batch.tokens).logits
    nats = functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), reduction="sum").item()
    num_bytes = sum(len(tokenizer.decode(each).encode()) for each in batch.targets)
    assert bits == pytest.approx(nats / math.log(2) / num_bytes, rel=1e-5)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_influence_of_places_is_that_of_finite_differences(tmp_path: Path, name: str) -> None:
    """Token 4, which stands at one place, is moved in the table of embeddings."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": 11}
    config = transformers.CONFIG_MAPPING[name](**sizes, intermediate_size=32)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    found = open_model(str(tmp_path), 16, torch.device("cpu"))
    found.model.double()
    tokens, places = torch.tensor([[3, 1, 4, 1, 5]]), torch.arange(5)
    direction, step = torch.randn(1, 16, dtype=torch.float64), 1e-3  # its norms compute in float32
    weight, moved = found.model.get_input_embeddings().weight, []
    for dimension in range(16):
        ends = []
        for sign in (1, -1):
            weight[4, dimension] += sign * step
            ends.append(found.hidden(tokens, places)[-1][0, -1] @ direction[0])
            weight[4, dimension] -= sign * step
        moved.append((ends[0] - ends[1]) / (2 * step))
    guest = Guest(found.logits, Insight(geometry=found.geometry, last_outputs=found.last_outputs), torch.device("cpu"))
    influence, expected = profile(guest, tokens, places, direction), torch.stack(moved).norm().item()
    assert influence[2].item() == pytest.approx(expected, rel=1e-3)


def test_extensions_are_those_of_transformers(command: Command, saved: Path, tmp_path: Path) -> None:
    """Interpolation by a factor of 2, as the library has it, on the same windows."""
    measure(command, saved)
    found = {where: float(row["value"] or "nan") for where, row in bits_of(tmp_path).items()}
    twin = saved.parent / "scaled"
    config = json.loads((saved / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    transformers.AutoModelForCausalLM.from_pretrained(saved).save_pretrained(twin)
    (twin / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (twin / name).write_text((saved / name).read_text())
    assert measure(command, twin, "name=scaled", "force=true").code == 0
    scaled = bits_of(tmp_path, "scaled")
    assert found["rope_linear", "64"] == pytest.approx(float(scaled["as trained", "64"]["value"]), rel=1e-5)
    assert scaled["window", "64"]["status"] == "unsupported"


def test_a_model_that_stays_as_it_is_reads_with_its_own_kernel(saved: Path, tmp_path: Path) -> None:
    """Plain attention, whose memory grows with the square of the length, is for the weights alone."""
    config = transformers.AutoConfig.from_pretrained(saved)
    config.rope_parameters = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    transformers.AutoModelForCausalLM.from_pretrained(saved, config=config).save_pretrained(tmp_path)
    found = open_model(str(tmp_path), 32, torch.device("cpu"))
    assert found.encoder is None
    assert found.model.config._attn_implementation == "sdpa"
    weights = found.attention(torch.arange(1, 9)[None], torch.arange(8))
    assert [each.shape for each in weights] == [(1, 4, 8, 8)] * 2
    torch.testing.assert_close(weights[0].sum(-1), torch.ones(1, 4, 8))
    assert found.model.config._attn_implementation == "sdpa"


def test_a_window_is_measured_with_the_first_tokens_too(command: Command, saved: Path, tmp_path: Path) -> None:
    measure(command, saved)
    bits = bits_of(tmp_path)
    assert bits["window and first tokens", "32"]["value"] == bits["as trained", "32"]["value"]
    limited = tmp_path / "limited"
    model = transformers.AutoModelForCausalLM.from_pretrained(saved)
    pe_zoo.hf.use(model, "rope", train_length=32, sliding_window=32, first_tokens=4)
    model.save_pretrained(limited)
    transformers.AutoTokenizer.from_pretrained(saved).save_pretrained(limited)
    text = f"task.path={saved.parent / 'text.py'}"
    words = [f"checkpoint={limited}", "task=text", text, "task.duplicates=kept", "task.train_length=32", *EXTENSION]
    assert command(*words, "name=limited").code == 0
    again = bits_of(tmp_path, "limited")
    for condition in ("as trained", "window", "window and first tokens"):  # its own first tokens stay with a window
        value = float(again[condition, "64"]["value"])
        assert value == pytest.approx(float(bits["window and first tokens", "64"]["value"]), rel=1e-6)
    assert float(bits["window", "64"]["value"]) != pytest.approx(value, rel=1e-6)


def test_a_method_beyond_the_memory_of_a_gpu_leaves_the_others(
    command: Command, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = extension.evaluate

    def full(model: Any, *given: Any) -> Any:
        if model.encoder.name == "self_extend":
            raise torch.OutOfMemoryError
        return evaluate(model, *given)

    monkeypatch.setattr(extension, "evaluate", full)
    text = f"task.path={saved.parent / 'text.py'}"
    done = command(f"checkpoint={saved}", "task=text", text, "task.duplicates=kept", *EXTENSION)
    assert done.code == 0, done.err
    status = {condition: row["status"] for (condition, length), row in bits_of(tmp_path).items() if length == "64"}
    assert status["self_extend"] == "unsupported"
    assert status["yarn"] == status["window"] == "ok"


def test_a_name_of_the_hub_whose_files_are_kept_here(
    command: Command, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "hub" / "models--me--tiny"
    shutil.copytree(saved, kept / "snapshots" / "abc")
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("abc")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    words = ["checkpoint=me/tiny", "task=text", f"task.path={saved.parent / 'text.py'}", "task.duplicates=kept"]
    done = command(*words, "experiment=attention_pattern", "attention_pattern.samples=2", "figures=false")
    assert done.code == 0, done.err
    assert {(row["encoder"], row["status"]) for row in rows_of(tmp_path)} == {("tiny", "ok")}


def test_readings_of_a_saved_model_are_counted_to_their_number(
    command: Command, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large model takes minutes for each: how many are to come is told, and no more come."""
    counted: list[tuple[int, int]] = []

    @contextmanager
    def noted(*given: Any, **named: Any) -> Iterator[None]:
        with heartbeat.doing(*given, **named):
            counts = re.search(r"\((\d+) of (\d+)\)$", str(heartbeat._doing[-1].what))
            counted.extend([(int(counts[1]), int(counts[2]))] if counts else [])
            yield

    monkeypatch.setattr(extension, "doing", noted)
    words = [f"checkpoint={saved}", "task=text", f"task.path={saved.parent / 'text.py'}", "task.duplicates=kept"]
    knobs = ["context_extension.multiples=[1,2,4]", "context_extension.samples=8", "figures=false"]
    assert command(*words, "experiment=context_extension", *knobs).code == 0
    assert counted == [(place, len(counted)) for place in range(1, len(counted) + 1)]
    assert len(counted) > 12


@pytest.mark.filterwarnings("ignore:alibi is new to these weights")
def test_a_model_with_an_encoder_of_ours(command: Command, saved: Path, tmp_path: Path) -> None:
    """What `use` put in, a window too, is what is measured as it is, at every length."""
    text = [f"task.path={saved.parent / 'text.py'}", "task.duplicates=kept", "figures=false"]
    knobs = ["context_extension.multiples=[1,2]", "context_extension.samples=16"]
    for name, more in (("alibi", {}), ("rope", {"sliding_window": 8}), ("self_extend", {"factor": 4.0})):
        model = transformers.AutoModelForCausalLM.from_pretrained(saved)
        pe_zoo.hf.use(model, name, **more)
        model.save_pretrained(tmp_path / name)
        transformers.AutoTokenizer.from_pretrained(saved).save_pretrained(tmp_path / name)
        words = [f"checkpoint={tmp_path / name}", "task=text", *text, *knobs, f"name={name}"]
        done = command(*words, "experiment=context_extension")
        assert done.code == 0, done.err
        for length in (32, 64):
            bits = float(bits_of(tmp_path, name)["as trained", str(length)]["value"])
            assert bits == pytest.approx(_bits(pe_zoo.hf.load(tmp_path / name), saved, length), rel=1e-5)
        assert report.main([str(tmp_path / "results" / name)]) == 0
        page = (tmp_path / "results" / name / "report" / "index.html").read_text(encoding="utf-8")
        window = " and a window of 8" * bool(more.get("sliding_window"))
        for shown in (page.replace("\N{NO-BREAK SPACE}", " "), done.out):
            assert f"as it was saved, with {name}{window} by pe_zoo.hf.use" in " ".join(shown.split())
            assert ("further back than" in shown) != bool(window), "under a window nothing is said of distant text"
    alone = command(*words[:2], *text, "name=plain", "experiment=length_extrapolation")
    assert alone.out.lstrip().startswith("self_extend on text, seed 0, with self_extend by pe_zoo.hf.use: ")
    assert report.main([str(tmp_path / "results" / "plain")]) == 0
    page = (tmp_path / "results" / "plain" / "report" / "index.html").read_text(encoding="utf-8")
    assert "self_extend, with self_extend by pe_zoo.hf.use, trained to 32, as it is" in page


def test_a_model_that_finds_too_little_is_asked_no_method(command: Command, saved: Path, tmp_path: Path) -> None:
    words = [f"checkpoint={saved}", "task=needles", f"task.path={saved.parent / 'text.py'}", "figures=false"]
    knobs = ["context_extension.multiples=[1,4]", "context_extension.samples=16"]
    done = command(*words, *knobs, "experiment=context_extension", "task.num_needles=1", "task.num_letters=1")
    assert done.code == 0, done.err
    assert "right too rarely to compare methods" in done.out
    assert {row["condition"] for row in rows_of(tmp_path)} == {"as trained"}


def test_a_greater_length_in_the_configuration_silences_a_warning_alone(
    saved: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/hugging_face.md says: the same tokens, and the length that `use` noted is still the model's."""
    monkeypatch.setattr(transformers.utils.logging.get_logger("transformers"), "propagate", True)
    caplog.set_level("WARNING", "transformers")  # the list of families silences it for good
    transformers.utils.logging.warning_once.cache_clear()
    prompt, made, warned = torch.arange(24).unsqueeze(0), [], []
    for times in (1, 4):
        model = transformers.AutoModelForCausalLM.from_pretrained(saved)
        pe_zoo.hf.use(model, "self_extend", factor=4.0)
        model.config.max_position_embeddings *= times
        model.save_pretrained(tmp_path / "longer")
        assert lengths(str(tmp_path / "longer")) == (32, 32)
        caplog.clear()
        made.append(pe_zoo.hf.load(tmp_path / "longer").generate(prompt, max_new_tokens=40, do_sample=False))
        warned.append("predefined maximum length" in caplog.text)
    assert torch.equal(*made)
    assert warned == [True, False]


def _bits(model: torch.nn.Module, saved: Path, length: int) -> float:
    """Bits per byte by hand, of the windows that are measured with 16 samples."""
    path = str(saved.parent / "text.py")
    task = tasks.build("text", path=path, tokenizer=str(saved), train_length=32, measured="all")
    batch = task.evaluation(16, length, stream(0, "length_extrapolation"), causal=True)
    with torch.no_grad():
        logits = model.eval()(input_ids=batch.tokens).logits
    nats = functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), reduction="sum").item()
    assert batch.target_bytes is not None
    return nats / math.log(2) / int(batch.target_bytes.sum())


def test_methods_are_measured_at_the_training_length_as_they_are_saved(
    command: Command, saved: Path, tmp_path: Path
) -> None:
    """With the factor of the longer length, as the printed lines write it; nothing is added beyond that length."""
    words = [f"checkpoint={saved}", "task=text", f"task.path={saved.parent / 'text.py'}", "figures=false"]
    knobs = ["context_extension.multiples=[1,4]", "context_extension.samples=16"]
    done = command(*words, *knobs, "experiment=context_extension")
    assert done.code == 0, done.err
    rows = [row for row in rows_of(tmp_path) if row["metric"] == "bits_per_byte" and not row["part"]]
    model = transformers.AutoModelForCausalLM.from_pretrained(saved)
    for name in ("yarn", "rope_linear"):
        of = {(row["eval_length"], row["factor"]) for row in rows if row["condition"] == name}
        assert of == {("32", "1.0"), ("32", "4.0"), ("128", "4.0")}
        (short,) = (
            float(row["value"])
            for row in rows
            if (row["condition"], row["eval_length"], row["factor"]) == (name, "32", "4.0")
        )
        pe_zoo.hf.use(model, name, train_length=32, factor=4.0)
        assert short == pytest.approx(_bits(model, saved, 32), rel=1e-5)
    folder = tmp_path / "results" / "scratch"
    assert report.main([str(folder)]) == 0
    page = (folder / "report" / "index.html").read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    assert "at 32, as saved" in page


ASKED = ("task=text", "task.path=TEXT")
FUNCTION = '''
import torch

def logits(tokens{positions}):
    """Knows how to copy: the answer to the place of each symbol after the separator is that symbol."""
    length = tokens.shape[1]
    half = 1 + 16
    wanted = torch.zeros_like(tokens)
    for place in range(half, length):
        wanted[:, place] = tokens[:, place - half + 1]
    return torch.nn.functional.one_hot(wanted, 20).float()
'''


@pytest.mark.parametrize("positions", ["", ", positions=None"])
@pytest.mark.parametrize("checkpoint", ["my_model:logits", "my_model.py:logits"])
def test_a_function_of_ones_own(command: Command, tmp_path: Path, checkpoint: str, positions: str) -> None:
    (tmp_path / "my_model.py").write_text(FUNCTION.format(positions=positions))
    words = ["plugin=my_model.py", f"checkpoint={checkpoint}", "task=copy", *SMALL[:2], "shift_sensitivity.samples=4"]
    done = command(*words, "experiment=[length_extrapolation,shift_sensitivity,structure,cost]", "figures=false")
    assert done.code == 0, done.err
    rows = rows_of(tmp_path)
    unshifted = [row for row in rows if row["eval_length"] == "16" and not row["shift"]]
    right = {row["value"] for row in unshifted if row["metric"].endswith("token_accuracy")}
    assert right == {"1.0"}
    shifted = {row["status"] for row in rows if row["shift"]}
    assert shifted == ({"ok"} if positions else {"unsupported"})
    assert {row["status"] for row in rows if row["experiment"] in ("structure", "cost")} == {"unsupported"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["checkpoint=nowhere"], "names nothing that is here"),
        (["checkpoint=no_file:logits", "task=copy"], "names nothing that is here"),
        (["checkpoint=SAVED", *ASKED, "encoder=rope"], "pe_zoo.hf.use(model, name) puts another encoder into it"),
        (
            ["checkpoint=SAVED", *ASKED, "experiment=context_extension", "context_extension.fine_tuning_share=0.1"],
            "fine_tuning_share is for models that are trained here",
        ),
        (["task=text", "task.measured=all"], "holds no text out"),
        (["checkpoint=SAVED", *ASKED, "train.steps=3"], "train.steps changes nothing with checkpoint="),
        (["task=text", "task.tokenizer=nowhere"], "task.tokenizer must be one of bytes, bpe"),
    ],
)
def test_a_mistake_is_told(command: Command, saved: Path, words: list[str], message: str) -> None:
    done = command(
        *(word.replace("SAVED", str(saved)).replace("TEXT", str(saved.parent / "text.py")) for word in words)
    )
    assert done.code == 2
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_rope_takes_the_place_of_other_rotations_too(tmp_path: Path) -> None:
    for family, known in (
        ("qwen3", True),
        ("gpt_neox", True),
        ("stablelm", True),
        ("gpt2", False),
        ("gemma3_text", False),
    ):
        _of_size(family, SIZES | {"num_hidden_layers": 6}).save_pretrained(tmp_path / family)
        opened = open_model(str(tmp_path / family), 32, torch.device("cpu"))
        assert (opened.encoder is not None) == known, family
        if opened.encoder is not None:
            assert opened.encoder.name == "rope"


def test_blocks_of_the_text_stand_for_seeds(command: Command, saved: Path, tmp_path: Path) -> None:
    """All of the text is measured; each method has the same blocks, whose mean is that of the text."""
    words = [f"checkpoint={saved}", "task=text", f"task.path={saved.parent / 'text.py'}", "figures=false"]
    knobs = ["context_extension.multiples=[1,4]", "context_extension.samples=64"]
    done = command(*words, *knobs, "experiment=context_extension")
    assert done.code == 0, done.err
    rows = [row for row in rows_of(tmp_path) if row["metric"] == "bits_per_byte" and row["status"] == "ok"]
    assert {row["task"] for row in rows} == {"text"}
    for condition in ("as trained", "yarn", "window"):
        far = [row for row in rows if row["condition"] == condition and row["eval_length"] == "128"]
        (whole,) = (row for row in far if not row["part"])
        blocks = [row for row in far if row["part"]]
        assert [int(row["part"]) for row in blocks] == list(range(1, 17))
        assert sum(int(row["n"]) for row in blocks) == int(whole["n"])
        mean = sum(float(row["value"]) for row in blocks) / 16
        assert mean == pytest.approx(float(whole["value"]), rel=0.05)
    gains = [row for row in rows_of(tmp_path) if row["metric"] == "far_context_content" and not row["part"]]
    assert {"as trained", "window"} < {row["condition"] for row in gains}
    assert len(gains) == 5
    (file,) = tmp_path.glob("results/*/runs/*/run.json")
    record = json.loads(file.read_text())
    assert record["corpus"]["documents_by_split"] == {"test": 1}
    assert "test_bytes_removed" not in record["corpus"]


def test_the_page_opens_with_the_answer(command: Command, saved: Path, tmp_path: Path) -> None:
    """Which way of reading is best at four times the length, how sure that is, and the lines to type."""
    words = [f"checkpoint={saved}", "task=text", f"task.path={saved.parent / 'text.py'}", "figures=false"]
    knobs = ["context_extension.multiples=[1,4]", "context_extension.samples=64"]
    done = command(*words, *knobs, "experiment=[shift_sensitivity,context_extension]")
    assert done.code == 0, done.err
    folder = tmp_path / "results" / "scratch"
    assert report.main([str(folder)]) == 0
    page = (folder / "report" / "index.html").read_text(encoding="utf-8")
    record = json.loads(next(folder.glob("runs/*/run.json")).read_text())
    found = answer(load(folder).rows, record)
    assert found is not None
    assert found.heading.startswith("my-llama, trained to 32")
    assert found.heading in done.out
    assert html.escape(found.heading, quote=False) in page.replace("\N{NO-BREAK SPACE}", " ")
    assert f"checkpoint={saved} task=needles" in done.out
    assert f"checkpoint={saved} task=needles" in html.unescape(page)
    (ranking,) = found.rankings
    assert (ranking.length, ranking.windows, ranking.blocks) == (128, 16, 16)
    assert re.search(
        r"Read: 2,048 tokens, 1\d % of the 1\d,\d{3} in text.py, .* 64 pieces of 32 and 16 pieces of 128",
        found.sentences[-1],
    )
    assert found.sentences[0].startswith(("To read 128 tokens, ", "Leave the model as it is"))
    plain = html.unescape(page.replace("\N{NO-BREAK SPACE}", " "))
    assert all(plain.count(sentence) == 1 for sentence in found.sentences), "each stands once"
    places = [plain.index(part) for part in (found.advice[0], "task=needles", found.evidence[0])]
    assert places == sorted(places), "what to do, the lines to type, and then why"
    assert {"end", "time"} <= set(ranking.table.dropna(subset=["end", "time"]).columns)
    assert ranking.line("as trained")["time"] == 1
    times = [
        float(row["value"])
        for row in rows_of(tmp_path)
        if row["metric"] == "relative_read_seconds" and (row["condition"], row["eval_length"]) == ("yarn", "128")
    ]
    assert len(times) == 1 + 6
    assert times[0] == pytest.approx(median(times[1:])), "each is of a pair of readings, in turn"
    ends = [row for row in rows_of(tmp_path) if row["metric"] == "last_quarter_bits_per_byte"]
    assert [row["part"] for row in ends if row["condition"] == "yarn"] == ["", *map(str, range(1, 17))]
    (of_window,) = (row for row in ends if (row["condition"], row["part"]) == ("window", ""))
    (of_yarn,) = (row for row in ends if (row["condition"], row["part"]) == ("yarn", ""))
    gain = float(of_yarn["value"]) - float(of_window["value"])
    assert ranking.line("yarn")["window_difference"] == pytest.approx(gain)
    assert ranking.line("yarn")["window_low"] < gain < ranking.line("yarn")["window_high"]
    assert "Does text further back than 32 tokens help?" in page.replace("\N{NO-BREAK SPACE}", " ")
    command_next = found.command
    asked = "task=needles task.path=text.py experiment=context_extension task.num_needles=1 task.num_letters=1"
    asked += " 'context_extension.multiples=[1,4]'"
    assert command_next.endswith(f"{asked} name=my-llama_facts")
    inside = float(bits_of(tmp_path)["as trained", "32"]["value"])
    shifted = [row for row in rows_of(tmp_path) if row["experiment"] == "shift_sensitivity"]
    (unshifted,) = (row for row in shifted if row["metric"] == "bits_per_byte" and not row["shift"])
    assert float(unshifted["value"]) == pytest.approx(inside), "one quality has one value"
    for told in ("over seeds", "one positional encoder", "1 positional encoder", "Welch", "``", "Every encoder was"):
        assert told not in page + (folder / "report" / "methods.txt").read_text(), told
    assert record["choice"] is None
    assert "trained" not in load(folder).settings["text"].get("trained", "false").replace("false", "")


ORACLE = """
import torch

def logits(tokens):
    made = torch.zeros(*tokens.shape, 300)
    for row, read in enumerate(tokens.tolist()):
        for at in range(3, len(read)):
            for before in range(at - 1, max(2, at - WINDOW), -1):
                if read[before - 2 : before + 1] == read[at - 2 : at + 1]:
                    made[row, at, read[before + 1]] = 9
                    break
    return made
"""
"""Continues what it has read before, within a window."""


@pytest.mark.parametrize(("window", "known"), [(80, True), (0, False)])
def test_page_and_terminal_open_with_where_things_are_found(
    command: Command, tmp_path: Path, window: int, known: bool
) -> None:
    (tmp_path / "oracle.py").write_text(ORACLE.replace("WINDOW", str(window)))
    (tmp_path / "text.py").write_text(TEXT)
    words = ["checkpoint=oracle:logits", "task=needles", f"task.path={tmp_path / 'text.py'}", "task.train_length=64"]
    knobs = ["retrieval.multiples=[1,4]", "retrieval.samples=8", "place_bias.samples=8", "place_bias.places=8"]
    done = command(*words, *knobs, "experiment=[retrieval,place_bias]")
    assert done.code == 0, done.err
    assert report.main([str(tmp_path / "results" / "scratch")]) == 0
    page = (tmp_path / "results/scratch/report/index.html").read_text(encoding="utf-8")
    page = page.replace("\N{NO-BREAK SPACE}", " ")
    out = " ".join(done.out.split())
    for text in (page, out):
        assert ("nothing further back than about " in text) == known
        assert ("cannot tell where it finds things" in text) != known
        assert ("content followed" in text) == known
        assert "oracle.logits, measured as it is" not in text
        for told in ("not learned", "ring before training", "influence of each", "largest on top"):
            assert told not in text, told


@pytest.mark.parametrize("multiple", [4, 6, 8])
def test_the_longest_length_has_enough_pieces_by_default(saved: Path, multiple: int) -> None:
    """The smallest number is exact, and is the default where it is more than 256; one that is given stays."""
    path = str(saved.parent / "text.py")
    needed = samples_for(multiple)
    task = tasks.build("text", path=path, tokenizer="bytes", train_length=16, measured="all")
    counts = [
        len(task.evaluation(samples, 16 * multiple, stream(0, "length_extrapolation"), causal=True).tokens)
        for samples in (needed - 1, needed)
    ]
    assert counts == [49, 50]
    words = [f"checkpoint={saved}", "task=text", f"task.path={path}", f"context_extension.multiples=[1,{multiple}]"]
    words += ["experiment=[context_extension,shift_sensitivity]"]
    for more, samples in (([], max(256, needed)), (["context_extension.samples=8"], 8)):
        with requests.initialized(Path(__file__).parents[2] / "configs", None):
            requests.publish()
            (run,) = requests.job_of([*words, *more], multirun=False).configs
        assert run.experiments["context_extension"]["samples"] == samples
        assert run.experiments["shift_sensitivity"]["samples"] == samples, "the same pieces"


def test_a_few_windows_are_no_answer(command: Command, saved: Path, tmp_path: Path) -> None:
    """Without an interval nothing is ranked and nothing recommended, and a line says how to get one."""
    words = [f"checkpoint={saved}", "task=text", f"task.path={saved.parent / 'text.py'}", "figures=false"]
    done = command(*words, "context_extension.samples=8", "experiment=context_extension")
    assert done.code == 0, done.err
    assert {length for _, length in bits_of(tmp_path)} == {"32", "128"}, "four times its length, unless told otherwise"
    assert "trained to 32: 2 pieces of 128 are too few for an answer" in done.out
    assert "no way of reading is ranked" in done.out
    assert "context_extension.samples=200 gives 50 of 128" in " ".join(done.out.split())
    assert "pe_zoo.hf.use" not in done.out
    folder = tmp_path / "results" / "scratch"
    assert report.main([str(folder)]) == 0
    page = (folder / "report" / "index.html").read_text(encoding="utf-8")
    assert "too few for an answer" in page.replace("\N{NO-BREAK SPACE}", " ")
    assert "The methods at" not in page


def test_blocks_give_paired_intervals() -> None:
    """By hand: differences 1, 2, 3, 2 have the mean 2 and the deviation √(2/3), so that t(3) = 3.182 gives 1.30."""
    parts = pd.DataFrame({"one": [1.0, 2, 3, 4], "other": [2.0, 4, 6, 6]})
    table = blocks.against(parts.mean(), parts, "one")
    line = table.loc["other"]
    assert line["difference"] == 2
    assert line["high"] - 2 == pytest.approx(3.1824 * math.sqrt(2 / 3) / 2, rel=1e-4)
    assert line["p_holm"] == line["p"] == pytest.approx(stats.ttest_1samp([1, 2, 3, 2], 0).pvalue)


def test_a_model_at_chance_works_at_no_length(command: Command, tmp_path: Path) -> None:
    text = "import torch\ndef logits(tokens):\n    return torch.nn.functional.one_hot(tokens * 0, 20).float()\n"
    (tmp_path / "guess.py").write_text(text)
    done = command("checkpoint=guess.py:logits", "task=copy", *SMALL[:2], "experiment=length_extrapolation")
    assert done.code == 0, done.err
    assert "does NOT do the task" in done.out
    assert "works" not in done.out


def test_a_text_that_is_too_short_says_how_long_it_must_be(command: Command, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("x = 1")
    done = command(f"checkpoint={saved}", "task=text", f"task.path={tmp_path / 'short.txt'}")
    assert (done.code, "must have 6,400 tokens, about" in done.err) == (2, True), done.err
    (tmp_path / "short.txt").write_text(TEXT[:200])
    for experiment, needed in (("context_extension", 128), ("context_use", 256)):
        words = [f"checkpoint={saved}", "task=text", f"task.path={tmp_path / 'short.txt'}", f"experiment={experiment}"]
        done = command(*words, f"{experiment}.multiples=[1,4]")
        assert done.code == 2, done.out
        assert f"{experiment} needs {needed} or more to read 128 at once" in done.err
        assert len(done.err.strip().splitlines()) == 1


def test_a_page_has_one_number_for_what_distant_text_saves(command: Command, saved: Path, tmp_path: Path) -> None:
    """What context_use measures in other windows is on the page below, and not on the terminal."""
    words = [f"checkpoint={saved}", "task=text", f"task.path={saved.parent / 'text.py'}", "figures=false"]
    knobs = ["context_extension.multiples=[1,4]", "context_extension.samples=64", "context_use.samples=4"]
    done = command(*words, *knobs, "experiment=[context_use,context_extension]")
    assert done.code == 0, done.err
    assert "gain from its content" not in done.out
    assert "context_use read other windows: python report.py shows it" in done.out
    folder = tmp_path / "results" / "scratch"
    assert report.main([str(folder)]) == 0
    page, data = ((folder / "report" / name).read_text(encoding="utf-8") for name in ("index.html", "data.html"))
    assert ("sliding windows" in page, "sliding windows" in data) == (False, True)
    assert command(*words, knobs[-1], "experiment=context_use", "name=alone").code == 0
    assert report.main([str(tmp_path / "results" / "alone")]) == 0
    page = (tmp_path / "results" / "alone" / "report" / "index.html").read_text(encoding="utf-8")
    assert "sliding windows" in page
