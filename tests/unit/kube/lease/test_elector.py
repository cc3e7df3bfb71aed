"""The elector against an API server in memory, in fake time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gangsched.api import keys
from gangsched.kube.http.client import JSON
from gangsched.kube.http.faults import ApiFault, Fault, Malformed, Unreachable
from gangsched.kube.http.permissions import Lease
from gangsched.kube.lease.candidate import Timing
from gangsched.kube.lease.elector import Elector
from tests.unit.kube.fakes import FakeTime, settle

TIMING = Timing(duration_s=15.0, renew_s=10.0, retry_s=2.0)


class LeaseServer:
    """One Lease with resourceVersions and watches. `trouble` ends a request before it is carried
    out, `lose` after.
    """

    def __init__(self) -> None:
        self.stored: dict[str, Any] | None = {"metadata": {"resourceVersion": "1"}, "spec": {}}
        self.version = 1
        self.requests: list[tuple[str, str]] = []
        self.trouble: Callable[[str], Fault | None] = lambda method: None
        self.lose: Callable[[str], Fault | None] = lambda method: None
        self.hangs = False
        self._watchers: list[asyncio.Queue[bytes]] = []

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout_s: float = 10.0,
    ) -> bytes:
        self.requests.append((method, path))
        await asyncio.sleep(0)
        if self.hangs:
            raise Unreachable("No answer.")
        if (fault := self.trouble(method)) is not None:
            raise fault
        answer = self._carry_out(method, json.loads(body) if body else None)
        if (fault := self.lose(method)) is not None:
            raise fault
        return answer

    def _carry_out(self, method: str, body: dict[str, Any] | None) -> bytes:
        if method == "POST" and self.stored is not None:
            raise ApiFault(409, "AlreadyExists", "already exists")
        if method != "POST" and self.stored is None:
            raise ApiFault(404, "NotFound", "leases not found")
        if method == "PUT":
            assert body is not None
            assert self.stored is not None
            if body["metadata"]["resourceVersion"] != self.stored["metadata"]["resourceVersion"]:
                raise ApiFault(409, "Conflict", "the object has been modified")
        if body is not None:
            self.write(body)
        return json.dumps(self.stored).encode()

    def write(self, body: dict[str, Any] | None) -> None:
        """Store an object, as anybody may."""
        self.version += 1
        if body is not None:
            body = {
                **body,
                "metadata": {**body.get("metadata", {}), "resourceVersion": str(self.version)},
            }
        self.stored = body
        for watcher in self._watchers:
            kind = "MODIFIED" if body is not None else "DELETED"
            watcher.put_nowait(json.dumps({"type": kind, "object": body or {}}).encode() + b"\n")

    @property
    def holder(self) -> str:
        assert self.stored is not None
        return str(self.stored["spec"]["holderIdentity"])

    async def chunks(self, path: str, *, silence_s: float) -> AsyncIterator[bytes]:
        if self.hangs:
            raise Unreachable("No answer.")
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._watchers.append(lines)
        try:
            while True:
                yield await lines.get()
        finally:
            self._watchers.remove(lines)


class Desk:
    """Electors of one Lease on one clock, each acquiring and holding without end until it is
    stopped.
    """

    def __init__(self) -> None:
        self.time = FakeTime()
        self.server = LeaseServer()
        self.warnings: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.electors: dict[str, Elector] = {}

    def start(self, name: str, server: LeaseServer | None = None) -> Elector:
        client = server or self.server
        runtime = self.time.runtime(self.warnings.append)
        elector = Elector(
            client, client, Lease("ns", "l"), identity=name, timing=TIMING, runtime=runtime
        )

        async def run() -> None:
            while True:
                await elector.acquire()
                await elector.hold()

        self.tasks[name] = asyncio.create_task(run())
        self.electors[name] = elector
        return elector

    async def stop(self, name: str) -> None:
        self.tasks[name].cancel()
        await asyncio.wait({self.tasks[name]})

    def writers(self) -> list[str]:
        return [name for name, elector in self.electors.items() if elector.fence.is_open()]

    async def until_one_writes(self, within_s: float, step_s: float = 0.05) -> float:
        """How long it takes until somebody may write."""
        began_s = self.time.at_s
        while not self.writers():
            await self.time.advance(step_s)
            assert self.time.at_s - began_s < within_s
        return self.time.at_s - began_s


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    yield desk
    for task in desk.tasks.values():
        task.cancel()
    await asyncio.gather(*desk.tasks.values(), return_exceptions=True)


async def test_the_first_leads_and_the_second_waits(desk: Desk) -> None:
    """One lease, one holder, for as long as it is renewed."""
    desk.start("a")
    await desk.time.advance(0.1)
    desk.start("b")
    for _ in range(300):
        await desk.time.advance(0.5)
        assert desk.writers() == ["a"]
    assert desk.electors["a"].counts.renewed > 60
    assert desk.electors["b"].holder == "a"
    assert desk.warnings == []


async def test_a_released_lease_is_taken_within_a_fraction_of_a_second(desk: Desk) -> None:
    """The watch says so; the object says that it is free."""
    desk.start("a")
    await desk.time.advance(0.1)
    desk.start("b")
    await desk.time.advance(31.0)
    await desk.stop("a")
    assert await desk.electors["a"].release()
    assert desk.writers() == []
    assert desk.server.holder == ""
    assert await desk.until_one_writes(1.0) <= 0.15
    assert desk.writers() == ["b"]
    assert desk.server.stored is not None
    assert desk.server.stored["spec"]["leaseTransitions"] == 2


async def test_a_lease_is_released_although_the_last_renewal_had_no_answer(desk: Desk) -> None:
    """It was carried out, so the object is another version than we know; a read tells, and it is
    still ours.
    """
    desk.start("a")
    await desk.time.advance(1.0)
    desk.server.lose = lambda method: Unreachable("No answer.") if method == "PUT" else None
    desk.server.trouble = lambda method: Unreachable("No answer.") if method == "GET" else None
    await desk.time.advance(TIMING.retry_s)
    await desk.stop("a")
    desk.server.lose = desk.server.trouble = lambda method: None
    assert await desk.electors["a"].release()
    assert desk.server.holder == ""


async def test_a_lease_that_another_has_is_not_released(desk: Desk) -> None:
    """What we know of it is old; the read after the refusal says so."""
    desk.start("a")
    await desk.time.advance(1.0)
    await desk.stop("a")
    desk.server.write(
        {"spec": {"holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": "0"}}
    )
    assert not await desk.electors["a"].release()
    assert desk.server.holder == "x"


async def test_a_dead_holder_is_followed_after_its_lease(desk: Desk) -> None:
    """After the duration since its last renewal was seen, and not before."""
    desk.start("a")
    await desk.time.advance(0.1)
    desk.start("b")
    await desk.time.advance(30.0)
    await desk.stop("a")
    desk.electors.pop("a")
    assert 13.0 - 0.2 <= await desk.until_one_writes(20.0) <= 15.2


async def test_a_holder_that_reaches_nobody_stops_before_another_begins(desk: Desk) -> None:
    """It gives up after `renew_s`; at no time may two write."""
    reaches = LeaseServer()
    desk.server = reaches
    desk.start("a")
    await desk.time.advance(0.1)
    desk.start("b")
    await desk.time.advance(10.0)
    cut = desk.electors["a"]
    cut._client = LeaseServerThatHangs()
    silent_s = 0.0
    for _ in range(400):
        await desk.time.advance(0.05)
        assert len(desk.writers()) <= 1
        silent_s += not desk.writers()
    assert desk.writers() == ["b"]
    assert silent_s * 0.05 <= 15.0 - 10.0 + 0.3
    assert cut.counts.lost == 1
    assert any("Cannot use the lease ns/l" in each for each in desk.warnings)


class LeaseServerThatHangs(LeaseServer):
    """Nobody answers."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = True


