"""The bench's Transformer is a Starcoder2 without biases: with the same weights, the same logits and gradients."""

from __future__ import annotations

import pytest
import torch
import transformers
from support import as_new

import pe_zoo.hf
from experiments.model.transformer import Layer, Transformer
from pe_zoo import Geometry

GEOMETRY = Geometry(model_dim=32, num_heads=4, num_layers=2, train_length=32)


def twin(ours: Transformer) -> transformers.PreTrainedModel:
    config = transformers.Starcoder2Config(
        vocab_size=ours.vocab_size,
        hidden_size=GEOMETRY.model_dim,
        intermediate_size=4 * GEOMETRY.model_dim,
        num_hidden_layers=GEOMETRY.num_layers,
        num_attention_heads=GEOMETRY.num_heads,
        num_key_value_heads=GEOMETRY.num_heads,
        max_position_embeddings=GEOMETRY.train_length,
        hidden_act="gelu",
        use_bias=False,
        tie_word_embeddings=False,
        sliding_window=None,
    )
    theirs = transformers.Starcoder2ForCausalLM(config)
    pairs = [
        (theirs.model.embed_tokens, ours.token_embedding.weight),
        (theirs.model.norm, ours.norm.weight),
        (theirs.lm_head, ours.unembedding.weight),
    ]
    for there, here in zip(theirs.model.layers, ours.layers, strict=True):
        assert isinstance(here, Layer)
        attention, whole = there.self_attn, here.attention_in.weight.chunk(3)
        pairs += zip((attention.q_proj, attention.k_proj, attention.v_proj), whole, strict=True)
        pairs += [(attention.o_proj, here.attention_out.weight), (there.input_layernorm, here.attention_norm.weight)]
        pairs += [(there.mlp.c_fc, here.ffn_in.weight), (there.mlp.c_proj, here.ffn_out.weight)]
        pairs += [(there.post_attention_layernorm, here.ffn_norm.weight)]
    with torch.no_grad():
        for module, weight in pairs:
            module.weight.copy_(weight)
    return theirs


@pytest.mark.parametrize("name", pe_zoo.names())
@pytest.mark.filterwarnings("ignore:with base= alone")
def test_the_same_weights_give_the_same_logits_and_gradients(name: str) -> None:
    encoder = pe_zoo.build(name, GEOMETRY)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    ours = Transformer(40, GEOMETRY, encoder)
    theirs, tokens = twin(ours), torch.randint(40, (2, 24))
    there = pe_zoo.hf.use(theirs, name, **as_new(name))
    there.load_state_dict(encoder.state_dict())
    expected, found = ours(tokens), theirs(input_ids=tokens).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    for logits in (expected, found):
        logits.logsumexp(-1).mean().backward()
    for (label, wanted), got in zip(encoder.named_parameters(), there.parameters(), strict=True):
        torch.testing.assert_close(got.grad, wanted.grad, rtol=1e-4, atol=1e-6, msg=label)
    torch.testing.assert_close(theirs.lm_head.weight.grad, ours.unembedding.weight.grad, rtol=1e-4, atol=1e-6)
