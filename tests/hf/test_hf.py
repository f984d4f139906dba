"""Any encoder in a decoder of Transformers: the same attention as ours, cached, padded, saved, trained."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
import torch
import transformers
from support import ROOT, as_new
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import PreTrainedModel

import pe_zoo
import pe_zoo.hf
from pe_zoo import Geometry, Unsupported
from pe_zoo._contract.bench import some_positions
from pe_zoo.hf.__main__ import main, written
from pe_zoo.hf.families import REFUSED, SUPPORTED, UNTESTED, small, trial, tried
from pe_zoo.hf.seat import seat_of

FAMILIES = (
    *("llama", "mistral", "qwen2", "qwen3", "gemma3_text", "olmo2", "phi3", "gpt_neox", "gpt2", "granite", "smollm3"),
    "mixtral",
)
REFUSALS = {
    "gemma2": "softcapping",
    "gpt_oss": "sinks",
    "deepseek_v2": "multi-head latent attention",
    "bart": "^bart's BartAttention is not given position_ids",
    "bert": "^bert is no causal decoder: bert's BertSelfAttention is not given position_ids",
    "falcon": "AttentionInterface",
    "minimax": "more than its attention",
}
KINDS = (
    *("sinusoidal", "learned", "t5", "fire", "rope", "xpos", "pope", "mla_rope", "repo", "dual_chunk", "fox", "cope"),
    *("transformer_xl", "tupe", "path", "short_convolution"),
)
"""Encoders of every kind, by what they change: inputs, scores, rotations of all or of a part, values, weights."""
EVERYWHERE = [(family, name) for family in FAMILIES for name in KINDS]
BY_INDEX = {"tupe"}
"""Counts tokens from the start of the tensor, padding included: its first token is one of a kind."""


def tokens(batch: int = 2, length: int = 12) -> Tensor:
    return torch.randint(3, 64, (batch, length))


def moved(encoder: pe_zoo.Encoder) -> None:
    """Parameters at which the encoder does something."""
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))


@pytest.mark.parametrize(
    ("family", "name"),
    dict.fromkeys([*EVERYWHERE, *((family, name) for family in ("llama", "gpt_neox") for name in pe_zoo.names())]),
)
def test_every_encoder_and_every_family(family: str, name: str) -> None:
    """A family meets encoders of every kind, and every encoder a family of whole and one of partial rotations."""
    model = small(family)
    rotates_a_part = family == "gpt_neox" and pe_zoo.get(name).extends == "rope"
    encoder = pe_zoo.hf.use(model, name, **({"base": 10000.0} if rotates_a_part else {}))
    moved(encoder)
    for fault, size in trial(model).items():
        assert size < 1e-4 or (name in BY_INDEX and "left" in fault), f"{fault}: {size}"
    model(input_ids=tokens()).logits.pow(2).sum().backward()
    for label, parameter in encoder.named_parameters():
        assert parameter.grad is not None, label
        assert parameter.grad.abs().sum() > 0, label


@pytest.mark.parametrize("family", REFUSALS)
def test_what_would_be_lost_is_refused(family: str) -> None:
    model = small(family)
    before = model(input_ids=tokens(1)[:, :5])
    with pytest.raises(Unsupported, match=REFUSALS[family]):
        pe_zoo.hf.use(model, "alibi")
    assert model.config._attn_implementation != "pe_zoo"
    assert before is not None


def test_no_decoder_of_transformers_is_refused() -> None:
    sizes = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4}
    both = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes))
    with pytest.raises(Unsupported, match="t5 has an encoder and a decoder"):
        pe_zoo.hf.use(both, "alibi")
    with pytest.raises(TypeError, match="a Linear is no model of Transformers"):
        pe_zoo.hf.use(nn.Linear(2, 2), "alibi")  # type: ignore[arg-type]
    apart = llama()
    apart.hf_device_map = {"model.layers.0": 0, "model.layers.1": 1}
    with pytest.raises(Unsupported, match="on 2 devices"):
        pe_zoo.hf.use(apart, "alibi")


@pytest.mark.parametrize("name", ["rope", "fox", "alibi", "t5", "stick_breaking"])
def test_a_sliding_window_is_kept(name: str) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    shape = {**sizes, "num_key_value_heads": 2, "vocab_size": 64, "max_position_embeddings": 64, "sliding_window": 4}
    model, given = transformers.MistralForCausalLM(transformers.MistralConfig(**shape)).eval(), tokens(1, 20)
    before = logits(model, given)
    encoder = pe_zoo.hf.use(model, name, **({"pairing": "half"} if name == "rope" else {}))
    if name == "rope":
        torch.testing.assert_close(logits(model, given), before, atol=1e-5, rtol=0)
    moved(encoder)
    for fault, size in trial(model, 20, 9).items():  # longer than the window, which the cache keeps alone
        assert size < 1e-4, fault
    other = given.clone()
    other[:, 0] = (other[:, 0] + 1) % 64
    reached = (logits(model, other) - logits(model, given)).abs().amax(-1)[0] > 1e-6
    assert reached.nonzero().max() == 2 * 3  # two layers, each three tokens back


def llama(**sizes: int) -> PreTrainedModel:
    torch.manual_seed(1)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
    given = {**shape, "num_key_value_heads": 2, "vocab_size": 64, "max_position_embeddings": 64, **sizes}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**given, attn_implementation="sdpa")).eval()


def logits(model: nn.Module, given: Tensor, **more: object) -> Tensor:
    with torch.no_grad():
        return model(input_ids=given, **more).logits


@pytest.mark.parametrize("name", pe_zoo.names())
@pytest.mark.filterwarnings("ignore:with base= alone")
def test_each_layer_attends_as_the_contract_says(name: str) -> None:
    model, seen = llama(), []
    encoder = pe_zoo.hf.use(model, name, **as_new(name))
    moved(encoder)
    for layer in model.model.layers:
        layer.self_attn.register_forward_hook(
            lambda module, _, given, out: seen.append((module, given["hidden_states"], out[0])), with_kwargs=True
        )
    logits(model, tokens())
    for number, (module, x, out) in enumerate(seen):
        q, k, v = (
            each.weight.new_tensor(each(x).detach().numpy()).unflatten(-1, (-1, 8)).transpose(1, 2)
            for each in (module.q_proj, module.k_proj, module.v_proj)
        )
        k, v = (each.repeat_interleave(2, 1) for each in (k, v))
        positions = torch.arange(12.0)
        mask = torch.ones(12, 12, dtype=torch.bool).tril()
        site = pe_zoo.Site(
            layer=number,
            query_positions=positions,
            key_positions=positions,
            rows=slice(0, 12),
            mask=mask,
            causal=True,
            x=x,
        )
        with torch.no_grad():
            scores = pe_zoo.scores(encoder, q, k, layer=number, x=x)
            mixed = encoder.mix(scores.masked_fill(~mask, -torch.inf), v, site)
            expected = module.o_proj(mixed.transpose(1, 2).flatten(-2))
        torch.testing.assert_close(out, expected, atol=1e-5, rtol=0)
    assert len(seen) == 3


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "gpt2"])
def test_the_same_rotation_changes_nothing(family: str) -> None:
    model, given = small(family), tokens()
    before, parameters = logits(model, given), model.config.rope_parameters
    if family == "gemma3_text":  # two bases, for local and for global layers
        for kind, base in ((kind, each["rope_theta"]) for kind, each in parameters.items()):
            layers = [layer for layer, of in enumerate(model.config.layer_types) if of == kind]
            if layers:
                pe_zoo.hf.use(model, "rope", layers=layers, pairing="half", base=base)
    else:
        skipped = [layer for layer, on in enumerate(getattr(model.config, "no_rope_layers", None) or []) if not on]
        layers = [layer for layer in range(model.config.num_hidden_layers) if layer not in skipped]
        own = {"base": parameters["rope_theta"], "fraction": parameters.get("partial_rotary_factor", 1.0)}
        pe_zoo.hf.use(model, "rope", layers=layers, pairing="half", **own)
    torch.testing.assert_close(logits(model, given), before, atol=1e-5, rtol=0)


def test_a_table_of_its_own_changes_nothing() -> None:
    model, given = small("gpt2"), tokens()
    before = logits(model, given)
    encoder = pe_zoo.hf.use(model, "learned", num_rows=128)
    assert not torch.allclose(logits(model, given), before, atol=1e-3)
    with torch.no_grad():
        encoder.table.copy_(model.transformer.wpe.weight)
    torch.testing.assert_close(logits(model, given), before, atol=1e-5, rtol=0)


def test_some_layers_get_it_and_the_others_keep_what_they_had() -> None:
    model, given = llama(), tokens()
    before, rotary = logits(model, given), {"pairing": "half", "base": 10000.0}
    pe_zoo.hf.use(model, "rope", layers=[0, 2], **rotary)
    torch.testing.assert_close(logits(model, given), before, atol=1e-5, rtol=0)
    assert [seat_of(layer.self_attn) is not None for layer in model.model.layers] == [True, False, True]
    pe_zoo.hf.use(model, "alibi", layers=[2])
    both = logits(model, given)
    assert not torch.allclose(both, before, atol=1e-4)
    assert [spec["name"] for spec in model.config.pe_zoo] == ["rope", "alibi"]
    pe_zoo.hf.use(model, "rope", layers=[2], **rotary)
    torch.testing.assert_close(logits(model, given), before, atol=1e-5, rtol=0)
    assert [spec["name"] for spec in model.config.pe_zoo] == ["rope", "rope"]
    pe_zoo.hf.use(model, "none")
    assert len(model.config.pe_zoo) == 1
    pe_zoo.hf.restore(model)
    assert torch.equal(logits(model, given), before)
    assert not hasattr(model.config, "pe_zoo")
    pe_zoo.hf.restore(model)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "ropee"}, "no encoder named 'ropee'"),
        ({"name": "rope", "bas": 3}, "bas"),
        ({"name": "rope", "base": -1}, "base"),
        ({"name": "alibi", "layers": [7]}, "no attention in layer 7; here: 0, 1, 2"),
        ({"name": "alibi", "layers": []}, "names no layer"),
        ({"name": "sinusoidal", "layers": [0]}, "leave layers= out"),
    ],
)
def test_a_mistake_changes_nothing(given: dict[str, object], message: str) -> None:
    model, some = llama(), tokens()
    pe_zoo.hf.use(model, "alibi")
    before = logits(model, some)
    with pytest.raises(ValueError, match=message):
        pe_zoo.hf.use(model, **given)
    assert torch.equal(logits(model, some), before)


@pytest.mark.parametrize("name", ["fox", "rope", "t5", "learned", "stick_breaking"])
@pytest.mark.parametrize(
    "how", [{}, {"num_beams": 3}, {"do_sample": True, "top_k": 5}, {"prompt_lookup_num_tokens": 2}]
)
def test_generation_with_a_cache_equals_generation_without(name: str, how: dict[str, object]) -> None:
    model = llama()
    moved(pe_zoo.hf.use(model, name))
    given = tokens(1 if "prompt_lookup_num_tokens" in how else 2, 6)
    written = []
    for cached in (True, False) if "prompt_lookup_num_tokens" not in how else (True,):
        torch.manual_seed(3)
        written.append(model.generate(given, max_new_tokens=8, use_cache=cached, pad_token_id=0, **how))
    if len(written) == 1:  # only with a cache: against plain greedy generation
        written.append(model.generate(given, max_new_tokens=8, use_cache=False, pad_token_id=0))
    assert written[0].tolist() == written[1].tolist()


@pytest.mark.parametrize("name", ["fox", "alibi", "path"])
def test_prompts_of_different_lengths_in_one_batch(name: str) -> None:
    model, long = llama(), tokens(1, 9)
    moved(pe_zoo.hf.use(model, name))
    short = long[:, 4:]
    padded = torch.cat([torch.cat([torch.zeros(1, 4, dtype=torch.long), short], 1), long])
    seen = torch.ones_like(padded)
    seen[0, :4] = 0
    together = model.generate(padded, attention_mask=seen, max_new_tokens=6, pad_token_id=0, do_sample=False)
    for row, alone in zip(together, (short, long), strict=True):
        assert (
            row[9:].tolist() == model.generate(alone, max_new_tokens=6, pad_token_id=0)[0, alone.shape[-1] :].tolist()
        )


@pytest.mark.parametrize("shards", ["1GB", "10KB"])
def test_saved_and_loaded(tmp_path: Path, shards: str, capfd: pytest.CaptureFixture[str]) -> None:
    model, given = llama(), tokens()
    moved(pe_zoo.hf.use(model, "fox", initial_gate=0.9))
    moved(pe_zoo.hf.use(model, "t5", layers=[1], train_length=32))
    model.save_pretrained(tmp_path, max_shard_size=shards)
    capfd.readouterr()
    again = pe_zoo.hf.load(str(tmp_path))
    assert "UNEXPECTED" not in capfd.readouterr().err
    torch.testing.assert_close(logits(again.eval(), given), logits(model, given))
    assert again.config.pe_zoo == model.config.pe_zoo
    pe_zoo.hf.restore(again)
    again.save_pretrained(tmp_path / "bare")
    with pytest.raises(ValueError, match="saved without an encoder"):
        pe_zoo.hf.load(str(tmp_path / "bare"))


@pytest.mark.parametrize("name", ["fox", "rope", "t5", "none", "path"])
def test_gradient_checkpointing_changes_no_gradient(name: str) -> None:
    model, given, found = llama(), tokens(), []
    moved(pe_zoo.hf.use(model, name))
    for on in (False, True):
        model.train()
        if on:
            model.activation_checkpointing_enable()
        model.zero_grad()
        model(input_ids=given, labels=given).loss.backward()
        found.append([p.grad.clone() for p in model.parameters()])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


def test_compiled() -> None:
    model, given = llama(num_hidden_layers=1), tokens()
    moved(pe_zoo.hf.use(model, "fox"))
    before = logits(model, given)
    torch.testing.assert_close(logits(torch.compile(model, backend="aot_eager"), given), before, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["fox", "rope", "t5", "learned", "stick_breaking"])
def test_copied_and_in_bfloat16(name: str) -> None:
    model, given = llama(), tokens()
    moved(pe_zoo.hf.use(model, name))
    before = logits(model, given)
    twin = copy.deepcopy(model)
    assert torch.equal(logits(twin, given), before)
    moved(twin.model.pe_zoo[0])
    assert torch.equal(logits(model, given), before)
    learns = any(True for _ in twin.model.pe_zoo.parameters())
    assert learns != torch.equal(logits(twin, given), before)
    pe_zoo.hf.restore(twin)
    assert torch.equal(logits(model, given), before)
    torch.testing.assert_close(logits(twin, given), logits(llama(), given))
    low = logits(model.bfloat16(), given).float()
    assert (low - before).abs().max() < 0.1 * before.abs().max()


@pytest.mark.parametrize("name", ["fox", "t5", "stick_breaking"])
def test_attention_weights_on_request(name: str) -> None:
    model, given = llama(), tokens()
    moved(pe_zoo.hf.use(model, name))
    weights = model(input_ids=given, output_attentions=True).attentions
    assert [tuple(each.shape) for each in weights] == [(2, 4, 12, 12)] * 3
    assert torch.equal(weights[0], weights[0].tril())
    if name != "stick_breaking":
        torch.testing.assert_close(weights[0].sum(-1), torch.ones(2, 4, 12))


def test_positions_of_a_users_own() -> None:
    model, given = llama(), tokens()
    pe_zoo.hf.use(model, "alibi")
    places = some_positions(2, 12).long()
    assert not torch.allclose(logits(model, given, position_ids=places), logits(model, given), atol=1e-4)
    with torch.no_grad():
        first = model(input_ids=given[:, :7], position_ids=places[:, :7], use_cache=True)
        rest = model(input_ids=given[:, 7:], position_ids=places[:, 7:], past_key_values=first.past_key_values)
    torch.testing.assert_close(rest.logits, logits(model, given, position_ids=places)[:, 7:], atol=1e-5, rtol=0)


def test_far_positions_survive_a_cache_of_bfloat16() -> None:
    model, given = llama().bfloat16(), tokens(1, 8)
    pe_zoo.hf.use(model, "rope", base=1e6, pairing="interleaved")
    places = torch.arange(8)[None] + 70001
    with torch.no_grad():
        first = model(input_ids=given[:, :7], position_ids=places[:, :7], use_cache=True)
        last = model(input_ids=given[:, 7:], position_ids=places[:, 7:], past_key_values=first.past_key_values)
    torch.testing.assert_close(last.logits[:, 0], logits(model, given, position_ids=places)[:, 7])


def test_the_trainer_trains_the_encoder(tmp_path: Path) -> None:
    model = llama(vocab_size=16)
    encoder = pe_zoo.hf.use(model, "fox", train_length=16)
    before = encoder.weight.detach().clone()
    period = torch.arange(16) % 5 + 3
    data = [{"input_ids": period.roll(-shift), "labels": period.roll(-shift)} for shift in range(5)] * 8
    options = transformers.TrainingArguments(
        str(tmp_path),
        max_steps=30,
        learning_rate=1e-2,
        logging_steps=5,
        per_device_train_batch_size=8,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
    )
    trainer = transformers.Trainer(model, options, train_dataset=data)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < 0.5 * losses[0]
    assert not torch.equal(encoder.weight, before)
    trainer.save_model(str(tmp_path / "trained"))
    again = pe_zoo.hf.load(str(tmp_path / "trained")).eval()
    torch.testing.assert_close(logits(again, period[None]), logits(model.eval(), period[None]))


def test_families_are_tried_and_told() -> None:
    found = {name: tried(name) for name in ("llama", "falcon", "blt")}
    assert [found[name].outcome for name in found] == [SUPPORTED, REFUSED, UNTESTED]
    assert "million parameters" in found["blt"].reason


def test_the_command_tells_an_unknown_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lama"]) == 2
    assert capsys.readouterr().err.startswith("error: no family named 'lama'; there are llama")
    assert main(["llama"]) == 0
    assert "**Supported** (1): `llama`." in capsys.readouterr().out


def test_an_encoder_that_needs_a_geometry_of_its_own_says_so() -> None:
    assert Geometry(model_dim=30, num_heads=4, num_layers=1, train_length=8, head_dim=16).head_dim == 16
    with pytest.raises(ValueError, match="does not divide"):
        Geometry(model_dim=30, num_heads=4, num_layers=1, train_length=8)


def test_the_guide_lists_what_the_command_finds() -> None:
    guide = (ROOT / "docs" / "families.md").read_text(encoding="utf-8")
    asked = [tried(name) for name in (*FAMILIES, *REFUSALS, "blt")]
    supported, untested, _ = (
        guide.partition(f"**{word}**")[2].partition("\n")[0] for word in ("Supported", "Untested", "Refused")
    )
    for family in asked:
        place = {SUPPORTED: supported, UNTESTED: untested, REFUSED: guide}[family.outcome]
        assert (f"| `{family.name}` | {family.reason} |" if family.outcome == REFUSED else f"`{family.name}`") in place
    assert set(written(asked).splitlines()) & set(guide.splitlines())
    (refused,) = (family for family in asked if family.name == "gemma2")
    assert "Supported" not in written([refused])
    assert "Untested" not in written([refused])
    for word, count in re.findall(r"\*\*(\w+)\*\* \((\d+)", guide):
        listed = (
            guide.partition("| family")[2].count("\n| `")
            if word == "Refused"
            else {"Supported": supported, "Untested": untested}[word].count("`") // 2
        )
        assert listed == int(count)
    assert f"one of {supported.count('`') // 2} families" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_learned_bias_goes_by_no_kernel_that_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a bias with a gradient, torch's attention on a CPU takes a third longer than all else of a step."""
    model = llama()
    pe_zoo.hf.use(model, "t5")
    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", None)
    model(input_ids=tokens()).logits.sum().backward()
    with torch.no_grad(), pytest.raises(TypeError):
        model(input_ids=tokens())


