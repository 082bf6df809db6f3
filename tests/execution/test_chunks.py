"""How many generations a GPU computes before the host looks again."""

import pytest

from galapax.execution import compiled


@pytest.mark.parametrize("period", [0, 3, 20])
@pytest.mark.parametrize(("first", "count"), [(1, 1000), (1, 997), (4, 61), (41, 20), (500, 1)])
def test_chunks_on_a_gpu_come_from_a_small_set_and_are_whole_periods_where_they_can_be(first, count, period):
    chunks = compiled._split_into_chunks(first, count, period, period or 50, 500)
    numbers = [number for start, length in chunks for number in range(start, start + length)]
    assert numbers == list(range(first, first + count))
    unit = max(1, period)
    for start, length in chunks:
        assert length == 1 or (length in [k * unit for k in compiled.LENGTHS] and (start - 1) % unit == 0)
        # the program of whole rounds asks at the end of each whether a run rests: it must begin with one
        assert length % (period or 50) or (start - 1) % (period or 50) == 0


def test_a_slow_objective_has_short_chunks_on_a_gpu():
    lengths = [compiled._max_gpu_chunk(steps, genes=500) for steps in (5, 1_000, 20_000, 10**6)]
    assert lengths[0] == 500 and lengths == sorted(lengths, reverse=True) and lengths[-1] == 1
    assert compiled._max_gpu_chunk(5, genes=2**33) < 10
