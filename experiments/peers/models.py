"""The same Transformer as others build it: x-transformers, Hugging Face's, and plain torch.

All have the shape of ours: as many layers, heads and dimensions, a feed-forward of eight squares of the width in all,
and the vocabulary apart from its embedding; parameters differ by less than 8 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import pe_zoo
from experiments.model.transformer import Transformer
from pe_zoo import Geometry

PLAIN, FLASH = "as it comes", "fused attention"
"""Settings of a peer. Each is measured in its own precision and under bfloat16 autocast."""

OF_X_TRANSFORMERS: dict[str, dict[str, Any]] = {
    "none": {},
    "sinusoidal": {},
    "learned": {},
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
"""What our encoders are called there, as options of its decoder."""
WITHOUT_FLASH = {"t5", "dynamic_bias", "cope", "fox", "relative_projection"}
"""Those that it refuses to compute with the fused kernel, or that replace it."""


@dataclass(frozen=True)
class Contender:
    """One way to build the model: who does, with which setting, and how; ``autocast`` where matrices are bfloat16."""

    library: str
    setting: str
    build: Callable[[], nn.Module]
    autocast: bool = False

    @property
    def name(self) -> str:
        return f"{self.library}, {self.setting}" + (", bfloat16 autocast" if self.autocast else "")


def contenders(encoder: str, geometry: Geometry, vocab: int) -> Iterator[Contender]:
    """Every peer that has the encoder, in every setting that it can be run in."""
    for library, setting, build in _peers(encoder, geometry, vocab):
        for autocast in (False, True):
            yield Contender(library, setting, build, autocast)


def ours(encoder: str, geometry: Geometry, vocab: int) -> Transformer:
    """Our model, a learned table with as many rows as it is trained on, which is what the others have."""
    knobs = {"num_rows": geometry.train_length} if encoder == "learned" else {}
    return Transformer(vocab, geometry, pe_zoo.build(encoder, geometry, **knobs))


def logits_of(model: nn.Module, tokens: Tensor) -> Tensor:
    """``(batch, length, vocab)``, whatever the library wraps them in."""
    found = model(tokens)
    return found if isinstance(found, Tensor) else found.logits


def _peers(encoder: str, geometry: Geometry, vocab: int) -> Iterator[tuple[str, str, Callable[[], nn.Module]]]:
    if encoder in OF_X_TRANSFORMERS:
        yield "x-transformers", PLAIN, lambda: _x_transformers(encoder, geometry, vocab, flash=False)
        if encoder not in WITHOUT_FLASH:
            yield "x-transformers", FLASH, lambda: _x_transformers(encoder, geometry, vocab, flash=True)
    if encoder in _OF_TRANSFORMERS:
        yield "transformers", PLAIN, lambda: _OF_TRANSFORMERS[encoder](geometry, vocab)
    if encoder == "none":
        yield "plain torch", FLASH, lambda: PlainTorch(geometry, vocab)


def _x_transformers(encoder: str, geometry: Geometry, vocab: int, *, flash: bool) -> nn.Module:
    from loguru import logger
    from x_transformers import Decoder, TransformerWrapper

    logger.disable("x_transformers")  # what it finds unusual about models this small
    options = dict(OF_X_TRANSFORMERS[encoder])
    if encoder == "alibi":
        options["alibi_num_heads"] = geometry.num_heads
    if encoder == "relative_projection":
        options["attn_rel_proj_max_dist"] = min(1024, geometry.train_length)
    layers = Decoder(
        dim=geometry.model_dim,
        depth=geometry.num_layers,
        heads=geometry.num_heads,
        attn_dim_head=geometry.head_dim,
        attn_flash=flash,
        **options,
    )
    return TransformerWrapper(
        num_tokens=vocab,
        max_seq_len=geometry.train_length,
        attn_layers=layers,
        use_abs_pos_emb=encoder in ("learned", "sinusoidal"),
        scaled_sinu_pos_emb=encoder == "sinusoidal",
    )


def _gpt2(geometry: Geometry, vocab: int) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=vocab,
            n_positions=geometry.train_length,
            n_embd=geometry.model_dim,
            n_layer=geometry.num_layers,
            n_head=geometry.num_heads,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
            **_WITHOUT_SPECIAL_TOKENS,
        )
    )


def _llama(geometry: Geometry, vocab: int) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab,
            hidden_size=geometry.model_dim,
            intermediate_size=geometry.model_dim * 8 // 3,
            num_hidden_layers=geometry.num_layers,
            num_attention_heads=geometry.num_heads,
            max_position_embeddings=geometry.train_length,
            **_WITHOUT_SPECIAL_TOKENS,
        )
    )


def _bloom(geometry: Geometry, vocab: int) -> nn.Module:
    from transformers import BloomConfig, BloomForCausalLM

    return BloomForCausalLM(
        BloomConfig(
            vocab_size=vocab,
            hidden_size=geometry.model_dim,
            n_layer=geometry.num_layers,
            n_head=geometry.num_heads,
            **_WITHOUT_SPECIAL_TOKENS,
        )
    )


_WITHOUT_SPECIAL_TOKENS: dict[str, Any] = {
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "use_cache": False,
}
_OF_TRANSFORMERS = {"learned": _gpt2, "rope": _llama, "alibi": _bloom}


class PlainTorch(nn.Module):
    """A decoder without positions that asks torch for causal attention and knows nothing of encoders.

    It stands for any small code base of that kind, and for the least that a model of this shape costs.
    """

    def __init__(self, geometry: Geometry, vocab: int) -> None:
        super().__init__()
        dim = geometry.model_dim
        self.num_heads = geometry.num_heads
        self.embedding = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(dim, bias=False),
                    "mixed": nn.Linear(dim, 3 * dim, bias=False),
                    "out": nn.Linear(dim, dim, bias=False),
                    "ffn": nn.Sequential(
                        nn.LayerNorm(dim, bias=False),
                        nn.Linear(dim, 4 * dim, bias=False),
                        nn.GELU(),
                        nn.Linear(4 * dim, dim, bias=False),
                    ),
                }
            )
            for _ in range(geometry.num_layers)
        )
        self.unembedding = nn.Sequential(nn.LayerNorm(dim, bias=False), nn.Linear(dim, vocab, bias=False))

    def forward(self, tokens: Tensor) -> Tensor:
        stream = self.embedding(tokens)
        for layer in self.layers:
            assert isinstance(layer, nn.ModuleDict)
            mixed = layer["mixed"](layer["norm"](stream)).unflatten(-1, (3, self.num_heads, -1))
            q, k, v = mixed.permute(2, 0, 3, 1, 4)
            found = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            stream = stream + layer["out"](found.transpose(1, 2).flatten(-2))
            stream = stream + layer["ffn"](stream)
        return self.unembedding(stream)


def peer_step(model: nn.Module, tokens: Tensor, *, autocast: bool) -> Callable[[], Tensor]:
    """One optimizer step of a peer on fixed tokens, with the optimizer and the clipping that ours has."""
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-3, betas=(0.9, 0.98), fused=True)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=autocast):
            logits = logits_of(model, tokens)[:, :-1]
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def missing() -> list[str]:
    """Libraries that are compared with and not there."""
    return [name for name in ("x_transformers", "transformers") if find_spec(name) is None]
