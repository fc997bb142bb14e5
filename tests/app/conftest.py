from tests.pages import _networks

__all__ = ["_networks"]
