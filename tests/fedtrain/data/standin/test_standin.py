"""Built-in stand-in data: the same everywhere, balanced, and different from domain to domain."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
import torch

from fedtrain.data.client_data import SamplePool
from fedtrain.data.datasets import DATASETS, get_dataset_info
from fedtrain.data.errors import DataError
from fedtrain.data.partition import (
    CIFAR100_COARSE,
    draw_label_and_feature_part,
    partition_dirichlet,
    partition_pachinko,
)
from fedtrain.data.readers.labelled_images import Split
from fedtrain.data.standin import build_standin_pools, cifar, get_standin_size, pools
from fedtrain.data.standin.drawing import (
    Pose,
    compute_coverage,
    compute_outline_coverage,
    draw_distances,
    draw_texture,
    enlarge,
)
from fedtrain.data.standin.shapes import (
    FIELD_SIZE,
    SHAPE_HALF_SIZE,
    SYMBOL_FAMILIES,
    ShapeSet,
    build_digit_shapes,
    build_symbol_shapes,
)
from theory.errors import InputError

PARTS: tuple[Split, Split] = ("train", "test")
SAMPLE = 100
FEATURE_SKEW = ("digits", "office", "domainnet")


def get_labels(pool: SamplePool, part: Split) -> np.ndarray:
    return pool.train if part == "train" else pool.test


def hash_standin(name: str) -> str:
    digest = hashlib.sha256()
    for pool in build_standin_pools(name):
        for part in PARTS:
            digest.update(
                get_labels(pool, part).tobytes() + pool.load_inputs(part, np.arange(SAMPLE)).numpy().tobytes()
            )
    return digest.hexdigest()


@pytest.mark.parametrize("name", DATASETS)
def test_pools_are_those_of_the_catalogue(name: str) -> None:
    made = build_standin_pools(name)
    assert {pool.domain: pool.title for pool in made} == {
        domain: f"{title} (stand-in)" for domain, title in get_dataset_info(name).domains.items()
    }
    assert [pool.domain for pool in made] == list(get_dataset_info(name).domains)
    assert get_standin_size(name) <= get_dataset_info(name).image_size


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", DATASETS)
def test_classes_are_balanced_wherever_a_list_is_cut(name: str, part: Split) -> None:
    classes = len(get_dataset_info(name).classes)
    for pool in build_standin_pools(name):
        own = get_labels(pool, part)
        assert own.dtype == np.int64
        for cut in (len(own), len(own) // 3):
            counts = np.bincount(own[:cut], minlength=classes)
            assert len(counts) == classes
            assert counts.max() - counts.min() <= 1
        assert not np.array_equal(own[:classes], own[classes : 2 * classes])
        with pytest.raises(ValueError, match="read-only"):
            own[0] = 0


@pytest.mark.parametrize("name", DATASETS)
def test_images_are_coloured_bytes_with_something_to_see(name: str) -> None:
    size = get_standin_size(name)
    for pool in build_standin_pools(name):
        images = pool.load_inputs("train", np.arange(SAMPLE))
        assert images.shape == (SAMPLE, 3, size, size)
        assert images.dtype == torch.uint8
        assert (images.float().amax((1, 2, 3)) - images.float().amin((1, 2, 3)) > 25).all()


@pytest.mark.parametrize("name", DATASETS)
def test_no_image_is_seen_twice(name: str) -> None:
    for pool in build_standin_pools(name):
        images = [pool.load_inputs(part, np.arange(SAMPLE)).numpy() for part in PARTS]
        assert len({image.tobytes() for image in np.concatenate(images)}) == 2 * SAMPLE


def test_no_image_of_a_whole_domain_is_both_trained_on_and_tested() -> None:
    pool = build_standin_pools("digits")[2]
    train, test = (pool.load_inputs(part, np.arange(len(get_labels(pool, part)))).numpy() for part in PARTS)
    assert not {image.tobytes() for image in train} & {image.tobytes() for image in test}


def test_take_follows_the_indices() -> None:
    pool = build_standin_pools("digits")[1]
    everything = pool.load_inputs("train", np.arange(300))
    wanted = np.array([250, 3, 199, 3, 200, 0])
    assert torch.equal(pool.load_inputs("train", wanted), everything[wanted])
    assert len(pool.load_inputs("test", np.array([], dtype=np.int64))) == 0
    assert torch.equal(
        pool.load_inputs("test", np.array([-1])), pool.load_inputs("test", np.array([len(pool.test) - 1]))
    )
    with pytest.raises(IndexError):
        pool.load_inputs("test", np.array([len(pool.test)]))


def test_what_is_taken_can_be_changed_without_harm() -> None:
    pool = build_standin_pools("digits")[0]
    before = pool.load_inputs("train", np.arange(5))
    pool.load_inputs("train", np.arange(5)).zero_()
    assert torch.equal(pool.load_inputs("train", np.arange(5)), before)


def test_drawn_again_it_is_the_same() -> None:
    before = hash_standin("office")
    pools._draw_block.cache_clear()
    pools._draw_labels.cache_clear()
    np.random.seed(3)  # global chance must not matter
    assert hash_standin("office") == before


def test_a_fresh_process_draws_the_same() -> None:
    code = (
        "import hashlib, numpy as np; from fedtrain.data.standin import build_standin_pools;"
        "images = build_standin_pools('digits')[3].load_inputs('test', np.arange(399, 0, -7));"
        "print(hashlib.sha256(images.numpy().tobytes()).hexdigest())"
    )
    fresh = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    here = build_standin_pools("digits")[3].load_inputs("test", np.arange(399, 0, -7))
    assert hashlib.sha256(here.numpy().tobytes()).hexdigest() == fresh


@pytest.mark.parametrize("name", FEATURE_SKEW)
def test_domains_look_different(name: str) -> None:
    looks = {}
    for pool in build_standin_pools(name):
        images = pool.load_inputs("train", np.arange(SAMPLE)).float() / 255
        contrast = images.std((1, 2, 3)).mean()
        edges = (images.diff(dim=3).abs().mean() + images.diff(dim=2).abs().mean()) / contrast
        looks[pool.domain] = torch.stack([*images.mean((0, 2, 3)), contrast, edges])
    table = torch.stack(list(looks.values()))
    apart = torch.cdist(table, table) + torch.eye(len(table))
    assert apart.min() > 0.08, dict(zip(looks, apart.min(1).values.tolist(), strict=True))


def test_a_class_is_the_same_shape_in_every_domain() -> None:
    """Mean images, seen as departures from their domain's mean, are alike for one class across domains."""
    means = []
    for pool in build_standin_pools("digits")[:4:2]:
        images = pool.load_inputs("train", np.arange(1000)).float().mean(1)
        own = torch.stack([images[torch.from_numpy(pool.train[:1000] == k)].mean(0).flatten() for k in range(10)])
        own = own - own.mean(0)
        means.append(own / own.norm(dim=1, keepdim=True))
    assert ((means[0] @ means[1].T).argmax(1) == torch.arange(10)).sum() >= 8


