"""What one model's rows say: which way of reading is recommended, what may be said of the others, and what to do."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pytest

from experiments.measures.context_extension import AS_TRAINED, CONTENT, END, NAME, TIME, WINDOW, WITH_FIRST
from experiments.measures.context_extension.answer import Answer, answer
from experiments.measures.context_extension.conditions import UNCHANGED
from experiments.measures.context_extension.ranking import content
from experiments.rows.row import Row, frame

SHARED = {"run_id": "r", "encoder": "m", "positions": "sequential", "task": "text", "seed": 0, "experiment": NAME}
NOISE = (0.0, 0.02, -0.02, 0.01, -0.01, 0.02, -0.02, 0.0)


def told(
    bits: dict[str, float],
    saved: dict[str, float],
    refusals: tuple[str, ...] = (),
    in_use: Any = None,
    family: str | None = None,
    more: tuple[Row, ...] = (),
    rotating: Any = None,
    **noise: float,
) -> Answer:
    """The answer where ways of reading have such bits at four times the length, their difference as noisy as said."""
    rows = [row(AS_TRAINED, 2.0, 64), *more]
    for name, value in bits.items():
        for part, each in [(None, 0.0), *enumerate(NOISE, 1)]:
            rows.append(row(name, value + each * noise.get(name, 0.1), 256, part=part, n=256 * 100))
            if name in saved:
                rows.append(row(name, saved[name] + each, 256, part=part, metric=CONTENT))
        times = {"mixed": (0.7, 0.8, 1.3), "fast": (0.42, 0.44, 0.46)}.get(name, (1.9, 2.14, 2.6))
        rows.append(row(name, times[1], 256, metric=TIME))
        rows += [row(name, each, 256, metric=TIME, part=part) for part, each in enumerate(times, 1)]
    record = {"unsupported": {NAME: [*refusals]}, "checkpoint": "my/model", "in_use": in_use, "windowed_as": family}
    found = answer(frame(rows), record | {"rotating": rotating})
    assert found is not None
    return found


def row(condition: str, value: float, length: int, metric: str = "bits_per_byte", **more: Any) -> Row:
    size = 64 if condition in (WINDOW, WITH_FIRST) else None
    factor = None if condition in (AS_TRAINED, WINDOW, WITH_FIRST) else more.pop("factor", 4.0)
    where = {"condition": condition, "size": size, "factor": factor, "metric": metric, "train_length": 64}
    return Row(**{**SHARED, **where, **more}, eval_length=length, value=value)


def test_where_nothing_was_tried_the_reason_is_said() -> None:
    why = "nothing can be put into the model: llama's rotation is scaled already (rope_type yarn)"
    found = told({AS_TRAINED: 2.5}, {}, (why,))
    assert "no method could be tried" in found.heading
    assert found.sentences[0].startswith("No method could be tried: llama's rotation is scaled already")
    assert 'in its config.json, set rope_type to "default" and max_position_embeddings' in found.sentences[0]
    assert "best" not in found.heading + found.sentences[0]
    why = (
        "nothing can be put into the model: smollm3 rotates as rope does, but not in all of these layers: name those, "
    )
    mixed = told({AS_TRAINED: 2.5}, {}, (f"{why}layers=[0, 1, 2]",))
    assert mixed.sentences[0].endswith(
        "name those, layers=[0, 1, 2]. A method can be put into those, and the model measured again: "
        'pe_zoo.hf.use(model, "yarn", layers=[…]), save_pretrained, checkpoint=.'
    )


def test_where_some_layers_do_not_rotate_the_lines_name_those_that_do() -> None:
    found = told({AS_TRAINED: 2.9, "yarn": 2.3, WINDOW: 2.2}, {"yarn": 0.1}, rotating=[[0, 1, 2], [3]])
    assert found.advice[-1].startswith("3 of the 4 layers of this model rotate: a method was put into those")
    lines = [line for line in found.code if "pe_zoo.hf.use" in line]
    assert lines == [
        'for name, layers in (("rope", [0, 1, 2]), ("none", [3])): '
        "pe_zoo.hf.use(model, name, layers=layers, sliding_window=64)",
        '# pe_zoo.hf.use(model, "yarn", train_length=64, factor=4.0, layers=[0, 1, 2])',
    ]


def test_first_tokens_stay_in_sight_where_a_window_fails_without() -> None:
    found = told({AS_TRAINED: 2.9, "yarn": 2.5, WINDOW: 5.0, WITH_FIRST: 2.2}, {"yarn": 0.1}, family="mistral")
    assert "best with a window and the first 4 tokens, which ignores what is between" in found.heading
    assert found.advice[0].startswith(
        "To read 256 tokens, limit attention to the last 64 tokens, a window, and to the "
    )
    assert found.code[3:6] == [
        'model = AutoModelForCausalLM.from_pretrained("my/model")',
        "# attends to the last 64 tokens, and to the first 4",
        'pe_zoo.hf.use(model, "rope", sliding_window=64, first_tokens=4)',
    ]
    assert "mistral" not in "".join(found.code), "its configuration has no first tokens"
    both = "a window of 64 and the first 4"
    assert [line[0] for line in found.table[1:]] == [both, "yarn", UNCHANGED, "a window of 64"]
    assert any("2.200 bits per byte at 256 are expected" in line for line in found.code)


@pytest.mark.parametrize("first", [2.21, 2.195])
def test_first_tokens_that_gain_little_keep_no_server_from_a_window(first: float) -> None:
    found = told({AS_TRAINED: 2.9, "yarn": 2.5, WINDOW: 2.2, WITH_FIRST: first}, {"yarn": 0.1}, family="mistral")
    kept = ", first_tokens=4" * (first < 2.2)
    assert f'pe_zoo.hf.use(model, "rope", sliding_window=64{kept})' in found.code
    assert "mistral" in "".join(found.code)


def test_how_far_the_advice_goes_and_what_a_server_can_hold() -> None:
    found = told({AS_TRAINED: 2.9, "self_extend": 2.3, "yarn": 2.4, WINDOW: 2.2}, {"self_extend": 0.1})
    assert found.advice[1] == (
        "A window reads texts of any length; here it is a mask, so that a server's own is faster. self_extend with "
        "factor 4 is made for up to 256 tokens. For a server without pe_zoo, config.json can hold yarn (2.400 bits per "
        "byte at 256): the last lines of the code say how."
    )
    held = '{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}'
    assert found.code[-2:] == [
        "# for a server without pe_zoo, yarn: in config.json give max_position_embeddings 256, and",
        f"# rope_parameters, beside its rope_theta: {held}",
    ]
    llama = told(
        {AS_TRAINED: 2.9, "self_extend": 2.3, "yarn": 2.4, WINDOW: 2.2}, {"self_extend": 0.1}, family="mistral"
    )
    assert "config.json can hold a window of 64 or yarn (2.400 bits per byte at 256): the last" in llama.advice[1]
    assert llama.code[-4:-2] == [
        "# for a server without pe_zoo, a window of 64: in config.json give max_position_embeddings 256,",
        '# and "model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 64: '
        "the same weights compute the same",
    ]
    assert llama.code[-2:] == found.code[-2:]
    assert llama.code[-6] == found.code[-4]
    assert found.code[-4].endswith(
        "task.train_length=64 experiment=length_extrapolation 'length_extrapolation.multiples=[1,4]' "
        "name=model_256_check"
    ), "the command that shows that what was saved reads as measured"
    worse = told({AS_TRAINED: 2.9, "self_extend": 2.2, "yarn": 2.4, WINDOW: 2.5}, {}, family="mistral")
    assert "Mistral" not in "".join(worse.code), "a window is not recommended"
    alone = told({AS_TRAINED: 2.9, "yarn": 2.4}, {})
    assert alone.advice[1:] == ["yarn with factor 4 is made for up to 256 tokens."]
    unchanged = told({AS_TRAINED: 2.3, "yarn": 2.4}, {})
    assert not any("made for" in sentence for sentence in unchanged.advice)


@pytest.mark.parametrize(("blocks", "length", "other"), [(8, 512, "At 256 (4 times), yarn is best"), (3, 256, "")])
def test_the_answer_is_about_the_longest_length_of_which_there_is_enough(blocks: int, length: int, other: str) -> None:
    more = [
        row(name, value + each, 512, part=part, n=512 * blocks, factor=8.0)
        for name, value in {AS_TRAINED: 3.1, "yarn": 2.6, "rope_ntk": 2.7, WINDOW: 2.9}.items()
        for part, each in [(None, 0.0), *enumerate(NOISE[:blocks], 1)]
    ]
    found = told({AS_TRAINED: 2.9, "yarn": 2.4, "rope_ntk": 2.5, WINDOW: 2.8}, {}, more=tuple(more))
    assert f"trained to 64, reads {length} best with yarn" in found.heading
    lines, times = "\n".join(found.code), length // 64
    assert f"factor={times}.0" in lines
    assert f"max_position_embeddings = {length}" in lines
    assert f'"factor": {times}.0, "original_max_position_embeddings": 64' in lines
    assert f"context_extension.multiples=[1,{times}]" in found.command
    assert (other or "This is not about 512 tokens: 3 pieces of 512 are too few") in " ".join(found.sentences)
    assert [ranking.length for ranking in found.rankings] == ([512, 256] if other else [256])


@pytest.mark.parametrize("pieces", [32, 50])
def test_the_best_of_few_pieces_is_called_so(pieces: int) -> None:
    rows = [
        row(name, value + each, 512, part=part, n=512 * pieces, factor=8.0)
        for name, value in {AS_TRAINED: 3.1, "yarn": 2.6, WINDOW: 2.2}.items()
        for part, each in [(None, 0.0), *enumerate(NOISE, 1)]
    ]
    found = answer(frame([row(AS_TRAINED, 2.0, 64), *rows]))
    assert found is not None
    (best,) = (sentence for sentence in found.evidence if "better than every other way" in sentence)
    assert ("way on these 32 pieces, which are few: the next" in best) == (pieces < 50)
    assert any("Fewer than 50 pieces say little" in sentence for sentence in found.evidence) == (pieces < 50)
    assert any("Take it as a first hint" in sentence for sentence in found.advice) == (pieces < 50)


def test_nothing_is_compared_with_a_window_that_was_not_measured() -> None:
    found = told({AS_TRAINED: 2.5}, {AS_TRAINED: 0.3}, ("llama's rotation is scaled already (rope_type yarn)",))
    assert "need more bits than a window" not in " ".join(found.sentences)
    assert not found.command, "under each method: there is none"


def test_a_method_must_be_better_than_unchanged() -> None:
    """A window that is better does not make a method recommended that is not."""
    found = told({AS_TRAINED: 2.5, "yarn": 2.499, WINDOW: 2.3}, {}, yarn=5.0)
    assert "limit attention to the last 64 tokens, a window (takes about 2 times as long" in found.sentences[0]
    assert "leave the model as it is: no method is shown" in found.sentences[0]
    assert not any('"yarn"' in line for line in found.code)


def test_a_sure_difference_that_prints_as_0_recommends_nothing() -> None:
    found = told({AS_TRAINED: 2.5, "yarn": 2.4998, WINDOW: 2.4999}, {}, yarn=0.1001, window=0.1001)
    assert f"reads 256 {UNCHANGED} at 2.500 bits per byte; no method is shown to gain 0.01 bits" in found.heading
    assert found.sentences[0].startswith("Leave the model as it is")
    assert found.code == [] or "use(" not in "".join(found.code)


def test_a_sure_gain_too_small_to_change_the_model_for_recommends_nothing() -> None:
    found = told({AS_TRAINED: 2.5, "yarn": 2.496, WINDOW: 2.495}, {}, yarn=0.1001, window=0.1001)
    assert "no method is shown to gain 0.01 bits per byte" in found.heading
    assert found.sentences[0].startswith("Leave the model as it is")
    assert "yarn" not in found.sentences[0]
    (evidence,) = (sentence for sentence in found.sentences if "is ahead of every other way" in sentence)
    assert "a window of 64" in evidence.lower(), "the evidence still says what is surely the best"


@pytest.mark.parametrize(
    ("spec", "window", "yarn"),
    [
        ({"halves": 8, "base": 1e4, "fraction": 1.0}, "", ""),
        ({"base": 5e5}, "base=500000.0, ", ", base=500000.0"),
        ({"halves": 8, "base": 1e4, "sliding_window": 96}, "", ", sliding_window=96"),
    ],
)
def test_the_lines_for_a_model_that_was_changed_before(spec: dict[str, Any], window: str, yarn: str) -> None:
    """They load the change, keep what the methods were measured with, and write elsewhere."""
    in_use = [{"name": "rope", "layers": None, "train_length": 64, **spec}]
    noisy = {"yarn": 30.0} if "sliding_window" not in spec else {}
    found = told(
        {AS_TRAINED: 2.5, "yarn": 2.3, "rope_ntk": 2.4, WINDOW: 2.29 if noisy else 2.6}, {}, in_use=in_use, **noisy
    )
    lines = "\n".join(found.code)
    assert 'model = pe_zoo.hf.load("my/model")' in lines
    assert "AutoModelForCausalLM" not in lines
    if noisy:
        assert f'use(model, "rope", train_length=64, {window}sliding_window=64)' in lines
    else:
        assert f'use(model, "yarn", train_length=64, factor=4.0{yarn})' in lines
    assert 'model.save_pretrained("model_256")' in lines


def test_heading_and_advice_name_the_same_where_the_best_is_not_sure() -> None:
    found = told({AS_TRAINED: 2.5, "yarn": 2.4, WINDOW: 2.39}, {}, window=30.0)
    assert "reads 256 better with yarn (−0.100 bits per byte" in found.heading
    assert found.sentences[0].startswith("To read 256 tokens, use yarn with factor 4")
    assert "A window of 64 (takes about 2 times as long to read as unchanged) may do as well" in found.sentences[0]


@pytest.mark.parametrize("used", [("dual_chunk",), ("dual_chunk", "yarn"), ()])
def test_beside_a_window_the_method_that_uses_distant_text(used: tuple[str, ...]) -> None:
    bits = {AS_TRAINED: 2.5, "yarn": 2.35, "dual_chunk": 2.4, WINDOW: 2.3}
    found = told(bits, {name: 0.2 if name in used else 0.001 for name in bits})
    chosen = "dual_chunk" if used == ("dual_chunk",) else "yarn"
    assert f"Use {chosen} with factor 4 (takes about 2 times as long" in found.sentences[0]
    assert ("though it is not shown to matter" in found.sentences[0]) == (not used)
    distant = " ".join(sentence for sentence in found.sentences if "Where other text takes the place" in sentence)
    assert bool(distant) == bool(used), "what was not shown of any method is left to the table"
    assert ("Bonferroni's correction over these and unchanged" in distant) == bool(used)
    assert ("bits per byte rise with" in distant) == bool(used)
    assert all(name in distant.partition("may stay the same")[0] for name in used)
    assert "model unchanged" not in distant, "a model that fails there is no user of distant text"
    assert found.code[3] == 'model = AutoModelForCausalLM.from_pretrained("my/model")'
    assert any(f'"{chosen}", train_length=64, factor=4.0' in line for line in found.code)


@pytest.mark.parametrize(("cost", "said"), [(0.11, True), (-0.11, False), (0.0001, False), (0.001, False)])
def test_what_the_saved_method_costs_short_texts_is_said(cost: float, said: bool) -> None:
    """At the training length with the factor of the longer one; only where a cost is shown and can be printed."""
    rows = [row(AS_TRAINED, 2.5, 256), row("yarn", 2.0, 64, factor=1.0)]
    noise = 0.1 if cost > 0.01 else 0.0 if cost < 0.001 else 1.0
    for part, each in [(None, 0.0), *enumerate(NOISE, 1)]:
        rows += [row(AS_TRAINED, 2.0, 64, part=part), row("yarn", 2.0 + cost + noise * each, 64, part=part)]
        rows += [row(AS_TRAINED, 2.5, 256, part=part), row("yarn", 2.3 + each, 256, part=part, n=256 * 100)]
    found = answer(frame(rows))
    assert found is not None
    short = [sentence for sentence in found.sentences if "As saved for 256" in sentence]
    assert len(short) == said
    if said:
        assert "yarn reads 64 tokens worse than unchanged: +0.110 [" in short[0]
    assert found.rankings[0].line("yarn")["saved"] == 2.0 + cost, "not that with the factor of its own length"


@pytest.mark.parametrize(
    ("name", "time"),
    [("mixed", "about as long"), ("fast", "about 0.4 times as long"), ("yarn", "about 2 times as long")],
)
def test_a_time_is_no_more_precise_than_its_repetitions(name: str, time: str) -> None:
    """With ratios on both sides of 1 nothing is said to be faster, else one digit."""
    found = told({AS_TRAINED: 2.5, "other": 2.4, name: 2.2, WINDOW: 2.1}, {name: 0.2})
    assert f"{name} with factor 4 (takes {time} to read as unchanged)" in found.sentences[0]


def test_a_length_out_of_reach_is_said() -> None:
    rows = frame([row(AS_TRAINED, 2.0, 64), row(AS_TRAINED, 2.0, 128, n=128)])
    missing = pd.concat([rows, rows.tail(1).assign(eval_length=256, status="unsupported", value=float("nan"))])
    found = answer(missing)
    assert found is not None
    assert "1 piece of 128 is too few" in found.heading
    assert any("256 tokens, 4 times its length, are out of reach" in sentence for sentence in found.sentences)


def test_a_text_without_a_longer_window_gets_an_answer_too() -> None:
    why = "text: a window of 256 tokens is longer than the test text of 100"
    rows = frame([row(AS_TRAINED, 2.0, 64)])
    missing = pd.concat([rows, rows.assign(eval_length=256, status="unsupported", value=float("nan"))])
    found = answer(missing, {"corpus": {"bytes": 300, "bytes_per_token": 3.0}, "unsupported": {NAME: [why]}})
    assert found is not None
    assert (found.heading, found.code) == ("m, trained to 64: no longer text could be measured", [])
    assert "could not be read: a window of 256 tokens is longer than the test text of 100." in found.sentences[0]
    assert answer(rows) is None, "nothing longer was to be measured"


def test_a_text_of_one_window_says_how_much_is_needed() -> None:
    rows = frame([row(AS_TRAINED, 2.0, 64), row(AS_TRAINED, 2.0, 256, n=256)])
    found = answer(rows, {"corpus": {"bytes": 1200, "bytes_per_token": 3.0}})
    assert found is not None
    assert "Only 1 piece of 256 fits into a text of 400 tokens; at least 1,024 are needed" in found.sentences[0]


def test_a_window_keeps_the_encoder_that_a_model_has() -> None:
    """Where no method can be put into it, rope must not take its encoder's place."""
    other = told({AS_TRAINED: 2.5, WINDOW: 2.3}, {})
    assert "pe_zoo.hf.use" not in "".join(other.code)
    assert "pe_zoo.hf.use sets it by sliding_window=64." in other.sentences[0]
    assert any("sliding_window=64" in line for line in told({AS_TRAINED: 2.5, "a": 2.4, WINDOW: 2.3}, {}).code)


