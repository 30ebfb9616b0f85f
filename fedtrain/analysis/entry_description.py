"""Entries of a module in words: ``online without batch norm`` instead of forty names."""

from __future__ import annotations

from torch import nn

from fedtrain.parameters import EntryNames, batch_norm_entries, entries_under

EVERYTHING = "everything"


def describe_entries(module: nn.Module, names: EntryNames, path: str = "") -> str:
    """The fewest words that say which entries these are; empty for none."""
    here = entries_under(module, path)
    inside, what = names & here, path or EVERYTHING
    norm, scales = (batch_norm_entries(module, stats) & here for stats in (True, False))
    if not inside:
        return ""
    if inside == here:
        return what
    for part, called in ((norm, "batch norm"), (scales, "weight and bias of batch norm")):
        if inside == part:
            return called if not path else f"{called} of {path}"
        if inside == here - part:
            return f"{what} without {called}"
    inner = (f"{path}.{name}".lstrip(".") for name, _ in module.get_submodule(path).named_children())
    pieces = [words for child in inner if (words := describe_entries(module, names, child))]
    return ", ".join(sorted(pieces, key=lambda words: " " in words))  # "offline, batch norm of online" is not misread
