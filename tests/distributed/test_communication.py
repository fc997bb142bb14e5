"""What goes over the wire: calls and bytes of one optimizer step, so that a regression shows."""

import pytest

pytestmark = pytest.mark.slow

TALL = [(64, 16), (32, 8), (9, 9)]
WIDE = [(16, 64), (6, 30)]


def triangle(k):
    return k * (k + 1) // 2


def padded(rows, ranks):
    return -(-rows // ranks) * ranks


@pytest.mark.parametrize("ranks", [2, 4])
def test_tall_weights_one_sum_of_triangles_of_small_grams(pools, ranks):
    calls = pools(ranks).run("communication", shapes=TALL, placements="0", mesh_shape=(ranks,), route="share")
    assert calls == [[("allreduce", 4 * sum(triangle(n) for _, n in TALL))]] * ranks


@pytest.mark.parametrize("ranks", [2, 4])
def test_wide_weights_gathered_once_and_their_norms(pools, ranks):
    calls = pools(ranks).run("communication", shapes=WIDE, placements="0", mesh_shape=(ranks,), route="share")
    received = 4 * sum(padded(m, ranks) * n for m, n in WIDE)
    sent = received // ranks
    assert calls == [[("allgather_base", received + sent), ("allreduce", 4 * len(WIDE))]] * ranks


@pytest.mark.parametrize("ranks", [2, 4])
def test_owners_two_exchanges_and_every_element_once_each_way(pools, ranks):
    shapes = TALL + WIDE
    calls = pools(ranks).run("communication", shapes=shapes, placements="0", mesh_shape=(ranks,), route="own")
    assert all([name for name, _ in of_rank] == ["alltoall_base", "alltoall_base"] for of_rank in calls)
    elements = sum(m * n for m, n in shapes)
    there, back = (sum(of_rank[call][1] for of_rank in calls) for call in (0, 1))
    assert there == 2 * 4 * elements  # sent by one, received by one
    assert back == 2 * 4 * (elements + ranks * len(shapes))  # and each weight's residual to each rank


def test_columns_cut_the_other_way_round(pools):
    calls = pools(2).run("communication", shapes=[(16, 64)], placements="1", mesh_shape=(2,), route="share")
    assert calls == [[("allreduce", 4 * triangle(16))]] * 2


def test_hybrid_sharding_stays_within_its_shards(pools):
    calls = pools(4).run("communication", shapes=TALL, placements="r0", mesh_shape=(2, 2), route="share")
    assert calls == [[("allreduce", 4 * sum(triangle(n) for _, n in TALL))]] * 4


def test_two_cuts_gather_one_and_sum_over_the_other(pools):
    """One call each, for all weights together."""
    shapes = [(64, 16), (32, 8)]
    calls = pools(4).run("communication", shapes=shapes, placements="01", mesh_shape=(2, 2), route="share")
    assert [name for name, _ in calls[0]] == ["allgather_base", "allreduce"]
    assert calls[0][1][1] == 4 * (triangle(16) + triangle(8))


def test_making_an_optimizer_is_silent(pools):
    assert pools(2).run("construction") == [[], []]


def test_half_precision_travels_as_such(pools):
    calls = pools(2).run(
        "communication", shapes=[(16, 64)], placements="0", mesh_shape=(2,), route="share", dtype="bfloat16"
    )
    assert calls[0][0] == ("allgather_base", 2 * 16 * 64 * 3 // 2)


def test_replicated_weights_are_silent(pools):
    calls = pools(2).run("communication", shapes=TALL, placements="r", mesh_shape=(2,))
    assert calls == [[], []]


def test_no_penalty_no_traffic(pools):
    calls = pools(2).run("communication", shapes=TALL, placements="0", mesh_shape=(2,), constraint=0.0)
    assert calls == [[], []]