def test_zero_has_no_minus() -> None:
    found = told({AS_TRAINED: 2.5, "yarn": 2.3, "other": 2.3001}, {}, yarn=0.0, other=0.0)
    assert "−0.000" not in " ".join([found.heading, *found.sentences])
    line = {"content": -0.0004, "content_low": -0.0014, "content_high": 0.0011}
    assert content(line) == "0.000 [−0.001, +0.001]"


def test_the_unchanged_model_may_be_the_one_that_uses_distant_text() -> None:
    bits = {AS_TRAINED: 2.3, "yarn": 2.4, WINDOW: 2.5}
    found = told(bits, dict.fromkeys(bits, 0.2))
    assert any("rise with the model unchanged (+0.200" in sentence for sentence in found.sentences)


@pytest.mark.parametrize(("end", "said"), [(2.2, "helps yarn (−0.100 ["), (2.31, "No method gains from text")])
def test_whether_distant_text_helps_is_against_a_window(end: float, said: str) -> None:
    """In the last quarter, by block; both see the same text, and a window sees none of the distant one."""
    bits, ends = {AS_TRAINED: 2.5, "yarn": 2.3, WINDOW: 2.35}, {AS_TRAINED: 2.9, "yarn": end, WINDOW: 2.3}
    rows = [row(AS_TRAINED, 2.0, 64)]
    for name in bits:
        for part, each in [(None, 0.0), *enumerate(NOISE, 1)]:
            text = {None: 0.0}.get(part, 0.5 * (part or 0))  # blocks differ more than ways of reading them
            rows.append(row(name, bits[name] + text + each * (name == "yarn"), 256, part=part, n=256 * 100))
            rows.append(row(name, ends[name] + text + each * (name == "yarn"), 256, part=part, metric=END))
    found = answer(frame(rows), {"corpus": {"source": "a b.py"}, "checkpoint": "my/model"})
    assert found is not None
    (gain,) = (sentence for sentence in found.sentences if said in sentence)
    assert "in the last quarter of each piece of 256" in gain
    assert "a window of 64, no layer of which attends to it" in gain
    line = found.rankings[0].line("yarn")
    assert line["window_low"] < end - 2.3 < line["window_high"]
    assert line["end_high"] - line["end_low"] > 10 * (line["window_high"] - line["window_low"]), "levels are not paired"
    assert len(re.findall(r"(?<![\w.])[−+]?\d[\d.,]*", found.heading)) <= 3
    assert "'task.path=a b.py' experiment=context_extension" in found.command
    assert found.command.endswith("name=model_facts")
    assert [line[0] for line in found.table] == ["at 256", "yarn", "a window of 64", UNCHANGED]


