"""What is an encoder before any training, as a picture and as numbers?

Nothing is trained and no data is read: the encoder is looked at as it was initialised. What it adds to the token
embeddings is shown as it is. What it does to attention is shown as the score between a query and a key of the same
content, a mean over random contents, so that position alone makes the differences. The numbers say which properties
follow: whether only distance counts, how far a query sees, and what is new to the model beyond its training length.
"""

NAME = "structure"
NEEDS_TRAINING = False
MAIN = "translation_invariance"
