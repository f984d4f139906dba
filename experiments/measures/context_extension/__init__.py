"""How far does a trained model reach if its encoder is exchanged, limited or dropped?

Some encoders are made to replace another in a trained model: they keep the angles of near tokens and rotate distant
ones less, so that a long text spans the range of a short one in training. The trained model is evaluated on sequences
longer than in training: unchanged; with each such encoder in place of its own, extended by the ratio of lengths; with
attention limited to the training length (a window), of a model from outside also with the first tokens in sight; and
with its encoder dropped. The weights are unchanged, except where a line says fine-tuned: a copy was trained on with
that encoder for a share of the training's steps, as its paper does, at sequences of the longest length, and its factor
is that of this length everywhere. Possible replacements are found by trying: encoders without parameters or buffers
that, at some factor, compute the same as the model's own within the training length. Evaluation is teacher-forced, one
length a batch.
"""

NAME = "context_extension"
NEEDS_TRAINING = True
MAIN = None

AS_TRAINED, WINDOW, DROPPED, REPLACED = "as trained", "window", "dropped", "replaced"
WITH_FIRST, FIRST_TOKENS = "window and first tokens", 4
"""A window beside which the first tokens stay in sight, and how many: four in Xiao et al. (2023), arXiv:2309.17453."""
LIMITS = (WINDOW, WITH_FIRST)
FINE_TUNED = "fine-tuned"
"""Ends the condition of a replacement with which a copy of the model was trained on."""
CONTENT, END, TIME = "far_context_content", "last_quarter_bits_per_byte", "relative_read_seconds"
"""Metrics that are measured of a model from outside alone."""
DISTANT = (END, CONTENT)
"""Those of them that say what text further back than a window is worth."""
TEXTS = ("task.path", "task.dataset")
"""Options that name a text."""
