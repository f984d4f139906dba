"""A window of keys for a model that was trained without one."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from support import examples
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

import pe_zoo.hf
from experiments.measures.context_extension.lines import held_window
from experiments.plan.places import windowed_as
from pe_zoo import raw_scores
from pe_zoo.hf.families import small, trial


def logits(model: PreTrainedModel, given: Tensor) -> Tensor:
    with torch.no_grad():
        return model(input_ids=given).logits


@pytest.mark.parametrize("name", ["rope", "none", "alibi", "fox", "stick_breaking", "self_extend"])
def test_no_query_sees_further_than_its_window(name: str) -> None:
    model, given = small("llama"), torch.randint(3, 64, (1, 20))
    pe_zoo.hf.use(model, name, sliding_window=4)
    for fault, size in trial(model, 20, 9).items():
        assert size < 1e-4, fault
    other = given.clone()
    other[:, 0] = (other[:, 0] + 1) % 64
    reached = (logits(model, other) - logits(model, given)).abs().amax(-1)[0] > 1e-6
    assert reached.nonzero().max() == 2 * 3  # two layers, each three tokens back


@pytest.mark.parametrize("name", ["rope", "rerope", "none", "alibi"])
def test_the_first_tokens_stay_in_sight(name: str, tmp_path: Path) -> None:
    model, given = small("llama"), torch.randint(3, 64, (1, 20))
    pe_zoo.hf.use(model, name, sliding_window=4, first_tokens=2)
    for fault, size in trial(model, 20, 9).items():
        assert size < 1e-4, fault
    before = logits(model, given)
    for place, last in ((0, 19), (1, 19), (2, 2 + 2 * 3)):
        other = given.clone()
        other[:, place] = (other[:, place] + 1) % 64
        reached = (logits(model, other) - before).abs().amax(-1)[0] > 1e-6
        assert reached.nonzero().max() == last, place
    model.save_pretrained(tmp_path)
    assert torch.equal(logits(pe_zoo.hf.load(str(tmp_path)).eval(), given), before)


def test_kept_first_tokens_count_as_at_the_end_of_the_window() -> None:
    """LM-Infinite, by hand: the first keys at a distance of the window, the nearest at their own, no others."""
    model, given, window, first = small("llama"), torch.randint(3, 64, (1, 12)), 4, 2
    pe_zoo.hf.use(model, "rerope", window=window, sliding_window=window, first_tokens=first)
    seat = model.model.layers[0].self_attn.pe_zoo_seat
    logits(model, given)
    q, k = torch.randn(2, 1, 4, 12, seat.encoder.geometry.head_dim)
    site = seat.site(q, k, None)
    scores = raw_scores(seat.encoder, q, k, site)
    q, k = (torch.view_as_complex(each[0].unflatten(-1, (-1, 2))) for each in (q, k))
    turns = 10000.0 ** -(torch.arange(q.shape[-1]) / q.shape[-1])
    for query in range(12):
        for key in range(12):
            seen = key <= query and (query - key < window or key < first)
            assert bool(site.mask[0, 0, query, key]) == seen
            if seen:
                turned = q[:, query] * torch.exp(1j * min(query - key, window) * turns)
                expected = (turned * k[:, key].conj()).real.sum(-1) / math.sqrt(2 * q.shape[-1])
                torch.testing.assert_close(scores[0, :, query, key], expected, atol=1e-5, rtol=0)


def test_first_tokens_without_a_window_are_refused() -> None:
    with pytest.raises(ValueError, match="first_tokens=4 keeps these beside a window: give sliding_window=, too"):
        pe_zoo.hf.use(small("llama"), "rope", first_tokens=4)


def test_a_window_is_that_of_a_model_made_with_one(tmp_path: Path) -> None:
    made, given = small("mistral"), torch.randint(3, 64, (2, 20))
    made.config.sliding_window = None
    made.save_pretrained(tmp_path)
    pe_zoo.hf.use(made, "rope", sliding_window=5)
    made.save_pretrained(tmp_path / "ours")
    theirs = type(made).from_pretrained(tmp_path, sliding_window=5, attn_implementation="eager").eval()
    torch.testing.assert_close(logits(made, given), logits(theirs, given), atol=1e-5, rtol=0)
    again = pe_zoo.hf.load(str(tmp_path / "ours")).eval()
    assert torch.equal(logits(again, given), logits(made, given))
    assert again.config.pe_zoo[0]["sliding_window"] == 5


@pytest.mark.parametrize("key_heads", [4, 2])
def test_a_window_of_a_llama_is_that_of_a_mistral(tmp_path: Path, key_heads: int) -> None:
    """With the entries of config.json that are printed for a server without pe_zoo."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(**sizes, num_key_value_heads=key_heads, vocab_size=64, max_position_embeddings=8)
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    file, given = tmp_path / "config.json", torch.randint(3, 64, (2, 40))
    llama = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    unchanged = logits(llama, given)
    pe_zoo.hf.use(llama, "rope", sliding_window=8)
    family = windowed_as(str(tmp_path))
    assert family is not None
    entries = json.loads("{" + held_window(8, family) + "}")
    file.write_text(json.dumps(json.loads(file.read_text()) | entries | {"max_position_embeddings": 40}))
    mistral = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert isinstance(mistral, MistralForCausalLM)
    torch.testing.assert_close(logits(mistral, given), logits(llama, given), atol=5e-5, rtol=0)
    assert (unchanged - logits(mistral, given)).abs().max() > 1e-3
    assert windowed_as(str(tmp_path)) is None, "it has a window already"