async def test_a_stopped_holder_may_not_write_when_it_goes_on(desk: Desk) -> None:
    """SIGSTOP: the clock goes on, nothing runs; the fence is closed before anything
    else happens.
    """
    elector = desk.start("a")
    await desk.time.advance(5.0)
    assert elector.fence.is_open()
    desk.time.at_s += 12.6
    assert not elector.fence.is_open()
    desk.server.write(
        {"spec": {"holderIdentity": "b", "leaseDurationSeconds": 15, "renewTime": "x"}}
    )
    await desk.time.advance(0.5)
    assert desk.writers() == []
    assert elector.counts.lost == 1


async def test_a_lost_answer_costs_nothing(desk: Desk) -> None:
    """A renewal that was carried out and not answered is read back."""
    elector = desk.start("a")
    await desk.time.advance(1.0)
    desk.server.lose = lambda method: Unreachable("No answer.") if method == "PUT" else None
    for _ in range(60):
        await desk.time.advance(0.5)
        assert desk.writers() == ["a"]
    assert elector.counts.lost == 0


async def test_a_foreign_change_of_the_object_costs_nothing(desk: Desk) -> None:
    """A label set by an administrator is a conflict once, and stays."""
    elector = desk.start("a")
    await desk.time.advance(1.0)
    stored = desk.server.stored
    assert stored is not None
    desk.server.write({**stored, "metadata": {**stored["metadata"], "labels": {"team": "x"}}})
    await desk.time.advance(30.0)
    assert elector.fence.is_open()
    assert desk.server.stored is not None
    assert desk.server.stored["metadata"]["labels"] == {"team": "x"}
    assert desk.warnings == []


