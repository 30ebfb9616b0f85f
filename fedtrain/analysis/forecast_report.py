"""What a forecast says, as typed values: scores by client and method, who is ahead, whom federation hurts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from html import escape
from itertools import pairwise
from typing import Any

from theory.errors import InputError
from theory.forecast import FEDBN, SINGLESET, Forecast, Gain
from theory.text import suggest_name


@dataclass(frozen=True)
class GainSummary:
    """A difference of mean scores, its standard error over samples, and what it comes to."""

    gain: float
    error: float
    word: str
    """helps, hurts or undecided."""

    @classmethod
    def of(cls, gain: Gain) -> GainSummary:
        """In numbers that JSON can hold."""
        return cls(gain.mean, gain.standard_error, gain.effect)


@dataclass(frozen=True)
class ClientForecast:
    """The forecast for a client."""

    name: str
    samples: int
    scores: dict[str, float]
    """By method."""
    federation: GainSummary | None
    """FedBN less SingleSet; None if these two were not asked for."""


@dataclass(frozen=True)
class Lead:
    """How far a method is ahead of the next in the order of mean scores."""

    method: str
    ahead_of: str
    by: GainSummary


@dataclass(frozen=True)
class ForecastSubject:
    """Of whom a forecast is made."""

    title: str
    names: list[str]
    sizes: list[int]
    has_classes: bool
    standin: bool
    notes: list[str]


@dataclass(frozen=True, repr=False)
class ForecastReport:
    """Which method will generalise best, predicted from the data; a table in a notebook."""

    title: str
    standin: bool
    notes: list[str]
    score: str
    """What is forecast: the share of right classes, or of the variance that is explained."""
    methods: list[str]
    clients: list[ClientForecast]
    mean: dict[str, float]
    """Over clients, by method."""
    order: list[Lead]
    """From the best method to the worst."""
    ridges: dict[str, float]
    federation: GainSummary | None
    """FedBN less SingleSet, in the mean over clients."""
    setting: dict[str, float | int | str] = field(default_factory=dict)
    """Of the kernels: network or width, seed, folds."""

    def __getitem__(self, client: str) -> ClientForecast:
        """The forecast for this client."""
        found = {one.name: one for one in self.clients}
        if client not in found:
            raise InputError(f"no client is called {client!r}; {suggest_name(client, found)}")
        return found[client]

    def to_dict(self) -> dict[str, Any]:
        """What ``fedco2 forecast --json`` prints."""
        names = ("title", "standin", "notes", "score", "methods")
        report: dict[str, Any] = {name: getattr(self, name) for name in names}
        report["clients"] = [_drop_none(asdict(one)) for one in self.clients]
        report["mean"] = self.mean
        report["order"] = [{"method": one.method, "ahead_of": one.ahead_of, **asdict(one.by)} for one in self.order]
        report["ridges"] = self.ridges
        if self.federation is not None:
            report["federation"] = asdict(self.federation)
        if self.order:
            first = self.order[0]
            report["first"] = {"method": first.method, "second": first.ahead_of, **asdict(first.by)}
        return report | self.setting

    def describe(self) -> str:
        """Which method is ahead, in a sentence."""
        if not self.order:
            return f"{self.methods[0]} alone was looked at"
        first = self.order[0]
        place = "ahead of" if first.by.word == "helps" else "level with"
        return f"{first.method} is {place} {first.ahead_of}: {_format_gain(first.by)} points"

    def _list_cells(self) -> list[list[str]]:
        heads = ["client", "samples", *self.methods, *["FedBN - SingleSet", "federation"] * bool(self.federation)]
        return [
            heads,
            *(
                _list_row(self.methods, one.name, f"{one.samples:,}", one.scores, one.federation)
                for one in self.clients
            ),
            _list_row(self.methods, "mean", "", self.mean, self.federation),
        ]

    def __repr__(self) -> str:
        cells = self._list_cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        notes = [f"note: {note}" for note in self.notes]
        return "\n".join([f"{self.title}: {self.score}, in %", *lines, self.describe(), *notes])

    def _repr_html_(self) -> str:
        heads, *rows = self._list_cells()
        head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        caption = escape(f"{self.title}: {self.score}, in %")
        remarks = "".join(f"<p>{escape(text)}</p>" for text in (self.describe(), *self.notes))
        return f"<table><caption>{caption}</caption><tr>{head}</tr>{body}</table>{remarks}"


def build_forecast_report(
    subject: ForecastSubject, found: Forecast, methods: list[str], setting: dict[str, float | int | str]
) -> ForecastReport:
    """The whole forecast; ``methods`` are those that are compared."""
    each = {method: found.compute_client_scores(method) for method in found.scores}
    has_pair = SINGLESET in found.scores and FEDBN in found.scores
    gains = [GainSummary.of(gain) for gain in found.compute_client_gains()] if has_pair else []
    mean = {method: found.compute_mean_score(method) for method in found.scores}
    order = sorted(methods, key=lambda method: -mean[method])
    return ForecastReport(
        title=subject.title,
        standin=subject.standin,
        notes=subject.notes,
        score="share of right classes" if subject.has_classes else "share of the variance that is explained",
        methods=methods,
        clients=[
            ClientForecast(
                name,
                subject.sizes[i],
                {method: scores[i] for method, scores in each.items()},
                gains[i] if has_pair else None,
            )
            for i, name in enumerate(subject.names)
        ],
        mean=mean,
        order=[Lead(a, b, GainSummary.of(found.compute_mean_gain(b, a))) for a, b in pairwise(order)],
        ridges=found.ridges,
        federation=GainSummary.of(found.compute_mean_gain(SINGLESET, FEDBN)) if has_pair else None,
        setting=setting,
    )


def _drop_none(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if value is not None}


def _list_row(
    methods: list[str], name: str, samples: str, scores: dict[str, float], federation: GainSummary | None
) -> list[str]:
    shown = [name, samples, *(f"{100 * scores[method]:.1f}" for method in methods)]
    return shown if federation is None else [*shown, _format_gain(federation), federation.word]


def _format_gain(gain: GainSummary) -> str:
    return f"{100 * gain.gain:+.1f} ± {100 * gain.error:.1f}"
