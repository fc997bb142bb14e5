"""Every way to cut a weight, against the same weight in one piece."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.slow

LAYOUTS = {
    2: [("0", (2,)), ("1", (2,)), ("r", (2,))],
    4: [
        ("0", (4,)),
        ("1", (4,)),
        ("r0", (2, 2)),
        ("0r", (2, 2)),
        ("01", (2, 2)),
        ("10", (2, 2)),
        ("00", (2, 2)),
        ("11", (2, 2)),
    ],
}
SHAPES = st.lists(st.lists(st.integers(1, 9), min_size=2, max_size=4).map(tuple), min_size=1, max_size=4)


@st.composite
def cases(draw):
    size = draw(st.sampled_from([2, 4]))
    placements, mesh_shape = draw(st.sampled_from(LAYOUTS[size]))
    return size, {
        "shapes": draw(SHAPES),
        "placements": placements,
        "mesh_shape": mesh_shape,
        "route": draw(st.sampled_from(["own", "share", None])),
        "optimizer_name": draw(st.sampled_from(["BortS", "BortA"])),
        "decoupled": draw(st.booleans()),
        "size": draw(st.sampled_from([0.1, 3.0])),  # with 3 the stability guard has to act
        "scale": draw(st.sampled_from([1.0, 0.5, "adaptive", "initial"])),
        "mode": draw(st.sampled_from(["full", "full", "rows", "l1-full"])),
        "every": draw(st.sampled_from([1, 2])),
        "warmup": draw(st.sampled_from([0, 3])),
        "seed": draw(st.integers(0, 10_000)),
    }


NOTHING_ON_A_RANK = {
    "shapes": [(8, 1), (1, 1)],
    "placements": "10",
    "mesh_shape": (2, 2),
    "route": "own",
    "optimizer_name": "BortS",
}


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=80)
@given(case=cases())
@example(case=(4, NOTHING_ON_A_RANK))
def test_any_shape_cut_in_any_way(pools, case):
    size, arguments = case
    assert max(pools(size).run("shapes_step", **arguments)) < 1e-10


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("route", ["own", "share"])
@pytest.mark.parametrize("optimizer", ["BortS", "BortA"])
def test_other_dtypes(pools, dtype, route, optimizer):
    shapes = [(17, 6), (6, 17), (9, 9), (1, 5), (8, 3, 3, 3)]
    off = pools(4).run(
        "shapes_step",
        shapes=shapes,
        placements="0",
        mesh_shape=(4,),
        dtype=dtype,
        route=route,
        optimizer_name=optimizer,
    )
    assert max(off) < (1e-5 if dtype == "float32" else 2e-2)


@pytest.mark.parametrize("scale", [1.0, "initial"])
@pytest.mark.parametrize("blocks", [2, 3])
@pytest.mark.parametrize("placements", ["0", "1"])
def test_blocks_of_rows_that_the_ranks_cut_through(pools, blocks, placements, scale):
    shapes = [(6, 4), (12, 8)]
    off = pools(4).run("blocks_step", shapes=shapes, blocks=blocks, placements=placements, scale=scale)
    assert max(off) < 1e-10


@pytest.mark.parametrize("settings", [{}, {"mode": "rows"}, {"scale": "initial"}, {"every": 2}], ids=str)
@pytest.mark.parametrize("optimizer", ["BortS", "BortA", "BortL"])
def test_what_every_rank_holds_is_a_weight_like_any_other(pools, optimizer, settings):
    """Bit by bit, whatever the dtype."""
    shapes = [(17, 6), (6, 17), (6, 17), (8, 3, 3, 3)]
    for dtype in ("float32", "bfloat16"):
        arguments = {"shapes": shapes, "placements": "r", "mesh_shape": (2,), "dtype": dtype}
        assert pools(2).run("shapes_step", optimizer_name=optimizer, **arguments, **settings) == [0.0, 0.0]


@pytest.mark.parametrize("route", ["own", "share", None])
def test_cut_replicated_and_plain_weights_together(pools, route):
    assert max(pools(2).run("mixed", route=route)) < 1e-10


def test_many_rounds(pools):
    """A bucket that holds next to nothing: every weight a round of its own."""
    shapes = [(12, 5), (5, 12), (7, 7), (20, 3), (3, 20)]
    for route in ("own", "share"):
        off = pools(2).run("shapes_step", shapes=shapes, placements="0", mesh_shape=(2,), route=route, bucket=1)
        assert max(off) < 1e-10


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("partial", "placed P"),
        ("kernel", "cut along dimension 2"),
        ("strides", "cut in strides"),
        ("order", "not in order"),
        ("pieces", "local piece is (7, 4) where its placements make it (4, 4)"),
        ("fsdp1", "FSDP1"),
        ("zero3", "DeepSpeed ZeRO-3"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(pools, kind, words):
    message = pools(2).run("refusal", kind=kind)[1]
    assert "parameter '0' of param group 0" in message
    assert words in message
    assert "constraint=0" in message


def test_a_mesh_that_a_process_is_not_part_of_is_refused_there(pools):
    inside, outside = pools(2).run("refusal", kind="elsewhere")
    assert inside is None
    assert "not part of" in outside


@pytest.mark.parametrize("scale", [1.0, "initial"])
def test_a_rank_without_a_gradient_leaves_nobody_waiting(pools, scale):
    first, second = pools(2).run("gradients_that_differ", shard=False, scale=scale)
    assert first == second


def test_no_matrix_outlives_its_step(pools):
    assert pools(2).run("matrices_alive", steps=5) == [0, 0]


def test_without_triton(pools):
    for off in pools(2).run("without_triton"):
        assert max(off) < 1e-5
