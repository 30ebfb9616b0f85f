"""``check_method``: every law in turn, and a report in words for the method's author."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from fedtrain.extensions.errors import describe_code_error
from fedtrain.extensions.source import locate_definition
from fedtrain.methods.base import AnyMethod
from fedtrain.methods.own import name_method
from fedtrain.testing.laws import LAWS, PREREQUISITES, LawBroken


@dataclass(frozen=True)
class CheckResult:
    """Whether a law holds."""

    law: str
    meaning: str
    failure: str | None = None
    """What was seen and what to do, in a line; None if it holds."""


@dataclass(frozen=True)
class MethodReport:
    """What came of the laws."""

    title: str
    place: str
    """Where the method is defined."""
    results: tuple[CheckResult, ...]

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """The laws that do not hold."""
        return tuple(one for one in self.results if one.failure)

    def raise_failures(self) -> None:
        """For a test: fail with every law that does not hold."""
        if self.failures:
            lines = [f"{one.law}: {one.failure}" for one in self.failures]
            raise LawBroken("\n".join([f"{self.title} ({self.place})", *lines]))


def check_method(method: AnyMethod | type[AnyMethod]) -> MethodReport:
    """Put a method, or its class with default options, through every law; it takes some seconds.

    Raises:
        InputError: if it cannot be a method at all.

    The report ends early if the module cannot be built, for then nothing else can be said.
    """
    name_method(method)
    made = method() if isinstance(method, type) else method
    results: list[CheckResult] = []
    for name in LAWS:
        results.append(_check(name, made))
        if results[-1].failure and LAWS[name] in PREREQUISITES:
            break
    return MethodReport(made.title, locate_definition(type(made)), tuple(results))


def _check(name: str, method: AnyMethod) -> CheckResult:
    meaning, failure = (inspect.getdoc(LAWS[name]) or "").partition("\n")[0], None
    try:
        LAWS[name](method)
    except LawBroken as broken:
        failure = str(broken)
    except (Exception, SystemExit) as error:
        failure = describe_code_error(error)
    return CheckResult(name, meaning, failure)
