"""Bring a user's files into the store: recognise them, decode them, split them, name them honestly."""

from fedtrain.data.importing.add import Added, add
from fedtrain.data.importing.progress import Progress, quiet

__all__ = ["Added", "Progress", "add", "quiet"]