def test_under_a_saved_window_nothing_is_said_of_distant_text() -> None:
    """Every way of reading has that window, so that a gain comes from elsewhere."""
    bits = {AS_TRAINED: 2.5, "yarn": 2.3, WINDOW: 2.5}
    spec = {"name": "rope", "layers": None, "train_length": 64, "sliding_window": 64}
    found = told(bits, dict.fromkeys(bits, 0.2), in_use=[spec])
    assert not any("distant" in sentence or "further back" in sentence for sentence in found.sentences)
    assert "a window" not in found.heading
    assert "Unchanged means as it was saved, with rope and a window of 64" in " ".join(found.advice)
    assert 'use(model, "yarn", train_length=64, factor=4.0, base' not in " ".join(found.code)
    assert "sliding_window=64)" in " ".join(found.code)


def test_methods_are_not_compared_where_too_little_is_right() -> None:
    rows = []
    for length in (64, 256):
        for part in (None, *range(1, 9)):
            rows.append(row(AS_TRAINED, 0.1, length, part=part, metric="token_accuracy", task="needles", chance=0.01))
    found = answer(frame(rows))
    assert found is not None
    assert found.heading == "m, trained to 64: right too rarely to compare methods (10.0 % at 64; a guess: 1.0 %)"
    assert "task.num_needles=1 task.num_letters=1" in found.sentences[0]
    assert (found.rankings, found.code) == ([], [])
