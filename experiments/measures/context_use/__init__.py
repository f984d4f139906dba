"""Does a model use distant text, or do longer windows merely give each token more text before it?

Loss often falls as windows grow even if a model ignores distant text: in longer windows, fewer tokens stand near the
beginning, where little is known (the early token curse of Press et al. 2021, arXiv:2108.12409, appendix B). Two
comparisons tell these apart. First, the same tokens are predicted after a long context (kept), after only its last
part, as long as in training (cut), and after a context whose distant part is other text (replaced). A model that uses
distant text does better with it kept. Second, all tokens of some stretches of text are predicted in windows that
follow one another (separate), where the context grows with the position, and in windows that move on by a few tokens
(sliding), where all tokens have about the same. Evaluation is teacher-forced.
"""

NAME = "context_use"
NEEDS_TRAINING = True
MAIN = "far_context_gain"

QUALITY, GAIN, CONTENT = "bits_per_byte", "far_context_gain", "far_context_content"
KEPT, CUT, REPLACED, SEPARATE, SLIDING = "kept", "cut", "replaced", "separate windows", "sliding windows"
