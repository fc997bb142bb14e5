"""`bort audit`"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from bort.cli._errors import exit_on_error

_IMAGES = 64


def audit(
    what: str,
    images: int | None = None,
    form: Literal["text", "json", "markdown"] = "text",
    data_root: Path | None = None,
    image_size: int | None = None,
) -> None:
    """Say what is true of each layer of a network: invertible or not, σ, norms, Gram matrix, ratio, comprehensibility.

    Args:
        what: the folder of a run; a network such as timm/resnet50, with the weights it starts from; or
            package.module:function, which returns a model.
        images: of the run's own test images, for what is measured on data: 64 by default, 0 for none. A network without a run
            has none.
        form: of the output.
        data_root: where the data sets are; default: $BORT_DATA, or ~/.cache/bort.
        image_size: of a network without a run, if it can be chosen.
    """
    with exit_on_error("audit"):
        from bort import measure
        from bort.subject import resolve

        subject = resolve(what, data_root=data_root, image_size=image_size)
        if images is not None and subject.examples is None:
            raise ValueError(f"--images {images}: {what} is no run's folder, and a network by itself has no images")
        count = images if images is not None else _IMAGES if subject.examples else 0
        layers = measure.audit(subject.model, subject.test_images(count)[0] if count else None)
    if form == "json":
        print(json.dumps(layers.to_dict(), indent=2, ensure_ascii=False))
    else:
        print(layers if form == "text" else layers.markdown())
