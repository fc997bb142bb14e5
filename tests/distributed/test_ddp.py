"""shard=True: each rank computes some of the matrices under DDP."""

import pytest

from bort.optim.sharded import _cost

EXCHANGE = ["allgather_base"]


@pytest.mark.slow
@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("share", [True, False, None])
@pytest.mark.parametrize("ranks", [2, 4])
def test_the_same_bits_as_without(pools, ranks, share, decoupled):
    """Whatever the trial finds (None: let it find). After it, a step exchanges directions or nothing, on all ranks alike."""
    outcomes = pools(ranks).run("shared", share=share, decoupled=decoupled)
    assert all(same_weights and same_residuals for same_weights, same_residuals, _ in outcomes)
    calls = [calls for _, _, calls in outcomes]
    assert calls == [calls[0]] * ranks
    assert calls[0] in {True: [EXCHANGE], False: [[]], None: [EXCHANGE, []]}[share]


@pytest.mark.slow
def test_ranks_with_different_weights_are_refused(pools):
    for message in pools(2).run("different_values"):
        assert "different values in the same parameters" in message
    for message in pools(2).run("different_shapes"):
        assert "different parameters" in message


@pytest.mark.slow
def test_a_rank_without_a_gradient_leaves_nobody_waiting(pools):
    first, second = pools(2).run("gradients_that_differ", shard=True)
    assert first == pytest.approx(second, rel=0.2)  # residuals of weights that went their own ways


@pytest.mark.slow
def test_a_differentiable_step_is_refused(pools):
    for message in pools(2).run("differentiable_share"):
        assert "differentiable=True" in message


@pytest.mark.slow
def test_parameters_are_known_by_themselves_not_by_their_address(pools):
    """All ranks see at each step that one is new, and check that they have the same; the trial comes to its end."""
    first, second = pools(2).run("replaced_parameter")
    assert first == second
    checks_and_the_trial = 6 + 1
    assert first.count("allreduce") == checks_and_the_trial


def test_work_is_balanced():
    costs = [8.0, 7.0, 6.0, 5.0, 4.0]
    owners, busiest = _cost.assign(costs, 2)
    assert busiest == max(sum(c for c, o in zip(costs, owners, strict=True) if o == rank) for rank in (0, 1))
    assert busiest <= 17.0
    assert _cost.assign(costs, 8)[1] == 8.0


def test_a_few_large_matrices_are_shared_and_many_small_ones_owned():
    machine = _cost.Machine(flops=1e12, bandwidth=1e11, latency=1e-6)
    one = [_cost.Matrix(4096, 16384, 8, cut_along_long_side=False)]
    assert _cost.choose(one, machine) == [False]
    many = [_cost.Matrix(4096, 4096, 8, cut_along_long_side=True)] * 64
    assert _cost.choose(many, machine) == [True] * 64
    assert _cost.choose([_cost.Matrix(64, 64, 8, cut_along_long_side=True, must_be_owned=True)], machine) == [True]
