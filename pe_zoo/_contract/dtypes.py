"""Promises about shapes, dtypes and precision."""

import copy

import torch
from torch import Tensor

from pe_zoo._contract.bench import (
    LENGTH,
    VOCAB,
    Bench,
    Maker,
    NotApplicable,
    Root,
    heads_of,
    hold,
    hold_finite,
    promise,
    site_of,
    some_inputs,
    some_positions,
    some_tokens,
)
from pe_zoo._encoder import Geometry, scores

REMEDIES = {
    "embed": "add the vector as `vector.to(x.dtype)`",
    "rotate": "end with `.to(q.dtype)`, cosines and sines included",
    "score": "add the bias as `bias.to(scores.dtype)`",
    "mix": "end with `.to(v.dtype)`",
    "pe_zoo.scores": "end each hook with `.to()` of its input's dtype",
}
"""What to do where a hook returns another dtype than it was given."""
GRID = [
    Geometry(model_dim=heads * head_dim, num_heads=heads, num_layers=2, train_length=LENGTH)
    for heads in (2, 3, 6)
    for head_dim in (2, 4, 8)
]
AT = [(dtype, length) for length in (LENGTH, 1) for dtype in (torch.float64, torch.float32, torch.bfloat16)]
"""Dtypes and lengths, all at one geometry and in turn at the others: half precision is slow without a kernel for it."""


def check_shapes(
    make: Maker,
    geometry: Geometry,
    causal: bool,
    dtype: torch.dtype,
    length: int = LENGTH,
    parameters: torch.dtype | None = None,
) -> None:
    encoder = make(geometry).to(parameters or dtype)
    x = torch.randn(2, length, geometry.model_dim, dtype=dtype)

    def same(hook: str, tensor: Tensor, like: Tensor) -> None:
        each = " with positions per sample (pe_zoo.heads_first orders biases)" if hook == "score" and many else ""
        if tensor.shape != like.shape:
            shapes = f"{hook} returns shape {tuple(tensor.shape)}, not {tuple(like.shape)}{each}"
            raise Root(shapes, until="hooks keep the shape")
        hold(tensor.dtype == dtype, f"{hook} returns {tensor.dtype} for inputs of {dtype}: {REMEDIES[hook]}")

    for positions in (torch.arange(length).float(), some_positions(2, length)):
        many = positions.ndim == 2
        same("embed", encoder.embed(x, positions), x)
        for queries in {length, 1}:
            site = site_of(positions, causal, x, slice(length - queries, length))
            q, k = heads_of(geometry, 2, queries, dtype), heads_of(geometry, 2, length, dtype)
            rotated_q, rotated_k = encoder.rotate(q, k, site)
            for rotated, given in ((rotated_q, q), (rotated_k, k)):
                same("rotate", rotated[..., :0], given[..., :0])  # it may widen the last dimension
            wide = rotated_q.shape[-1] == rotated_k.shape[-1] >= geometry.head_dim
            hold(wide, "rotate narrows q and k, or widens them unequally")
            raw = rotated_q @ rotated_k.mT
            changed = encoder.score(raw, rotated_q, rotated_k, site)
            same("score", changed, raw)
            same("mix", encoder.mix(changed.masked_fill(~site.mask, -torch.inf), k, site), q)
            same("pe_zoo.scores", scores(encoder, q, k, positions, x=x, causal=causal), raw)


def check_two_dtypes(make: Maker, geometry: Geometry, causal: bool) -> None:
    """Check what a model is trained in, and what a GPU and newer processors make of it."""
    for dtype in (torch.float32, torch.bfloat16):
        check_shapes(make, geometry, causal, dtype)


@promise("Hooks keep shape and dtype, also in half precision, at every geometry that the constructor accepts.")
def check_shapes_at_every_geometry(make: Maker, causal: bool, bench: Bench) -> None:
    taken = set()
    for place, geometry in enumerate([bench.geometry, *GRID]):
        try:
            make(geometry)
        except ValueError:
            continue
        taken.add((geometry.num_heads, geometry.head_dim))
        for dtype, length in AT if geometry is bench.geometry else [AT[place % len(AT)]]:
            check_shapes(make, geometry, causal, dtype, length)
    hold(len(taken) > 1, "the constructor accepts only one geometry")


@promise("Hooks return the dtype of their input, whatever the dtype of the parameters.")
def check_dtype_of_what_is_given(make: Maker, causal: bool, bench: Bench) -> None:
    for dtype in (torch.float64, torch.bfloat16):
        check_shapes(make, bench.geometry, causal, dtype, parameters=torch.float32)


@promise("At positions around 100 000, bfloat16 results are as close to float32 as 8 bits of precision allow.")
def check_half_precision(make: Maker, causal: bool, bench: Bench) -> None:
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
    rounded = scores(half, q, k, positions, x=x, causal=causal).float()
    if expected.isnan().any():
        raise NotApplicable("scores are no numbers: see below")
    seen = expected.isfinite()
    hold(torch.equal(seen, rounded.isfinite()), "bfloat16 scores are not finite where float32 scores are")
    # Four roundings of 2^−8 relative to |q|·|k|/sqrt(head_dim), and of the score itself, which a bias may dominate.
    products = q.float().norm(dim=-1)[..., :, None] * k.float().norm(dim=-1)[..., None, :] / geometry.head_dim**0.5
    close = ((rounded - expected).abs() <= 2**-6 * (products + expected.abs()))[seen].all()
    remedy = "compute angles in float64 and distances in float32, and round at the end"
    hold(close, f"bfloat16 scores are wrong at large positions: {remedy}")
    added = exact.embed(0 * x.float(), positions).abs()
    error = (half.embed(x, positions).float() - exact.embed(x.float(), positions)).abs()
    hold((error <= 2**-7 * (1 + x.float().abs() + added)).all(), "bfloat16 embeddings are wrong at large positions")


@promise("Moving the encoder to a dtype moves every parameter, and a model in that dtype gives finite logits.")
def check_moving_to_a_dtype(make: Maker, causal: bool, bench: Bench) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        encoder = make(bench.geometry).to(dtype)
        for name, parameter in encoder.named_parameters():
            hold(parameter.dtype == dtype, f"{name} stays {parameter.dtype} when the encoder moves to {dtype}")
        logits = bench.trunk(VOCAB, bench.geometry, encoder, causal=causal).to(dtype)(some_tokens())
        hold(logits.dtype == dtype, f"a model in {dtype} gives logits in {logits.dtype}")
        hold_finite(logits, f"a model in {dtype} gives logits that are")
