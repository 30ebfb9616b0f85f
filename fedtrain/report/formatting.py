"""Numbers of a report as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from fedtrain.report.rows import MeanStdEntry

STANDIN_TAG = "(stand-in)"
MINUS = "−"


def keep_standin_tag_unbroken(title: str) -> Markup:
    """A title in which the word is not broken that matters most."""
    return escape(title).replace(STANDIN_TAG, Markup('<span class="one">{}</span>').format(STANDIN_TAG))


def format_percent(value: float) -> str:
    """An accuracy. Equal means that were summed in another order differ in their last bits: those have no say."""
    return f"{round(100 * value, 9):.1f}"


def format_mean_std(value: MeanStdEntry) -> str:
    """A mean over seeds, with its std if there is one."""
    return format_percent(value["mean"]) + ("" if value["std"] is None else f" ± {format_percent(value['std'])}")


def format_points(value: float | None) -> str:
    """A difference of accuracies, with its sign."""
    return "–" if value is None else f"{100 * value:+.1f}".replace("-", MINUS)


def format_p_value(p: float | None) -> str:
    """A p value."""
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def format_score(value: float | None) -> str:
    """A score between 0 and 1 that is no share of samples; a dash where it is undefined."""
    return "–" if value is None else f"{value:.3f}"


def join_words(things: Sequence[object]) -> str:
    """As in a sentence: a, b and c."""
    words = [str(thing) for thing in things]
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)
