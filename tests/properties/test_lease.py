"""Leader election: never two writers, whatever is late, lost, stopped or deleted, and soon one when
all is well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from gangsched.kube.lease.candidate import Candidate, Timing
from gangsched.kube.lease.record import Record

TIMING = Timing(duration_s=15.0, renew_s=10.0, retry_s=2.0)
TICK_S = 0.1
TROUBLE_S, QUIET_S = 600.0, 40.0
SPEEDS = (0.95, 1.08)
"""Of clocks; their ratio is within what the margin allows: 15 / 12.5."""


@dataclass
class Server:
    """One Lease; requests are carried out at some moment, or never, and answered later,
    or never.
    """

    stored: Record | None = None
    version: int = 0

    def write(self, record: Record) -> Record | None:
        """Carry out a write; None if it is refused."""
        known = None if self.stored is None else self.stored.rest["version"]
        if record.rest.get("version") != known:
            return None
        self.version += 1
        self.stored = replace(record, rest={"version": self.version})
        return self.stored


@dataclass
class Process:
    """A candidate with a clock of its own that looks and writes as the elector does, and may be
    stopped.
    """

    name: str
    speed: float
    offset_s: float
    candidate: Candidate = field(init=False)
    stopped_until_s: float = 0.0
    next_s: float = 0.0
    under_way: list[tuple[float, float, Record | None, float]] = field(default_factory=list)
    fence_s: float = float("-inf")

    def __post_init__(self) -> None:
        self.candidate = Candidate("same" if self.name.startswith("twin") else self.name, TIMING)

    def clock_s(self, now_s: float) -> float:
        return self.offset_s + self.speed * now_s

    def writes(self, now_s: float) -> bool:
        """Whether its fence is open; it is the same when the process is stopped and goes
        on later.
        """
        return self.clock_s(now_s) < self.fence_s


class World:
    """Server and processes on one true clock."""

    def __init__(self, rng: Random, processes: int) -> None:
        self.rng, self.server, self.now_s = rng, Server(), 0.0
        names = ["twin-1", "twin-2", "c"] if rng.random() < 0.3 else ["a", "b", "c"]
        self.processes = [
            Process(name, rng.uniform(*SPEEDS), rng.uniform(-1e6, 1e6))
            for name in names[:processes]
        ]
        self.trouble = True
        self.late: list[tuple[float, Record]] = []  # writes that the server carries out later

    def tick(self) -> None:
        self.now_s += TICK_S
        if self.trouble and self.rng.random() < 0.002:
            self.server.stored = None
        for due_s, record in self.late:
            if due_s <= self.now_s:
                self.server.write(record)
        self.late = [entry for entry in self.late if entry[0] > self.now_s]
        for process in self.processes:
            if self.trouble and self.rng.random() < 0.003:
                process.stopped_until_s = self.now_s + self.rng.choice((1.0, 5.0, 12.0, 14.0, 20.0))
            if self.now_s >= process.stopped_until_s:
                self.go_on(process)
        writing = [process.name for process in self.processes if process.writes(self.now_s)]
        assert len(writing) <= 1, f"{writing} write at {self.now_s:.1f} s"

    def go_on(self, process: Process) -> None:
        clock_s = process.clock_s(self.now_s)
        late = [entry for entry in process.under_way if entry[1] <= self.now_s]
        process.under_way = [entry for entry in process.under_way if entry[1] > self.now_s]
        for _, _, stored, sent_s in late:
            if stored is not None:
                process.candidate.stored(stored, sent_s, clock_s)
        if self.now_s >= process.next_s:
            process.next_s = self.now_s + self.rng.uniform(0.1, 2.0)
            process.candidate.saw(self.server.stored, clock_s)
            self.propose(process, clock_s)
        leads = process.candidate.leads(clock_s)
        process.fence_s = process.candidate.may_write_until_s() if leads else float("-inf")

    def propose(self, process: Process, clock_s: float) -> None:
        proposal = process.candidate.proposal(clock_s, f"{self.rng.getrandbits(64):x}")
        if proposal is None:
            return
        process.candidate.sends(proposal, clock_s)
        fate = self.rng.random() if self.trouble else 1.0
        if fate < 0.1:
            return  # never arrives
        if fate < 0.2:
            self.late.append((self.now_s + self.rng.uniform(0.0, 30.0), proposal))
            return
        stored = self.server.write(proposal)
        if fate < 0.35:
            return  # carried out, its answer is lost
        answered_s = self.now_s + (self.rng.uniform(0.0, 9.0) if self.trouble else 0.0)
        process.under_way.append((self.now_s, answered_s, stored, clock_s))


@given(seed=st.integers(0, 2**32), processes=st.integers(1, 3))
def test_never_two_writers_and_soon_one(seed: int, processes: int) -> None:
    """Through ten minutes of trouble no two fences are open at once; then one is, after the longest
    lease.
    """
    world = World(Random(seed), processes)
    while world.now_s < TROUBLE_S:
        world.tick()
    world.trouble = False
    while world.now_s < TROUBLE_S + QUIET_S:
        world.tick()
    assert any(process.writes(world.now_s) for process in world.processes)
