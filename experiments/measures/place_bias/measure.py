"""Accuracy with the evidence at every place, which of content and place decides, and the influence of each place."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from experiments.measures.length_extrapolation.measure import lengths
from experiments.measures.place_bias import CONTENT, INFLUENCE, INITIAL, NAME, PLACE, RECENCY, U_INDEX
from experiments.measures.place_bias.influence import profile
from experiments.rows.row import Row
from experiments.tasks import Placed
from experiments.training.evaluate import Subject, in_chunks
from pe_zoo import Unsupported
from pe_zoo._knobs import Count, NotNegative, Positive, Several

BINS = 32
"""Most points of a profile of influence."""


def measure(
    subject: Subject,
    *,
    multiples: Several[Positive] = (1.0,),
    places: Count = 16,
    samples: Count = 64,
    influenced: NotNegative = 16,
) -> list[Row]:
    """Measure accuracy and influence by place, and how far ends and middle differ.

    Lost in the middle: Liu et al. (2023), arXiv:2307.03172. Influence of each place on the output, and what causal
    masks and decay by distance do to it: Wu et al. (2025), arXiv:2502.01951; at initialisation: arXiv:2602.16837.

    Args:
        subject: the trained model and its task; one without a place for its evidence has the influence alone.
        multiples: lengths to measure at, in training lengths, each above 0.
        places: most places of the evidence, evenly spread, the first and the last included; at least 1.
        samples: questions, asked with their evidence at each place; at least 1.
        influenced: test sequences that the influence is a mean over, at least 0 (0: not measured).
    """
    task, rows = subject.task, list[Row]()
    for length in lengths(task.train_length, multiples, task.shortest):
        try:
            rows += _accuracy(subject, length, places, samples)
        except Unsupported as reason:
            rows.append(subject.cannot(NAME, U_INDEX, reason, eval_length=length))
        if influenced:
            rows += _influence(subject, length, influenced)
    return rows


def pairs(count: int, most: int) -> tuple[dict[int, int], list[int]]:
    """Choose at most ``most`` of the places: each with its partner half of them away, and the middle of an odd number.

    The partner's partner is the place itself; the first place and the last are among them.
    """
    half = count // 2
    number = min(half, max(1, (most - count % 2) // 2))
    firsts = [round(at * (half - 1) / max(1, number - 1)) for at in range(number)]
    partner = {first: first + count - half for first in firsts}
    return partner | {other: first for first, other in partner.items()}, [half] if count % 2 else []


def _accuracy(subject: Subject, length: int, most: int, samples: int) -> list[Row]:
    count, rows = subject.task.places(length), list[Row]()
    partner, middle = pairs(count, most)
    chosen = sorted([*partner, *middle])
    try:
        for place in chosen[:1]:
            subject.placed(NAME, place, 1, length, partner.get(place))
    except Unsupported as reason:
        partner = {}
        rows = [subject.cannot(NAME, metric, reason, eval_length=length) for metric in (CONTENT, PLACE)]
    asked = {place: subject.placed(NAME, place, samples, length, partner.get(place)) for place in chosen}
    answers = {place: _answered(subject, *each) for place, each in asked.items()}
    depths = {place: place / max(1, count - 1) for place in chosen}
    for place, (right, _) in answers.items():
        rows += _quality(subject, length, depths[place], right)
    followed = [_followed(asked[place][0], answers[place], answers[other]) for place, other in partner.items()]
    shares = dict(zip([depths[place] for place in partner], followed, strict=True))
    for depth, share in [*shares.items(), *([(None, torch.cat(followed))] if followed else [])]:
        for metric, column in ((CONTENT, 0), (PLACE, 1)) if len(share) else ():
            value = share[:, column].double().mean().item()
            rows.append(subject.row(NAME, metric, value=value, n=len(share), eval_length=length, depth=depth))
    accuracy = {depths[place]: right.double().mean().item() for place, (right, _) in answers.items()}
    return [*rows, *_index(subject, length, accuracy, sum(right.numel() for right, _ in answers.values()))]


def _answered(subject: Subject, asked: Placed, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return which answers are right, and which are those of the decoy: each ``(batch, counted)`` bool."""
    batch, model = asked.batch, subject.model

    def likeliest(tokens: Tensor, places: Tensor) -> Tensor:
        return model(tokens, places)[:, batch.counted.to(tokens.device)].argmax(-1)

    answers, targets = in_chunks(model, batch.tokens, positions, likeliest), batch.targets[:, batch.counted]
    decoys = torch.full_like(targets, -1) if asked.decoys is None else asked.decoys[:, batch.counted]
    return answers == targets, answers == decoys


