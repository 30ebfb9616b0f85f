"""The one error that a user can cause and mend."""


class InputError(ValueError):
    """Bad input: the message is one line that names the value and the way out."""
