"""Does it matter where in the context the evidence of an answer stands, if nothing else differs?

The same questions are asked with their evidence at every place. The U index is accuracy at the ends (mean of the first
and the last quarter of the places) less that in the middle half: positive where a model is lost in the middle. Where
the task has distractors, evidence and a distractor half the context away exchange their places. A model that follows
content answers right both times; one that follows the place answers what stands there, right or not. The same index
is taken of the influence of each input place on the last output, the norm of the output's gradient in the token's
embedding, before training and after: it shows the bias of the architecture itself. Teacher-forced.
"""

NAME = "place_bias"
NEEDS_TRAINING = True
MAIN = "u_index"

U_INDEX, RECENCY = MAIN, "recency"
CONTENT, PLACE = "content_followed", "place_followed"
INFLUENCE = "influence"
LOST = 0.05
"""U index from which on a model is lost in the middle."""
INITIAL = "initial_"
"""Prefix of a metric's name: before training."""
