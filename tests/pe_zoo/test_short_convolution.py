"""The short convolution alone, a control: against numbers by hand, a loop and torch's own convolution."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import pe_zoo
from pe_zoo import Encoder, Geometry, Site
from pe_zoo.short_convolution import ShortConvolution

Maker = Callable[..., Encoder]
HEADS, HEAD_DIM, LENGTH, RANK, WIDTH = 2, 3, 7, 4, 3
SIZES = Geometry(model_dim=HEADS * HEAD_DIM, num_heads=HEADS, num_layers=2, train_length=5)


def stirred(make: Maker = ShortConvolution, geometry: Geometry = SIZES, **knobs: Any) -> Any:
    """A float64 encoder with parameters away from where they start."""
    encoder = make(geometry, **knobs).double().requires_grad_(False)
    for parameter in encoder.parameters():
        parameter.add_(torch.randn_like(parameter))
    return encoder


def draws(length: int = LENGTH) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and the layer's input of two samples, float64."""
    q, k = (torch.randn(2, HEADS, length, HEAD_DIM, dtype=torch.float64) for _ in range(2))
    return q, k, torch.randn(2, length, SIZES.model_dim, dtype=torch.float64)


def site_of(x: Tensor, layer: int = 0, first: int = 0) -> Site:
    """A causal site; queries are the rows from ``first`` on."""
    positions, rows = torch.arange(float(x.shape[-2])), slice(first, x.shape[-2])
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()[rows]
    return Site(
        layer=layer, query_positions=positions[rows], key_positions=positions, rows=rows, mask=mask, causal=True, x=x
    )


def check_vectors(make: Maker) -> None:
    table = json.loads((Path(__file__).parent / "golden" / "short_convolution.json").read_text(encoding="utf-8"))
    geometry = Geometry(model_dim=1, num_heads=1, num_layers=1, train_length=3)
    encoder = make(geometry, rank=1, conv_width=2).double().requires_grad_(False)
    for name in ("down", "up", "query_kernel", "key_kernel"):
        parameter = getattr(encoder, name)
        parameter.copy_(torch.tensor(table[name]).double().expand_as(parameter))
    q, k, x = (torch.tensor(table[name]).double()[:, None] for name in ("q", "k", "x"))
    found = pe_zoo.scores(encoder, q[None, None], k[None, None], x=x[None])[0, 0]
    for query, row in enumerate(table["scores"]):
        assert found[query, : query + 1].tolist() == row


def check_loop(make: Maker, conv_width: int = WIDTH) -> None:
    encoder = stirred(make, rank=RANK, conv_width=conv_width)
    q, k, x = draws()
    for layer in (0, 1):
        found = pe_zoo.scores(encoder, q, k, layer=layer, x=x)
        down, up = encoder.down[layer].tolist(), encoder.up[layer].tolist()
        kernels = [encoder.query_kernel[layer].tolist(), encoder.key_kernel[layer].tolist()]
        for b in range(2):
            features = []
            for t in range(LENGTH):
                narrow = [sum(x[b, t, d].item() * down[d][r] for d in range(HEADS * HEAD_DIM)) for r in range(RANK)]
                features.append([sum(narrow[r] * up[r][d] for r in range(RANK)) for d in range(HEADS * HEAD_DIM)])
            for h in range(HEADS):
                rows: list[list[list[float]]] = []
                for own, kernel in zip((q, k), kernels, strict=True):
                    rows.append([])
                    for t in range(LENGTH):
                        vector = own[b, h, t].tolist()
                        for c in range(HEAD_DIM):
                            for back in range(min(conv_width, t + 1)):
                                weight = kernel[h * HEAD_DIM + c][conv_width - 1 - back]
                                vector[c] += weight * features[t - back][h * HEAD_DIM + c]
                        rows[-1].append(vector)
                for i in range(LENGTH):
                    for j in range(LENGTH):
                        total = sum(a * b for a, b in zip(rows[0][i], rows[1][j], strict=True)) / HEAD_DIM**0.5
                        assert found[b, h, i, j].item() == pytest.approx(total, rel=1e-10, abs=1e-10)


class SharedKernel(ShortConvolution):
    """Queries and keys see the same of their predecessors: every token is most like itself."""

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        _, after = super().rotate(k[..., site.rows, :], k, site)
        return q + (after - k)[..., site.rows, :], after


class LooksAhead(ShortConvolution):
    """The kernel the wrong way round in time."""

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        back = Site(**{**vars(site), "x": site.content("fake").flip(-2)})
        q, k = super().rotate(q.flip(-2), k.flip(-2), back)
        return q.flip(-2), k.flip(-2)


class OwnWeightFirst(ShortConvolution):
    """The order of the kernel's weights turned round."""

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        turned = ShortConvolution(self.geometry, rank=self.down.shape[-1], conv_width=self.key_kernel.shape[-1])
        turned = turned.double().requires_grad_(False)
        for name, parameter in self.named_parameters():
            getattr(turned, name).copy_(parameter.flip(-1) if name.endswith("kernel") else parameter)
        return ShortConvolution.rotate(turned, q, k, site)


