"""What can be looked at: a model, how it sees an image, and whatever else is known of it.

Reports, the explorer and the commands take a :class:`Subject`, so a network that `bort train` never saw is looked at like one
that it trained. `resolve` makes one of what a person types, `of_models` of what a program has at hand::

    resolve("timm/resnet50", Details(weights=Path("mine.safetensors"), images=Path("photographs")))
    of_models({"baseline": a, "bort": b}, images="photographs", mean=mean, std=std, size=224)
    Subject("mine", model, View(224, 3, mean, std, class_names), examples)
"""

from bort.subject._image_set import ImageSet
from bort.subject._models import Images, of_models
from bort.subject._resolve import Details, resolve, resolve_all
from bort.subject._subject import Examples, Missing, Subject
from bort.subject._training import Training

__all__ = [
    "Details",
    "Examples",
    "ImageSet",
    "Images",
    "Missing",
    "Subject",
    "Training",
    "of_models",
    "resolve",
    "resolve_all",
]
