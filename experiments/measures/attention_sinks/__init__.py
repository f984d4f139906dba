"""Does attention pile up on the first token, and do a few activations outgrow all others?

Three signs of an attention sink, for each layer and length: the share of the weight that later queries give the first
token, as a mean over heads, with that of uniform weights; the norm of its values over that of other tokens' values,
which is small where a sink takes weight and gives nothing (Xiao et al., 2023, arXiv:2309.17453; Gu et al., 2024,
arXiv:2410.10781); and how heavy the tails of the residual stream are: its kurtosis, 3 for normal numbers, and its
largest activation over the median one, by magnitude. Massive activations are above 1000 times the median (Sun et al.,
2024, arXiv:2402.17762).
"""

NAME = "attention_sinks"
NEEDS_TRAINING = True
MAIN = "first_token_mass"
VALUE_NORM, KURTOSIS, LARGEST = "first_token_value_norm", "activation_kurtosis", "largest_activation"
