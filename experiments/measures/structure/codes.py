"""Rows of encoders that add vectors to the embeddings, and of components that are sinusoids of the position."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from experiments.measures.structure import vectors
from experiments.measures.structure.model_numbers import turned
from experiments.measures.structure.structure import Structure, Values, Where
from experiments.rows.row import Row
from pe_zoo import Unsupported

OFFSETS = (1, 2, 4, 8, 16, 32)
"""Shifts, in positions, that a linear map is looked for."""
LONG = 10_000
"""Positions among which codes should still differ, far beyond any length here."""
FAR = 1_000_000
"""A position far beyond any length here."""
ROUNDED = {"float32": torch.float32, "bfloat16": torch.bfloat16}
OF_CODES = ("shift_map_residual", "code_collisions", "code_range")


def rows(it: Structure) -> list[Row]:
    """What the vectors are like that an encoder adds; one row each that says so where it adds none."""
    if not it.encoder.overrides("embed"):
        return [row for metric in OF_CODES for row in it.row(metric, lambda: it.codes(_one(0)).max().item(), n=0)]
    return [*_shift_maps(it), *_apart(it), *_sizes(it)]


def _one(position: float) -> Tensor:
    return torch.tensor([position], dtype=torch.float64)


def _first(length: int) -> Tensor:
    return torch.arange(length, dtype=torch.float64)


def _shift_maps(it: Structure) -> list[Row]:
    """Fitted to the first n positions; and, held out, fitted to the even ones below 2 n and tried on the odd ones.

    The odd ones and not the n after: slow sinusoids are so alike over a few hundred positions that float64 cannot
    tell which map would hold far away, though one does.
    """
    n = 4 * it.model.geometry.model_dim
    within = [{"shift": k} for k in OFFSETS]
    held_out = [{"condition": "held out", "shift": k} for k in OFFSETS]

    def residuals(asked: list[Where], fitted: Tensor, tried: Tensor) -> Values:
        here, there = it.codes(fitted), [it.codes(fitted + k) for k in OFFSETS]
        maps = vectors.shift_maps(here, there)
        return [
            (where, vectors.residual(it.codes(tried), shift, it.codes(tried + k)))
            for where, shift, k in zip(asked, maps, OFFSETS, strict=True)
        ]

    even = 2 * _first(n)
    return [
        *it.rows("shift_map_residual", partial(residuals, within, _first(n), _first(n)), n=n, asked=within),
        *it.rows("shift_map_residual", partial(residuals, held_out, even, even + 1), n=n, asked=held_out),
    ]


def _apart(it: Structure) -> list[Row]:
    def collided(below: int, dtype: torch.dtype) -> float:
        return vectors.collisions(it.codes(_first(below)), dtype)

    return [
        *(
            row
            for below in sorted({it.length, LONG})
            for name, dtype in ROUNDED.items()
            for row in it.row(
                "code_collisions",
                partial(collided, below, dtype),
                n=below * (below - 1) // 2,
                condition=name,
                sequence_length=below,
            )
        ),
    ]


def _sizes(it: Structure) -> list[Row]:
    inside, beyond = _first(it.length).split([it.train_length, it.length - it.train_length])

    def largest(positions: Tensor) -> float:
        return it.codes(positions).abs().max().item()

    places: list[tuple[Where, Tensor]] = [
        ({"condition": "within training"}, inside),
        ({"condition": "beyond training"}, beyond),
        ({"position": FAR}, _one(FAR)),
    ]
    return [
        *(
            row
            for where, positions in places
            for row in it.row("code_range", partial(largest, positions), n=len(positions), **where)
        ),
    ]


def frequency_rows(it: Structure) -> list[Row]:
    """Wavelengths of single dimensions, and what float32 makes of frequencies, depending on how they are computed."""
    dim = it.model.geometry.model_dim

    def errors() -> Values:
        found = vectors.frequencies(it.codes(_first(it.length)))
        by_way = vectors.frequency_errors(vectors.base_of(found, dim), dim)
        return [({"condition": way}, error) for way, error in by_way.items()]

    asked: list[Where] = [{"condition": way} for way in vectors.WAYS] if it.encoder.overrides("embed") else [{}]
    return [
        *it.rows("wavelength", lambda: _wavelengths(it), n=it.length),
        *it.rows("frequency_error", errors, n=dim // 2, asked=asked),
    ]


def _wavelengths(it: Structure) -> Values:
    adds, turns = it.encoder.overrides("embed"), it.encoder.overrides("rotate")
    if not adds and not turns:
        raise Unsupported(f"{it.encoder.name} adds no vectors and turns no queries")
    found: Values = []
    if adds:
        found += _by_dimension(vectors.frequencies(it.codes(_first(it.length))), "")
    if turns:
        probes = turned(it.encoder, _first(it.length).unsqueeze(0), causal=it.model.causal)[0]
        heads = torch.stack([vectors.frequencies(probe) for probe in probes])
        done = "turned" if adds else ""  # dimensions of codes and of heads are counted alike
        if torch.allclose(heads, heads[:1].expand_as(heads), rtol=vectors.SAME, atol=0, equal_nan=True):
            found += _by_dimension(heads[0], done)
        else:
            for head, of_head in enumerate(heads):
                found += _by_dimension(of_head, done, head=head)
    if not found:
        raise Unsupported(f"no component of {it.encoder.name} is a pure sinusoid of the position")
    return found


def _by_dimension(frequencies: Tensor, condition: str, head: int | None = None) -> Values:
    return [
        ({"condition": condition, "head": head, "dimension": d}, 2 * math.pi / w)
        for d, w in enumerate(frequencies.tolist())
        if not math.isnan(w)
    ]
