"""Numbers, formulas and names as the report page prints them. What returns ``Markup`` escapes its input."""

from __future__ import annotations

import math
import re
from typing import Any

from markupsafe import Markup, escape

DIGITS = 5
MAX_LISTED = 8
"""A longer list is abbreviated: its first three, its last, and how many there are."""
_SUBSCRIPT = re.compile(r"(?<=[\wλΛ])_(min|max|on|off|i|FedBN|FedAvg)(?![^\W_])")
_BRACED_SUBSCRIPT = re.compile(r"_\{(\w)_(\w)\}")
_POWER = re.compile(r"\^(?:\(([^()&<>]*)\)|(t)\b)")
_SCIENTIFIC = re.compile(r"\b(\d(?:\.\d+)?)e([+-]\d+)\b")
_KERNEL = re.compile(r"(V|G|Lambda)(_on|_off)?(_inf)?")
_KEY_LABELS = {
    "fedco2": "Fed-CO2", "fedbn": "FedBN", "mu": "μ", "lambda_min": "λ_min", "lambda_max": "λ_max",
    "log10_gain": "gain in digits (log10)", "rate": "rate η", "V": "V", "t": "step t",
}  # fmt: skip


def format_number(value: float, digits: int = DIGITS, fixed: bool = True) -> Markup:
    """Format with this many digits, keeping trailing zeros if ``fixed``; ∞ and NaN are spelled out."""
    if isinstance(value, int) or value == 0:
        return Markup(f"{value:.0f}")
    if math.isnan(value):
        return Markup("not a number")
    if math.isinf(value):
        return Markup("∞" if value > 0 else "−∞")
    if 1e-4 <= abs(value) < 1e5:
        return Markup(_format_exponents(f"{value:{'#' if fixed else ''}.{digits}g}".rstrip(".")))
    head, power = f"{value:.{digits - 1}e}".split("e")
    return Markup(_format_exponents((head if fixed else head.rstrip("0").rstrip(".")) + "e" + power))


def format_bound(value: float) -> Markup:
    """An end of an interval, with enough digits to tell the two ends apart."""
    return format_number(value, 12)


def format_scalar(value: Any) -> Markup:
    """Anything that is neither a list nor a dict."""
    if value is None:
        return Markup("not set")
    if isinstance(value, bool):
        return Markup("yes" if value else "no")
    if isinstance(value, int | float):
        return format_number(value, DIGITS + 1, fixed=False)
    return escape(str(value))


def format_sequence(values: list[Any]) -> Markup:
    """A list of scalars, abbreviated with the count where it is long."""
    if not values:
        return Markup("none")
    if len(values) <= MAX_LISTED:
        return Markup(", ").join(format_scalar(v) for v in values)
    first = Markup(", ").join(format_scalar(v) for v in values[:3])
    return first + Markup(f", …, {format_scalar(values[-1])} <span class='count'>({len(values)} values)</span>")


def _format_exponents(text: str) -> str:
    """Write 1e-08 as 1 × 10⁻⁸ without line breaks, and use a true minus sign before numbers."""
    text = _SCIENTIFIC.sub(
        lambda found: f"{found[1]}\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}10<sup>{int(found[2])}</sup>", text
    )
    return re.sub(r"(?:(?<=[ >])|^)-(?=[ \d])", "−", text)


def format_maths(text: str) -> Markup:
    """Typeset λ_min, V^inf and powers in our own sentences as formulas."""
    safe = _format_exponents(str(escape(text))).replace("^inf", "<sup>∞</sup>")
    safe = _SUBSCRIPT.sub(r"<sub>\1</sub>", _BRACED_SUBSCRIPT.sub(r"<sub>\1<sub>\2</sub></sub>", safe))
    return Markup(_POWER.sub(lambda found: f"<sup>{(found[1] or found[2]).replace('-', '−')}</sup>", safe))


def format_name(key: str) -> Markup:
    """The name of a number in the report, in words or as a formula."""
    if key in _KEY_LABELS:
        return format_maths(_KEY_LABELS[key])
    if found := _KERNEL.fullmatch(key):
        letter = found[1].replace("Lambda", "Λ")
        return format_maths(letter + (found[2] or "") + ("^inf" if found[3] else ""))
    return format_maths(key.replace("lambda_min", "λ_min").replace("_", " ").replace("λ min", "λ_min"))


def build_grid(value: Any) -> dict[str, Any] | None:
    """A dict of like dicts, or a list of them, as columns and rows; None for anything else."""
    rows = value if isinstance(value, dict) else dict(enumerate(value)) if isinstance(value, list) else {}
    inner = list(rows.values())
    if not inner or not all(isinstance(row, dict) and list(row) == list(inner[0]) for row in inner):
        return None
    if any(isinstance(cell, dict) for row in inner for cell in row.values()):
        return None
    return {"columns": list(inner[0]), "rows": [(str(key), list(row.values())) for key, row in rows.items()]}
