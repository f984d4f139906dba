"""The error of a request that cannot be run. Imports no torch."""

from collections.abc import Iterator
from contextlib import contextmanager


class BadRequest(ValueError):
    """A request that cannot be run; the message names what was given, what is allowed and what to do."""


@contextmanager
def refusing() -> Iterator[None]:
    """Turn a ValueError within into a BadRequest."""
    try:
        yield
    except ValueError as error:
        raise BadRequest(str(error)) from error
