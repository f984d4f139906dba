"""Heads that are purely positional or purely symbolic are known as such, and none is both."""

from __future__ import annotations

import pytest
import torch
from support import generator, subject_of

import pe_zoo
from experiments.measures.head_roles import MAIN, OVERLAP, SYMBOLIC
from experiments.measures.head_roles.measure import changes, measure
from experiments.model.transformer import Layer
from experiments.training.evaluate import Subject


def scores(subject: Subject) -> dict[tuple[str, int | None], list[float]]:
    """Metric and layer to the scores of its heads."""
    found: dict[tuple[str, int | None], list[float]] = {}
    for row in measure(subject, samples=16):
        assert row.status == "ok"
        found.setdefault((row.metric, row.layer), []).append(row.value)
    return found


def without_content(subject: Subject) -> Subject:
    """Queries and keys of 0: only what the encoder adds to scores is left."""
    with torch.no_grad():
        for layer in subject.model.layers:
            assert isinstance(layer, Layer)
            third = layer.attention_in.weight.shape[0] // 3
            layer.attention_in.weight[: 2 * third] = 0
    return subject


def test_without_encoder_and_mask_every_head_is_purely_symbolic() -> None:
    found = scores(subject_of("none", causal=False))
    for layer in (0, 1):
        assert found[SYMBOLIC, layer] == pytest.approx([1, 1], abs=1e-6)
        assert max(found[MAIN, layer]) < 0.5


def test_a_causal_mask_makes_deeper_heads_see_places() -> None:
    found = scores(subject_of("none"))
    assert found[SYMBOLIC, 0] == pytest.approx([1, 1], abs=1e-6)
    assert max(found[SYMBOLIC, 1]) < 1 - 1e-4


@pytest.mark.parametrize("causal", [True, False])
def test_a_head_that_reads_distances_alone_is_purely_positional(causal: bool) -> None:
    found = scores(without_content(subject_of("alibi", causal=causal)))
    for layer in (0, 1):
        assert found[MAIN, layer] == pytest.approx([1, 1], abs=1e-9)
        assert max(found[SYMBOLIC, layer]) < 0.5


def test_weights_that_are_all_alike_are_unsupported() -> None:
    rows = measure(without_content(subject_of("none", causal=False)), samples=4)
    assert {row.status for row in rows if not row.metric.startswith("initial_")} == {"unsupported"}


@pytest.mark.parametrize("encoder", pe_zoo.names())
def test_no_head_is_both(encoder: str) -> None:
    """Of two scores, the smaller one is at most 3/4: the triangle inequality."""
    for (metric, _), values in scores(subject_of(encoder)).items():
        assert max(values) <= 1 + 1e-9
        if metric.endswith(OVERLAP):
            assert max(values) <= 0.75 + 1e-9


def test_scores_are_those_of_a_loop() -> None:
    subject, order = subject_of("t5"), torch.stack([torch.randperm(4, generator=generator(at)) for at in range(3)])
    tokens = torch.randint(0, 9, (3, 8), generator=generator())
    positions, span = torch.arange(8.0), slice(2, 6)
    found = changes(subject.model, tokens, positions, span, order)
    for layer in (0, 1):
        for head in (0, 1):
            sums = [0.0, 0.0, 0.0]
            for read, places in zip(tokens, order.tolist(), strict=True):
                permuted = read.clone()
                permuted[2:6] = read[2:6][places]
                before, after = (
                    subject.model.attention(x.unsqueeze(0), positions)[layer][0, head, 6, 2:6].tolist()
                    for x in (read, permuted)
                )
                for place, source in enumerate(places):
                    sums[0] += (after[place] - before[place]) ** 2
                    sums[1] += (after[place] - before[source]) ** 2
                    sums[2] += (before[source] - before[place]) ** 2
            assert found[layer][head].tolist() == pytest.approx(sums, rel=1e-4)