@pytest.mark.parametrize("biased", ["attention_bias", "mlp_bias"])
def test_a_llama_with_biases_is_no_mistral(tmp_path: Path, biased: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LlamaConfig(**{biased: True}).to_dict()))
    assert windowed_as(str(tmp_path)) is None


def test_generation_with_a_cache_and_padding() -> None:
    model, long = small("llama"), torch.randint(3, 64, (1, 12))
    pe_zoo.hf.use(model, "rope", sliding_window=4)
    padded = torch.cat([torch.nn.functional.pad(long[:, 5:], (5, 0)), long])
    seen = torch.ones_like(padded)
    seen[0, :5] = 0
    how = {"max_new_tokens": 8, "pad_token_id": 0, "do_sample": False}
    together = model.generate(padded, attention_mask=seen, **how)
    for row, alone in zip(together, (long[:, 5:], long), strict=True):
        whole = model.generate(alone, use_cache=False, **how)
        assert row[12:].tolist() == whole[0, alone.shape[-1] :].tolist()


@pytest.mark.parametrize("window", [0, -3, 2.5, True])
def test_a_window_of_no_key_is_refused(window: int) -> None:
    with pytest.raises(ValueError, match="sliding_window must be a whole number of at least 1"):
        pe_zoo.hf.use(small("llama"), "rope", sliding_window=window)


def test_the_guide_s_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = examples("hugging_face")["longer"]
    small("llama").save_pretrained(tmp_path / "path" / "to" / "model")
    letters = Tokenizer(WordLevel({"a": 0}, unk_token="a"))
    PreTrainedTokenizerFast(tokenizer_object=letters).save_pretrained(tmp_path / "path" / "to" / "model")
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    exec(source, scope)
    assert sorted(place.name for place in (tmp_path / "longer").iterdir()) == ["rope", "self_extend", "yarn"]
    assert scope["model"].config.pe_zoo[0]["sliding_window"] == 4096


def test_the_guide_s_layers_are_those_of_command_a() -> None:
    """Of four, three see a window and mind the order; the fourth sees all, and does not."""
    guide = (Path(__file__).parents[2] / "docs" / "choose.md").read_text("utf-8")
    told: dict[str, Any] = {}
    exec(re.findall(r"```python\n(from transformers import SmolLM3Config.*?)```", guide, re.DOTALL)[0], told)
    config = told["config"]
    assert len(config.layer_types) == len(config.no_rope_layers) == config.num_hidden_layers
    given = torch.randint(1, 30, (1, 24), generator=torch.Generator().manual_seed(0))
    far, swapped = given.clone(), given.clone()
    far[0, 3] += 30
    swapped[0, [10, 20]] = given[0, [20, 10]]
    for layer in range(4):
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}
        one = SmolLM3Config(
            num_hidden_layers=1,
            no_rope_layers=config.no_rope_layers[layer : layer + 1],
            layer_types=config.layer_types[layer : layer + 1],
            use_sliding_window=config.use_sliding_window,
            sliding_window=16,
            rope_parameters=config.rope_parameters,
            vocab_size=64,
            pad_token_id=0,
            **sizes,
        )
        torch.manual_seed(0)
        model = SmolLM3ForCausalLM(one).eval()
        last, other, order = (logits(model, each)[0, -1] for each in (given, far, swapped))
        sees_all = layer == 3
        assert torch.equal(last, other) != sees_all
        assert torch.allclose(last, order, atol=1e-6) == sees_all
