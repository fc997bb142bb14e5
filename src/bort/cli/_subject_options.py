"""Options of all commands that look at networks: what a network without a run does not say of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bort.subject import Details


@dataclass(frozen=True)
class SubjectOptions:
    weights: tuple[str, ...] = ()
    """Files with the weights of networks without a run, one for each network ("-" for none): safetensors, a state dict, or a
    checkpoint of Lightning or timm."""
    pretrained: bool = False
    """Networks of timm and torchvision with the weights that these offer, which are downloaded."""
    images: str | None = None
    """A folder of images to look at instead of a run's own: files, or one folder a class."""
    size: tuple[int, ...] = ()
    """Of a network's input: a side, or height and width. This and what follows are what timm, torchvision or a Hugging Face
    processor say, if they say it."""
    mean: tuple[float, ...] = ()
    """By which a network's input is normalised, a number a channel, for pixels from 0 to 1."""
    std: tuple[float, ...] = ()
    """The same."""
    classes: Path | None = None
    """A file with the names of the classes: one a line, or a JSON list."""
    multi_label: bool = False
    """An image may have several classes: probabilities are sigmoids of the single logits."""

    def details(self, networks: Sequence[str]) -> list[Details]:
        """For each of the networks. Beside other networks a run gets only what a run can take, which is images."""
        from bort.subject import Details

        if self.weights and len(self.weights) != len(networks):
            raise ValueError(
                f"--weights has {len(self.weights)} files for {len(networks)} networks: give one for each, - for none. "
                "Networks and image files stand before it"
            )
        if self.images is not None and self.images.isdigit() and not Path(self.images).exists():
            raise ValueError(f"--images {self.images}: this is a folder of images; --count says how many are looked at")
        images = None if self.images is None else Path(self.images)
        are_runs = [Path(network).is_dir() for network in networks]
        given = []
        for is_run, weights in zip(are_runs, self.weights or ("-",) * len(networks), strict=True):
            own = None if weights == "-" else Path(weights)
            if is_run and not all(are_runs):
                given.append(Details(weights=own, images=images))
            else:
                given.append(
                    Details(
                        own, self.pretrained, images, self.size, self.mean, self.std, self.classes, self.multi_label
                    )
                )
        return given
