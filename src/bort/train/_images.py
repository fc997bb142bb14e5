"""Where a training's images are kept: as bytes on the device, as bytes in the host's memory, or in their files."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from bort.data import Dataset, Folder, Packed, View, pack
from bort.train._display import PackingDisplay
from bort.train._feed import Feed
from bort.train._file_feed import REMEDY, FileFeed
from bort.train._memory_feed import Images, MemoryFeed
from bort.train._prepare import augmentation_of
from bort.train._runtime import Runtime
from bort.train._schema import Recipe
from bort.train._signals import Interrupted, StopRequest
from bort.train._world import World

_DEVICE_SHARE = 0.4  # of the free memory of a GPU that images may take; the rest is for the network
_HOST_SHARE = 0.5  # of the host's memory, so that a mapped file stays in it


def feed_for(
    data: Dataset | Folder,
    recipe: Recipe,
    runtime: Runtime,
    world: World,
    memory_format: torch.memory_format,
    say: Callable[[str], None],
    request: StopRequest | None = None,
) -> Feed:
    """The feed of a training; ``say`` gets one line: where its images are, and why."""
    if isinstance(data, Dataset):
        return _of_dataset(data, recipe, world, memory_format)
    _check_folder(data, recipe)
    view = data.view(recipe.data.image_size)
    augmentation = augmentation_of(recipe, view)
    images, place = _in_memory(data, view, recipe, runtime, world, say, request)
    # One process may lack the space: then all read from files, since feeds differ in when processes talk to each other.
    if dist.is_initialized() and world.any(images is None) and images is not None:
        images, place = None, "images: read from files, since another process has to"
    say(place)
    if images is None:
        return FileFeed(data, view, augmentation, recipe, runtime, world, memory_format)
    _refuse_unreadable(images, recipe)
    return MemoryFeed(images, augmentation, recipe, world, memory_format, drop_last=True)


def _of_dataset(data: Dataset, recipe: Recipe, world: World, memory_format: torch.memory_format) -> Feed:
    channels, height, width = data.train_images.shape[1:]
    expected = recipe.data
    shape = expected.channels, expected.image_size, expected.image_size
    if (channels, height, width) != shape or data.classes > expected.classes:
        raise ValueError(
            f"{data.name} has images of {height}×{width} with {channels} channels in {data.classes} classes, the recipe "
            f"data.image_size={expected.image_size}, data.channels={expected.channels}, data.classes={expected.classes}"
        )
    here = data.to(world.device)
    images = Images(here.train_images, here.train_labels, here.test_images, here.test_labels, here.normalise)
    return MemoryFeed(images, None, recipe, world, memory_format, drop_last=False)


def _check_folder(data: Folder, recipe: Recipe) -> None:
    if recipe.data.channels != 3:
        raise ValueError(f"data.channels={recipe.data.channels}: images of a folder are read in colour, 3 channels")
    if data.classes != recipe.data.classes:
        raise ValueError(
            f"{data.root} has {data.classes} classes, the recipe data.classes={recipe.data.classes}: "
            f"set --data.classes {data.classes}, or point to another folder"
        )


def _in_memory(
    data: Folder,
    view: View,
    recipe: Recipe,
    runtime: Runtime,
    world: World,
    say: Callable[[str], None],
    request: StopRequest | None,
) -> tuple[Images | None, str]:
    """The images of a folder as bytes, or None, and in either case the line that says where they are."""
    reasons: list[str] = []
    from_files = f"images: read from files by {runtime.workers or 'no'} worker process{'es' * (runtime.workers != 1)}"
    if runtime.images == "files":
        return None, f"{from_files} (images=files)"
    is_free = runtime.images == "auto"
    if not recipe.augment.crop_and_flip and (size := _first_size(data)) != (view.height, view.width):
        # Each would have to be resized by PIL, as test images are: that is done when they are read.
        reason = f"they are {size[0]}×{size[1]}, are resized to {view.width} px and not augmented"
        if not is_free:
            raise ValueError(f"images={runtime.images}: {reason}. Use images=auto or files")
        return None, f"{from_files}: {reason}"

    def progress(done: int, total: int) -> None:
        if request:
            raise Interrupted(request.signal_number, 0)
        display.update(done, total)

    try:
        with PackingDisplay(shown=world.is_first) as display:
            packed = pack(
                data.whole or data,
                workers=runtime.workers,
                most_bytes=int(_HOST_SHARE * _host_memory()) if is_free else None,
                progress=progress,
                say=reasons.append,
            )
    except OSError as error:
        if not is_free:
            raise
        return None, f"{from_files}: {error}"
    if packed is None and is_free:
        return None, f"{from_files}: {reasons[-1]}"
    if packed is None:
        raise ValueError(f"images={runtime.images}: {reasons[-1]}. Use images=auto or files")
    for reason in reasons:
        say(reason)
    if data.whole is not None:
        packed = packed.held_out(data.every)
    height, width = packed.train_images.shape[2:]
    count = packed.train_images.numel() + packed.test_images.numel()
    on_device = runtime.images == "device" or (is_free and count <= _DEVICE_SHARE * _free(world))
    where = f"on {world.device}" if on_device else f"in the host's memory ({packed.path})"
    images = Images(
        packed.train_images,
        packed.train_labels,
        _test_images(packed, view),
        packed.test_labels,
        view.normaliser(world.device),
        packed.unreadable,
        on_device,
    )
    total = len(packed.train_images) + len(packed.test_images)
    return images, f"images: {total:,} of {width}×{height} as bytes {where}, {count / 1e9:.2f} GB"


def _first_size(data: Folder) -> tuple[int, int]:
    """Width and height of the first training image that can be read."""
    for file, _ in data.train_files:
        with suppress(ValueError):
            return data.read(file).size
    raise ValueError(f"not one of the training images in {data.root} can be read")


def _test_images(packed: Packed, view: View) -> Tensor:
    """The bytes that the network sees of the test images."""
    if packed.test_images.shape[2:] == (view.height, view.width):
        return packed.test_images
    from PIL import Image

    pixels = packed.test_images.permute(0, 2, 3, 1)
    return torch.stack([view.crop(Image.fromarray(np.ascontiguousarray(image.numpy()))) for image in pixels])


def _refuse_unreadable(images: Images, recipe: Recipe) -> None:
    messages = [message for split in ("train", "test") for message in images.unreadable.get(split, {}).values()]
    if messages and recipe.data.corrupt == "stop":
        raise ValueError(f"{messages[0]}. {REMEDY}")


def _free(world: World) -> float:
    """Bytes that are free on the device. The host maps the file, so nothing has to be free there."""
    return torch.cuda.mem_get_info(world.device)[0] if world.device.type == "cuda" else float("inf")


def _host_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
