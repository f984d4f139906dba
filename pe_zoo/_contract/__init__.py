"""The contract of an encoder as checks that run: ``python -m pe_zoo check``."""
