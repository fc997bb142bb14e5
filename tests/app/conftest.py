from tests.pages import _networks, browser, runs

__all__ = ["_networks", "browser", "runs"]
