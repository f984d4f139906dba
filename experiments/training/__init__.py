"""Training and evaluation of one model: step, loop, evaluation, generation, checkpoints, several processes."""
