"""Which decoders of the installed Transformers take an encoder, found by trying each, small and with random weights."""

import inspect
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils.logging import set_verbosity_error

from pe_zoo import Unsupported
from pe_zoo.hf.listen import read, tokens_for
from pe_zoo.hf.swap import use

SUPPORTED, REFUSED, UNTESTED = "supported", "refused", "untested"
NAMES = sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
MOST_PARAMETERS = 3e7
SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "embed_dim", "word_embed_proj_dim"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim", "decoder_ffn_dim", "vocab_size"), 64),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 128),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok", "eos_token_id"), 2),
    "moe_intermediate_size": 32,
    "head_dim": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
}
"""What makes a configuration small, under the names that families have for it."""


@dataclass(frozen=True)
class Family:
    """A family of models, what became of the trial, and why."""

    name: str
    outcome: str
    reason: str = ""


def families() -> Iterator[Family]:
    """Try every causal language model of the installed Transformers."""
    set_verbosity_error()
    for name in NAMES:
        yield tried(name)


def tried(name: str) -> Family:
    """Try one family."""
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        try:
            model = small(name)
        except ValueError as reason:
            return Family(name, UNTESTED, str(reason))
        try:
            use(model, "fox")
        except Unsupported as reason:
            return Family(name, REFUSED, str(reason))
        faults = [fault for fault, size in trial(model).items() if size > 1e-4]
    return Family(name, REFUSED, "; ".join(faults)) if faults else Family(name, SUPPORTED)


def small(name: str) -> PreTrainedModel:
    """A small model of a family, with random weights; ValueError if no sizes fit it."""
    reasons = []
    for sizes in (SIZES, SIZES | {"num_key_value_heads": 4}, SIZES | {"num_key_value_heads": 4, "head_dim": None}):
        try:
            model = _of_size(name, sizes)
            read(model, torch.arange(3, 8)[None])
            return model
        except Exception as error:  # noqa: BLE001  families want different sizes, and say so in different ways
            reasons.append(f"no small model: {type(error).__name__}: {' '.join(str(error).split())[:100]}")
    raise ValueError(reasons[0])


def _of_size(name: str, sizes: Mapping[str, Any]) -> PreTrainedModel:
    cls = CONFIG_MAPPING[name]
    known = {*inspect.signature(cls).parameters, *(field.name for field in fields(cls)), *cls.attribute_map}
    config = cls(**{size: value for size, value in sizes.items() if size in known and value is not None})
    with torch.device("meta"):
        count = sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())
    if count > MOST_PARAMETERS:
        raise ValueError(f"{count / 1e6:.0f} million parameters")
    return AutoModelForCausalLM.from_config(config).eval()


def trial(model: PreTrainedModel, length: int = 12, prompt: int = 7) -> dict[str, float]:
    """How far a model in which an encoder is used misses what must hold of every causal one, by what that is."""
    tokens = tokens_for(model, length)
    whole, others = read(model, tokens), tokens.clone()
    others[:, -1] = tokens[:, 0]
    with torch.no_grad():
        parts = [model(input_ids=tokens[:, :prompt], use_cache=True)]
        for place in range(prompt, length):
            cache = parts[-1].past_key_values
            parts.append(model(input_ids=tokens[:, place : place + 1], past_key_values=cache, use_cache=True))
    return {
        "sees the future": _gap(read(model, others)[:, :-1], whole[:, :-1]),
        "cached decoding differs from the whole pass": _gap(torch.cat([part.logits for part in parts], 1), whole),
        "padding on the left changes the result": _gap(_padded(model, tokens), whole),
    }


def _padded(model: PreTrainedModel, tokens: Tensor, padding: int = 3) -> Tensor:
    seen = torch.ones(1, padding + tokens.shape[-1], dtype=torch.long)
    seen[:, :padding] = 0
    longer = torch.cat([torch.zeros(1, padding, dtype=torch.long), tokens], 1)
    positions = (seen.cumsum(-1) - 1).clamp(min=0)
    return read(model, longer, attention_mask=seen, position_ids=positions)[:, padding:]


def _gap(a: Tensor, b: Tensor) -> float:
    return (a - b).abs().max().item()
