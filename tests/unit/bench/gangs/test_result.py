"""bench.gangs.result: how waits become figures."""

from bench.gangs.cases import Gang
from bench.gangs.result import waits_by_size


def test_waits_are_told_by_size() -> None:
    """A wait is from the last creation of a gang to its last bind."""
    gangs = [Gang(name="a", members=1), Gang(name="b", members=2)]
    created = {"a-0": 1.0, "b-0": 1.0, "b-1": 3.0}
    bound = {"a-0": 1.25, "b-0": 9.0, "b-1": 3.5}
    assert waits_by_size(gangs, created, bound) == {
        "gang1_p50_ms": 250.0,
        "gang1_p99_ms": 250.0,
        "gang2_p50_ms": 6000.0,
        "gang2_p99_ms": 6000.0,
    }
