"""From settings to clients: who gets what, whether images keep their labels, and what is said about the data."""

import random
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedtrain.config.data import DataSettings
from fedtrain.data import source
from fedtrain.data.build import assemble_federation, build_federation, build_single_client, count_clients
from fedtrain.data.client_data import Federation, SamplePool, Samples
from fedtrain.data.datasets import DATASETS, get_dataset_info
from fedtrain.data.errors import DataError
from fedtrain.data.partition.assign import assign_samples
from fedtrain.data.partition.by_domain import get_kept_part
from fedtrain.data.source import LoadedDataset
from theory.errors import InputError

SIZES = {
    "digits": [(8000, 300)] * 5,
    "office": [(766, 192), (898, 225), (125, 32), (236, 59)],
    "domainnet": [(2103, 300)] * 6,
    "cifar10": [(2000, 500)],
    "cifar100": [(3000, 1000)],
}
DIGITS = DataSettings(percent=0.1)
MIXED = DataSettings(skew="label+feature", alpha=2.0)
OFFICE = DataSettings("office", skew="label+feature", alpha=1.0, divide=2)
DOMAINNET = DataSettings("domainnet", skew="label+feature", alpha=2.0, divide=5)
CIFAR = DataSettings("cifar10", skew="dirichlet", alpha=1.0, clients=10)
every_settings = pytest.mark.parametrize(
    "settings",
    [
        *(DIGITS, MIXED, OFFICE, DOMAINNET, CIFAR),
        DataSettings("office", train_size=62, val_size=50),
        replace(CIFAR, skew="iid", clients=7),
        replace(CIFAR, skew="pathological", clients=5),
        replace(CIFAR, dataset="cifar100", skew="pachinko"),
    ],
    ids=lambda s: f"{s.dataset} {s.skew}",
)


