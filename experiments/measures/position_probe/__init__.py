"""Can the place of a token be read off a model's inner states, and from which layer on?

A linear probe is fitted on some sequences and asked about others: from the state of a token, before the first layer
and after each, it is to say the token's place in the sequence, counted from 0. Its error says by how many places it
is wrong on average. A small error means that the place is there to be read, whether the encoder put it there or the
model worked it out for itself, as a causal one can without any encoder; it does not mean that the model uses it.

Two controls say what an error is to be compared with. One probe is shown which token stands there and nothing else:
what the text itself gives away. Another is to learn places that were shuffled within each sequence, so that there is
nothing to learn: if it came out below the best constant guess, the method would be reading what is not there; if
above, there were too few sequences for so many features.
"""

NAME = "position_probe"
NEEDS_TRAINING = True
MAIN = "probe_error"
INITIAL = "initial_probe_error"
TOKENS = "tokens alone"
SHUFFLED = "shuffled labels"
