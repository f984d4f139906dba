"""Quality of longer sequences with their own positions, and with those of a shorter one for the answers."""

from torch import Tensor

from experiments.measures.answer_positions import MOVED, NAME
from experiments.measures.length_extrapolation.measure import lengths
from experiments.rows.row import OVER_LENGTHS, Row
from experiments.training.evaluate import Subject, evaluate
from pe_zoo import Unsupported
from pe_zoo._knobs import Count, Positive, Several


def measure(
    subject: Subject, *, multiples: Several[Positive] = (1.0, 1.25, 1.5, 2.0), samples: Count = 256
) -> list[Row]:
    """Measure quality at multiples of the training length, with both numberings of the answers beyond it.

    The sequences are those of ``length_extrapolation``, so that a quality has one value.

    Args:
        subject: the trained model and its task, which must ask for its answers after the input.
        multiples: lengths to measure at, in training lengths, each above 0.
        samples: sequences per length, at least 1.
    """
    task, rows = subject.task, list[Row]()
    _first_answer(subject, task.train_length)  # raises the reason
    for length in lengths(task.train_length, multiples, task.shortest):
        beyond = length > task.train_length
        for condition in ("", MOVED) if beyond else ("",):
            try:
                batch, positions = subject.question(OVER_LENGTHS, samples, length)
                places = as_of(subject, positions, length, task.train_length) if condition else positions
                scored = evaluate(subject.model, batch, places)
                rows += subject.qualities(NAME, scored, length, condition=condition)
            except Unsupported as reason:
                where = {"eval_length": length, "condition": condition}
                rows += [subject.cannot(NAME, metric, reason, **where) for metric in task.metrics]
    return rows


def as_of(subject: Subject, positions: Tensor, length: int, other: int) -> Tensor:
    """Return the positions of a sequence, those from the first answer on as a sequence of another length has them.

    Raises:
        Unsupported: the positions are not 0, 1, 2, …, or the answers do not stand together behind the input.
    """
    first, wanted = (_first_answer(subject, each) for each in (length, other))
    positions = positions.clone()
    positions[..., first:] -= first - wanted
    return positions


def _first_answer(subject: Subject, length: int) -> int:
    if subject.numbering.name != "sequential":
        raise Unsupported("the numbering is not sequential")
    counted = subject.question(OVER_LENGTHS, 1, length)[0].counted
    first = int(counted.nonzero()[0])
    if first == 0 or not counted[first:].all():
        raise Unsupported(f"task={subject.task.name} asks for answers elsewhere than behind the input")
    return first
