"""The list of claims, and all of them on shapes large and small."""

import pytest
import torch
from studies import CLAIM_IDS, build_scaled_identities, build_study, check_claim

from theory import (
    CLAIMS,
    Claim,
    Finding,
    InputError,
    Problem,
    Study,
    check_claims,
    draw_initial_weights,
    draw_synthetic_problem,
)
from theory.claims import select_claims

# The list of claims


def test_all_claims_are_there():
    assert list(CLAIMS) == CLAIM_IDS
    for name, claim in CLAIMS.items():
        assert isinstance(claim, Claim)
        assert claim.id == name
        assert claim.statement
        assert claim.source
        assert callable(claim.check)


def test_what_strict_insists_on():
    assert [name for name, claim in CLAIMS.items() if claim.ordering] == ["O1", "O2", "O3", "O4", "X1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("O1", ["O1"]),
        ("o2,k1", ["K1", "O2"]),
        (" X1 , d2,,D2 ,", ["D2", "X1"]),
        (",".join(reversed(CLAIM_IDS)), CLAIM_IDS),
        (None, CLAIM_IDS),
    ],
)
def test_choose(text, expected):
    assert [claim.id for claim in select_claims(text)] == expected


@pytest.mark.parametrize("text", ["O9", "O1,O9"])
def test_choose_hints_at_what_may_be_meant(text):
    with pytest.raises(InputError, match=r"unknown claim 'O9'; did you mean 'O\d'\?.*K1, K2"):
        select_claims(text)


def test_choose_does_not_guess_wildly():
    with pytest.raises(InputError, match="unknown claim 'HELLO'") as caught:
        select_claims("hello")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize("text", ["", " ", ",", " , ,"])
def test_choose_wants_a_name(text):
    with pytest.raises(InputError, match=r"no claim named.*K1, K2"):
        select_claims(text)


def test_verify_checks_the_claims_it_is_given(usual):
    found = check_claims(usual, select_claims("O2,K2"))
    assert list(found) == ["K2", "O2"]
    assert all(isinstance(finding, Finding) for finding in found.values())
    assert found["O2"] == CLAIMS["O2"].check(usual)


# Every claim on shapes large and small

SHAPES = {
    "usual": {},
    "isotropic": {"covariance": "isotropic"},
    "scaled": {"covariance": "scaled"},
    "one client": {"clients": 1},
    "one sample each": {"samples": 1},
    "unequal clients": {"samples": [1, 4, 2]},
    "one dimension": {"dim": 1},
    "two dimensions": {"dim": 2},
    "one client, one dimension": {"clients": 1, "dim": 1},
    "one of all": {"clients": 1, "samples": 1, "dim": 1},
    "one sample in all": {"clients": 1, "samples": 1},
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("shape", SHAPES)
def test_verdicts_that_mathematics_decides(shape, dtype):
    sizes = {"clients": 3, "samples": 3, "dim": 4, "covariance": "anisotropic"} | SHAPES[shape]
    study = build_study(draw_synthetic_problem(**sizes, seed=2).to(dtype), 64, steps=5)
    found = {name: check_claim(name, study) for name in CLAIMS}
    assert list(found) == CLAIM_IDS
    verdict = {name: finding.verdict.split(":")[0] for name, finding in found.items()}
    for name in ("K1", "K2", "O1", "O2", "O3", "O4", "O5", "B1", "X1"):
        assert verdict[name] == "holds", found[name]
    flat = sizes["dim"] == 1
    assert verdict["K3"] == ("fails" if flat else "holds")  # d = 1 leaves nothing of v but its sign: V = 0
    assert verdict["K5"] == ("holds" if flat or sizes["covariance"] != "anisotropic" else "holds under")
    assert verdict["D1"] == "holds under"
    assert verdict["D3"] == ("holds" if sizes["clients"] == 1 else "holds under")
    if flat:
        assert verdict["K4"] == "holds"  # V(0) = V^inf = 0 at every width
    if flat or sizes["clients"] == 1:
        assert verdict["D2"] == "fails"  # both models have the same kernel, and the joint loss halves its gradient


@pytest.mark.parametrize("seed", range(6))
def test_one_dimension_is_no_matter_of_rounding(seed):
    """V = 0 by mathematics, so whatever is left of it is rounding and must not decide on anything."""
    for clients in (1, 3):
        study = build_study(draw_synthetic_problem(clients, 3, 1, seed=seed), 64, steps=5)
        found = {name: check_claim(name, study) for name in ("K4", "K5", "O1", "O2", "O3", "O4", "O5", "D2")}
        assert found.pop("D2").verdict == "fails"
        assert {finding.verdict for finding in found.values()} == {"holds"}


def test_a_network_that_sees_nothing_is_no_crash():
    """One unit whose gate is closed for the one sample: every kernel is zero, and no step moves anything."""
    v = draw_initial_weights(draw_synthetic_problem(1, 1, 3), 1, 0.5, seed=1).v
    problem = Problem(-v, torch.ones(1, dtype=torch.float64), torch.tensor([0]), build_scaled_identities(1, dim=3))
    study = build_study(problem, 1, steps=3)
    assert not study.online_kernel.Lambda.any()
    for name in CLAIMS:
        check_claim(name, study)


@pytest.mark.parametrize("seed", range(4))
def test_a_narrow_network_with_all_gates_closed_is_no_crash(seed):
    """C1 also looks at a sixteenth of the width; here that is one unit, which may see nothing of the one sample."""
    check_claim("C1", build_study(draw_synthetic_problem(1, 1, 3, seed=seed), 16, seed=seed, steps=2))


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_claim_says_what_its_check_computes(claim):
    """The limits and descents of a study are computed once, when first needed; reports show those that were."""
    study = Study.at_init(draw_synthetic_problem(2, 3, 4, seed=1), 64, steps=2)
    claim.check(study)
    assert claim.uses_limit == ("limit" in vars(study))
    assert claim.uses_descents == ("descents" in vars(study))


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_what_is_trivial_for_one_client_always_holds_there(claim):
    if claim.trivial_for_one_client:
        assert claim.check(Study.at_init(draw_synthetic_problem(1, 4, 4, seed=3), 64, steps=2)).verdict == "holds"
    else:
        assert not claim.ordering
