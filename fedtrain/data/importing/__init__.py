"""Bring a user's files into the store: recognise them, decode them, split them, name them honestly."""

from fedtrain.data.importing.importer import ImportedDomain, import_dataset
from fedtrain.data.progress import Progress, ignore_progress

__all__ = ["ImportedDomain", "Progress", "ignore_progress", "import_dataset"]
