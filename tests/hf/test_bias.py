"""A bias made of one row, and a bias that is learned on a CPU, both equal to the definition."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import pe_zoo
from pe_zoo import Encoder, Geometry, Site
from pe_zoo.hf import bias

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
