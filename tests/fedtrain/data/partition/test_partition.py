"""Skews by golden numbers, by law and by what they refuse."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from fedtrain.data.partition import (
    CIFAR100_COARSE,
    DIGITS_POOL_SIZE,
    TrainTestIndices,
    build_known_labels,
    compute_noise_levels,
    compute_part_sizes,
    count_classes,
    count_train_samples,
    draw_label_and_feature_part,
    misalign_labels,
    partition_dirichlet,
    partition_iid,
    partition_pachinko,
    partition_pathological,
    subsample_stratified,
)
from fedtrain.data.partition.dirichlet import compute_cut_points, mask_full_and_normalise
from theory.errors import InputError

Array = np.ndarray[Any, Any]
Skew = Callable[[Array, Array, int, int], list[TrainTestIndices]]

CLASSES = 4
COARSE = np.array([0, 1, 0, 1])
SKEWS: dict[str, Skew] = {
    "iid": partition_iid,
    "pathological": lambda train, test, clients, seed: partition_pathological(train, test, clients, 2, seed),
    "dirichlet": lambda train, test, clients, seed: partition_dirichlet(train, test, clients, 1.0, seed, least=1),
    "pachinko": lambda train, test, clients, seed: partition_pachinko(train, test, COARSE, clients, seed=seed),
}
SAMPLES_LOST = {"iid": False, "pathological": True, "dirichlet": False, "pachinko": True}
every_skew = pytest.mark.parametrize("name", SKEWS)
seeds = st.integers(0, 2**32 - 1)


def load_cifar10_labels() -> tuple[Array, Array]:
    labels = build_known_labels("cifar10")
    assert labels is not None
    return labels


@st.composite
def label_pools(draw: st.DrawFn) -> tuple[Array, Array]:
    """Labels of four classes in any order, 20 to 60 training and 16 to 30 test samples each."""
    order = np.random.RandomState(draw(seeds))
    sizes = st.lists(st.integers(20, 60), min_size=CLASSES, max_size=CLASSES)
    fewer = st.lists(st.integers(16, 30), min_size=CLASSES, max_size=CLASSES)
    train, test = (order.permutation(np.repeat(np.arange(CLASSES), draw(counts))) for counts in (sizes, fewer))
    return train, test


def is_same(left: list[TrainTestIndices], right: list[TrainTestIndices]) -> bool:
    return len(left) == len(right) and all(
        np.array_equal(a.train, b.train) and np.array_equal(a.test, b.test) for a, b in zip(left, right, strict=True)
    )


# Golden numbers: seed 0, class sizes of the real data


@pytest.mark.parametrize(
    ("clients", "alpha", "first"),
    [
        (20, 0.3, [208, 61, 76, 383, 206, 138, 675, 92, 0, 497]),
        (20, 0.7, [266, 231, 136, 381, 336, 209, 92, 524, 52, 379]),
        (20, 1.0, [235, 489, 379, 284, 191, 144, 51, 199, 387, 685]),
        (100, 0.3, [36, 0, 3, 8, 73, 18, 64, 75, 843, 0]),
    ],
)
def test_dirichlet_gives_the_published_tables_at_the_first_draw(clients: int, alpha: float, first: list[int]) -> None:
    train, test = load_cifar10_labels()
    shares = partition_dirichlet(train, test, clients, alpha, seed=0, tries=1)
    assert count_classes(train, shares[0].train, 10).tolist() == first
    if clients == 100:
        sizes = [len(s.train) for s in shares], [len(s.test) for s in shares]
        assert [(min(s), max(s)) for s in sizes] == [(103, 1120), (20, 220)]


def test_pathological_gives_the_published_table() -> None:
    train, test = load_cifar10_labels()
    tables = [count_classes(train, s.train, 10) for s in partition_pathological(train, test, 20, 2, seed=0)[:3]]
    held = [{int(c): int(table[c]) for c in np.flatnonzero(table)} for table in tables]
    assert held == [{1: 1390, 8: 1354}, {2: 1185, 3: 1081}, {4: 1366, 7: 1390}]


def test_pachinko_gives_the_simulated_numbers() -> None:
    labels = build_known_labels("cifar100")
    assert labels is not None
    train, test = labels
    shares = partition_pachinko(train, test, CIFAR100_COARSE, 100, seed=0)
    fine = [np.concatenate([train[s.train], test[s.test]]) for s in shares]
    assert {len(labels) for labels in fine} == {600}
    coarse = np.bincount(CIFAR100_COARSE[fine[0]])
    expected = {3: 61, 6: 17, 8: 1, 9: 365, 10: 1, 12: 2, 13: 118, 14: 22, 17: 10, 18: 1, 19: 2}
    assert {int(c): int(coarse[c]) for c in np.flatnonzero(coarse)} == expected
    assert len(np.unique(fine[0])) == 36
    assert np.mean([len(np.unique(labels)) for labels in fine]) == pytest.approx(54.91)
    assert np.array_equal(np.sort(np.concatenate([s.train for s in shares])), np.arange(50_000))


def test_digits_parts_and_training_ratios() -> None:
    assert compute_part_sizes(DIGITS_POOL_SIZE) == [743, 744, 744, 744, 744, 743, 744, 744, 744, 744]
    assert [count_train_samples(DIGITS_POOL_SIZE, p) for p in (0.02, 0.04, 0.06, 0.1, 0.2)] == [
        148,
        297,
        445,
        743,
        1487,
    ]
    assert count_train_samples(DIGITS_POOL_SIZE, 0.3) == 2231
    assert count_train_samples(DIGITS_POOL_SIZE, 1.0) == DIGITS_POOL_SIZE


def test_the_noisiest_client_has_sigma_max() -> None:
    assert compute_noise_levels(10, 18.0).tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0]
    assert compute_noise_levels(1, 5.0).tolist() == [0.0]


def test_known_labels_are_sorted_and_balanced() -> None:
    for name, classes, train_size, test_size in (("CIFAR-10", 10, 5000, 1000), ("cifar100", 100, 500, 100)):
        labels = build_known_labels(name)
        assert labels is not None
        assert [np.bincount(part).tolist() for part in labels] == [[train_size] * classes, [test_size] * classes]
        assert all((np.diff(part) >= 0).all() for part in labels)
    assert build_known_labels("office") is None
    assert np.bincount(CIFAR100_COARSE).tolist() == [5] * 20


# Laws


@every_skew
@given(data=label_pools(), clients=st.integers(1, 4), seed=seeds)
def test_nobody_shares_a_sample(name: str, data: tuple[Array, Array], clients: int, seed: int) -> None:
    clients *= 2  # four classes, two each: pathological needs an even number
    shares = SKEWS[name](*data, clients, seed)
    assert len(shares) == clients
    for pool, parts in zip(data, ([s.train for s in shares], [s.test for s in shares]), strict=True):
        together = np.concatenate(parts)
        assert together.dtype == np.int64
        assert together.min() >= 0
        assert together.max() < len(pool)
        assert len(np.unique(together)) == len(together)
        assert SAMPLES_LOST[name] or len(together) == len(pool)


@every_skew
@given(data=label_pools(), seed=seeds)
def test_the_seed_decides_all_and_global_generators_stay(name: str, data: tuple[Array, Array], seed: int) -> None:
    numpy_before, python_before = np.random.get_state(legacy=False), random.getstate()
    first = SKEWS[name](*data, 4, seed)
    np.testing.assert_equal(np.random.get_state(legacy=False), numpy_before)
    assert random.getstate() == python_before
    np.random.random_sample()
    random.random()
    assert is_same(first, SKEWS[name](*data, 4, seed))


@every_skew
def test_another_seed_is_another_split(name: str) -> None:
    train, test = np.repeat(np.arange(CLASSES), 50), np.repeat(np.arange(CLASSES), 20)
    assert not is_same(SKEWS[name](train, test, 4, 0), SKEWS[name](train, test, 4, 1))


@pytest.mark.parametrize("name", ["pathological", "dirichlet"])
@given(data=label_pools(), order=seeds, seed=seeds)
def test_class_counts_do_not_know_the_order_of_samples(
    name: str, data: tuple[Array, Array], order: int, seed: int
) -> None:
    moved = tuple(np.random.RandomState(order).permutation(labels) for labels in data)
    tables = []
    for train, test in (data, moved):
        shares = SKEWS[name](train, test, 4, seed)
        tables.append(
            [(count_classes(train, s.train, 4).tolist(), count_classes(test, s.test, 4).tolist()) for s in shares]
        )
    assert tables[0] == tables[1]


@settings(max_examples=20)
@given(data=label_pools(), seed=seeds)
def test_labels_may_be_of_any_integer_type(data: tuple[Array, Array], seed: int) -> None:
    small = tuple(labels.astype(np.uint8) for labels in data)
    assert all(is_same(skew(*data, 4, seed), skew(*small, 4, seed)) for skew in SKEWS.values())


@given(data=label_pools(), clients=st.integers(1, 8), each=st.integers(1, 4), seed=seeds)
def test_pathological_clients_hold_so_many_classes(
    data: tuple[Array, Array], clients: int, each: int, seed: int
) -> None:
    assume(clients * each % CLASSES == 0)
    train, test = data
    shares = partition_pathological(train, test, clients, each, seed)
    classes = [np.unique(train[s.train]).tolist() for s in shares]
    assert classes == [np.unique(test[s.test]).tolist() for s in shares]
    assert {len(held) for held in classes} == {each}
    assert np.bincount(np.concatenate(classes).astype(int)).tolist() == [clients * each // CLASSES] * CLASSES


def test_pathological_never_gives_a_class_twice_where_rounds_of_classes_meet() -> None:
    train, test = np.repeat(np.arange(10), 50), np.repeat(np.arange(10), 50)
    for seed in range(20):
        held = [np.unique(train[s.train]) for s in partition_pathological(train, test, 10, 3, seed)]
        assert {len(classes) for classes in held} == {3}


@given(data=label_pools(), clients=st.integers(1, 8), least=st.integers(1, 4), alpha=st.floats(0.5, 100), seed=seeds)
def test_dirichlet_keeps_its_promise(
    data: tuple[Array, Array], clients: int, least: int, alpha: float, seed: int
) -> None:
    try:
        shares = partition_dirichlet(*data, clients, alpha, seed, least=least, tries=50)
    except InputError:  # too many clients for so few samples: the limit has tests of its own
        reject()
    assert min(min(len(s.train), len(s.test)) for s in shares) >= least


@given(
    weights=st.lists(st.floats(0, 1), min_size=1, max_size=8),
    held=st.lists(st.integers(0, 9), min_size=8, max_size=8),
    amount=st.integers(0, 500),
)
def test_who_is_full_gets_nothing_more(weights: list[float], held: list[int], amount: int) -> None:
    has = np.array(held[: len(weights)])
    assume((has < 5).any())
    p = mask_full_and_normalise(np.array(weights), has, 5)
    assert p.sum() == pytest.approx(1)
    assert not p[has >= 5].any()
    sizes = np.diff(compute_cut_points(p, amount), prepend=0)
    assert sizes.sum() == amount
    assert (sizes >= 0).all()
    assert (np.abs(sizes[:-1] - p[:-1] * amount) < 1 + 1e-9).all()


def test_weights_that_underflow_are_shared_by_those_with_room() -> None:
    assert mask_full_and_normalise(np.array([1.0, 0.0, 0.0]), np.array([9, 0, 0]), 5).tolist() == [0.0, 0.5, 0.5]
    assert mask_full_and_normalise(np.array([np.nan, np.nan]), np.array([0, 0]), 5).tolist() == [0.5, 0.5]


def test_one_client_gets_all() -> None:
    train, test = np.repeat(np.arange(CLASSES), 5), np.repeat(np.arange(CLASSES), 3)
    for skew in (
        partition_iid,
        lambda a, b, n, s: partition_dirichlet(a, b, n, 0.3, s),
        lambda a, b, n, s: partition_pathological(a, b, n, 4, s),
    ):
        (share,) = skew(train, test, 1, 0)
        assert sorted(share.train.tolist()) == list(range(20))
        assert sorted(share.test.tolist()) == list(range(12))


@given(data=label_pools(), seed=seeds)
def test_a_huge_alpha_is_no_skew(data: tuple[Array, Array], seed: int) -> None:
    train, test = data
    shares = partition_dirichlet(train, test, 4, 1e6, seed, least=1)
    quarter = np.bincount(train) / 4
    for share in shares:  # truncation moves less than one sample; the draw has a relative spread of 1e-3
        assert (np.abs(count_classes(train, share.train, CLASSES) - quarter) < 1 + 0.01 * quarter).all()


@given(data=label_pools(), seeds_=st.tuples(seeds, seeds))
def test_pachinko_seeds_only_deal_the_lists(data: tuple[Array, Array], seeds_: tuple[int, int]) -> None:
    decks = [SKEWS["pachinko"](*data, 5, seed) for seed in seeds_]
    left, right = (sorted((s.train.tolist(), s.test.tolist()) for s in deck) for deck in decks)
    assert left == right


def test_pachinko_goes_on_when_classes_run_out() -> None:
    train, test = np.repeat([0, 2, 5], [1, 4, 2]), np.array([5, 0, 2, 2, 5])
    shares = partition_pachinko(train, test, np.array([1, 0, 1, 0, 0, 3]), 4, 0.01, 0.01, seed=3)
    assert [len(s.train) + len(s.test) for s in shares] == [3, 3, 3, 3]


# Label and feature skew


def make_labels(counts: list[int]) -> Array:
    return np.random.RandomState(0).permutation(np.repeat(np.arange(len(counts)), counts))


@given(data=label_pools(), divide=st.integers(1, 3), alpha=st.floats(1.0, 50), least=st.integers(0, 2), seed=seeds)
def test_the_parts_of_a_domain_are_a_partition(
    data: tuple[Array, Array], divide: int, alpha: float, least: int, seed: int
) -> None:
    train, test = data
    parts = [draw_label_and_feature_part(train, test, alpha, divide, least, keep, seed=seed) for keep in range(divide)]
    tables = [count_classes(train, part.train, CLASSES) for part in parts]
    assert np.sum(tables, axis=0).tolist() == np.bincount(train).tolist()
    assert all((table >= least).all() and table.sum() > 0 for table in tables)


@given(data=label_pools(), seed=seeds)
def test_the_adjusted_test_set_has_the_proportions_of_the_part(data: tuple[Array, Array], seed: int) -> None:
    train, test = data
    share = draw_label_and_feature_part(train, test, 1.0, 2, seed=seed)
    have, want, there = (
        count_classes(labels, indices, CLASSES)
        for labels, indices in ((test, share.test), (train, share.train), (test, np.arange(len(test))))
    )
    r = (there / want).min()
    assert (have <= there).all()
    assert (have == there).any()  # the scarcest class is kept whole
    assert (np.abs(have - np.floor(r * want + 1e-9)) == 0).all()
    assert len(np.unique(share.test)) == len(share.test)


def test_an_unadjusted_test_set_is_the_full_one() -> None:
    train, test = make_labels([20] * 4), make_labels([3] * 4)
    assert draw_label_and_feature_part(train, test, 1.0, 2, seed=0, adjust_test=False).test.tolist() == list(range(12))


class CountingRandomState(np.random.RandomState):
    """Counts the draws of one domain."""

    draws = 0

    def dirichlet(self, alpha: Any, size: Any = None) -> Any:
        self.draws += size[0]
        return super().dirichlet(alpha, size)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    "counts",
    [
        [223] * 10,
        [373, 304, 223, 198, 204, 172, 200, 190, 170, 197],
        [152, 426, 329, 256, 222, 208, 173, 171, 148, 145],
    ],
    ids=["balanced", "USPS", "SVHN"],
)
def test_digits_at_alpha_0_3_need_no_more_than_the_default_tries(counts: list[int], seed: int) -> None:
    rng = CountingRandomState(seed)
    share = draw_label_and_feature_part(make_labels(counts), make_labels(counts), alpha=0.3, divide=3, seed=rng)
    assert rng.draws < 200_000
    assert (count_classes(make_labels(counts), share.train, 10) >= 2).all()


def test_a_generator_is_drawn_on_so_domains_differ() -> None:
    labels = make_labels([30] * 4)
    rng = np.random.RandomState(1)
    first, second = (draw_label_and_feature_part(labels, labels, 1.0, 2, seed=rng) for _ in range(2))
    assert is_same([first], [draw_label_and_feature_part(labels, labels, 1.0, 2, seed=1)])
    assert not is_same([first], [second])


@pytest.mark.parametrize("tries", [777, 1000, 5000])
def test_more_tries_do_not_change_an_accepted_draw(tries: int) -> None:
    labels = make_labels([30] * 4)
    few = draw_label_and_feature_part(labels, labels, 1.0, 2, seed=5, tries=tries)
    assert is_same([few], [draw_label_and_feature_part(labels, labels, 1.0, 2, seed=5)])


@given(counts=st.lists(st.integers(0, 30), min_size=1, max_size=6), fraction=st.floats(0.01, 1), seed=seeds)
def test_a_stratified_cut_keeps_order_and_proportions(counts: list[int], fraction: float, seed: int) -> None:
    labels = make_labels(counts)
    rng = np.random.RandomState(seed)
    chosen = rng.permutation(len(labels))[: len(labels) - len(labels) // 4]
    assume(round(fraction * len(chosen)) > 0)
    kept = subsample_stratified(labels, chosen, fraction, rng)
    assert len(kept) == round(fraction * len(chosen))
    places = [chosen.tolist().index(i) for i in kept]
    assert places == sorted(set(places))
    before, after = (count_classes(labels, part, len(counts)) for part in (chosen, kept))
    assert (np.abs(after - before * len(kept) / len(chosen)) < 1 + 1e-9).all()


def test_the_published_cuts() -> None:
    labels = np.repeat(np.arange(10), 42)
    rng = np.random.RandomState(0)
    for parts in (6, 7, 2):
        kept = subsample_stratified(labels, np.arange(420), 1 / parts, rng)
        assert count_classes(labels, kept, 10).tolist() == [42 // parts] * 10
    assert subsample_stratified(labels, np.arange(420), 1.0, rng).tolist() == list(range(420))


def test_misaligned_pairs_the_kth_image_with_the_label_of_the_kth_choice() -> None:
    images, labels = misalign_labels(np.array([7, 2, 5]))
    assert images.tolist() == [0, 1, 2]
    assert labels.tolist() == [7, 2, 5]


# What is refused

TRAIN, TEST = np.repeat(np.arange(CLASSES), 10), np.repeat(np.arange(CLASSES), 10)


@every_skew
@pytest.mark.parametrize(
    ("train", "test", "clients", "seed", "words"),
    [
        (TRAIN, TEST, 0, 0, "clients is 0; at least one"),
        (TRAIN, TEST, -3, 0, "clients is -3"),
        (TRAIN[:0], TEST, 2, 0, "training labels have shape"),
        (TRAIN, TEST[:0], 2, 0, "test labels have shape"),
        (TRAIN.reshape(2, -1), TEST, 2, 0, "training labels have shape"),
        (TRAIN - 1, TEST, 2, 0, "training label -1 is negative"),
        (TRAIN, TEST - 2, 2, 0, "test label -2 is negative"),
        (TRAIN / 2, TEST, 2, 0, "training labels are float64"),
        (TRAIN[:5], TEST, 6, 0, "5 training samples are too few for 6 clients"),
        (TRAIN, TEST[:5], 6, 0, "5 test samples are too few for 6 clients"),
        (TRAIN, TEST, 2, -1, "seed is -1"),
        (TRAIN, TEST, 2, 2**32, "seed is 4294967296"),
    ],
)
def test_every_skew_refuses(name: str, train: Array, test: Array, clients: int, seed: int, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        SKEWS[name](train, test, clients, seed)
    assert "\n" not in str(caught.value)


def draw_part(**changes: Any) -> TrainTestIndices:
    defaults: dict[str, Any] = {"alpha": 1.0, "divide": 2, "seed": 0, "train_labels": TRAIN, "test_labels": TEST}
    return draw_label_and_feature_part(**(defaults | changes))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: partition_pathological(TRAIN, TEST, 3, 2, 0), "nearest number of clients that works is 2 or 4"),
        (lambda: partition_pathological(TRAIN, TEST, 1, 3, 0), "nearest number of clients that works is 4"),
        (lambda: partition_pathological(TRAIN, TEST, 2, 0, 0), r"classes_per_client is 0; .* choose 1\.\.4"),
        (lambda: partition_pathological(TRAIN, TEST, 2, 5, 0), "classes_per_client is 5"),
        (lambda: partition_pathological(TRAIN, TEST, 24, 4, 0), "10 training samples are too few for its 24 clients"),
        (lambda: partition_pathological(TRAIN, TEST[10:], 2, 2, 0), "class 0: 0 test samples are too few"),
        (lambda: partition_pathological(TRAIN[:30], TEST, 2, 2, 0), "test label 3 is the label of no training sample"),
        (lambda: partition_dirichlet(TRAIN[:30], TEST, 2, 1.0, 0), "test label 3 is the label of no training sample"),
        (lambda: partition_dirichlet(TRAIN, TEST, 2, 0.0, 0), "alpha is 0.0; choose it from 0.01"),
        (lambda: partition_dirichlet(TRAIN, TEST, 2, -1.0, 0), "alpha is -1.0"),
        (lambda: partition_dirichlet(TRAIN, TEST, 2, float("nan"), 0), "alpha is nan"),
        (lambda: partition_dirichlet(TRAIN, TEST, 2, float("inf"), 0), "alpha is inf"),
        (lambda: partition_dirichlet(TRAIN, TEST, 2, 1.0, 0, least=0), "least is 0"),
        (lambda: partition_dirichlet(TRAIN, TEST, 2, 1.0, 0, tries=0), "tries is 0"),
        (
            lambda: partition_dirichlet(TRAIN, TEST, 5, 1.0, 0),
            "need 50 training and test samples, and there are 40; lower least",
        ),
        (
            lambda: partition_dirichlet(TRAIN, TEST, 4, 0.1, 0, tries=7),
            "none of 7 draws .* lower least, raise alpha or take fewer",
        ),
        (lambda: partition_pachinko(TRAIN, TEST, COARSE[:3], 2, seed=0), "fine label 3 has no coarse label"),
        (lambda: partition_pachinko(TRAIN, TEST, -COARSE, 2, seed=0), "coarse label -1 is negative"),
        (lambda: partition_pachinko(TRAIN, TEST, COARSE, 2, alpha=0, seed=0), "alpha is 0"),
        (lambda: partition_pachinko(TRAIN, TEST, COARSE, 2, beta=0, seed=0), "beta is 0"),
        (lambda: partition_pachinko(TRAIN, TEST, COARSE, 2, seed=0, pool_seed=-1), "seed is -1"),
        (lambda: draw_part(alpha=0), "alpha is 0"),
        (lambda: draw_part(tries=0), "tries is 0"),
        (lambda: draw_part(divide=0), "divide is 0"),
        (lambda: draw_part(keep=2), r"keep is 2; the parts are numbered 0\.\.1"),
        (lambda: draw_part(least_per_class=-1), "least_per_class is -1"),
        (lambda: draw_part(divide=41, least_per_class=0), "40 training samples are too few for 41 parts"),
        (lambda: draw_part(least_per_class=6), "class 0: 10 training samples cannot give each of 2 parts 6"),
        (
            lambda: draw_part(least_per_class=5, tries=30),
            "none of 30 draws .* raise data.alpha, or lower data.least_per_class",
        ),
        (lambda: draw_part(test_labels=TEST[:20]), "class 2 has no test sample"),
        (lambda: draw_part(train_labels=TRAIN - 1), "training label -1 is negative"),
        (lambda: draw_part(test_labels=TEST[:0]), "test labels have shape"),
        (lambda: subsample_stratified(TRAIN, np.arange(4), 0.0, np.random.RandomState(0)), "fraction is 0.0"),
        (lambda: subsample_stratified(TRAIN, np.arange(4), 1.5, np.random.RandomState(0)), "fraction is 1.5"),
        (lambda: subsample_stratified(TRAIN, np.arange(4), 0.1, np.random.RandomState(0)), "of 4 samples leaves none"),
        (lambda: count_train_samples(DIGITS_POOL_SIZE, 20), "percent is 20; it is a share"),
        (lambda: count_train_samples(DIGITS_POOL_SIZE, 0.0), "percent is 0.0"),
        (lambda: count_train_samples(DIGITS_POOL_SIZE, 1e-5), "leaves none"),
        (lambda: compute_part_sizes(9), "size is 9"),
        (lambda: compute_noise_levels(0, 1.0), "clients is 0"),
        (lambda: compute_noise_levels(3, -1.0), "data.noise is -1.0"),
        (lambda: compute_noise_levels(3, float("nan")), "data.noise is nan"),
        (lambda: count_classes(TRAIN, np.arange(40), 3), "label 3 is outside the 3 classes"),
    ],
)
def test_bad_input_is_named_with_a_way_out(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_hopeless_number_of_clients_ends_and_says_how_near_it_came() -> None:
    train, test = load_cifar10_labels()
    with pytest.raises(InputError, match=r"none of 5 draws .* 500 clients at least 10 .* the best gave [0-9]:"):
        partition_dirichlet(train, test, 500, 0.3, seed=0, tries=5)
    assert len(partition_dirichlet(train, test, 500, 0.3, seed=0, least=2, tries=5)) == 500
