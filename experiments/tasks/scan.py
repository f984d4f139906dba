import itertools
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import torch
from torch import Generator, Tensor

from experiments.tasks import Batch, Task, ask, held_out, tasks
from pe_zoo import Unsupported

ACTIONS = ("WALK", "LOOK", "RUN", "JUMP", "LTURN", "RTURN")
VERBS = ("walk", "look", "run", "jump", "turn")
MODIFIERS = ("left", "right", "opposite", "around", "twice", "thrice", "and", "after")
BEGIN, MARK, BLANK = "^", "|", "_"
TOKENS = (*ACTIONS, *VERBS, *MODIFIERS, BEGIN, MARK, BLANK)
MOST_WORDS = 9

Phrase = tuple[tuple[str, ...], tuple[str, ...]]
"""Words, and the actions that they ask for."""


@tasks.register("scan")
class Scan(Task):
    """Execute a command in simple English: ``run twice after turn left | LTURN RUN RUN``. The split by length.

    Length counts actions, and every command with so many is as likely as any other:

        tokens    ^ _ _ _ _ run twice after turn left | LTURN RUN
        targets                                   LTURN RUN   RUN

    Blanks in front make all commands 9 words, so that the first action always has the same absolute position.

    The 20 910 commands of the published grammar: 16 990 have at most 22 actions (train) and 3 920 have 24 to 48 (test);
    none has 23, 29, 31, 34, 35, 37 to 39 or 41 to 47. Lake & Baroni (2018), arXiv:1711.00350, experiment 2.
    Departures: one command in eight of the training length is kept for the test in range, as in every task; the
    answer's length is not predicted, as in the paper's evaluation with oracle lengths; training draws its lengths
    uniformly, the next longer one for one without commands.

    Chance: ``1 / 6`` an action, ``6 ** -length`` all of them. Best guess from position: 0.351 and 0.00694 at length 22.
    """

    vocab_size = len(TOKENS)
    num_answers = len(ACTIONS)

    def __init__(self, *, train_length: int = 22, min_length: int = 1) -> None:
        self.set_lengths(train_length, min_length)
        if train_length not in commands():
            raise ValueError(f"task.train_length={train_length}: {_missing(train_length)}; take one of these")

    def sequence_length(self, length: int) -> int:
        return 1 + MOST_WORDS + _trainable(length)

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        words, actions = _commands_with(_trainable(length) if split == "train" else length)
        drawn = torch.randint(len(words), (batch_size,), generator=generator)
        return self._ask(words[drawn], actions[drawn], causal)

    def evaluation(self, samples: int, length: int, generator: Generator, *, causal: bool) -> Batch:
        """Return commands of a length, none twice; all of them where there are no more than ``samples``."""
        words, actions = _commands_with(length)
        drawn = torch.randperm(len(words), generator=generator)
        batch = self._ask(words[drawn], actions[drawn], causal)
        if length == self.train_length and self.has_split(causal=causal):
            batch = batch.part(held_out(batch.tokens))
        return batch.first(samples)

    def _ask(self, words: Tensor, actions: Tensor, causal: bool) -> Batch:
        self.check_causal(causal)
        mark = torch.full_like(words[:, :1], TOKENS.index(MARK))
        return ask(words, torch.cat([mark, actions[:, :-1]], 1), actions, begin=TOKENS.index(BEGIN))

    def input_span(self, length: int) -> slice:
        return slice(1, MOST_WORDS + 1)

    def position_guess(self, metric: str, length: int) -> float:
        """Guess the most frequent action at each place, or sequence of actions, among the commands of a length."""
        actions = _commands_with(length)[1]
        answers = [actions] if metric == "exact_match" else actions.unsqueeze(-1).unbind(1)
        likeliest = [answer.unique(dim=0, return_counts=True)[1].max() for answer in answers]
        return float(torch.stack(likeliest).double().mean()) / len(actions)


def _commands_with(length: int) -> tuple[Tensor, Tensor]:
    """Return the commands with ``length`` actions, ``(commands, 9)``, and these, ``(commands, length)``."""
    if length not in commands():
        raise Unsupported(f"task=scan: {_missing(length)}")
    return commands()[length]


def _missing(length: int) -> str:
    below = [other for other in commands() if other < length][-1:]
    above = [other for other in commands() if other > length][:1]
    return f"no command has {length} actions; the nearest have {' and '.join(map(str, below + above))}"


def _trainable(length: int) -> int:
    return min((other for other in commands() if other >= length), default=length)


@cache
def commands() -> dict[int, tuple[Tensor, Tensor]]:
    """Return all commands by their number of actions, as tokens: the words ``(commands, 9)``, and the actions."""
    number = {token: place for place, token in enumerate(TOKENS)}
    by_length = defaultdict(list)
    for words, actions in grammar():
        blanks = (BLANK,) * (MOST_WORDS - len(words))
        by_length[len(actions)].append([number[token] for token in (*blanks, *words, *actions)])
    tokens = {length: torch.tensor(by_length[length]) for length in sorted(by_length)}
    return {length: (part[:, :MOST_WORDS].clone(), part[:, MOST_WORDS:].clone()) for length, part in tokens.items()}


def grammar() -> Iterator[Phrase]:
    """Generate every command and its actions, from the rules in the paper's supplement."""
    times = ((), ("twice",), ("thrice",))
    sentences = [
        (words + often, count * actions) for words, actions in _verbs() for count, often in enumerate(times, 1)
    ]
    yield from sentences
    for (words, actions), (further_words, further) in itertools.product(sentences, repeat=2):
        yield (*words, "and", *further_words), actions + further
        yield (*words, "after", *further_words), further + actions


def _verbs() -> Iterator[Phrase]:
    acts: list[Phrase] = [((action.lower(),), (action,)) for action in ACTIONS[:4]]
    yield from acts
    turns = [("left", "LTURN"), ("right", "RTURN")]
    for (word, act), (side, turn) in itertools.product([*acts, (("turn",), ())], turns):
        yield (*word, side), (turn, *act)
        yield (*word, "opposite", side), (turn, turn, *act)
        yield (*word, "around", side), 4 * (turn, *act)
