"""`bort audit`"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import tyro

from bort.cli._errors import exit_on_error
from bort.cli._subject_options import SubjectOptions

_IMAGES = 64


def audit(
    what: str,
    count: int | None = None,
    form: Literal["text", "json", "markdown"] = "text",
    device: str = "cpu",
    data_root: Path | None = None,
    look: Annotated[SubjectOptions, tyro.conf.arg(name="")] = SubjectOptions(),  # noqa: B008
) -> None:
    """Say what is true of each layer of a network: invertible or not, σ, norms, Gram matrix, ratio, comprehensibility.

    Args:
        what: the folder of a run; a network such as timm/resnet50, with the weights it starts from; hf:FOLDER; or
            package.module:function, which returns a model.
        count: of images, for what is measured on data: 64 by default, 0 for none. A network without a run has only those of
            --images.
        form: of the output.
        device: cpu, cuda, …
        data_root: where the data sets are; default: $BORT_DATA, or ~/.cache/bort.
        look: what a network without a run does not say of itself.
    """
    with exit_on_error("audit"):
        from bort import measure
        from bort.subject import resolve

        subject = resolve(what, *look.details([what]), device=device, data_root=data_root)
        if count is not None and subject.examples is None:
            raise ValueError(f"--count {count}: {what} is no run's folder, and a network by itself has no images")
        count = count if count is not None else _IMAGES if subject.examples else 0
        layers = measure.audit(subject.model, subject.test_images(count)[0] if count else None)
    if form == "json":
        print(json.dumps(layers.to_dict(), indent=2, ensure_ascii=False))
    else:
        print(layers if form == "text" else layers.markdown())
