"""Entries of a module in words: ``online without batch norm`` instead of forty names."""

from __future__ import annotations

from torch import nn

from fedtrain.parameters import NORM_LAYERS, EntryNames, entries_under, norm_entries

EVERYTHING = "everything"


def describe_entries(module: nn.Module, names: EntryNames, path: str = "") -> str:
    """The fewest words that say which entries these are; empty for none."""
    here = entries_under(module, path)
    inside, what = names & here, path or EVERYTHING
    if not inside:
        return ""
    if inside == here:
        return what
    for called, part in _name_norm_parts(module).items():
        if inside == part & here:
            return called if not path else f"{called} of {path}"
        if inside == here - part:
            return f"{what} without {called}"
    inner = (f"{path}.{name}".lstrip(".") for name, _ in module.get_submodule(path).named_children())
    pieces = [words for child in inner if (words := describe_entries(module, names, child))]
    pieces += sorted(name for name in inside if "." not in name.removeprefix(f"{path}."))  # of no submodule
    return ", ".join(sorted(pieces, key=lambda words: " " in words))  # "offline, batch norm of online" is not misread


def _name_norm_parts(module: nn.Module) -> dict[str, EntryNames]:
    """The entries of each kind of normalisation that the module has, whole and without running statistics."""
    kinds = [kind for kind in NORM_LAYERS if norm_entries(module, kind)]
    parts = {f"{kind} norm": (norm_entries(module, kind), norm_entries(module, kind, stats=False)) for kind in kinds}
    if len(kinds) > 1:
        parts["normalisation"] = norm_entries(module, "all"), norm_entries(module, "all", stats=False)
    whole = {name: everything for name, (everything, _) in parts.items()}
    return whole | {f"weight and bias of {name}": scales for name, (_, scales) in parts.items()}
