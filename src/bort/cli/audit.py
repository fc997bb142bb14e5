"""`bort audit`"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Literal


def audit(
    what: str,
    images: int | None = None,
    form: Literal["text", "json", "markdown"] = "text",
    data_root: Path | None = None,
    image_size: int | None = None,
) -> None:
    """Say what is true of each layer of a network: invertible or not, σ, norms, Gram matrix, ratio, comprehensibility.

    Args:
        what: the folder of a run, or a network such as timm/resnet50 with the weights it starts from.
        images: of the run's own test images, for what is measured on data: 64 by default, 0 for none. A network without a run
            has none.
        form: of the output.
        data_root: where the data sets are; default: $BORT_DATA, or ~/.cache/bort.
        image_size: of a network without a run, if it can be chosen.
    """
    from bort import measure

    try:
        if Path(what).is_dir():
            from bort import train
            from bort.train._examples import examples

            if image_size is not None:
                raise ValueError(f"--image-size {image_size}: a run has its own, this is for a network without one")
            run = train.load(what)
            count = 64 if images is None else images
            inputs = examples(run.recipe, count, data_root)[0] if count else None
            found = measure.audit(run.model, inputs)
        else:
            from bort import nets

            if images is not None:
                raise ValueError(f"--images {images}: {what} is no run's folder, and a network by itself has no images")
            found = measure.audit(nets.create(what, **({} if image_size is None else {"image_size": image_size})))
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        sys.exit(f"bort audit: {error}")
    if form == "json":
        print(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        print(found if form == "text" else found.markdown())