def test_a_bias_without_parameters_needs_no_gradient_and_is_made_for_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise no fused kernel takes it, and a training step costs a quarter more."""
    given: list[Tensor] = []
    kernel = torch.nn.functional.scaled_dot_product_attention

    def spy(*tensors: Tensor, attn_mask: Tensor, **others: object) -> Tensor:
        given.append(attn_mask)
        return kernel(*tensors, attn_mask=attn_mask, **others)  # type: ignore[arg-type]

    model = llama()
    pe_zoo.hf.use(model, "alibi")
    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", spy)
    model(input_ids=tokens())
    assert [mask.shape for mask in given] == [(1, 4, 12, 12)] * 3
    assert not any(mask.requires_grad for mask in given)


def _changes_angles_alone(name: str) -> bool:
    cls = pe_zoo.get(name)
    return cls.extends == "rope" and not (cls.overrides("score") or cls.overrides("mix"))


@pytest.mark.parametrize("name", list(filter(_changes_angles_alone, pe_zoo.names())))
def test_what_changes_angles_alone_keeps_the_flash_kernel(name: str) -> None:
    """Also where queries and keys become wider than values, as in longrope; others take thrice as long."""
    pe_zoo.hf.use(model := small("llama").eval(), name)
    with torch.no_grad(), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert model(input_ids=tokens()).logits.isfinite().all()
