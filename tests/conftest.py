"""One thread a process, since the tests run in several and their matrices are small; and the same chance for each test."""

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)

# Slow machines are no reason to fail, and a red test must be red again when it is run again.
settings.register_profile("bort", deadline=None, derandomize=True, database=None)
settings.load_profile("bort")


@pytest.fixture(autouse=True)
def _seeded():
    """What a test draws does not depend on the tests before it."""
    torch.manual_seed(0)