def test_superclasses_of_cifar100_are_twenty_pictures_in_five_colours() -> None:
    pairs = set(zip(CIFAR100_COARSE.tolist(), cifar.RANK_IN_SUPERCLASS.tolist(), strict=True))
    assert pairs == {(coarse, fine) for coarse in range(len(SYMBOL_FAMILIES)) for fine in range(len(cifar.COLOURS))}


def test_pools_are_large_enough_for_every_skew_of_the_paper() -> None:
    ten, hundred = build_standin_pools("cifar10")[0], build_standin_pools("cifar100")[0]
    assert min(len(share.test) for share in partition_dirichlet(ten.train, ten.test, 100, 0.3, 0)) >= 10
    assert (
        min(len(share.test) for share in partition_pachinko(hundred.train, hundred.test, CIFAR100_COARSE, 100, seed=0))
        >= 10
    )
    for name, alpha, divide in (("digits", 0.3, 3), ("office", 1.0, 2), ("domainnet", 2.0, 5)):
        for pool in build_standin_pools(name):
            share = draw_label_and_feature_part(pool.train, pool.test, alpha, divide, seed=1)
            assert len(share.train) >= 30
            assert len(share.test) >= 10


def test_unknown_names_are_refused() -> None:
    for function in (build_standin_pools, get_standin_size):
        with pytest.raises(InputError, match="did you mean 'office'"):
            function("ofice")


