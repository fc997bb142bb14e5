"""What the explorer refuses. `_errors` turns these into HTTP statuses."""


class Unknown(LookupError):
    """No such run, image, layer, method or calculation."""


class Busy(Exception):
    """Too much is being computed already."""
