"""Do heads look at places or at symbols: what becomes of their weights if the tokens before a query are permuted?

The tokens of the input are permuted, their positions stay, and the weights of the next query on them are compared. A
positional head gives each place what it gave before: its weights are invariant. A symbolic head gives each token what
it gave before: its weights are equivariant. No head is wholly both, unless its weights are all alike (Urrutia et al.,
2025, arXiv:2511.11579). In deeper layers a token carries what stands around it, so a head may be neither.

Each score is 1 minus the squared change that its kind of head would not show, over that between weights and permuted
weights: 1 is purely of that kind, 0 no more so than by chance. For weights that add a part of the place and a part of
the symbol, the scores are the parts' shares of the variance. Departures: the paper permutes the key vectors of one head
and scores its logits; here tokens are permuted before the model and weights are compared, so that positions added to
embeddings and content-dependent biases count as what they do.
"""

NAME = "head_roles"
NEEDS_TRAINING = True
MAIN = "positional_score"
SYMBOLIC, OVERLAP = "symbolic_score", "role_overlap"
INITIAL = "initial_"
