"""Speed of pe-zoo next to other libraries: ``python -m experiments.peers``."""
