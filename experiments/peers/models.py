"""The same Transformer in x-transformers, Hugging Face Transformers and plain torch.

All have our shape: the same layers, heads and dimensions, feed-forward matrices of eight squares of the width in all,
and an unembedding of its own; parameters differ by less than 8 %.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from loguru import logger
from torch import Tensor, nn
from torch.nn import functional
from transformers import BloomConfig, BloomForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from x_transformers import Decoder, TransformerWrapper

import pe_zoo
from experiments.model.transformer import Transformer
from experiments.tasks import Batch
from pe_zoo import Geometry

logger.disable("x_transformers")  # its remarks about models this small

PLAIN, FLASH = "as it comes", "fused attention"
"""Settings of a peer. Each is measured in its own precision and under bfloat16 autocast."""
OF_X_TRANSFORMERS: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("none", "sinusoidal", "learned")},
    "rope": {"rotary_pos_emb": True},
    "xpos": {"rotary_xpos": True},
    "rope_linear": {"rotary_pos_emb": True, "rotary_interpolation_factor": 4.0},
    "rope_ntk": {"rotary_pos_emb": True, "rotary_base_rescale_factor": 4.0},
    "pope": {"polar_pos_emb": True},
    "alibi": {"alibi_pos_bias": True},
    "t5": {"rel_pos_bias": True},
    "dynamic_bias": {"dynamic_pos_bias": True},
    "cope": {"attn_use_cope": True},
    "fox": {"attn_data_dependent_alibi": True},
    "relative_projection": {"attn_use_rel_proj_pos_bias": True},
}
"""Our encoders as options of its decoder."""
WITHOUT_FLASH = {"t5", "dynamic_bias", "cope", "fox", "relative_projection"}
"""Those that its fused kernel does not support."""


@dataclass(frozen=True)
class Contender:
    """A library in one setting; ``autocast`` to bfloat16 or not."""

    library: str
    setting: str
    build: Callable[[], nn.Module]
    autocast: bool = False

    @property
    def name(self) -> str:
        return f"{self.library}, {self.setting}" + (", bfloat16 autocast" if self.autocast else "")


def contenders(encoder: str, geometry: Geometry, vocab: int) -> Iterator[Contender]:
    """Yield every peer that has the encoder, in every setting that it supports."""
    builders: dict[tuple[str, str], Callable[..., nn.Module]] = {}
    if encoder in OF_X_TRANSFORMERS:
        builders["x-transformers", PLAIN] = partial(_x_transformers, encoder, flash=False)
        if encoder not in WITHOUT_FLASH:
            builders["x-transformers", FLASH] = partial(_x_transformers, encoder, flash=True)
    if encoder in ("learned", "rope", "alibi"):
        builders["transformers", PLAIN] = partial(_transformers, encoder)
    if encoder == "none":
        builders["plain torch", FLASH] = PlainTorch
    for (library, setting), build in builders.items():
        for autocast in (False, True):
            yield Contender(library, setting, partial(build, geometry, vocab), autocast)


def ours(encoder: str, geometry: Geometry, vocab: int) -> Transformer:
    """Build our model; a learned table has ``train_length`` rows, as the others' have."""
    knobs = {"num_rows": geometry.train_length} if encoder == "learned" else {}
    return Transformer(vocab, geometry, pe_zoo.build(encoder, geometry, **knobs))


def logits_of(model: nn.Module, tokens: Tensor) -> Tensor:
    """Return logits, ``(batch, length, vocab)``, whatever the library wraps them in."""
    output = model(tokens)
    return output if isinstance(output, Tensor) else output.logits


def _x_transformers(encoder: str, geometry: Geometry, vocab: int, *, flash: bool) -> nn.Module:
    options = {"dim": geometry.model_dim, "depth": geometry.num_layers, "heads": geometry.num_heads}
    options |= {"attn_dim_head": geometry.head_dim, "attn_flash": flash, **OF_X_TRANSFORMERS[encoder]}
    if encoder == "alibi":
        options["alibi_num_heads"] = geometry.num_heads
    if encoder == "relative_projection":
        options["attn_rel_proj_max_dist"] = min(1024, geometry.train_length)
    return TransformerWrapper(
        num_tokens=vocab,
        max_seq_len=geometry.train_length,
        attn_layers=Decoder(**options),
        use_abs_pos_emb=encoder in ("learned", "sinusoidal"),
        scaled_sinu_pos_emb=encoder == "sinusoidal",
    )


def _transformers(encoder: str, geometry: Geometry, vocab: int) -> nn.Module:
    dim, layers, heads, length = geometry.model_dim, geometry.num_layers, geometry.num_heads, geometry.train_length
    shared: dict[str, Any] = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    shared |= {"vocab_size": vocab, "use_cache": False}
    if encoder == "learned":
        shared |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0)
        return GPT2LMHeadModel(GPT2Config(n_positions=length, n_embd=dim, n_layer=layers, n_head=heads, **shared))
    if encoder == "alibi":
        return BloomForCausalLM(BloomConfig(hidden_size=dim, n_layer=layers, n_head=heads, **shared))
    return llama(geometry, vocab)


def llama(geometry: Geometry, vocab: int) -> LlamaForCausalLM:
    """Build Llama with its own rotary positions."""
    config: dict[str, Any] = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    config |= {"num_hidden_layers": geometry.num_layers, "num_attention_heads": geometry.num_heads}
    config |= {"hidden_size": geometry.model_dim, "intermediate_size": geometry.model_dim * 8 // 3}
    config |= {"max_position_embeddings": geometry.train_length}
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocab, use_cache=False, **config))


class PlainTorch(nn.Module):
    """A decoder without positions on torch's causal attention: the least that a model of this shape costs."""

    def __init__(self, geometry: Geometry, vocab: int) -> None:
        super().__init__()
        dim, self.num_heads = geometry.model_dim, geometry.num_heads
        norm, linear = partial(nn.LayerNorm, dim, bias=False), partial(nn.Linear, bias=False)
        self.embedding = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList()
        for _ in range(geometry.num_layers):
            layer = {"norm": norm(), "mixed": linear(dim, 3 * dim), "out": linear(dim, dim)}
            ffn = nn.Sequential(norm(), linear(dim, 4 * dim), nn.GELU(), linear(4 * dim, dim))
            self.layers.append(nn.ModuleDict({**layer, "ffn": ffn}))
        self.unembedding = nn.Sequential(norm(), linear(dim, vocab))

    def forward(self, tokens: Tensor) -> Tensor:
        stream = self.embedding(tokens)
        for layer in self.layers:
            assert isinstance(layer, nn.ModuleDict)
            mixed = layer["mixed"](layer["norm"](stream)).unflatten(-1, (3, self.num_heads, -1))
            q, k, v = mixed.permute(2, 0, 3, 1, 4)
            outputs = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            stream = stream + layer["out"](outputs.transpose(1, 2).flatten(-2))
            stream = stream + layer["ffn"](stream)
        return self.unembedding(stream)


def peer_step(model: nn.Module, *, autocast: bool) -> Callable[[Batch], Tensor]:
    """Return what takes an optimizer step of a peer on a batch, with our optimizer and clipping."""
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-3, betas=(0.9, 0.98), fused=True)

    def step(batch: Batch) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(batch.tokens.device.type, torch.bfloat16, enabled=autocast):
            logits = logits_of(model, batch.tokens)[:, batch.counted]
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), batch.targets[:, batch.counted].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step
