"""Where do heads look: at certain distances, the first token, the token before, or the token that followed last time?

Attention weights are measured for every head, before training and after, on test sequences of the training length, as
sums over ranges of distance. A wide range or a short sequence holds more weight by itself, so each number comes with
that of a head with uniform weights. Distance is counted in tokens, whatever the positions are. Two kinds of heads are
known from language models: previous-token heads, and induction heads, which find the last occurrence of the current
token and attend to the token after it. Induction is measured on random sequences that are repeated once.
"""

NAME = "attention_pattern"
NEEDS_TRAINING = True
MAIN = "previous_token_score"

INITIAL = "initial_"
"""Prefix of a metric's name: before training."""
MASS, INDUCTION, FIRST = "attention_mass", "induction_score", "first_token_mass"
DISTANCE, ENTROPY = "mean_distance", "attention_entropy_share"
OF_DISTANCES = (MASS, DISTANCE, ENTROPY, FIRST, MAIN)
"""Metrics that are sums over the same weights, `weights.spread`."""
