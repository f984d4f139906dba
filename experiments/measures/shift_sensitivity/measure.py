"""Outputs and quality of a model with all positions shifted."""

from collections.abc import Iterable

from torch import Tensor

from experiments.measures.shift_sensitivity import CHANGE, CHANGES, INITIAL, MAIN, NAME, NEEDS_TRAINING
from experiments.model.transformer import Transformer
from experiments.rows.row import Row, lost
from experiments.tasks import Batch
from experiments.training.evaluate import Subject, logits_of, score
from pe_zoo import Unsupported
from pe_zoo._knobs import each, whole

__all__ = ["MAIN", "NAME", "NEEDS_TRAINING", "check", "measure"]

FURTHEST = 2**23
"""Beyond twice this, float32 has no place left for every whole number."""


def check(*, shifts: Iterable[int], samples: int) -> None:
    """Refuse knobs out of range."""
    each("shift_sensitivity.shifts", shifts, whole, at_least=1, at_most=FURTHEST)
    whole("shift_sensitivity.samples", samples, at_least=1)


def measure(subject: Subject, *, shifts: tuple[int, ...] = (1, 4, 16, 64, 256), samples: int = 128) -> list[Row]:
    """What shifting all positions does to outputs and quality, at initialisation and after training.

    Phase shift of Sinha et al. (2022), arXiv:2210.12574. Positions are those of the run's numbering in evaluation,
    plus the shift; tokens, mask and the answer asked for stay as they are.

    Args:
        subject: the trained model and its task; measured at the training length.
        shifts: numbers added to all positions, each at least 1; absolute, not in training lengths.
        samples: sequences, at least 1; of a fixed test set, windows.
    """
    main, length = subject.task.metrics[0], subject.task.train_length
    batch, positions = subject.question(NAME, samples, length)
    models = {CHANGE: subject.model, INITIAL: subject.initial()}
    before = {change: _answers(model, batch, positions) for change, model in models.items()}
    untouched = score(before[CHANGE], batch)
    rows = subject.qualities(NAME, untouched, length)
    for shift in sorted(set(shifts)):
        try:
            after = {change: _answers(model, batch, positions + shift) for change, model in models.items()}
        except Unsupported as reason:
            metrics = (*subject.task.metrics, MAIN, *CHANGES)
            rows += [subject.cannot(NAME, metric, reason, shift=shift) for metric in metrics]
            continue
        scored = score(after[CHANGE], batch)
        values = {MAIN: lost(main, untouched.quality()[main], scored.quality()[main])}
        values |= {change: _change(before[change], after[change]) for change in CHANGES}
        rows += subject.qualities(NAME, scored, length, shift=shift)
        rows += [subject.row(NAME, m, shift=shift, value=v, n=len(batch.tokens)) for m, v in values.items()]
    return rows


def _answers(model: Transformer, batch: Batch, positions: Tensor) -> Tensor:
    """Logits at the scored places, less their mean over the vocabulary, which softmax cannot see."""
    logits = logits_of(model, batch.tokens, positions)[:, batch.counted]
    return logits - logits.mean(-1, keepdim=True)


def _change(before: Tensor, after: Tensor) -> float:
    """‖after − before‖ / ‖before‖."""
    return ((after - before).norm() / before.norm()).item()
