"""The types of what a run writes down: rows of metrics, summaries, manifests, as JSON holds them."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from fedtrain.data.table_schema import TableDescription

StatisticName = Literal["mean", "micro", "worst", "std"]
ByBranch = dict[str, float]
"""A number for each branch of a model; ``fused`` is the prediction."""


class MetricRow(TypedDict):
    """One evaluated branch of one client's model on one of its splits: a line of ``metrics.jsonl``."""

    round: int
    client: str
    split: str
    branch: str
    accuracy: float
    loss: float
    n: int
    metrics: NotRequired[dict[str, float | None]]
    """Further scores, if the run has any; None where the labels do not define one."""


class ClientStatistics(TypedDict):
    """Over clients, by branch."""

    mean: ByBranch
    """Unweighted."""
    micro: ByBranch
    """Over all test samples."""
    worst: ByBranch
    std: ByBranch
    """Population standard deviation (ddof 0)."""


class MetricStatistics(TypedDict):
    """A further score under one rule: by client and branch, and its mean over the clients that have it."""

    clients: dict[str, dict[str, float | None]]
    mean: dict[str, float | None]
    defined: dict[str, int]
    """Of how many clients that is the mean."""


class GapSummary(TypedDict):
    """How far the prediction is above the better branch; below it where negative."""

    clients: dict[str, float]
    """The better branch of each client."""
    mean: float
    """Of the means over clients: the better branch for all of them."""


class RuleResult(ClientStatistics, total=False):
    """Test accuracies under one rule of reporting."""

    clients: dict[str, ByBranch]
    round: int
    """Of rules that choose one round."""
    rounds: list[int]
    """Of the rule that takes the mean over several."""
    metrics: dict[str, MetricStatistics]
    """Further scores by name, if the run has any."""
    mean_std_over_rounds: ByBranch
    micro_std_over_rounds: ByBranch


class SkippedClient(TypedDict):
    """A client that was left out of a round."""

    round: int
    client: str
    reason: str


class RunSummary(TypedDict):
    """``summary.json``: the results of a run and what they cost."""

    finished: bool
    method: str
    dataset: str
    title: str
    standin: bool
    notes: list[str]
    skipped: list[SkippedClient]
    rounds: int
    report: str
    """The rule that the run reports by."""
    rules: dict[str, RuleResult]
    gap: NotRequired[dict[str, GapSummary]]
    """By rule, if the method has branches."""
    bytes: dict[str, dict[str, int]]
    seconds: float


class ClientDescription(TypedDict, total=False):
    """A client in a manifest: how many samples of each class it holds."""

    name: str
    train: list[int]
    val: list[int]
    test: list[int]
    noise: float
    sha256: str
    scaling: dict[str, list[float]]
    """How its numbers were standardised, if they were."""


class DataDescription(TypedDict, total=False):
    """The data in a manifest, for readers who do not have them."""

    title: str
    standin: bool
    classes: list[str]
    notes: list[str]
    clients: list[ClientDescription]
    sha256: str
    input_shape: list[int]
    """Of data of the user's own, as is what follows."""
    input_type: str
    mean: list[float]
    std: list[float]
    scaling: dict[str, list[float]]
    """Of everybody's training part."""
    table: TableDescription


class NodeDescription(TypedDict):
    """What the node of a client says of it: its place in the data set, and its data alone."""

    client: str
    place: int
    data: DataDescription


class AdaptedScore(TypedDict):
    """A newcomer's score under one way to predict."""

    branch: str
    accuracy: float
    loss: float
    metrics: dict[str, float | None]


class AdaptationReport(TypedDict):
    """How a newcomer did before and after it had a personal part: also ``held_out.json``."""

    client: str
    shots: int
    passes: int
    test_samples: int
    before: AdaptedScore
    after: AdaptedScore
    notes: list[str]


class ExtensionDescription(TypedDict, total=False):
    """Code outside fedco2 that a run was made with."""

    kind: str
    """method, model or aggregator."""
    name: str
    title: str
    """Of a method."""
    file: str
    sha256: str
    """Of its source, or of all the source of its package."""
    package: str
    """The installed package that it came with, and its version."""


class MachineDescription(TypedDict):
    """What a run was computed on."""

    system: str
    device: str
    threads: int


class Circumstances(TypedDict, total=False):
    """How, when and with what a run, or a part of it, was made."""

    command: str
    started: str
    versions: dict[str, str]
    git: str | None
    machine: MachineDescription
    extensions: list[ExtensionDescription]
    """Code outside fedco2, if there is any."""


class Resumption(Circumstances, total=False):
    """A time at which a run went on."""

    round: int
    """How many rounds were done by then."""


class Manifest(Circumstances, total=False):
    """``manifest.json``: what a reader needs to trust or repeat the numbers of a run."""

    data: DataDescription
    resumed: list[Resumption]
