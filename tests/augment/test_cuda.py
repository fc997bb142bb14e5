"""On a GPU: the same as on a CPU, and all of it captured in a CUDA graph."""

import pytest
import torch

from bort.augment import MIX_DRAWS, Augmentation, crop_boxes, image_keys, mix_draw, mixed, resized_crops
from tests.augment.pictures import natural

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CUDA = torch.device("cuda")
SETTINGS = [
    {"randaugment": "rand-m9-mstd0.5", "erase": 0.6, "splits": 3},
    {"randaugment": "rand-m9-mstd0.5-inc1-n3", "erase": 0.25},
    {"randaugment": "rand-tweights-m9"},
    {"color_jitter": 0.4},
]


def assert_same_images(ours, expected):
    """A place that differs in its last bit changes one of a thousand pixels by a level, which equalize may enlarge."""
    difference = (ours.cpu() - expected).abs()
    assert (difference > 1e-5).double().mean() < 5e-3
    assert difference.mean() < 1e-3


def assert_same_crops(ours, expected):
    """A weight that is computed with one rounding less (a fused multiplication and addition) may round to another of its 2¹⁶
    values, and move a pixel by a level."""
    difference = (ours.cpu().int() - expected.int()).abs()
    assert difference.max() <= 1
    assert (difference > 0).double().mean() < 1e-3


def test_keys_and_crops_are_the_same():
    """Keys and boxes to the bit."""
    images, index = natural(64, 48, 56), torch.arange(64)
    keys = image_keys(2**62 + 1, index)
    base = torch.tensor(2**62 + 1, device=CUDA)
    assert torch.equal(image_keys(base, index.to(CUDA)).cpu(), keys)
    boxes, on_gpu = crop_boxes(keys, 48, 56), crop_boxes(keys.to(CUDA), 48, 56)
    assert all(torch.equal(a, b.cpu()) for a, b in zip(boxes, on_gpu))
    assert_same_crops(resized_crops(images.to(CUDA), on_gpu, 40), resized_crops(images, boxes, 40))


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_batch_is_the_same(settings):
    augment, images, keys = (
        Augmentation(32, MEAN, STD, **settings),
        natural(64, 40, 40),
        image_keys(1, torch.arange(64)),
    )
    assert_same_images(augment(images.to(CUDA), keys.to(CUDA)), augment(images, keys))


def test_mixed_batches_are_the_same():
    images, labels = torch.randn(8, 3, 16, 16), torch.arange(8)
    for seed in range(6):
        draw = mix_draw(seed, 0.8, 1.0, 16)
        ours = mixed(images.to(CUDA), labels.to(CUDA), draw.to(CUDA), 10, 0.1)
        for a, b in zip(ours, mixed(images, labels, draw, 10, 0.1)):
            torch.testing.assert_close(a.cpu(), b)


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_the_precision_of_other_products_does_not_matter(precision):
    images, keys = natural(16, 64, 64), image_keys(1, torch.arange(16))
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        torch.backends.cuda.matmul.fp32_precision = precision
        with torch.autocast("cuda", torch.bfloat16):
            crops = resized_crops(images.to(CUDA), crop_boxes(keys.to(CUDA), 64, 64), 48)
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert_same_crops(crops, resized_crops(images, crop_boxes(keys, 64, 64), 48))


def test_more_images_than_a_stage_needs_change_nothing():
    """In a large batch stages have fewer places than there are images, and more than are needed."""
    augment, images = Augmentation(32, MEAN, STD, **SETTINGS[1]), natural(300, 32, 32)
    keys = image_keys(1, torch.arange(300))
    assert_same_images(augment.finish(images.to(CUDA), keys.to(CUDA)), augment.finish(images, keys))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_captured_graph_gives_the_same(settings, memory_format):
    """Replayed with other images of the data set, another epoch and another draw of cutmix in its buffers."""
    augment, data = Augmentation(32, MEAN, STD, **settings), natural(100, 40, 40).to(CUDA)
    labels = torch.arange(100, device=CUDA) % 10
    index, base = torch.zeros(32, dtype=torch.long, device=CUDA), torch.zeros((), dtype=torch.long, device=CUDA)
    draw = torch.zeros(MIX_DRAWS, device=CUDA)

    def batch():
        images = augment(data[index], image_keys(base, index), memory_format)
        return mixed(images, labels[index].repeat(augment.views), draw, 10, 0.1, views=augment.views)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        batch()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = batch()
    for epoch in range(3):
        index.copy_(torch.randperm(100)[:32])
        base.fill_(2**62 + epoch)
        draw.copy_(mix_draw(epoch, 0.8, 1.0, 32))
        graph.replay()
        results = [value.clone() for value in captured]
        assert results[0].is_contiguous(memory_format=memory_format)
        for ours, expected in zip(results, batch()):
            assert torch.equal(ours, expected)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_nothing_waits_for_the_device():
    augment = Augmentation(32, MEAN, STD, **SETTINGS[0])
    data, index = natural(32, 40, 40).to(CUDA), torch.arange(32, device=CUDA)
    augment(data, image_keys(1, index))
    try:
        torch.cuda.set_sync_debug_mode("error")
        augment(data, image_keys(1, index))
    finally:
        torch.cuda.set_sync_debug_mode("default")