async def test_a_deleted_lease_is_made_again_by_its_holder(desk: Desk) -> None:
    """Who stands by does not take the moment for a release."""
    desk.start("a")
    await desk.time.advance(0.1)
    desk.start("b")
    await desk.time.advance(11.0)
    desk.server.write(None)
    for _ in range(100):
        await desk.time.advance(0.1)
        assert desk.writers() == ["a"]
    assert desk.server.holder == "a"


async def test_a_holder_that_was_never_read_counts_when_the_lease_is_deleted(desk: Desk) -> None:
    """It came and went between two reads: who makes the Lease again leads when that of the other
    would be over.
    """
    desk.server.trouble = lambda method: Unreachable("No answer.")
    desk.start("b")
    await desk.time.advance(0.5)
    desk.server.write(
        {"spec": {"holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": "0"}}
    )
    await desk.time.advance(0.5)
    desk.server.write(None)
    desk.server.trouble = lambda method: None
    await desk.time.advance(14.0)
    assert desk.writers() == []
    assert desk.server.holder == "b"
    await desk.until_one_writes(4.0)
    assert len(desk.server.requests) < 40


async def test_of_many_only_one_gets_it(desk: Desk) -> None:
    """All see it free at the same moment; the others are refused by its resourceVersion, which is
    no fault.
    """
    for name in "abcdef":
        desk.start(name)
    for _ in range(50):
        await desk.time.advance(0.1)
        assert len(desk.writers()) <= 1
    assert len(desk.writers()) == 1
    assert desk.warnings == []


@pytest.mark.parametrize(
    "fault",
    [
        ApiFault(403, "Forbidden", "leases is forbidden"),
        ApiFault(500, "InternalError", "x"),
        Malformed("It is not JSON."),
    ],
)
async def test_trouble_is_told_once_and_when_it_is_over(desk: Desk, fault: Fault) -> None:
    """Without the lease nobody writes; 403 names the fix."""
    desk.server.trouble = lambda method: fault
    desk.start("a")
    await desk.time.advance(60.0)
    assert desk.writers() == []
    (sentence,) = desk.warnings
    assert sentence.startswith("Cannot use the lease ns/l: ")
    assert ("apply manifests/rbac.yaml" in sentence) == (getattr(fault, "status", 0) == 403)
    desk.server.trouble = lambda method: None
    await desk.time.advance(3.0)
    assert desk.writers() == ["a"]
    assert desk.warnings[1:] == ["Using the lease ns/l again."]


async def test_an_outage_of_writes_is_not_over_with_a_read(desk: Desk) -> None:
    """A full etcd answers reads and refuses writes: one warning, and one when a write succeeds,
    also for a holder whose renewals fail.
    """
    full = ApiFault(500, "InternalError", "etcdserver: mvcc: database space exceeded")
    desk.start("a")
    await desk.time.advance(3.0)
    assert desk.writers() == ["a"]
    desk.server.trouble = lambda method: None if method == "GET" else full
    await desk.time.advance(60.0)
    assert desk.writers() == []
    assert len(desk.warnings) == 1, desk.warnings
    desk.server.trouble = lambda method: None
    await desk.time.advance(3.0)
    assert desk.writers() == ["a"]
    assert desk.warnings[1:] == ["Using the lease ns/l again."]


async def test_a_storm_of_changes_is_no_storm_of_requests(desk: Desk) -> None:
    """Somebody writes the Lease a thousand times a second: it is read ten times a second
    at most.
    """
    desk.server.write(
        {"spec": {"holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": "0"}}
    )
    desk.start("b")
    await desk.time.advance(0.5)
    before = len(desk.server.requests)
    for number in range(2000):
        desk.server.write(
            {"spec": {"holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": str(number)}}
        )
        await desk.time.advance(0.001)
    assert len(desk.server.requests) - before <= 22
    await settle()


