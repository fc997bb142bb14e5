"""Image augmentation in batches, on a CPU or a GPU, each image with its own draw; in distribution the same as timm's."""

from bort.augment._augmentation import Augmentation
from bort.augment._crop import CropBoxes, crop_boxes, crop_with_pil
from bort.augment._draws import image_keys
from bort.augment._mix import MIX_DRAWS, mix_draw, mixed
from bort.augment._resize import resized_crops

__all__ = [
    "MIX_DRAWS",
    "Augmentation",
    "CropBoxes",
    "crop_boxes",
    "crop_with_pil",
    "image_keys",
    "mix_draw",
    "mixed",
    "resized_crops",
]
