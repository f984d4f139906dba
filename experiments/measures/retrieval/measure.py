"""Accuracy by depth of the evidence and by length, and the effective length."""

from itertools import takewhile

from experiments.measures.length_extrapolation.measure import lengths
from experiments.measures.retrieval import EFFECTIVE, NAME, finds
from experiments.rows.row import Row
from experiments.training.evaluate import Scored, Subject, evaluate
from pe_zoo import Unsupported
from pe_zoo._knobs import Count, Positive, Several, Share


def measure(
    subject: Subject,
    *,
    multiples: Several[Positive] = (0.5, 1.0, 2.0, 4.0),
    depths: Count = 9,
    samples: Count = 32,
    share: Share = 0.9,
) -> list[Row]:
    """Measure accuracy with the evidence at each of several depths, at multiples of the training length.

    Depth and length after RULER, Hsieh et al. (2024), arXiv:2404.06654, whose effective length is the longest at which
    a model does better than another one at 4096 tokens; here a share of its own accuracy in range decides.

    Args:
        subject: the trained model and its task, which must say where its evidence stands.
        multiples: lengths to measure at, in training lengths, each above 0.
        depths: places of the evidence at each length, evenly spread, the first and the last included; at least 1.
        samples: questions for each length, asked at every depth; at least 1.
        share: of the accuracy in range above guessing that is kept up to the effective length, in (0, 1].
    """
    task = subject.task
    task.places(task.train_length)  # raises the reason
    rows, curve = list[Row](), dict[int, tuple[float, float, int]]()
    for length in lengths(task.train_length, multiples, task.shortest):
        try:
            found = _by_depth(subject, length, depths, samples)
        except Unsupported as reason:
            rows.append(subject.cannot(NAME, task.metrics[0], reason, eval_length=length))
            continue
        for depth, scored in found.items():
            rows += subject.qualities(NAME, scored, length, _metrics(subject, scored), depth=depth)
        whole = Scored.joined(list(found.values()))
        rows += subject.qualities(NAME, whole, length, _metrics(subject, whole))
        accuracy, guess = whole.quality()["token_accuracy"], subject.best_guess("token_accuracy", length)
        curve[length] = accuracy, guess, whole.n("token_accuracy")
    return [*rows, _effective(subject, curve, share)]


def _by_depth(subject: Subject, length: int, depths: int, samples: int) -> dict[float, Scored]:
    places, found = subject.task.places(length), dict[float, Scored]()
    for number in range(depths):
        depth = number / max(1, depths - 1)
        asked, positions = subject.placed(NAME, round(depth * (places - 1)), samples, length)
        found[depth] = evaluate(subject.model, asked.batch, positions)
    return found


def _metrics(subject: Subject, scored: Scored) -> list[str]:
    """The task's metrics; of a single answer, exact match would be token accuracy again."""
    return [metric for metric in subject.task.metrics if metric != "exact_match" or scored.correct.shape[1] > 1]


def _effective(subject: Subject, curve: dict[int, tuple[float, float, int]], share: float) -> Row:
    """Return the row of the effective length, from accuracy, guess and number of answers at ascending lengths."""
    trained = subject.task.train_length
    within = [length for length in curve if length <= trained]
    if not within:
        return subject.cannot(NAME, EFFECTIVE, "accuracy in range was not measured: retrieval.multiples needs 1")
    accuracy, guess, n = curve[within[-1]]
    least = share * (accuracy - guess) - 1e-9
    kept = takewhile(lambda length: curve[length][0] - curve[length][1] >= least, list(curve)[len(within) :])
    reached = [*within, *kept][-1] if finds(accuracy, guess) else 0
    return subject.row(NAME, EFFECTIVE, value=reached / trained, n=n)