def load_images(part: str, indices: Any) -> torch.Tensor:
    """Images that say where they come from: index // 256, index % 256, and 1 in the test part."""
    index = torch.from_numpy(indices)
    channels = torch.stack([index // 256, index % 256, torch.full_like(index, part == "test")], dim=1)
    return channels.to(torch.uint8)[:, :, None, None].expand(-1, 3, 2, 2).contiguous()


def fail_to_load(part: str, indices: Any) -> torch.Tensor:
    raise AssertionError("an image was taken")


def decode_indices(samples: Samples) -> Any:
    return (256 * samples.inputs[:, 0, 0, 0].long() + samples.inputs[:, 1, 0, 0]).numpy()


def build_pools(name: str) -> list[SamplePool]:
    """All classes alike, in an order of their own for each domain."""
    order = np.random.RandomState(5)
    classes = len(get_dataset_info(name).classes)
    return [
        SamplePool(domain, title, *(order.permutation(np.arange(n) % classes) for n in sizes), load_images, (3, 2, 2))
        for (domain, title), sizes in zip(get_dataset_info(name).domains.items(), SIZES[name], strict=True)
    ]


def assemble_toy(settings: DataSettings) -> Federation:
    return assemble_federation(
        settings,
        LoadedDataset(get_dataset_info(settings.dataset), build_pools(settings.dataset), "Title", False, ("a note",)),
    )


def count_samples(made: Federation) -> list[tuple[int, int, int]]:
    return [(len(c.train), 0 if c.val is None else len(c.val), len(c.test)) for c in made.clients]


@every_settings
def test_an_image_keeps_its_label_and_no_image_is_given_twice(settings: DataSettings) -> None:
    made, there = assemble_toy(settings), build_pools(settings.dataset)
    single = len(there) == 1
    for k, client in enumerate(made.clients):
        pool = there[0 if single else k]
        for samples, labels, part in [
            (client.train, pool.train, 0),
            (client.test, pool.test, 1),
            *([(client.val, pool.train, 0)] if client.val else []),
        ]:
            assert samples.labels.dtype == torch.int64
            assert np.array_equal(samples.labels.numpy(), labels[decode_indices(samples)])
            assert (samples.inputs[:, 2] == part).all()
    lists = {
        "train": [[*decode_indices(c.train), *([] if c.val is None else decode_indices(c.val))] for c in made.clients],
        "test": [[*decode_indices(c.test)] for c in made.clients],
    }
    for of_clients in lists.values():
        together = [[*chain(*of_clients)]] if single else of_clients
        assert all(len(set(one)) == len(one) > 0 for one in together)


@every_settings
def test_without_inputs_clients_differ_in_nothing_but_their_content(settings: DataSettings) -> None:
    found = LoadedDataset(
        get_dataset_info(settings.dataset),
        [replace(pool, load_inputs=fail_to_load) for pool in build_pools(settings.dataset)],
        "Title",
        False,
        ("a note",),
    )
    made, blank = assemble_toy(settings), assemble_federation(settings, found.without_inputs())
    assert (blank.title, blank.notes, blank.preprocessing) == (made.title, made.notes, made.preprocessing)
    assert count_samples(blank) == count_samples(made)
    for one, other in zip(blank.clients, made.clients, strict=True):
        assert (one.name, one.noise) == (other.name, other.noise)
        for a, b in ((one.train, other.train), (one.test, other.test)):
            assert torch.equal(a.labels, b.labels)
            assert (a.inputs.shape, a.inputs.dtype) == (b.inputs.shape, b.inputs.dtype)
            assert a.inputs.is_meta


@every_settings
def test_the_same_settings_give_the_same_clients_and_leave_global_chance_alone(settings: DataSettings) -> None:
    before = np.random.get_state()[1].tolist(), random.getstate(), torch.get_rng_state().tolist()
    print_of_first = assemble_toy(settings).fingerprint
    assert (np.random.get_state()[1].tolist(), random.getstate(), torch.get_rng_state().tolist()) == before
    assert assemble_toy(settings).fingerprint == print_of_first
    other = assemble_toy(replace(settings, seed=7)).fingerprint
    assert (other == print_of_first) == (settings.skew == "domain")  # which draws nothing


@pytest.mark.parametrize(("percent", "amount"), [(0.02, 148), (0.04, 297), (0.06, 445), (0.1, 743), (0.2, 1487)])
def test_training_ratios_of_digits(percent: float, amount: int) -> None:
    made = assemble_toy(replace(DIGITS, percent=percent))
    assert count_samples(made) == [(amount, 0, 300)] * 5
    assert all(np.array_equal(decode_indices(c.train), np.arange(amount)) for c in made.clients)
    assert [c.name for c in made.clients] == ["mnist", "svhn", "usps", "synthdigits", "mnist_m"]


def test_the_first_are_trained_on_the_last_validate_and_all_test() -> None:
    made = assemble_toy(DataSettings("office", train_size=62, val_size=50))
    assert count_samples(made) == [(62, 50, 192), (62, 50, 225), (62, 50, 32), (62, 50, 59)]
    dslr = made.clients[2]
    assert dslr.val is not None
    assert np.array_equal(decode_indices(dslr.train), np.arange(62))
    assert np.array_equal(decode_indices(dslr.val), np.arange(75, 125))
    assert count_samples(assemble_toy(DataSettings("domainnet", train_size=105, val_size=105))) == [(105, 105, 300)] * 6
    assert count_samples(assemble_toy(DataSettings("office", percent=0.2)))[3] == (23 + 24, 0, 59)  # of its own list
    assert count_samples(assemble_toy(DataSettings("office", val_size=5)))[2] == (120, 5, 32)


@given(train=st.integers(1, 130), val=st.integers(0, 130))
def test_training_and_validation_never_meet(train: int, val: int) -> None:
    settings = DataSettings("office", train_size=train, val_size=val)
    if train + val <= 125:
        for share in assign_samples(settings, build_pools("office")):
            assert (len(share.train), len(share.val)) == (train, val)
            assert not set(share.train) & set(share.val)
    else:
        with pytest.raises(InputError, match=r"client dslr: \d+( \+ \d+)? images asked for, its list has 125; lower"):
            assign_samples(settings, build_pools("office"))


def test_label_skew_of_a_domain_is_a_part_of_the_published_pool() -> None:
    made = assemble_toy(MIXED)
    assert all(0 < len(c.train) < 2231 and decode_indices(c.train).max() < 2231 and c.val is None for c in made.clients)
    for client in made.clients:  # the test set has the training set's classes in its proportions, as far as it goes
        train, test = (np.bincount(s.labels, minlength=10) for s in (client.train, client.test))
        ratio = min(30 / train[train > 0])
        assert np.array_equal(test, np.floor(ratio * train + 1e-9))


def test_the_parts_of_office_are_cut_to_the_size_of_the_smallest() -> None:
    amounts = [train for train, _, _ in count_samples(assemble_toy(OFFICE))]
    assert all(40 <= amount <= 85 for amount in amounts), amounts
    short = [
        SamplePool(p.domain, p.title, p.train[:120], p.test, load_images, (3, 2, 2)) for p in build_pools("office")
    ]
    parts = [len(share.train) for share in assign_samples(OFFICE, short)]
    assert all(40 <= part <= 80 for part in parts), parts  # short lists are not cut again


def test_kept_parts_are_the_published_ones() -> None:
    assert [get_kept_part(d, 2.0, 5) for d in DATASETS["domainnet"].domains] == [0, 0, 2, 1, 0, 0]
    assert get_kept_part("painting", 2.0, 2) == 1
    assert [get_kept_part(d, 1.0, 2) for d in DATASETS["office"].domains] == [0, 0, 1, 0]
    assert [get_kept_part("dslr", alpha, 2) for alpha in (0.3, 0.7, 1.5)] == [1, 0, 0]
    assert get_kept_part("quickdraw", 2.0, 1) == 0


def test_domains_are_drawn_one_after_the_other() -> None:
    there = build_pools("digits")
    same = [replace(pool, train=there[0].train, test=there[0].test) for pool in there]
    first, second, *_ = assign_samples(MIXED, same)
    assert not np.array_equal(np.sort(first.train), np.sort(second.train))
    assert np.array_equal(first.train, assign_samples(MIXED, there)[0].train)


@pytest.mark.parametrize("settings", [OFFICE, DOMAINNET], ids=["office", "domainnet"])
def test_misaligned_labels_are_the_same_labels_beside_other_images(settings: DataSettings) -> None:
    right, wrong = assemble_toy(settings), assemble_toy(replace(settings, labels="misaligned"))
    for a, b in zip(right.clients, wrong.clients, strict=True):
        for good, bad in ((a.train, b.train), (a.test, b.test)):
            assert torch.equal(good.labels, bad.labels)
            assert np.array_equal(decode_indices(bad), np.arange(len(good)))
            assert not torch.equal(good.inputs, bad.inputs)
    assert "misaligned" in wrong.notes[-1]
    assert right.notes == ("a note",)


def test_published_thinning_leaves_two_tests_whole_and_right_even_if_misaligned() -> None:
    made = assemble_toy(replace(OFFICE, thin_test="published", labels="misaligned"))
    there = build_pools("office")
    assert [len(c.test) for c in made.clients[2:]] == [32, 59]
    assert (
        [len(c.test) for c in made.clients[:2]] == [len(c.test) for c in assemble_toy(OFFICE).clients[:2]] < [192, 225]
    )
    for client, pool in zip(made.clients[2:], there[2:], strict=True):
        assert np.array_equal(client.test.labels.numpy(), pool.test[decode_indices(client.test)])
    assert len(assemble_toy(OFFICE).clients[3].test) < 59


def test_names_sort_in_the_order_of_clients() -> None:
    names = [c.name for c in assemble_toy(replace(CIFAR, skew="iid", clients=101)).clients]
    assert names[0] == "client000"
    assert names == sorted(names)
    assert assemble_toy(CIFAR).clients[3].name == "client03"


def test_noise_rises_from_client_to_client_and_the_preparation_is_the_data_sets() -> None:
    made = assemble_toy(replace(CIFAR, skew="iid", clients=5, noise=20.0, noise_unit="normalised", augment=True))
    assert [c.noise for c in made.clients] == [0, 5, 10, 15, 20]
    assert (made.preprocessing.mean, made.preprocessing.std) == (DATASETS["cifar10"].mean, DATASETS["cifar10"].std)
    assert (made.preprocessing.augment, made.preprocessing.augment_val) == (True, False)
    assert made.preprocessing.noise_unit == "normalised"
    assert made.classes == DATASETS["cifar10"].classes


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (replace(CIFAR, skew="domain"), ["does not fit CIFAR-10", "iid, pathological or dirichlet"]),
        (replace(CIFAR, skew="label+feature"), ["does not fit CIFAR-10"]),
        (replace(CIFAR, skew="pachinko"), ["without coarse classes", "iid, pathological or dirichlet"]),
        (replace(CIFAR, clients=None), ["data.clients"]),
        (DataSettings("digits", skew="dirichlet"), ["Digits, which has 5 domains", "domain or label+feature"]),
        (DataSettings("digits", clients=4), ["clients is 4", "5 domains", "leave data.clients out"]),
        (DataSettings("digits", percent=0.1, train_size=5), ["data.percent or data.train_size"]),
        (DataSettings("digits", train_size=0), ["train_size is 0"]),
        (DataSettings("digits", val_size=-1), ["val_size is -1"]),
        (DataSettings("digits", percent=1.5), ["percent is 1.5"]),
        (DataSettings("office", train_size=62, val_size=70), ["client dslr: 62 + 70", "has 125", "data.val_size"]),
        (DataSettings("office", val_size=125), ["client dslr: 1 + 125 images"]),
        (replace(OFFICE, train_size=62), ["train_size is for skew 'domain'", "leave data.train_size out"]),
        (replace(MIXED, labels="misaligned"), ["office and domainnet only"]),
        (replace(OFFICE, least_per_class=9), ["client dslr: ", "lower least_per_class or divide"]),
        (DataSettings("digit"), ["did you mean 'digits'"]),
    ],
    ids=lambda value: value.skew if isinstance(value, DataSettings) else "",
)
def test_contradictions_are_refused(settings: DataSettings, words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        assemble_toy(settings)
    assert all(word in str(error.value) for word in words), str(error.value)


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A store whose domains are those of the list, and a stand-in with another title."""
    there: list[str] = []

    def real(name: str, root: Path, wanted: list[str]) -> list[SamplePool]:
        if missing := [d for d in get_dataset_info(name).domains if d not in there]:
            raise DataError(f"{root}: lacks {', '.join(missing)}; fedco2 data get {name}")
        if "broken" in there:
            raise DataError("a checksum is wrong")
        return build_pools(name)

    monkeypatch.setattr(
        source.store,
        "list_stored_titles",
        lambda name, root: {d: d for d in get_dataset_info(name).domains if d in there},
    )
    monkeypatch.setattr(source.store, "load_real_pools", real)
    monkeypatch.setattr(source.store, "collect_notes", lambda name, root, wanted: ("the split is ours",))
    monkeypatch.setattr(source, "build_standin_pools", build_pools)
    return there


def test_auto_takes_real_data_only_if_every_domain_is_there(stored: list[str], tmp_path: Path) -> None:
    made = build_federation(DIGITS, tmp_path)
    assert (made.title, made.standin) == ("Digits (stand-in)", True)
    assert len(made.notes) == 1
    assert "stand-in" in made.notes[0]

    stored += ["mnist", "usps"]
    made = build_federation(DIGITS, tmp_path)
    assert made.standin
    assert "lacks svhn, synthdigits, mnist_m; fedco2 data get digits" in made.notes[1]

    stored += ["svhn", "synthdigits", "mnist_m"]
    made = build_federation(DIGITS, tmp_path)
    assert (made.title, made.standin, made.notes) == ("Digits", False, ("the split is ours",))
    assert build_federation(replace(DIGITS, source="standin"), tmp_path).standin

    stored.append("broken")
    with pytest.raises(DataError, match="checksum"):
        build_federation(DIGITS, tmp_path)


def test_real_refuses_to_fall_back(stored: list[str], tmp_path: Path) -> None:
    stored.append("mnist")
    with pytest.raises(DataError, match="fedco2 data get digits"):
        build_federation(replace(DIGITS, source="real"), tmp_path)
    with pytest.raises(InputError, match="unknown source 'rael'"):
        build_federation(replace(DIGITS, source="rael"), tmp_path)  # type: ignore[arg-type]


def test_a_single_pool_goes_by_its_own_title(stored: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    subset = replace(build_pools("cifar10")[0], title="CIFAR-10 (subset of 2,000 + 500)")
    monkeypatch.setattr(source.store, "load_real_pools", lambda name, root, wanted: [subset])
    stored.append("cifar10")
    assert build_federation(CIFAR).title == "CIFAR-10 (subset of 2,000 + 500)"


# --- one client alone


@every_settings
def test_a_client_alone_is_the_one_among_all(settings, monkeypatch):
    monkeypatch.setattr(source.store, "load_real_pools", lambda name, root, wanted: build_wanted_pools(name, wanted))
    monkeypatch.setattr(source.store, "collect_notes", lambda name, root, wanted: ())
    noisy = replace(settings, source="real", noise=3.0)
    everyone = build_federation(noisy)
    assert count_clients(noisy) == len(everyone.clients)
    for place in (0, 1, len(everyone.clients) - 1):
        alone = build_single_client(noisy, place)
        (one,) = alone.clients
        assert one.fingerprint == everyone.clients[place].fingerprint
        for about in ("classes", "title", "standin", "preprocessing", "notes"):
            assert getattr(alone, about) == getattr(everyone, about)
    with pytest.raises(InputError, match=rf"no client {len(everyone.clients)}: these settings make"):
        build_single_client(noisy, len(everyone.clients))


def build_wanted_pools(name, wanted):
    return [pool for pool in build_pools(name) if pool.domain in wanted]
