"""Outputs and quality of a model with all positions shifted."""

from functools import partial
from typing import Annotated

from torch import Tensor

from experiments.measures.shift_sensitivity import CHANGE, INITIAL, MAIN, NAME
from experiments.model.transformer import Transformer
from experiments.rows.row import OVER_LENGTHS, Row, lost
from experiments.tasks import Batch
from experiments.training.evaluate import Subject, in_chunks, score
from pe_zoo import Unsupported
from pe_zoo._knobs import Count, Several, Share, whole

FURTHEST = 2**23
"""Beyond twice this, float32 has no place left for every whole number."""


Shifts = Several[Annotated[int, partial(whole, at_least=1, at_most=FURTHEST)]]


def measure(
    subject: Subject, *, shifts: Shifts = (1, 4, 16, 64, 256), samples: Count = 128, length_share: Share = 1.0
) -> list[Row]:
    """What shifting all positions does to outputs and quality, at initialisation and after training.

    Phase shift of Sinha et al. (2022), arXiv:2210.12574. Positions are those of the run's numbering in evaluation,
    plus the shift; tokens, mask and the answer asked for stay as they are. The paper shifts sentences within the
    window trained on: with ``length_share=0.5`` a shift by half of the positions trained on meets no others.

    Args:
        subject: the trained model and its task.
        shifts: numbers added to all positions, each at least 1; absolute, not in training lengths.
        samples: sequences, at least 1; of a fixed test set, windows.
        length_share: length measured at, in training lengths, above 0 and at most 1.
    """
    task, main = subject.task, subject.task.metrics[0]
    length = max(task.shortest, round(task.train_length * length_share))
    # Of one model, the windows are those of its other measures, so that a quality has one value.
    batch, positions = subject.question(OVER_LENGTHS if subject.outside else NAME, samples, length)
    models = {CHANGE: subject.model} | ({} if subject.outside else {INITIAL: subject.initial()})
    before = {change: _answers(model, batch, positions) for change, model in models.items()}
    untouched = score(before[CHANGE], batch)
    rows = subject.qualities(NAME, untouched, length)
    for shift in sorted(set(shifts)):
        try:
            after = {change: _answers(model, batch, positions + shift) for change, model in models.items()}
        except Unsupported as reason:
            metrics = (*task.metrics, MAIN, *models)
            rows += [subject.cannot(NAME, metric, reason, eval_length=length, shift=shift) for metric in metrics]
            continue
        scored = score(after[CHANGE], batch)
        values = {MAIN: lost(main, untouched.quality()[main], scored.quality()[main])}
        values |= {name: ((after[name] - before[name]).norm() / before[name].norm()).item() for name in models}
        rows += subject.qualities(NAME, scored, length, shift=shift)
        where = {"eval_length": length, "shift": shift, "n": len(batch.tokens)}
        rows += [subject.row(NAME, metric, value=value, **where) for metric, value in values.items()]
    return rows


def _answers(model: Transformer, batch: Batch, positions: Tensor) -> Tensor:
    """Logits at the scored places, less their mean over the vocabulary, which softmax cannot see."""
    logits = in_chunks(model, batch.tokens, positions, model)[:, batch.counted]
    return logits - logits.mean(-1, keepdim=True)
