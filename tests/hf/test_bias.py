"""A bias made of one row, and a bias that is learned on a CPU, both equal to the definition."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention

import pe_zoo.hf
from pe_zoo import Encoder, Geometry, Site
from pe_zoo.hf import bias, flex

BY_DISTANCE = [
    name for name in pe_zoo.names() if pe_zoo.get(name).distance_bias and not pe_zoo.get(name).overrides("mix")
]
GEOMETRY = Geometry(model_dim=32, num_heads=4, num_layers=2, train_length=32)


def site(positions: Tensor, queries: int, *, causal: bool = True) -> Site:
    keys = positions.shape[-1]
    mask = torch.ones(queries, keys, dtype=torch.bool)
    rows = slice(keys - queries, keys)
    where = {"query_positions": positions[..., rows], "key_positions": positions, "rows": rows}
    return Site(layer=1, mask=mask.tril(keys - queries) if causal else mask, causal=causal, **where)


def asked(encoder: Encoder, q: Tensor, k: Tensor, there: Site) -> tuple[Tensor, list[int]]:
    """The bias, and how many queries the encoder was asked about."""
    queries: list[int] = []
    plain = encoder.score
    encoder.score = lambda scores, *more: queries.append(scores.shape[-2]) or plain(scores, *more)  # type: ignore
    return bias.made(encoder, q, k, there), queries


@pytest.mark.parametrize("name", BY_DISTANCE)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("positions", "queries", "row"),
    [
        (torch.arange(9.0), 9, True),
        (torch.arange(9.0) * 2 + 5, 4, True),
        (torch.arange(7.0), 1, True),
        (torch.zeros(1), 1, True),
        (torch.tensor([0.0, 1.0, 2.0, 5.0]), 4, False),
        (torch.arange(6.0).expand(2, -1), 6, False),
    ],
)
def test_one_row_has_the_whole_bias(name: str, causal: bool, positions: Tensor, queries: int, row: bool) -> None:
    encoder = pe_zoo.build(name, GEOMETRY)
    there, k = site(positions, queries, causal=causal), torch.randn(2, 4, positions.shape[-1], 8)
    q = k[:, :, :queries]
    whole = encoder.score(q.new_zeros(1, 1, queries, k.shape[-2]), q, k, there)
    found, queries_asked = asked(encoder, q, k, there)
    assert queries_asked == [1 if row else queries]
    torch.testing.assert_close(found, whole.expand_as(found))


def test_there_are_such_encoders() -> None:
    assert {"alibi", "t5", "kerple_log"} <= set(BY_DISTANCE)


@pytest.mark.parametrize("queries", [150, 65, 3])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("kind", ["causal", "window", "padded", "everything"])
def test_a_learned_bias_has_the_gradients_of_the_definition(queries: int, rows: int, kind: str) -> None:
    keys, torch_kernel = 150, functional.scaled_dot_product_attention
    shapes = (2, 4, queries, 8), (2, 4, keys, 8), (2, 4, keys, 8), (rows, 4, queries, keys)
    given = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    mask = torch.ones(2, 1, queries, keys, dtype=torch.bool)
    if kind != "everything":
        mask = mask.tril(keys - queries)
    if kind == "window":
        mask = mask.triu(keys - queries - 20)
    if kind == "padded":
        mask[1, ..., :20] = False
        mask |= torch.ones(queries, keys, dtype=torch.bool).triu(keys - queries).tril(keys - queries)
    q, k, v, added = given
    wanted = torch_kernel(q, k, v, attn_mask=added.masked_fill(~mask, -torch.inf), scale=0.3)
    weight = torch.randn_like(wanted)
    expected = torch.autograd.grad(wanted, given, weight)
    found = bias.learned(q, k, v, added, mask, 0.3)
    torch.testing.assert_close(found, wanted)
    for one, other in zip(torch.autograd.grad(found, given, weight), expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", ["alibi", "t5", "fox", "rope", "none", "learned"])
@pytest.mark.parametrize("padded", [False, True])
def test_flex_attention_attends_alike(name: str, padded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU has no compiled kernel that takes a bias; the uncompiled one has the same arguments."""
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=64, max_position_embeddings=64)
    model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="flex_attention").eval()
    encoder = pe_zoo.hf.use(model, name)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter))
    given = {"input_ids": torch.randint(64, (2, 11)), "attention_mask": torch.ones(2, 11, dtype=torch.long)}
    given["attention_mask"][0, :4] = 0 if padded else 1
    if padded:
        given["position_ids"] = (given["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    calls = []

    def uncompiled(*tensors: Tensor, training: bool, **more: object) -> Tensor:
        calls.append(training)
        return flex_attention(*tensors, **more)  # type: ignore[arg-type, return-value]

    with torch.no_grad():
        wanted = model(**given).logits
        assert not calls
        monkeypatch.setattr(flex, "compile_friendly_flex_attention", uncompiled)
        monkeypatch.setattr(flex, "serves", lambda *_: True)
        found = model(**given).logits
    assert calls == [False, False]
    torch.testing.assert_close(found[given["attention_mask"].bool()], wanted[given["attention_mask"].bool()])
