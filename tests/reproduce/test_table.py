"""What a table's measurements are given."""

from dataclasses import replace

import torch

from bort import nets, train
from bort.reproduce import Trained
from tests.train.small import LENET

READ = []


def counted():
    """For a recipe's data."""
    from tests.train.small import dataset

    READ.append(1)
    return dataset()


def test_the_images_of_a_run_are_read_once(tmp_path):
    recipe = replace(LENET, data=replace(LENET.data, name=f"{__name__}:counted"))
    run = train.Run(tmp_path, recipe, [], [], nets.create("lenet"))
    expected = [run.examples(count) for count in (4, 20)]
    READ.clear()
    trained = Trained(run, None, "cpu", None, tmp_path)
    for count, (images, labels) in zip((4, 20), expected, strict=True):
        assert all(map(torch.equal, trained.examples(count), (images, labels)))
    assert len(READ) == 1
