import pytest

from tests.distributed.pool import Pool


@pytest.fixture(scope="session")
def pools():
    """pools(n): n processes, started when first asked for, and again after a test has broken them."""
    known = {}

    def pool(size):
        if size not in known or not known[size].alive:
            known[size] = Pool(size)
        return known[size]

    yield pool
    for each in known.values():
        each.close()
