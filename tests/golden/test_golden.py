"""No number may change unnoticed: what small runs of every command give is what was recorded.

``recorded.json`` holds for each case whole numbers and words (class counts, bytes that travelled, verdicts), which
must be the same everywhere; numbers (losses, accuracies, norms of tensors, eigenvalues), which must be the same but
for rounding; and, for each kind of machine (CPU, torch, numpy) that it was recorded on, a digest of every tensor, of
all rows and of every finding. On such a machine every bit must be the same. On any other the digests say nothing, for
the last bits of sums and products depend on the CPU, and numbers are compared within a tolerance: 1e-6 of their size
where a case computes in float64, 2e-2 in float32, 2e-1 where many steps let rounding grow; accuracies within 0.02.

When numbers are meant to change: ``python tests/golden/record.py``; to add a kind of machine, with ``--add``.
"""

from __future__ import annotations

import pytest
from golden_cases import CASES, CONVENTIONS, ON_RANKS, RANKS
from golden_look import Seen, bits_here, differences, look, recorded
from golden_ranks import look_at_both, look_on_ranks

RECORD = recorded()
BITS = bits_here(RECORD)
"""None on a machine of another kind."""


def check(name: str, seen: Seen) -> None:
    case = CASES[name]
    source = case.like or name
    bits = None if BITS is None else BITS.get(source, {})
    wrong = differences(case, seen, RECORD["values"][source], bits)
    assert not wrong, "\n".join([f"{name} is not as recorded", *wrong])


def test_every_case_is_recorded() -> None:
    assert set(RECORD["values"]) == {name for name, case in CASES.items() if case.like is None}
    numbers = sorted(map(str, range(len(RECORD["machines"]))))
    for kinds in RECORD["bits"].values():
        assert sorted(number for machines in kinds for number in machines.split()) == numbers


@pytest.mark.parametrize("name", CASES)
def test_in_this_process(name, tmp_path) -> None:
    check(name, look(CASES[name], tmp_path))


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_on_several_processes(convention, tmp_path) -> None:
    """Where clients train does not matter: the same recordings."""
    for name, seen in look_on_ranks(ON_RANKS[convention], RANKS, tmp_path).items():
        check(name, seen)


def test_begun_on_several_processes_and_ended_in_one(tmp_path) -> None:
    """Nor does it matter if clients move."""
    check("feature fedco2", look_at_both("feature fedco2", RANKS, tmp_path))


def test_a_change_is_seen(tmp_path) -> None:
    """Of the least number that is compared, also where bits are not."""
    name = "few peers"
    seen = look(CASES[name], tmp_path)
    key = next(key for key in seen.near if key.startswith("shared/"))
    seen.near[key][1] *= 1 + 1e-4
    assert [one.split(":")[0] for one in differences(CASES[name], seen, RECORD["values"][name], None)] == [key]
