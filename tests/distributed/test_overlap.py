"""Exchanges that are begun when a step has ended: the same bits, and nobody waits for what has become stale."""

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("route", ["own", "share", None])
def test_the_same_bits(pools, route, dtype):
    for same, plain, overlapped in pools(2).run("overlapped", route=route, overlap_bytes=2**20, dtype=dtype):
        assert same
        begun = ["allreduce", "allgather_base"] if route == "share" else ["alltoall_base"]
        # The first step makes its own exchange and begins the next one; the others begin one and use the last one's.
        assert overlapped[0][: len(plain[0])] == plain[0]
        assert overlapped[0][len(plain[0]) :] == begun
        # In the third and fourth step a weight has been written to, and the exchange is made again.
        again = [len(later) - len(usual) for later, usual in zip(overlapped, plain, strict=True)]
        assert again == [len(begun), 0, len(begun), len(begun), 0, 0]


def test_as_much_as_there_is_room_for(pools):
    """Nothing, or the first round of two."""
    for room, extra in ((1, 0), (600, 1)):
        for same, plain, overlapped in pools(2).run("overlapped", route="share", overlap_bytes=room):
            assert same
            assert len(overlapped[0]) == len(plain[0]) + extra


@pytest.mark.parametrize("settings", [{"decoupled": False}, {"every": 2}], ids=str)
def test_only_where_the_next_penalty_is_known(pools, settings):
    for same, plain, overlapped in pools(2).run("overlapped", route="own", overlap_bytes=2**20, **settings):
        assert same
        assert overlapped == plain
