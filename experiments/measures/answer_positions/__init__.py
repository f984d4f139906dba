"""Does a longer sequence fail because of how its answers are numbered?

The trained model answers sequences longer than any in training twice: with their own positions, and with the answers'
positions as in a sequence of the training length. In ``copy``, trained on words of up to 16, the copy of a word of 20
begins at position 22; moved, at 18. Tokens, mask and the right answers stay. What comes back was lost to positions, or
distances, that training paired otherwise; the last answers, for which training had no position, cannot come back so.
"""

NAME = "answer_positions"
NEEDS_TRAINING = True
MAIN = None
MOVED = "answers numbered as in training"
