"""Maps that are the same number everywhere: they look like a result, and rank pixels in reading order."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


def constant(maps: Tensor) -> Tensor:
    """(N,): whether a map (N, H, W) is the same number everywhere.

    Example:
        >>> explain.constant(torch.tensor([[[0.5, 0.5]], [[0.5, 0.6]]]))
        tensor([ True, False])
    """
    flat = maps.flatten(1)
    return (flat == flat[:, :1]).all(dim=1)


def about_constant(maps: Mapping[str, Tensor]) -> list[str]:
    """A sentence for each method, by its name, that has given constant maps (N, H, W).

    Example:
        >>> (sentence,) = explain.about_constant({"rise": torch.zeros(2, 4, 4), "cam": torch.rand(2, 4, 4)})
        >>> sentence
        "The map of rise is the same number everywhere for 2 of 2 images and explains nothing: ..."
    """
    counts = {method: (int(constant(of_method).sum()), len(of_method)) for method, of_method in maps.items()}
    return [
        f"The map of {method} is the same number everywhere for {count} of {total} {'image' if total == 1 else 'images'} "
        "and explains nothing: the class's logit does not depend on the image there, as with a last layer that is still 0."
        for method, (count, total) in counts.items()
        if count
    ]
