"""How fast this is beside what people would otherwise take: ``python -m experiments.peers``."""
