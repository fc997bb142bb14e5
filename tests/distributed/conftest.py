import pytest

from tests.distributed.pool import Pool


@pytest.fixture(scope="session")
def pools():
    """pools(n): n processes, started when first asked for, and again after a test has broken them."""
    started = {}

    def pool(size):
        if size not in started or not started[size].alive:
            started[size] = Pool(size)
        return started[size]

    yield pool
    for pool_of_size in started.values():
        pool_of_size.close()
