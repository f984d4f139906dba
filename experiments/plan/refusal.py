"""The error of a request that cannot be run. Imports no torch."""


class BadRequest(ValueError):
    """A request that cannot be run; the message names what was given, what is allowed and what to do."""
