"""One measurement: one case, one contender, one control plane.

Invariant: only the case's own work is timed; nodes, PodGroups and waiting gangs exist before the
clock starts. After it stops, no node may be over-committed: a scheduler that does so has no figure.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack

from control_plane.api import Api
from control_plane.applying import apply_manifests
from control_plane.components import APISERVER, ETCD
from control_plane.plane import ControlPlane

from bench.gangs.cases import (
    GATES_GONE,
    NATIVE_VERSIONS,
    PODS,
    RACK_SIZE,
    Case,
    Dialect,
    Gang,
    Mode,
    encoded,
    filler_bodies,
    group_body,
    groups_path,
    node_bodies,
    pod_body,
)
from bench.gangs.contenders import RAW, Contender, Running, cpu_s, machine_cpu_s
from bench.gangs.http import HttpConnection, Pool, expect_success
from bench.gangs.meter import Meter
from bench.gangs.raw import binding
from bench.gangs.result import Result, gang_waits, quantile_ms, waits_by_size

CONNECTIONS = 32
WITHIN_S = 180.0
#: What a scheduler writes after its last bind (Events, status) counts as its CPU, so it gets this
#: long to write it.
AFTERMATH_S = 4.0
ROOM = {"pods": 110, "gpus": 8}


def measure(case: Case, contender: Contender, pods_per_s: float = 0.0) -> Result:
    """Start a control plane, measure, stop everything; `pods_per_s` is the pace of a paced case."""
    is_native = contender.dialect is Dialect.NATIVE
    runtime = [f"scheduling.k8s.io/{NATIVE_VERSIONS[case.release]}=true"] if is_native else []
    gone = GATES_GONE.get(case.release, set())
    gates = {gate: on for gate, on in contender.gates.items() if gate not in gone}
    if case.one_rack and is_native:
        gates["TopologyAwareWorkloadScheduling"] = True
    with ControlPlane(
        for_load=True, feature_gates=gates, runtime_config=runtime, release=case.release
    ) as plane:
        if contender.is_ours:
            apply_manifests(Api.of(plane))
        return asyncio.run(Measurement(case, contender, plane, pods_per_s).run())


class Measurement:
    """See `measure`."""

    def __init__(
        self, case: Case, contender: Contender, plane: ControlPlane, pods_per_s: float
    ) -> None:
        self._case, self._contender, self._plane, self._pods_per_s = (
            case,
            contender,
            plane,
            pods_per_s,
        )
        self._running = None if contender is RAW else Running(contender, plane)
        self._gpus: dict[str, int] = {}
        self._first_s = self._cpu_before_s = 0.0
        self._server_before_s = self._load_before_s = self._machine_before_s = 0.0
        self._waves: list[float] = []
        self._timed: list[Gang] = []
        self._ready_s: float | None = None

    async def run(self) -> Result:
        """Prepare, measure and check."""
        plane = self._plane
        async with AsyncExitStack() as stack:
            self._pool = await stack.enter_async_context(
                Pool(plane.url, plane.ssl_context(), CONNECTIONS)
            )
            self._meter = await stack.enter_async_context(
                Meter(plane.url, plane.ssl_context(), "default")
            )
            if self._running is not None:
                stack.callback(self._running.stop)
            await self._prepare()
            gc.collect()
            gc.freeze()
            gc.disable()
            try:
                match self._case.mode:
                    case Mode.PACED:
                        await self._paced()
                    case Mode.ARRIVE:
                        await self._arrive()
                    case Mode.BACKLOG:
                        await self._backlog()
                    case Mode.WAVES:
                        await self._in_waves()
                    case Mode.CHURN:
                        await self._churn()
                return await self._result()
            finally:
                gc.enable()
                gc.unfreeze()

    # --- the modes -------------------------------------------------------------------------------

    async def _paced(self) -> None:
        gangs = self._case.load()
        requests = [self._creations([gang]) for gang in gangs]
        await self._start_ready()
        self._begin(gangs)
        async with asyncio.TaskGroup() as group:
            for gang, creations, at_s in zip(
                gangs, requests, self._case.arrivals_s(self._pods_per_s), strict=True
            ):
                await asyncio.sleep(self._first_s + at_s - time.monotonic())
                group.create_task(self._submit(gang, creations))
        await self._bound(gangs)

    async def _arrive(self) -> None:
        gangs = self._case.load()
        await self._groups(gangs)
        await self._start_ready()
        requests = self._creations(gangs)
        self._begin(gangs)
        await self._create(requests)
        await self._bound(gangs)

    async def _backlog(self) -> None:
        gangs = self._case.load()
        await self._groups(gangs)
        await self._create(self._creations(gangs))
        await asyncio.sleep(1.0)
        if self._running is None:
            await self._raw_backlog(gangs)
            return
        self._begin(gangs)
        self._running.start()
        self._first_s = self._running.started_s
        await self._bound(gangs)

    async def _raw_backlog(self, gangs: Sequence[Gang]) -> None:
        pki = self._plane.pki
        words = (self._plane.url, pki.ca, pki.admin_cert, pki.admin_key)
        self._begin(gangs)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.gangs.raw", *map(str, words), stdin=asyncio.subprocess.PIPE
        )
        await process.communicate(
            "".join(f"{pod} {node}\n" for pod, node in self._places(gangs)).encode()
        )
        await self._bound(gangs)

    async def _in_waves(self) -> None:
        await self._start_ready()
        await self._until_idle()
        for wave in range(self._case.waves):
            gangs = self._case.load(wave)
            await self._groups(gangs)
            requests = self._creations(gangs)
            if wave == 0:
                self._begin([])
            began_s = time.monotonic()
            await self._create(requests)
            await self._bound(gangs)
            self._timed += gangs
            names = [name for gang in gangs for name in gang.pods]
            self._waves.append(
                len(names) / (max(self._meter.bound_s[name] for name in names) - began_s)
            )
            await self._delete(gangs)
            await asyncio.sleep(1.0)

    async def _churn(self) -> None:
        case = self._case
        await self._start_ready()
        standing = [
            Gang(name=f"standing-{n}", members=case.members, gpus=case.gpus)
            for n in range(case.filled)
        ]
        await self._groups(standing)
        await self._create(self._creations(standing))
        await self._bound(standing)
        await self._until_idle()
        gangs = case.load()
        todo = iter(gangs)
        self._begin(gangs)

        async def worker() -> None:
            for gang in todo:
                await self._delete([standing.pop(0)])
                await self._submit(gang, self._creations([gang]))
                await self._bound([gang])
                standing.append(gang)

        async with asyncio.TaskGroup() as group:
            for _ in range(case.waves):
                group.create_task(worker())

    # --- steps -----------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        """Create the nodes and the gangs that wait beside the load."""
        pool, case = self._pool, self._case
        await pool.send_all(
            [pool.request("POST", "/api/v1/nodes", encoded(body)) for body in node_bodies(case)]
        )
        await pool.send_all(
            [pool.request("POST", PODS, encoded(body)) for body in filler_bodies(case)]
        )
        waiting = case.waiting()
        await self._groups(waiting)
        await self._create(self._creations(waiting))

    async def _groups(self, gangs: Iterable[Gang]) -> None:
        dialect = self._contender.dialect
        if dialect is Dialect.PLAIN:
            return
        path = groups_path(self._case, dialect)
        bodies = [
            encoded(group_body(self._case, gang, dialect)) for gang in gangs if gang.members > 1
        ]
        await asyncio.gather(
            *(self._pool.send(self._pool.request("POST", path, body)) for body in bodies)
        )

    def _creations(self, gangs: Iterable[Gang]) -> list[tuple[str, bytes]]:
        """Name and request of every pod, in order."""
        dialect, scheduler = self._contender.dialect, self._contender.scheduler
        requests = []
        for gang in gangs:
            for name in gang.pods:
                self._gpus[name] = gang.gpus
                requests.append(
                    (
                        name,
                        self._pool.request(
                            "POST", PODS, encoded(pod_body(gang, name, dialect, scheduler))
                        ),
                    )
                )
        return requests

    async def _create(self, requests: Iterable[tuple[str, bytes]]) -> None:
        created_s = self._meter.created_s
        if self._contender is RAW and self._case.mode is Mode.ARRIVE:
            await self._create_and_bind(requests)
            return

        async def one(connection: HttpConnection, item: tuple[str, bytes]) -> None:
            expect_success(await connection.send(item[1]))
            created_s[item[0]] = time.monotonic()

        await self._pool.each(requests, one)

    async def _create_and_bind(self, requests: Iterable[tuple[str, bytes]]) -> None:
        """The upper bound: the client binds what it has just created, on the same connection."""
        binds = {
            pod: self._pool.request("POST", f"{PODS}/{pod}/binding", binding(pod, node))
            for pod, node in self._places(self._case.load())
        }

        async def one(connection: HttpConnection, item: tuple[str, bytes]) -> None:
            expect_success(await connection.send(item[1]))
            self._meter.created_s[item[0]] = time.monotonic()
            expect_success(await connection.send(binds[item[0]]))

        await self._pool.each(requests, one)

    async def _submit(self, gang: Gang, creations: Iterable[tuple[str, bytes]]) -> None:
        """Create a gang as its owner does: its PodGroup, then all its pods at a time."""
        await self._groups([gang])
        await asyncio.gather(*(self._create_one(name, request) for name, request in creations))

    async def _create_one(self, name: str, request: bytes) -> None:
        await self._pool.send(request)
        self._meter.created_s[name] = time.monotonic()

    async def _delete(self, gangs: Iterable[Gang]) -> None:
        names = [name for gang in gangs for name in gang.pods]
        now = b'{"gracePeriodSeconds":0}'
        requests = [self._pool.request("DELETE", f"{PODS}/{name}", now) for name in names]
        await asyncio.gather(*(self._pool.send(request) for request in requests))

    def _places(self, gangs: Iterable[Gang]) -> list[tuple[str, str]]:
        """A node for each pod, in turn."""
        names = [name for gang in gangs for name in gang.pods]
        return [(name, f"node-{index % self._case.nodes:04}") for index, name in enumerate(names)]

    async def _start_ready(self) -> None:
        if self._running is not None:
            self._running.start()
            self._ready_s = await asyncio.to_thread(self._running.await_ready)
            await asyncio.to_thread(self._running.await_served)
            await asyncio.sleep(1.0)

    async def _until_idle(self, within_s: float = 40.0) -> None:
        """Wait until the scheduler is idle."""
        assert self._running is not None
        deadline_s = time.monotonic() + within_s
        before_s = self._running.cpu_s()
        while time.monotonic() < deadline_s:
            await asyncio.sleep(2.0)
            now_s = self._running.cpu_s()
            if now_s - before_s < 0.1:
                return
            before_s = now_s

    def _begin(self, gangs: Sequence[Gang]) -> None:
        """Start every clock."""
        self._timed = list(gangs)
        if self._running is not None and self._running.pid:
            self._cpu_before_s = self._running.cpu_s()
        self._server_before_s, self._load_before_s = self._server_cpu_s(), time.process_time()
        self._machine_before_s = machine_cpu_s()
        self._first_s = time.monotonic()

    async def _bound(self, gangs: Iterable[Gang]) -> None:
        names = [name for gang in gangs for name in gang.pods]
        if not await self._meter.bound(names, within_s=WITHIN_S):
            left = sorted(name for name in names if name not in self._meter.bound_s)
            log = self._plane.logs / f"{self._contender.name}.log"
            said = log.read_text(errors="replace")[-2000:] if log.exists() else ""
            raise RuntimeError(
                f"{self._contender.name} left {len(left)} pods unbound: {left[:5]}\n{said}"
            )

    def _server_cpu_s(self) -> float:
        return cpu_s(self._plane.pids[APISERVER]) + cpu_s(self._plane.pids[ETCD])

    # --- figures ---------------------------------------------------------------------------------

    async def _result(self) -> Result:
        meter, running, timed = self._meter, self._running, self._timed
        server_s, load_s = (
            self._server_cpu_s() - self._server_before_s,
            time.process_time() - self._load_before_s,
        )
        foreign_s = machine_cpu_s() - self._machine_before_s - server_s - load_s
        clock_s = time.monotonic() - self._first_s
        if running is not None:
            foreign_s -= running.cpu_s() - self._cpu_before_s
        names = [name for gang in timed for name in gang.pods]
        bound = sorted(meter.bound_s[name] for name in names)
        self._check_room()
        total_s = bound[-1] - self._first_s
        rate = statistics.median(self._waves) if self._waves else len(names) / total_s
        result = Result(
            case=self._case.name,
            contender=self._contender.name,
            pods=len(names),
            bound=len(bound),
            total_s=len(names) / len(self._waves) / rate if self._waves else total_s,
            pods_per_s=rate,
            bind_span_s=bound[-1] - bound[0],
            binds_per_s=(len(bound) - 1) / max(bound[-1] - bound[0], 1e-9),
            server_cpu_s=server_s,
            load_cpu_s=load_s,
            foreign_cpu_s=foreign_s,
            clock_s=clock_s,
            ready_s=self._ready_s,
            waves_pods_per_s=self._waves,
            watch_resumed=meter.resumed,
        )
        if self._case.mode is Mode.BACKLOG:
            result.start_to_first_bind_s = bound[0] - self._first_s
        else:
            waits = sorted(meter.bound_s[name] - meter.created_s[name] for name in names)
            result.pod_p50_ms, result.pod_p99_ms = quantile_ms(waits, 0.5), quantile_ms(waits, 0.99)
            result.gang_p50_ms = quantile_ms(gang_waits(timed, meter.created_s, meter.bound_s), 0.5)
        if self._case.mode is Mode.PACED:
            result.sizes = waits_by_size(timed, meter.created_s, meter.bound_s)
            result.offered_pods_per_s = self._pods_per_s
        if running is not None:
            await asyncio.sleep(AFTERMATH_S)
            result.cpu_s, result.rss_mib = running.cpu_s() - self._cpu_before_s, running.rss_mib()
            result.stall_ms, result.starved_s = running.stall_ms(), running.starved_s()
        return result

    def _check_room(self) -> None:
        """Check that no node is over-committed and each gang in the rack that it needs; deleted
        pods do not count.
        """
        if self._case.mode in {Mode.WAVES, Mode.CHURN}:
            return
        for gang in self._timed if self._case.one_rack else ():
            racks = {
                int(self._meter.node[name].partition("-")[2]) // RACK_SIZE for name in gang.pods
            }
            if len(racks) > 1:
                raise RuntimeError(
                    f"{self._contender.name} has placed {gang.name} in {len(racks)} racks"
                )
        pods = Counter(self._meter.node.values())
        gpus: Counter[str] = Counter()
        for name, node in self._meter.node.items():
            gpus[node] += self._gpus.get(name, 0)
        if self._contender is not RAW and (
            max(pods.values()) > ROOM["pods"] or max(gpus.values()) > ROOM["gpus"]
        ):
            raise RuntimeError(f"{self._contender.name} has over-committed a node")
