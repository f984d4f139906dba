"""Methods that extend RoPE start from a model's own rotation: its base, its share of the head, its pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

import pe_zoo
import pe_zoo.hf
from pe_zoo import Unsupported
from pe_zoo.hf.checkpoint import Opened, open_model
from pe_zoo.hf.families import SIZES as SMALL
from pe_zoo.hf.families import _of_size, small, trial
from pe_zoo.hf.seat import seat_of

EXTENSIONS = [name for name in pe_zoo.names() if pe_zoo.get(name).extends == "rope"]
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}


def llama(**more: Any) -> PreTrainedModel:
    """Weights large enough for positions to matter, and a base that is not 10000."""
    torch.manual_seed(2)
    rotation = {"rope_type": "default", "rope_theta": 500.0}
    given = {"num_key_value_heads": 2, "vocab_size": 64, "max_position_embeddings": 32, "rope_parameters": rotation}
    config = transformers.LlamaConfig(**SIZES, **{**given, "initializer_range": 0.15, **more})
    return transformers.LlamaForCausalLM(config).eval()


def six(family: str) -> PreTrainedModel:
    """Of six layers: enough for each kind that the family has."""
    return _of_size(family, SMALL | {"num_hidden_layers": 6})


def tokens(length: int = 32) -> Tensor:
    return torch.randint(3, 64, (2, length))


def logits(model: PreTrainedModel, given: Tensor, **more: Any) -> Tensor:
    with torch.no_grad():
        return model(input_ids=given, **more).logits


def opened(model: PreTrainedModel, place: Path) -> Opened:
    model.save_pretrained(place)
    return open_model(str(place), 32, torch.device("cpu"))


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt_neox", "stablelm", "cohere", "glm", "mistral", "phi3"])
def test_rope_takes_the_model_s_own_rotation_over(family: str) -> None:
    model, given = small(family), tokens(20)
    before = logits(model, given)
    pe_zoo.hf.use(model, "rope")
    torch.testing.assert_close(logits(model, given), before, atol=1e-5, rtol=0)
    assert max(trial(model).values()) < 1e-4


@pytest.mark.parametrize("name", EXTENSIONS)
def test_an_extension_is_what_the_measurement_of_the_checkpoint_computes(name: str, tmp_path: Path) -> None:
    model, given = llama(), tokens(64)
    measured = opened(model, tmp_path)
    assert measured.encoder is not None
    encoder = pe_zoo.hf.use(model, name)
    assert encoder.base == 500.0
    measured.replace(pe_zoo.build(name, measured.geometry, base=measured.encoder.base), None)
    assert torch.equal(logits(model, given), measured.logits(given))


@pytest.mark.parametrize("name", ["self_extend", "yarn", "rerope", "dual_chunk"])
def test_an_extension_changes_nothing_where_it_is_rope(name: str) -> None:
    model, given = llama(), tokens()
    before = logits(model, given)
    knobs = {"yarn": {"factor": 1.0}, "self_extend": {"factor": 4.0, "window": 31}}
    pe_zoo.hf.use(model, name, **knobs.get(name, {"window": 32}))
    torch.testing.assert_close(logits(model, given), before, atol=1e-5, rtol=0)


@pytest.mark.filterwarnings("ignore:with base= alone")
def test_a_base_or_a_pairing_by_name_makes_a_new_encoder() -> None:
    given = tokens()
    for name, knobs in (("yarn", {"base": 500.0}), ("rope", {"base": 500.0}), ("rope", {"pairing": "interleaved"})):
        model = llama()
        before = logits(model, given)
        pe_zoo.hf.use(model, name, **knobs)
        assert not torch.allclose(logits(model, given), before, atol=1e-2)
    pe_zoo.hf.use(model, "rope", pairing="half", base=500.0)
    torch.testing.assert_close(logits(model, given), before, atol=1e-5, rtol=0)


def test_an_extension_is_saved_and_loaded(tmp_path: Path) -> None:
    model, given = llama(), tokens(64)
    pe_zoo.hf.use(model, "self_extend", factor=4.0, sliding_window=20)
    pe_zoo.hf.use(model, "yarn", layers=[1], factor=2.0)
    model.save_pretrained(tmp_path)
    again = pe_zoo.hf.load(str(tmp_path)).eval()
    assert torch.equal(logits(again, given), logits(model, given))
    assert again.config.pe_zoo == model.config.pe_zoo


def test_a_second_use_keeps_the_length_that_the_first_noted_and_the_file_names_the_factor(tmp_path: Path) -> None:
    model = llama()
    pe_zoo.hf.use(model, "self_extend", train_length=32, factor=4.0)
    model.config.max_position_embeddings = 128  # as the recommended lines do
    model.save_pretrained(tmp_path)
    again = pe_zoo.hf.load(str(tmp_path))
    assert pe_zoo.hf.use(again, "yarn").geometry.train_length == 32
    assert again.config.pe_zoo == [{**again.config.pe_zoo[0], "name": "yarn", "train_length": 32, "factor": 16.0}]
    pe_zoo.hf.restore(again)
    assert pe_zoo.hf.use(again, "yarn").geometry.train_length == 128


def test_some_layers_a_second_use_and_restore() -> None:
    model, given = llama(), tokens()
    before = logits(model, given)
    pe_zoo.hf.use(model, "yarn", layers=[0, 2], factor=1.0)
    torch.testing.assert_close(logits(model, given), before, atol=1e-5, rtol=0)
    pe_zoo.hf.use(model, "alibi", layers=[1])
    mixed, seats = logits(model, given), [seat_of(layer.self_attn) for layer in model.model.layers]
    pe_zoo.hf.use(model, "rope", layers=[0])
    torch.testing.assert_close(logits(model, given), mixed, atol=1e-5, rtol=0)
    assert [seat_of(layer.self_attn) for layer in model.model.layers][1:] == seats[1:]
    pe_zoo.hf.use(model, "rope", layers=[1])
    torch.testing.assert_close(logits(model, given), before, atol=1e-5, rtol=0)
    pe_zoo.hf.use(model, "alibi")
    pe_zoo.hf.use(model, "rope")
    torch.testing.assert_close(logits(model, given), before, atol=1e-5, rtol=0)
    pe_zoo.hf.restore(model)
    assert torch.equal(logits(model, given), before)


@pytest.mark.parametrize("name", ["self_extend", "yarn"])
def test_generation_with_a_cache(name: str) -> None:
    model = llama()
    pe_zoo.hf.use(model, name, factor=4.0)
    assert max(trial(model, 48, 30).values()) < 1e-3
    both = [
        model.generate(tokens(30)[:1] * 0 + 5, max_new_tokens=20, use_cache=on, pad_token_id=0) for on in (True, False)
    ]
    assert both[0].tolist() == both[1].tolist()


def test_a_model_in_bfloat16_is_taken_over() -> None:
    model, given = llama().bfloat16(), tokens()
    before = logits(model, given).float()
    pe_zoo.hf.use(model, "yarn", factor=1.0)
    assert (logits(model, given).float() - before).abs().mean() < 0.03 * before.std()


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: llama(rope_parameters={"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0}), "scaled.*yarn"),
        (lambda: six("gemma3_text"), "differs between its layers"),
        (lambda: six("smollm3"), "not in all of these layers: name those"),
        (lambda: small("gpt_neox"), "0.25 of each head"),
    ],
)
def test_a_rotation_that_cannot_be_taken_over_is_refused(model: Any, reason: str) -> None:
    model, given = model(), tokens(12)
    before = logits(model, given)
    with pytest.raises(Unsupported, match=f"{reason}.*base="):
        pe_zoo.hf.use(model, "self_extend")
    assert torch.equal(logits(model, given), before)
    assert not hasattr(model.config, "pe_zoo")
    pe_zoo.hf.use(model, "self_extend", base=10000.0)
    pe_zoo.hf.use(model, "rope", **({"base": 10000.0} if "scaled" in reason else {}))


def test_layers_that_rotate_are_named_where_others_do_not() -> None:
    model, given = six("smollm3"), tokens(12)
    before = logits(model, given)
    with pytest.raises(Unsupported, match=r"name those, layers=\[0, 1, 2, 4, 5\]"):
        pe_zoo.hf.use(model, "yarn")
    pe_zoo.hf.use(model, "rope", layers=[0, 1, 2, 4, 5])
    torch.testing.assert_close(logits(model, given), before, rtol=1e-4, atol=1e-4)
    pe_zoo.hf.use(model, "yarn", layers=[0, 1, 2, 4, 5])
    assert not torch.allclose(logits(model, given), before, atol=1e-4)


def test_where_some_layers_do_not_rotate_methods_go_into_the_others_and_a_window_into_all(tmp_path: Path) -> None:
    model, given = six("smollm3"), tokens(12)
    before = logits(model, given)
    measured = opened(model, tmp_path)
    having, without = [0, 1, 2, 4, 5], [3]
    assert (measured.encoder is not None, measured.rotating) == (True, (having, without))
    torch.testing.assert_close(measured.logits(given), before, atol=1e-5, rtol=0)
    rope = measured.encoder
    measured.replace(pe_zoo.build("yarn", rope.geometry, base=rope.base, factor=4.0), None)
    pe_zoo.hf.use(model, "yarn", layers=having, train_length=32, factor=4.0)
    torch.testing.assert_close(measured.logits(given), logits(model, given), atol=1e-5, rtol=0)
    assert not torch.allclose(measured.logits(given), before, atol=1e-3)
    measured.replace(rope, 4)
    for name, layers in (("rope", having), ("none", without)):
        pe_zoo.hf.use(model, name, layers=layers, sliding_window=4)
    torch.testing.assert_close(measured.logits(given), logits(model, given), atol=1e-5, rtol=0)
    measured.replace(None, None)
    for layers in (having, without):
        pe_zoo.hf.use(model, "none", layers=layers)
    torch.testing.assert_close(measured.logits(given), logits(model, given), atol=1e-5, rtol=0)
    measured.replace(rope, None)
    torch.testing.assert_close(measured.logits(given), before, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", [name for name in EXTENSIONS if pe_zoo.get(name).rope_type])
def test_what_a_configuration_can_hold_is_the_same_there(name: str) -> None:
    more = {"low_freq_factor": 1.0, "high_freq_factor": 4.0} if name == "llama3_rope" else {}
    scaled = {"rope_type": pe_zoo.get(name).rope_type, "rope_theta": 500.0, "factor": 4.0, **more}
    theirs = llama(rope_parameters=scaled | {"original_max_position_embeddings": 32})
    ours, given = llama(), tokens(12)
    theirs.load_state_dict(ours.state_dict())
    pe_zoo.hf.use(ours, name, train_length=32, factor=4.0)
    torch.testing.assert_close(logits(ours, given), logits(theirs, given), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "remedy"), [("rope", "rope_theta .* or give pairing="), ("yarn", "rope_theta")])
def test_a_new_base_alone_is_warned_of_where_it_changes_the_pairs(name: str, remedy: str) -> None:
    with pytest.warns(UserWarning, match=f"{name} rotates other pairs of dimensions than llama does.*{remedy}"):
        pe_zoo.hf.use(six("llama"), name, base=5e5)
    pe_zoo.hf.use(six("cohere"), name, base=5e5)  # rotates neighbours, as the zoo does


def test_that_weights_never_saw_an_encoder_is_warned_of_where_they_were_trained(tmp_path: Path) -> None:
    pe_zoo.hf.use(llama(), "alibi")  # new weights, to be trained with it
    llama().save_pretrained(tmp_path)
    trained = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    pe_zoo.hf.use(trained, "yarn", factor=2.0)
    with pytest.warns(UserWarning, match="alibi is new to these weights.*until it is trained.*restore"):
        pe_zoo.hf.use(trained, "alibi")


def test_layers_that_rotate_alike_can_be_named() -> None:
    model, given = six("gemma3_text"), tokens(12)
    before = logits(model, given)
    for kind in {*model.config.layer_types}:
        layers = [layer for layer, of in enumerate(model.config.layer_types) if of == kind]
        pe_zoo.hf.use(model, "yarn", layers=layers, factor=1.0)
    torch.testing.assert_close(logits(model, given), before, atol=1e-5, rtol=0)


def test_a_model_without_rotation_gets_a_new_encoder() -> None:
    model = small("gpt2")
    assert pe_zoo.hf.use(model, "yarn").base == 10000.0