def test_scores_by_hand() -> None:
    check_vectors(ShortConvolution)


@pytest.mark.parametrize("conv_width", [1, WIDTH, LENGTH + 2])
def test_scores_by_a_loop(conv_width: int) -> None:
    check_loop(ShortConvolution, conv_width)


@pytest.mark.parametrize("fake", [SharedKernel, LooksAhead, OwnWeightFirst])
@pytest.mark.parametrize("check", [check_vectors, check_loop])
def test_a_wrong_convolution_is_caught(fake: Maker, check: Callable[[Maker], None]) -> None:
    with pytest.raises(AssertionError):
        check(fake)


@pytest.mark.parametrize("layer", [0, 1])
def test_what_is_added_agrees_with_torchs_convolution(layer: int) -> None:
    encoder = stirred(rank=RANK)
    q, k, x = draws()
    features = (x @ encoder.down[layer] @ encoder.up[layer]).mT
    added = [after - before for before, after in zip((q, k), encoder.rotate(q, k, site_of(x, layer)), strict=True)]
    for found, kernel in zip(added, (encoder.query_kernel, encoder.key_kernel), strict=True):
        weight, channels = kernel[layer].unsqueeze(1), SIZES.model_dim
        theirs = functional.conv1d(functional.pad(features, (kernel.shape[-1] - 1, 0)), weight, groups=channels)
        torch.testing.assert_close(found.mT.flatten(1, 2), theirs, atol=1e-12, rtol=1e-12)


def test_a_token_sees_its_nearest_predecessors_and_no_other() -> None:
    encoder = stirred(conv_width=WIDTH)
    q, k, x = draws()
    changed = x.clone()
    changed[:, 2] += 1.0
    for before, after in zip(encoder.rotate(q, k, site_of(x)), encoder.rotate(q, k, site_of(changed)), strict=True):
        moved = (after - before).abs().amax((0, 1, 3)) > 1e-6
        assert moved.tolist() == [False, False, *[True] * WIDTH, *[False] * (LENGTH - 2 - WIDTH)]


@pytest.mark.parametrize(("conv_width", "blind"), [(1, True), (2, False)])
def test_without_predecessors_nothing_of_order_is_left(conv_width: int, blind: bool) -> None:
    """A kernel of one token is one more projection: whatever a wider one brings comes from the predecessors."""
    order = torch.tensor([2, 0, 3, 5, 1, 6, 4])
    encoder = stirred(conv_width=conv_width)
    q, k, x = draws()
    there = pe_zoo.scores(encoder, q, k, x=x)[..., order, :][..., order]
    gap = (pe_zoo.scores(encoder, q[..., order, :], k[..., order, :], x=x[:, order]) - there).abs().max().item()
    assert gap < 1e-12 if blind else gap > 1e-3


def test_a_block_of_queries_gets_what_it_gets_in_the_whole() -> None:
    encoder = stirred()
    q, k, x = draws()
    whole_q, whole_k = encoder.rotate(q, k, site_of(x))
    block_q, block_k = encoder.rotate(q[..., 5:, :], k, site_of(x, first=5))
    assert torch.equal(block_q, whole_q[..., 5:, :])
    assert torch.equal(block_k, whole_k)


def test_every_parameter_of_the_convolution_can_move() -> None:
    geometry = Geometry(model_dim=256, num_heads=4, num_layers=1, train_length=128)
    encoder: Any = ShortConvolution(geometry)
    x = torch.randn(8, 128, 256)
    nothing = torch.zeros(8, 4, 128, 64)
    added = encoder.rotate(nothing, nothing, site_of(x))
    for part in added:  # where queries and keys have variance 1; torch's convolutions start at 1/(3 · fan-in)
        assert part[..., 3:, :].var().item() == pytest.approx(1 / 3, rel=0.1)
    (added[0] * added[1]).pow(2).sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad.abs().min() > 0, name


@pytest.mark.parametrize(("dim", "heads", "layers"), [(128, 4, 3), (64, 2, 2), (768, 12, 12)])
def test_parameters_are_those_of_what_it_is_compared_with(dim: int, heads: int, layers: int) -> None:
    geometry = Geometry(model_dim=dim, num_heads=heads, num_layers=layers, train_length=33)

    def count(name: str, **knobs: Any) -> int:
        return sum(parameter.numel() for parameter in pe_zoo.build(name, geometry, **knobs).parameters())

    strengths, second_kernel = layers * (dim * heads + heads), layers * dim * 3
    assert count("short_convolution") == count("path") - strengths + second_kernel
    assert count("short_convolution", rank=9, conv_width=4) == count("selective_rope")


def test_who_reads_the_input_says_so_when_there_is_none() -> None:
    q, k, _ = draws()
    with pytest.raises(ValueError, match=r"^short_convolution .*pass x"):
        pe_zoo.scores(stirred(), q, k)
