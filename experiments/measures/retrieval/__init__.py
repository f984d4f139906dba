"""Does a model find what a question asks for, wherever in the context it stands, and up to which length?

Each question is asked with its evidence at several depths, from 0 (the first place where it may stand) to 1 (the
last), at several lengths. Within a length all depths have the same questions, so that they differ in the place alone.
The effective length is the longest measured length up to which 90 % of the accuracy in range is kept, guessing
counted as none, as a multiple of the training length; it is 0 where accuracy in range is not half-way from guessing
to all right.
Teacher-forced. Tasks without a place for their evidence are unsupported.
"""

NAME = "retrieval"
EASIEST = ("num_needles=1", "num_letters=1")
"""Of the task needles: one line is hidden, whose key and value are a token each."""
NEEDS_TRAINING = True
MAIN = None

EFFECTIVE = "effective_length"
ERRORS = 3
"""Binomial standard errors above guessing from which on accuracy at a depth is better than it."""


def finds(accuracy: float, guess: float) -> bool:
    """Whether a model finds enough in range for its places and lengths to mean something."""
    return accuracy >= (1 + guess) / 2
