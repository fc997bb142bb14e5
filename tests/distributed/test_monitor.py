"""The monitor on several ranks."""

import pytest

pytestmark = pytest.mark.slow


def without_time(values):
    return {name: value for name, value in values.items() if not name.endswith("/milliseconds")}


def test_shards_have_the_numbers_of_the_whole_weights(pools):
    outcomes = pools(2).run("monitored_shards")
    for records, start, of_model, full, of_optimizer in outcomes:
        assert [bool(records[step]) for step in range(4)] == [True, False, True, True]
        assert records[3].pop("bort/pull") == pytest.approx(3 * 0.01)
        records[0].pop("bort/pull")
        assert without_time(records[0]) == pytest.approx(without_time(start), rel=1e-9)
        for measured in (records[3], of_model, of_optimizer):
            assert without_time(measured) == pytest.approx(without_time(full), rel=1e-9)
    assert without_time(outcomes[0][0][3]) == without_time(outcomes[1][0][3])


def test_a_cut_that_leaves_no_matrix_is_left_out_with_the_reason(pools):
    for names, warned in pools(2).run("unusual_cut"):
        assert "bort/1.weight/residual" in names
        assert "bort/0.weight/residual" not in names
        (message,) = warned
        assert "leaves '0.weight' out: it is a DTensor cut along dimension 2" in message


def test_replicas_measure_for_themselves(pools, tmp_path):
    first, second = pools(2).run("monitored_replicas", folder=str(tmp_path))
    assert without_time(first) == without_time(second)
    assert first["bort/pull"] == pytest.approx(3 * 0.01)
    sizes = [sum(file.stat().st_size for file in (tmp_path / str(rank)).iterdir()) for rank in range(2)]
    assert sizes[0] > 2 * sizes[1]
