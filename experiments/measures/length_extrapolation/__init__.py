"""Does an encoder that was trained on short sequences still work on long ones?

The trained model is evaluated at one length a batch, on sequences that it was not trained on, the same for every
encoder of a seed. Evaluation is teacher-forced: each token is predicted from the true ones before it. Free-running,
where it is measured (``generated``), each token is predicted from the model's own answers.
"""

NAME = "length_extrapolation"
NEEDS_TRAINING = True
MAIN = None

GENERATED = "generated_"
"""Prefix of a metric's name: free-running."""
POSITION_LOSS, TOKENS_SEEN = "position_loss", "tokens_seen"
