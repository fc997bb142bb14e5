"""What the explorer refuses. `_errors` turns these into HTTP statuses."""


class Unknown(LookupError):
    """No such run, image, layer, method or calculation."""


class NoLayer(ValueError):
    """The network cannot be looked at layer by layer."""

    def __init__(self, run: str) -> None:
        super().__init__(f"{run} has no layer with a feature map.")


class Busy(Exception):
    """Too much is being computed already."""
