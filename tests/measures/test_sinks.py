"""Signs of attention sinks: by hand, and on a sink that was built."""

from __future__ import annotations

import pytest
import torch
from scipy import stats
from support import generator, subject_of

from experiments.measures.attention_sinks import KURTOSIS, LARGEST, MAIN, VALUE_NORM
from experiments.measures.attention_sinks.measure import kurtosis, measure
from experiments.model.transformer import Layer
from experiments.rows.row import Row


def found(rows: list[Row]) -> dict[tuple[str, int, int | None], Row]:
    return {(row.metric, row.eval_length, row.layer): row for row in rows}


def test_kurtosis_is_that_of_scipy() -> None:
    values = torch.randn(40, 9, generator=generator()).double() ** 3
    assert kurtosis(values) == pytest.approx(stats.kurtosis(values.flatten().numpy(), fisher=False))


def test_uniform_weights_give_the_first_token_its_share() -> None:
    subject = subject_of("none", causal=False)
    with torch.no_grad():
        for layer in subject.model.layers:
            assert isinstance(layer, Layer)
            layer.attention_in.weight[:64] = 0
    for (metric, length, layer_number), row in found(measure(subject, samples=4)).items():
        if metric == MAIN:
            assert row.value == pytest.approx(row.chance) == pytest.approx(1 / (2 * length + 1)), layer_number


def test_numbers_are_those_of_the_model_by_hand() -> None:
    subject = subject_of("t5")
    rows = found(measure(subject, samples=3, multiples=(1.0,)))
    batch, positions = subject.question("attention_sinks", 3, 6)
    weights = subject.model.attention(batch.tokens, positions)
    stream = subject.model.hidden(batch.tokens, positions)
    for number, layer in enumerate(subject.model.layers):
        assert isinstance(layer, Layer)
        assert rows[MAIN, 6, number].value == pytest.approx(weights[number][:, :, 1:, 0].mean().item(), rel=1e-5)
        x = layer.attention_norm(stream[number])
        values = (x @ layer.attention_in.weight[64:].T).unflatten(-1, (2, 16)).norm(dim=-1)
        ratio = values[:, 0].mean() / values[:, 1:].mean()
        assert rows[VALUE_NORM, 6, number].value == pytest.approx(ratio.item(), rel=1e-4)
    for number, each in enumerate(stream):
        size = each.abs()
        assert rows[LARGEST, 6, number].value == pytest.approx((size.max() / size.median()).item(), rel=1e-5)
        assert rows[KURTOSIS, 6, number].value == pytest.approx(kurtosis(each.double()), rel=1e-5)


def test_one_massive_activation_is_seen() -> None:
    subject = subject_of("none")
    with torch.no_grad():
        subject.model.token_embedding.weight[:, 3] = 1e4
    rows = found(measure(subject, samples=4, multiples=(1.0,)))
    assert rows[LARGEST, 6, 0].value > 1000
    assert rows[KURTOSIS, 6, 0].value > 20


def test_a_length_that_the_encoder_refuses_is_a_row() -> None:
    rows = measure(subject_of("learned"), samples=2, multiples=(1.0, 400.0))
    beyond = {row.metric: row.status for row in rows if row.eval_length == 2400}
    assert beyond == dict.fromkeys((MAIN, VALUE_NORM, KURTOSIS, LARGEST), "unsupported")