def test_a_font_that_is_missing_is_named() -> None:
    with pytest.raises(DataError, match=r"Nowhere\.ttf: .*reinstall matplotlib"):
        ShapeSet(["0"], ["Nowhere"])


def test_a_field_measures_the_distance_to_the_outline() -> None:
    """Neighbouring pixels differ by at most the step between them; inside is negative; the longer side is 2."""
    for shapes in (build_digit_shapes(), build_symbol_shapes()):
        fields = shapes.fields * SHAPE_HALF_SIZE
        assert np.abs(np.diff(fields, axis=1)).max() <= 2 + 1e-5  # 1, and 1 more across the outline
        inside = fields < 0
        sides = np.maximum(np.ptp(_extent(inside.any(2)), axis=0), np.ptp(_extent(inside.any(1)), axis=0))
        assert (sides > 2 * SHAPE_HALF_SIZE - 5).all()
        assert (sides < 2 * SHAPE_HALF_SIZE).all()
        assert len({field.tobytes() for field in fields}) > 0.7 * len(fields)
        assert fields.shape[1:] == (FIELD_SIZE, FIELD_SIZE)


def test_pictures_are_there_in_every_font() -> None:
    """A character that a font lacks is drawn as one and the same box."""
    shapes = build_symbol_shapes()
    for other in range(1, len(SYMBOL_FAMILIES)):
        own = shapes.fields[shapes.starts[other] : shapes.starts[other] + shapes.counts[other]]
        assert not (own[:, None] == shapes.fields[None, : shapes.counts[0]]).all((2, 3)).any()


def test_ink_lies_inside_and_lines_on_the_outline() -> None:
    distance = np.array([-9.0, -0.25, 0.0, 0.25, 9.0], dtype=np.float32)
    np.testing.assert_allclose(compute_coverage(distance), [1, 0.75, 0.5, 0.25, 0])
    np.testing.assert_allclose(compute_coverage(distance, grow=1.0), [1, 1, 1, 1, 0])
    np.testing.assert_allclose(compute_outline_coverage(distance, 1.0), [0, 0.75, 1, 0.75, 0])


def test_a_shape_is_laid_where_it_is_said() -> None:
    rng = np.random.default_rng(0)
    still = Pose((0.5, 0.5), shift=0.0, rotation=0.0, shear=0.0)
    ones = np.full(40, 0)
    middle = compute_coverage(draw_distances(rng, build_digit_shapes(), ones, 64, still)).mean(0)[0]
    right = compute_coverage(draw_distances(rng, build_digit_shapes(), ones, 64, still, shift_right=0.5)).mean(0)[0]
    rows, columns = np.flatnonzero(middle.max(1) > 0.5), np.flatnonzero(middle.max(0) > 0.5)
    assert abs(len(rows) - 32) <= 2  # half the picture high
    assert abs(rows.mean() - 31.5) <= 1
    assert abs(columns.mean() - 31.5) <= 1
    assert abs((np.flatnonzero(right.max(0) > 0.5) - 16).mean() - columns.mean()) <= 1


def test_enlarging_keeps_corners_and_planes() -> None:
    plane = np.add.outer(np.arange(4), 2 * np.arange(4)).astype(np.float32)[None, None]
    large = enlarge(plane, 7)[0, 0]
    np.testing.assert_allclose(large, np.add.outer(np.arange(7), 2 * np.arange(7)) / 2, atol=1e-6)


def test_texture_stays_within_bounds_and_has_its_scale() -> None:
    rng = np.random.default_rng(0)
    coarse, fine = (draw_texture(rng, 20, 32, cells) for cells in (2, 16))
    assert min(coarse.min(), fine.min()) >= 0
    assert max(coarse.max(), fine.max()) <= 1
    assert np.abs(np.diff(fine)).mean() > 3 * np.abs(np.diff(coarse)).mean()


def _extent(present: np.ndarray) -> np.ndarray:
    """First and last place of each row that is True."""
    return np.stack([present.argmax(1), present.shape[1] - 1 - present[:, ::-1].argmax(1)])
