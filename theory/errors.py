"""The one error that a user can cause and fix."""


class InputError(ValueError):
    """Bad input: a one-line message that names the value and says how to fix it."""
