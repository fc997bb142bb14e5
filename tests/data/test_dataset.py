import hashlib

import pytest
import torch

from bort import data


def test_mnist5k_is_balanced_disjoint_and_normalised():
    digits = data.load("mnist5k")
    assert digits.train_images.shape == (4000, 1, 28, 28)
    assert digits.test_images.shape == (1000, 1, 28, 28)
    assert digits.train_images.dtype == torch.uint8
    assert torch.equal(digits.train_labels.bincount(), torch.full((10,), 400))
    assert torch.equal(digits.test_labels.bincount(), torch.full((10,), 100))
    assert digits.classes == 10
    seen = {image.numpy().tobytes() for image in digits.train_images}
    assert not any(image.numpy().tobytes() in seen for image in digits.test_images)
    x = digits.normalise(digits.train_images)
    assert abs(x.mean().item()) < 1e-5
    assert abs(x.std().item() - 1) < 1e-5
    assert len(digits.fingerprint) == len(hashlib.sha256().hexdigest())


def test_statistics_are_those_of_the_pixels():
    torch.manual_seed(0)
    images = torch.randint(0, 256, (7, 3, 5, 4), dtype=torch.uint8)
    labels = torch.zeros(7, dtype=torch.int64)
    mean, std = data.Dataset("noise", images, labels, images, labels).statistics()
    pixels = images.double() / 255
    torch.testing.assert_close(mean, pixels.mean(dim=(0, 2, 3)))
    torch.testing.assert_close(std, pixels.std(dim=(0, 2, 3)))


def test_unknown_names_are_said():
    with pytest.raises(ValueError, match="no data set is called 'imagenet'; there are mnist5k, mnist, cifar10, "):
        data.load("imagenet")


def test_held_out_images_are_not_trained_on():
    digits = data.load("mnist5k")
    part = digits.held_out(10)
    assert (len(part.train_images), len(part.test_images)) == (3600, 400)
    assert torch.equal(part.test_images, digits.train_images[::10])
    both = torch.cat([part.train_images, part.test_images])
    assert {image.numpy().tobytes() for image in both} == {image.numpy().tobytes() for image in digits.train_images}
    assert part.fingerprint not in (digits.fingerprint, digits.held_out(5).fingerprint)
