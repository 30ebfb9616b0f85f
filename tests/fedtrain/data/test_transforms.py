"""From pixels to inputs: values by hand, turns against an image library, chance by law."""

import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from fedtrain.data.client_data import Preprocessing
from fedtrain.data.transforms import (
    MAX_ROTATION,
    apply_flip_and_rotation,
    flip_and_rotate,
    preprocess,
    reshape_per_channel,
)

UNCHANGED = Preprocessing()
AUGMENTED = Preprocessing(augment=True)


def make_rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def images() -> Tensor:
    return torch.randint(0, 256, (6, 3, 32, 32), generator=make_rng(1), dtype=torch.uint8)


def test_bytes_are_scaled_and_normalised_by_channel(images: Tensor) -> None:
    how = Preprocessing((0.1, 0.2, 0.3), (0.5, 0.25, 2.0))
    out = preprocess(images, how, training=True, noise=0, rng=make_rng(), dtype=torch.float64)
    mean, std = (torch.tensor(v, dtype=torch.float64).view(3, 1, 1) for v in (how.mean, how.std))
    assert torch.allclose(out, (images.double() / 255 - mean) / std, rtol=0, atol=1e-14)
    one = preprocess(images, Preprocessing((0.5,), (0.5,)), training=False, noise=0, rng=make_rng())
    assert one.dtype == torch.float32
    assert (one[images == 0] == -1).all()
    assert (one[images == 255] == 1).all()


def test_floating_inputs_pass_through_and_are_not_changed() -> None:
    inputs = torch.randn(4, 7, generator=make_rng(), dtype=torch.float64)
    before = inputs.clone()
    assert torch.equal(
        preprocess(inputs, AUGMENTED, training=True, noise=0, rng=make_rng(), dtype=torch.float64), inputs
    )
    for unit in ("pixel", "normalised"):
        out = preprocess(
            inputs, Preprocessing(noise_unit=unit), training=True, noise=3, rng=make_rng(), dtype=torch.float64
        )
        assert not torch.equal(out, inputs)
        assert out.min() < 0  # not clamped
    assert torch.equal(inputs, before)


def test_only_training_images_are_flipped_and_turned_and_only_if_wished(images: Tensor) -> None:
    generator, state = make_rng(), make_rng().get_state()
    plain = preprocess(images, UNCHANGED, training=True, noise=0, rng=generator)
    assert torch.equal(preprocess(images, AUGMENTED, training=False, noise=0, rng=generator), plain)
    assert torch.equal(generator.get_state(), state)  # no draw is wasted
    assert not torch.equal(preprocess(images, AUGMENTED, training=True, noise=0, rng=generator), plain)


def test_flips_are_exact(images: Tensor) -> None:
    side = torch.tensor([1.0, -1.0] * 3)
    out = apply_flip_and_rotation(images, side, torch.zeros(6))
    assert torch.equal(out[::2], images[::2].float())
    assert torch.equal(out[1::2], images[1::2].flip(-1).float())


@pytest.mark.parametrize("shape", [(32, 32), (65, 64), (48, 64)], ids=str)
@pytest.mark.parametrize("degrees", [-30, -17.3, -1, 5, 22, 29.9])
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_turns_are_those_of_an_image_library(shape: tuple[int, int], degrees: float, side: float) -> None:
    image = torch.randint(1, 256, (1, 3, *shape), generator=make_rng(2), dtype=torch.uint8)
    picture = Image.fromarray(image[0].permute(1, 2, 0).numpy())
    picture = picture if side > 0 else picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    expected = np.asarray(picture.rotate(degrees, Image.Resampling.NEAREST)).transpose(2, 0, 1)
    out = apply_flip_and_rotation(image, torch.tensor([side]), torch.tensor([math.radians(degrees)]))[0].numpy()
    # The library works with fixed-point numbers: pixels on the border between two may go to the other one.
    assert (out == expected).mean() > 0.98


def test_angles_fill_their_range_and_half_are_flipped() -> None:
    n = 4000
    dots = torch.zeros(n, 1, 33, 33, dtype=torch.uint8)
    dots[:, :, 16, 30:] = 255  # a mark to the right of the centre
    out = flip_and_rotate(dots, make_rng())[:, 0]
    weight = out.sum(dim=(1, 2))
    x, y = ((out * (torch.arange(33) - 16.0).view(shape)).sum(dim=(1, 2)) / weight for shape in ((1, -1), (-1, 1)))
    assert (x < 0).float().mean().item() == pytest.approx(0.5, abs=0.04)  # five standard deviations
    degrees = torch.rad2deg(torch.atan2(-y, x.abs()))
    assert degrees.abs().max() <= math.degrees(MAX_ROTATION) + 3  # a pixel is as wide
    quarters = torch.histc(degrees.clamp(-30, 30), 4, -30, 30) / n
    assert torch.allclose(quarters, torch.full((4,), 0.25), atol=0.06)


def test_pixel_noise_has_its_size_and_stays_within_the_pixels() -> None:
    grey = torch.full((2, 3, 64, 64), 128, dtype=torch.uint8)
    how = Preprocessing((0.5,), (0.25,))
    out = preprocess(grey, how, training=False, noise=10, rng=make_rng())
    pixels = (out * 0.25 + 0.5) * 255
    assert pixels.mean().item() == pytest.approx(128, abs=0.4)
    assert pixels.std().item() == pytest.approx(10, rel=0.03)
    loud = preprocess(grey, UNCHANGED, training=False, noise=500, rng=make_rng())
    assert (loud.min(), loud.max()) == (0, 1)


def test_normalised_noise_is_clamped_as_published(images: Tensor) -> None:
    how = Preprocessing((0.5,), (0.5,), noise_unit="normalised")
    clean = preprocess(images, how, training=False, noise=0, rng=make_rng())
    reference = (images / 255 - 0.5) / 0.5
    assert torch.allclose(clean, reference.clamp(min=0), atol=1e-6)  # σ = 0 loses the dark half too
    noisy = preprocess(images, how, training=False, noise=4, rng=make_rng())
    drawn = torch.randn(images.shape, generator=make_rng())
    assert torch.allclose(noisy, (reference + 4 * drawn).clamp(0, 255), atol=1e-5)


def test_noise_is_drawn_anew_and_a_seed_repeats_it(images: Tensor) -> None:
    generator = make_rng()
    first, second = (preprocess(images, AUGMENTED, training=True, noise=5, rng=generator) for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(first, preprocess(images, AUGMENTED, training=True, noise=5, rng=make_rng()))


def test_every_precision_sees_the_same_draws_and_global_chance_is_left_alone(images: Tensor) -> None:
    before = torch.get_rng_state()
    single, double = (
        preprocess(images, AUGMENTED, training=True, noise=5, rng=make_rng(), dtype=dtype)
        for dtype in (torch.float32, torch.float64)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.allclose(single.double(), double, atol=1e-6)


@pytest.mark.parametrize("unit", ["pixel", "normalised"])
def test_nothing_is_left_on_the_cpu(unit: str) -> None:
    how = Preprocessing((0.1, 0.2, 0.3), (0.5, 0.25, 2.0), augment=True, noise_unit=unit)
    inputs = torch.empty(4, 3, 16, 16, dtype=torch.uint8, device="meta")
    out = preprocess(inputs, how, training=True, noise=2.0, rng=make_rng())
    assert (out.device.type, out.shape, out.dtype) == ("meta", inputs.shape, torch.float32)
    assert reshape_per_channel(how.mean, out).device.type == "meta"  # which mixes with the CPU unnoticed in place
