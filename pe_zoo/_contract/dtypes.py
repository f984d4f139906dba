"""Promises about shapes, dtypes and precision."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from pe_zoo._contract.bench import (
    BENCH,
    LENGTH,
    VOCAB,
    Bench,
    Maker,
    heads_of,
    hold,
    promise,
    site_of,
    some_inputs,
    some_positions,
    some_tokens,
)
from pe_zoo._encoder import Geometry, scores

GRID = [
    Geometry(model_dim=heads * head_dim, num_heads=heads, num_layers=2, train_length=LENGTH)
    for heads in (2, 3, 6)
    for head_dim in (2, 4, 8)
]


def check_shapes(make: Maker, geometry: Geometry, causal: bool, dtype: torch.dtype, length: int = LENGTH) -> None:
    encoder = make(geometry).to(dtype)
    x = torch.randn(2, length, geometry.model_dim, dtype=dtype)

    def same(what: str, tensor: Tensor, like: Tensor) -> None:
        hold(tensor.shape == like.shape, f"{what} has shape {tuple(tensor.shape)}, not {tuple(like.shape)}")
        hold(tensor.dtype == dtype, f"{what} is {tensor.dtype} for inputs of {dtype}")

    for positions in (torch.arange(length).float(), some_positions(2, length)):
        same("what embed returns", encoder.embed(x, positions), x)
        for queries in {length, 1}:
            site = site_of(positions, causal, x, slice(length - queries, length))
            q, k = heads_of(geometry, 2, queries, dtype), heads_of(geometry, 2, length, dtype)
            rotated_q, rotated_k = encoder.rotate(q, k, site)
            same("q from rotate, its last dimension aside,", rotated_q[..., :0], q[..., :0])
            same("k from rotate, its last dimension aside,", rotated_k[..., :0], k[..., :0])
            wide = rotated_q.shape[-1] == rotated_k.shape[-1] >= geometry.head_dim
            hold(wide, "rotate narrows q and k, or widens them unequally")
            raw = rotated_q @ rotated_k.mT
            changed = encoder.score(raw, rotated_q, rotated_k, site)
            same("what score returns", changed, raw)
            same("what mix returns", encoder.mix(changed.masked_fill(~site.mask, -torch.inf), k, site), q)
            same("pe_zoo.scores", scores(encoder, q, k, positions, x=x, causal=causal), raw)


@promise("Hooks keep shape and dtype, also in half precision, at every geometry that the constructor accepts.")
def check_shapes_at_every_geometry(make: Maker, causal: bool, bench: Bench = BENCH) -> None:
    taken = set()
    for geometry in [bench.geometry, *GRID]:
        try:
            make(geometry)
        except ValueError:
            continue
        taken.add((geometry.num_heads, geometry.head_dim))
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            for length in (LENGTH, 1):
                check_shapes(make, geometry, causal, dtype, length)
    hold(len(taken) > 1, "the constructor accepts only one geometry")


@promise("Hooks return the dtype of their input, whatever the dtype of the parameters.")
def check_dtype_of_what_is_given(make: Maker, causal: bool, bench: Bench = BENCH) -> None:
    geometry = bench.geometry
    encoder, positions = make(geometry), some_positions(2, LENGTH)
    for dtype in (torch.float64, torch.bfloat16):
        q, k, x = some_inputs(geometry, dtype=dtype)
        site = site_of(positions, causal, x)
        found = {
            "embed": encoder.embed(x, positions),
            "q from rotate": encoder.rotate(q, k, site)[0],
            "k from rotate": encoder.rotate(q, k, site)[1],
            "score": encoder.score(q @ k.mT, q, k, site),
            "mix": encoder.mix(q @ k.mT, k, site),
        }
        for what, tensor in found.items():
            hold(tensor.dtype == dtype, f"{what} is {tensor.dtype} for inputs of {dtype} and float32 parameters")


@promise("At positions around 100 000, bfloat16 results are as close to float32 as 8 bits of precision allow.")
def check_half_precision(make: Maker, causal: bool, bench: Bench = BENCH) -> None:
    geometry = bench.geometry
    original = make(geometry)
    half = copy.deepcopy(original).bfloat16()
    exact = copy.deepcopy(half).float()
    for name, buffer in original.named_buffers():
        exact.get_buffer(name).copy_(buffer)
    last = 100_000 if exact.max_length is None else exact.max_length
    positions = torch.arange(last - 16, last).float()
    q, k, x = some_inputs(geometry, 16, dtype=torch.bfloat16)
    expected = scores(exact, q.float(), k.float(), positions, x=x.float(), causal=causal)
    found = scores(half, q, k, positions, x=x, causal=causal).float()
    seen = expected.isfinite()
    hold(torch.equal(seen, found.isfinite()), "bfloat16 scores are not finite where float32 scores are")
    # Four roundings of 2^−8 relative to |q|·|k|/sqrt(head_dim), and of the score itself, which a bias may dominate.
    products = q.float().norm(dim=-1)[..., :, None] * k.float().norm(dim=-1)[..., None, :] / geometry.head_dim**0.5
    close = ((found - expected).abs() <= 2**-6 * (products + expected.abs()))[seen].all()
    hold(close, "bfloat16 scores are wrong at large positions: angles or distances in less than float32")
    added = exact.embed(0 * x.float(), positions).abs()
    error = (half.embed(x, positions).float() - exact.embed(x.float(), positions)).abs()
    hold((error <= 2**-7 * (1 + x.float().abs() + added)).all(), "bfloat16 embeddings are wrong at large positions")


@promise("Moving the encoder to a dtype moves every parameter, and a model in that dtype gives finite logits.")
def check_moving_to_a_dtype(make: Maker, causal: bool, bench: Bench = BENCH) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        encoder = make(bench.geometry).to(dtype)
        for name, parameter in encoder.named_parameters():
            hold(parameter.dtype == dtype, f"{name} stays {parameter.dtype} when the encoder moves to {dtype}")
        logits = bench.trunk(VOCAB, bench.geometry, encoder, causal=causal).to(dtype)(some_tokens())
        hold(logits.dtype == dtype, f"a model in {dtype} gives logits in {logits.dtype}")
        hold(logits.isfinite().all(), f"a model in {dtype} gives logits that are not finite")
