"""The kernel that an encoder puts on scores, the weights that attention makes of it, and numbers about both."""

import copy
import math

import torch
from torch import Generator, Tensor

from pe_zoo import Encoder, Unsupported, scores
from pe_zoo._contract.bench import site_of
from pe_zoo._weights import weights

AT_ONCE = 1 << 21
"""Scores computed at a time: a few encoders need dozens of numbers for each."""
ROUNDING = 1e-9
"""Differences below this share of the largest value count as none."""


def exact(encoder: Encoder) -> Encoder:
    """Copy an encoder to the CPU, in float64 and without gradients."""
    return copy.deepcopy(encoder).to("cpu").double().requires_grad_(False)


def count_up(length: int) -> Tensor:
    """Return 0, 1, 2, … as ``(length,)`` float64."""
    return torch.arange(length, dtype=torch.float64)


def kernel(
    encoder: Encoder, positions: Tensor, generator: Generator, *, causal: bool, draws: int, queries: int | None = None
) -> Tensor:
    """Return the expected score between query i and key j of equal content, ``(heads, query, key)`` float64.

    Content is random signs (mean 0, variance 1), the same at all places and for query and key: of independent ones the
    expected product is 0 at every distance, whatever the encoder. Each of ``draws`` comes with its negative, so that
    products of content and position cancel. Signs give every pair of dimensions the same norm, so that the effect of
    rotation is exact, not an estimate. Keys that the encoder hides itself have −inf; no mask is applied.

    The encoder is of ``exact``, with the parameters of its first layer; positions are ``(length,)``; ``queries`` are
    the last of the sequence, None: all.
    """
    geometry = encoder.geometry
    length = len(positions)
    rows = slice(length - (queries or length), length)
    signs = torch.randint(2, (draws, 1, geometry.model_dim), generator=generator).double() * 2 - 1
    total = torch.zeros(geometry.num_heads, rows.stop - rows.start, length, dtype=torch.float64)
    for contents in torch.cat([signs, -signs]).split(max(1, AT_ONCE // total.numel())):
        x = encoder.embed(contents.expand(-1, length, -1), positions)
        heads = x.unflatten(-1, (geometry.num_heads, -1)).transpose(1, 2)
        total += scores(encoder, heads[:, :, rows], heads, positions, 0, x, causal=causal).sum(0)
    return total / (2 * draws)


def kernel_weights(encoder: Encoder, expected: Tensor, positions: Tensor, *, causal: bool) -> Tensor:
    """Return attention to content that is all alike, from a ``kernel`` of the last queries: of the same shape."""
    nothing = torch.zeros(1, len(positions), encoder.geometry.model_dim, dtype=torch.float64)
    site = site_of(positions, causal, nothing, slice(len(positions) - expected.shape[-2], len(positions)))
    return weights(encoder, expected.unsqueeze(0), site)[0]


def tolerance(values: Tensor) -> float:
    """Return the size of rounding errors among the finite ones of these values."""
    finite = values[values.isfinite()].abs()
    return ROUNDING * finite.max().item() if len(finite) else 0.0


def curve(kernel: Tensor) -> Tensor:
    """Return the mean of K(i, i − d) over queries i: ``(heads, query, key)`` to ``(heads, d)``; −inf where hidden."""
    return torch.stack([kernel.diagonal(-d, -2, -1).mean(-1) for d in range(kernel.shape[-1])], -1)


def translation_invariance(kernel: Tensor, *, causal: bool) -> Tensor:
    """Return the share of the kernel's variance that lies between distances, ``(heads,)`` in [0, 1].

        1 − Σ_d Σ_i (K(i, i − d) − mean over i)² / Σ_ij (K(i, j) − mean)²

    1: the kernel depends on the distance alone, as a constant one does; 0: distance says nothing about it. The
    property is that of Wang et al. (ICLR 2021, "On position embeddings in BERT"); the normalisation is ours. Distances
    that the encoder hides are left out; those to keys ahead count unless ``causal``.
    """
    length = kernel.shape[-1]
    distances = range(0 if causal else 1 - length, length)
    lines = [line for d in distances if (line := kernel.diagonal(-d, -2, -1)).isfinite().all()]
    within = torch.stack([(line - line.mean(-1, keepdim=True)).square().sum(-1) for line in lines]).sum(0)
    everything = torch.cat(lines, -1)
    total = (everything - everything.mean(-1, keepdim=True)).square().sum(-1)
    constant = total <= everything.shape[-1] * tolerance(everything) ** 2
    return torch.where(constant, 1.0, 1 - within / total.where(~constant, torch.ones_like(total)))


def falling_steps(over_distance: Tensor, within: int | None = None) -> Tensor:
    """Return the share of steps to the next distance at which a ``curve`` falls, ``(heads,)``.

    Wang et al. (ICLR 2021). Steps to or from a hidden distance are left out, as are those beyond ``within``.
    """
    over_distance = over_distance if within is None else over_distance[:, : within + 1]
    steps = over_distance.diff()
    counted = steps.isfinite()
    if not counted.any(-1).all():
        raise Unsupported("the kernel has fewer than two distances")
    return ((steps < -tolerance(over_distance)) & counted).sum(-1) / counted.sum(-1).double()


def rank_correlation(over_distance: Tensor) -> Tensor:
    """Return Spearman's correlation of nearness (−d) and a ``curve``, ``(heads,)``; 0 for a constant one."""
    unit = tolerance(over_distance)
    found = []
    for line in over_distance:
        seen = line.isfinite()
        values = line[seen] if unit == 0 else (line[seen] / unit).round()
        pairs = torch.stack([_ranks(-torch.arange(len(line))[seen]), _ranks(values)])
        pairs = pairs - pairs.mean(-1, keepdim=True)
        norms = pairs.norm(dim=-1).prod()
        found.append((pairs.prod(0).sum() / norms) if norms > 0 else torch.zeros((), dtype=torch.float64))
    return torch.stack(found)


def _ranks(values: Tensor) -> Tensor:
    """Return the rank of each value in float64; equal ones share the mean of theirs."""
    _, which, counts = values.unique(return_inverse=True, return_counts=True)
    return (counts.cumsum(0) - (counts - 1).double() / 2)[which]


def window(weights: Tensor, share: float) -> Tensor:
    """Return the smallest window, up to the last key, that holds a share of all weight: ``(..., keys)`` to ``(...)``.

    Raises:
        Unsupported: there is no weight anywhere.
    """
    nearest_first = weights.flip(-1).cumsum(-1)
    total = nearest_first[..., -1:]
    if not bool((total > 0).all()):
        raise Unsupported("attention gives no weight to any key")
    return (nearest_first < share * total * (1 - ROUNDING)).sum(-1).double() + 1


def entropy(weights: Tensor) -> Tensor:
    """Return the entropy in nats of weights relative to their sum, ``(..., keys)`` to ``(...)``."""
    total = weights.sum(-1, keepdim=True)
    if not bool((total > 0).all()):
        raise Unsupported("attention gives no weight to any key")
    return torch.special.entr(weights / total).sum(-1)


def slope(lengths: list[int], entropies: Tensor) -> Tensor:
    """Return the least-squares slope of entropy, ``(lengths, heads)``, over ln(length): 1 if diffuse, 0 if local.

    Wang et al. (2024), arXiv:2404.12224, trace failure at long lengths to attention that spreads.
    """
    logs = torch.tensor([math.log(length) for length in lengths], dtype=torch.float64)
    logs = logs - logs.mean()
    return (logs @ entropies) / logs.square().sum()
