"""Networks and data of other kinds than the runs that all tests share, named in recipes by import path."""

from dataclasses import replace

import torch
from torch.nn import functional as F

from bort import nets
from bort.data import Dataset
from tests.train.small import dataset


def coloured():
    grey = dataset()
    train, test = (F.pad(i, (2, 2, 2, 2)).repeat(1, 3, 1, 1) for i in (grey.train_images, grey.test_images))
    return Dataset("coloured", train, grey.train_labels, test, grey.test_labels, "coloured")


def padded():
    grey = dataset()
    pad = (2, 2, 2, 2)
    return replace(grey, train_images=F.pad(grey.train_images, pad), test_images=F.pad(grey.test_images, pad))


def one_class():
    data = dataset()
    return replace(data, test_images=data.test_images[::10], test_labels=torch.zeros(5, dtype=torch.long))


def vit(channels, classes, image_size):
    return nets.create("timm/deit_tiny_patch16_224", channels=channels, classes=classes, image_size=image_size, depth=2)
