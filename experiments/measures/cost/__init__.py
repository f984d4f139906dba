"""What does the encoder cost: in parameters, operations, time and memory, at the training length and beyond?

The same model is measured with its encoder and without it, alternating in one process, so that drifts of the machine
affect both; ratios are of medians. No training is needed. Tokens are random; positions are those of the run's
numbering.

Parameters and operations are counted and the same on every machine. Operations are those of the plain path: 2·m·n·k
for a matrix product, one for each number that anything else computes. Seconds are those of this machine with the paths
that the model takes on it. Memory is what tensors hold at once beyond the model itself. On a CPU it is counted storage
by storage, without the buffers inside one operation and without what an allocator keeps; on a GPU it is what the
allocator reports as in use.
"""

NAME = "cost"
NEEDS_TRAINING = False
MAIN = "relative_train_time"