async def test_a_release_is_taken_from_the_watch_with_one_request(desk: Desk) -> None:
    """Nobody is asked what the watch has just shown."""
    desk.start("a")
    await desk.time.advance(0.1)
    desk.start("b")
    await desk.time.advance(31.05)
    await desk.stop("a")
    before = len(desk.server.requests)
    assert await desk.electors["a"].release()
    await desk.until_one_writes(1.0)
    # released, taken, renewed
    assert [method for method, _ in desk.server.requests[before:]] == ["PUT", "PUT", "PUT"]


async def test_a_release_that_is_history_is_refused_by_the_server(desk: Desk) -> None:
    """Another candidate was faster: the watch's word is not the newest."""
    for name in "abc":
        desk.start(name)
        await desk.time.advance(0.1)
    await desk.time.advance(31.0)
    await desk.stop("a")
    await desk.electors["a"].release()
    for _ in range(50):
        await desk.time.advance(0.1)
        assert len(desk.writers()) <= 1
    assert desk.writers() in (["b"], ["c"])
    assert desk.warnings == []


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"<html>", b'{"type":"MODIFIED","object":7}', b'{"type":"ERROR","object":{}}'],
)
async def test_garbage_in_the_watch_is_a_reason_to_look(desk: Desk, line: bytes) -> None:
    """What a gateway says there ends nothing."""
    desk.start("a")
    await desk.time.advance(0.1)
    desk.start("b")
    await desk.time.advance(10.0)
    for watcher in desk.server._watchers:
        watcher.put_nowait(line + b"\n")
    await desk.time.advance(10.0)
    assert desk.writers() == ["a"]
    assert not desk.tasks["b"].done()


class RefusingServer(LeaseServer):
    """A server with the Lease of a desk, which refuses annotations."""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        desk.server = self

    def _carry_out(self, method: str, body: dict[str, Any] | None) -> bytes:
        if body is not None and body["metadata"].get("annotations"):
            raise ApiFault(
                422, "Invalid", "denied request: gangsched may not change the metadata of its Lease"
            )
        return super()._carry_out(method, body)


# --- suspects -----------------------------------------------------------------------------------


def annotation(desk: Desk) -> str:
    """The suspects on the Lease."""
    assert desk.server.stored is not None
    found: str = desk.server.stored["metadata"].get("annotations", {}).get(keys.SUSPECTS, "")
    return found


async def test_a_leader_learns_of_suspects_before_it_leads(desk: Desk) -> None:
    """I10: a process that does not hold the Lease tells its holder's successor, and the holder
    keeps the Lease.
    """
    desk.start("a")
    await desk.until_one_writes(30)
    again = desk.start("again")
    again.suspects.add("bad/g")
    await desk.time.advance(1)
    assert annotation(desk) == '{"bad/g":1}'
    assert desk.writers() == ["a"]
    await desk.stop("a")
    await desk.stop("again")
    heir = desk.start("b")
    await desk.until_one_writes(60)
    assert heir.suspects.counts == {"bad/g": 1}


async def test_the_lease_keeps_suspects_while_they_are_wanted(desk: Desk) -> None:
    """I10: renewals keep the annotation, and drop it with the first one after the group is no
    suspect any more.
    """
    leader = desk.start("a")
    leader.suspects.add("bad/g")
    await desk.until_one_writes(30)
    await desk.time.advance(10)
    assert annotation(desk) == '{"bad/g":1}'
    leader.suspects.is_wanted = lambda name: False
    await desk.time.advance(10)
    assert annotation(desk) == ""
    assert desk.writers() == ["a"]


async def test_a_refused_annotation_costs_nobody_the_lease(desk: Desk) -> None:
    """An admission policy of an earlier version refuses it: the Lease is held without, and a
    warning says so.
    """
    refusing = RefusingServer(desk)
    leader = desk.start("a", refusing)
    leader.suspects.add("bad/g")
    await desk.until_one_writes(30)
    await desk.time.advance(60)
    assert desk.writers() == ["a"]
    assert leader.counts.lost == 0
    assert annotation(desk) == ""
    assert [each for each in desk.warnings if keys.SUSPECTS in each] == [
        f"The annotation {keys.SUSPECTS} of the Lease is refused: apply manifests/admission.yaml."
    ]
