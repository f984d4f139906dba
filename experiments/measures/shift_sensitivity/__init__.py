"""Does it matter where counting starts: what happens if all positions are shifted by the same number?

The trained model reads the sequences it is tested on as they are, but their positions start later: 16, 17, 18, …
instead of 0, 1, 2, …. Nothing else changes, and neither does the right answer. An encoder that sees distances alone
is not touched by this; that is measured here, not assumed. One that sees positions themselves may meet positions
that training never showed it, or may have learned the answer for the positions it knows.

Measured is the quality at each shift, how much of it is lost, and how much the outputs change, before training and
after. Teacher-forced, at the training length unless ``length_share`` names a part of it; every place is scored that the
task scores.
"""

NAME = "shift_sensitivity"
NEEDS_TRAINING = True
MAIN = "quality_loss"
INITIAL, CHANGE = CHANGES = ("initial_output_change", "output_change")