def _followed(asked: Placed, here: tuple[Tensor, Tensor], there: tuple[Tensor, Tensor]) -> Tensor:
    """Return whether content, and whether place decides each answer in which evidence and distractor differ.

    ``here`` has the evidence at a place, ``there`` the distractor: ``(answers, 2)`` bool.
    """
    assert asked.decoys is not None
    apart = (asked.decoys != asked.batch.targets)[:, asked.batch.counted]
    return torch.stack([here[0] & there[0], here[0] & there[1]], -1)[apart]


def _quality(subject: Subject, length: int, depth: float, right: Tensor) -> Iterator[Row]:
    quality = {"token_accuracy": right}
    if right.shape[1] > 1 and "exact_match" in subject.task.metrics:
        quality["exact_match"] = right.all(1)
    for metric, share in quality.items():
        value, chance = share.double().mean().item(), subject.best_guess(metric, length)
        where = {"eval_length": length, "depth": depth, "n": share.numel()}
        yield subject.row(NAME, metric, value=value, chance=chance, **where)


def ends_and_middle(values: Mapping[float, float]) -> tuple[float, float] | None:
    """Return the U index and the recency of values by depth; None where a quarter or the middle has none.

    The U index is the mean of both ends, the first and the last quarter, less that of the middle half; recency is the
    last quarter less the first.
    """
    parts = [
        [value for depth, value in values.items() if low <= depth <= high]
        for low, high in ((0, 0.25), (0.250001, 0.749999), (0.75, 1))
    ]
    if not all(parts):
        return None
    first, middle, last = (sum(part) / len(part) for part in parts)
    return (first + last) / 2 - middle, last - first


def _index(subject: Subject, length: int, values: Mapping[float, float], n: int, of: str = "") -> Iterator[Row]:
    found = ends_and_middle(values)
    for metric, value in zip((U_INDEX, RECENCY), found or (None, None), strict=True):
        if value is None:
            yield subject.cannot(NAME, f"{of}{metric}", f"{len(values)} places have no middle", eval_length=length)
        else:
            yield subject.row(NAME, f"{of}{metric}", value=value, n=n, eval_length=length)


def _influence(subject: Subject, length: int, samples: int) -> Iterator[Row]:
    stages = {"": subject.model} | ({INITIAL: subject.initial()} if subject.trained else {})
    for stage, model in stages.items():
        name = f"{stage}{INFLUENCE}"
        try:
            batch, positions = subject.question(f"{NAME}/{INFLUENCE}", samples, length)
            directions = torch.randn(4, model.geometry.model_dim, generator=subject.stream(f"{NAME}/directions"))
            span = subject.task.input_span(length)
            found = profile(model, batch.tokens, positions, directions)[span]
        except Unsupported as reason:
            yield subject.cannot(NAME, name, reason, eval_length=length)
            continue
        found = found / found.mean()
        size = -(-len(found) // BINS)
        for at, part in enumerate(found.split(size)):
            where = {"position": span.start + at * size, "size": len(part) if size > 1 else None}
            yield subject.row(NAME, name, value=part.mean().item(), n=samples, eval_length=length, **where)
        values = {at / max(1, len(found) - 1): value for at, value in enumerate(found.tolist())}
        yield from _index(subject, length, values, samples, f"{name}_")
