"""The true classes of images, checked before anything is counted with them."""

from __future__ import annotations

import torch
from torch import Tensor


def checked_labels(labels: Tensor, count: int, logits: Tensor) -> Tensor:
    """(count,) labels in int64 on the logits' device, if all of them are among the classes of logits (…, classes)."""
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)}: they must be (N, classes), with 2 classes or more. A head with one "
            "logit z is one with the two logits 0 and z: torch.cat([torch.zeros_like(z), z], dim=1)"
        )
    labels = torch.as_tensor(labels, device=logits.device)
    if labels.shape != (count,) or labels.dtype == torch.bool or labels.is_floating_point() or labels.is_complex():
        raise ValueError(
            f"labels of shape {tuple(labels.shape)} in {labels.dtype}: give a whole number for each of the {count} images"
        )
    wrong = labels[(labels < 0) | (labels >= logits.shape[1])]
    if len(wrong):
        raise ValueError(
            f"label {wrong[0].item()}: the network has {logits.shape[1]} classes, 0 to {logits.shape[1] - 1}"
        )
    return labels.long()


def checked_decisions(labels: Tensor, logits: Tensor) -> Tensor:
    """Labels of 0 and 1 in the shape of logits (N, classes), in int64 on their device."""
    labels = torch.as_tensor(labels, device=logits.device)
    if logits.ndim != 2 or labels.shape != logits.shape or not ((labels == 0) | (labels == 1)).all():
        raise ValueError(
            f"labels of shape {tuple(labels.shape)} for logits of shape {tuple(logits.shape)}: with multi_label both are "
            "(N, classes), and labels are 1 for each class that an image has and 0 for the others"
        )
    return labels.long()
