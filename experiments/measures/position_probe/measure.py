"""Errors of linear probes for positions, layer by layer."""

import torch
from torch import Tensor

from experiments.measures.position_probe import INITIAL, MAIN, NAME, NEEDS_TRAINING, SHUFFLED, TOKENS
from experiments.measures.position_probe.regression import (
    LEAST,
    constant_error,
    identities,
    num_tested,
    probe_errors,
    streams,
)
from experiments.rows.row import Row
from experiments.training.evaluate import Subject
from pe_zoo import Unsupported
from pe_zoo._knobs import whole

__all__ = ["MAIN", "NAME", "NEEDS_TRAINING", "check", "measure"]


def check(*, samples: int) -> None:
    """Refuse knobs out of range."""
    whole("position_probe.samples", samples, at_least=LEAST)


def measure(subject: Subject, *, samples: int = 256) -> list[Row]:
    """By how many places a linear probe errs about places, for each layer, before training and after.

    Probing for places: Haviv et al. (2022), arXiv:2203.16634, §4, with a network of two layers that classifies; here
    the probe is linear (ridge regression of the place, in closed form), so that it can work out nothing by itself.
    Labels to learn nothing from: after Hewitt & Liang (2019), arXiv:1909.03368, who draw one for each type of token;
    here they are the places of the sequence, in another order in each, so that they tell nothing at all.

    ``probe_error`` is the mean absolute error in places over the held-out sequences, of readings cut to the places
    there are. ``chance`` is that of the best constant.

    Args:
        subject: the trained model and its task; measured at the training length.
        samples: sequences, at least 4; half to fit on, a quarter to choose the strength of the ridge on, the rest to
            test on. Of a fixed test set, windows.
    """
    batch, positions = subject.question(NAME, samples, subject.task.train_length)
    count, length = batch.tokens.shape
    if count < LEAST:
        raise Unsupported(f"{NAME} needs {LEAST} sequences and the task has {count} to test on; give it more")
    places = torch.arange(length).expand(count, length)
    shuffled = torch.rand(count, length, generator=subject.stream(f"{NAME}/{SHUFFLED}")).argsort(-1)
    labels = torch.stack([places, shuffled], -1)
    trained = probe_errors(streams(subject.model, batch.tokens, positions), labels)
    initial = probe_errors(streams(subject.initial(), batch.tokens, positions), labels)
    tokens = probe_errors(identities(batch.tokens, subject.task.vocab_size), labels)
    found: list[tuple[str, str, int | None, Tensor]] = [(MAIN, TOKENS, None, tokens[0, 0])]
    for layer in range(len(trained)):
        found += [
            (MAIN, "", layer, trained[layer, 0]),
            (INITIAL, "", layer, initial[layer, 0]),
            (MAIN, SHUFFLED, layer, trained[layer, 1]),
        ]
    tested = {"chance": constant_error(length), "n": num_tested(count) * length}
    return [
        subject.row(NAME, metric, condition=condition, layer=layer, value=value.item(), **tested)
        for metric, condition, layer, value in found
    ]
