"""The network between processes and the API server: bytes that leave, arrive late, or never.

Invariant: what a connection carries arrives in order. A request that left arrives whatever becomes
of its process. Answers and lines reach a process that is stopped when it goes on, and one that has
crashed never. Requests and streams meet their faults here, and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Protocol

from tests.sim.api_server.answers import STREAM_END, STREAM_HEAD, Answer, Request, chunk
from tests.sim.api_server.http11 import RequestReader
from tests.sim.api_server.server import ApiServer, locate
from tests.sim.api_server.store import Change
from tests.sim.api_server.watch import Stream
from tests.sim.loop import VirtualLoop
from tests.sim.timeline import Timeline
from tests.sim.trace import Trace
from tests.sim.trouble.faults import Fate, Reply, RequestFaults


class Peer(Protocol):
    """A process, as far as the network knows it."""

    name: str
    loop: VirtualLoop
    runs: bool
    cut_off_until_s: float
    heard: int

    def active_s(self) -> float:
        """For how long it has run."""

    def lag_s(self, resource: str) -> float:
        """How much later than other answers the lines of this resource arrive."""


class Sent:
    """A request that has left `peer`; `active_s` is for how long that had run then."""

    __slots__ = ("active_s", "number", "peer", "request")

    def __init__(self, number: int, peer: Peer, request: Request) -> None:
        self.number, self.peer, self.request, self.active_s = number, peer, request, peer.active_s()


class Oracle(Protocol):
    """Who is told what passes; it judges."""

    def disturb(self) -> None:
        """Something goes wrong now."""

    def left(self, sent: Sent) -> None:
        """A request left its process."""

    def carried_out(self, sent: Sent, answer: Answer) -> None:
        """The server has carried it out, or refused it."""

    def lost(self, sent: Sent) -> None:
        """It will never be carried out."""

    def shown(self, peer: Peer, answer: Answer) -> None:
        """An answer has reached its process."""

    def told(self, peer: Peer, change: Change) -> None:
        """A line of a watch has reached its process."""


class Network:
    """`connect` makes connections; `watching` are those with an open watch; `repeats` is the share
    of doubled lines.
    """

    def __init__(
        self,
        timeline: Timeline,
        server: ApiServer,
        oracle: Oracle,
        faults: RequestFaults,
        rng: Random,
        trace: Trace,
    ) -> None:
        self.timeline, self.server, self.oracle, self.faults, self.trace = (
            timeline,
            server,
            oracle,
            faults,
            trace,
        )
        self._rng = rng
        self._number = 0
        self.watching: list[Wire] = []
        self.repeats = 0.0
        self.repeated = 0
        server.store.listeners.append(self._heard)

    def connect(self, peer: Peer, loop: VirtualLoop, protocol: asyncio.BaseProtocol) -> Wire:
        """A connection of a process."""
        return Wire(self, peer, loop, protocol)

    def open_watches(self) -> list[Wire]:
        """The connections with an open watch."""
        return [wire for wire in self.watching if wire.stream is not None and wire.stream.is_open]

    def latency_s(self) -> float:
        """Of one way."""
        return (
            0.0005
            + 0.004 * self._rng.random() ** 3
            + (0.05 * self._rng.random() if self._rng.random() < 0.03 else 0)
        )

    # --- requests --------------------------------------------------------------------------------

    def leave(self, wire: Wire, request: Request) -> None:
        """Bytes leave a process."""
        self._number += 1
        sent = Sent(self._number, wire.peer, request)
        self.trace.add(f"{wire.peer.name} -> {request.method} {request.target}", request.body)
        fate = self.faults.fate(request)
        if self.timeline.now_s < wire.peer.cut_off_until_s:
            fate = Fate("cut off", arrives=False, reply=Reply.NEVER)
        if fate.name:
            self.oracle.disturb()
            self.trace.add(
                f"    fault: {fate.name}, of {wire.peer.name}'s {request.method} {request.target}"
            )
        self.oracle.left(sent)
        there_s = self.timeline.now_s + self.latency_s()
        if request.is_watch and fate.arrives:
            self.timeline.at(there_s, partial(self._open, wire, request, fate))
            return
        if fate.arrives:
            self.timeline.at(there_s + fate.late_s, partial(self._arrive, wire, sent, fate))
        else:
            self.oracle.lost(sent)
        if fate.reply is Reply.RESET:
            self._later(wire, there_s + fate.late_s + self.latency_s(), wire.cut)
        elif fate.instead is not None and fate.reply is Reply.COMES:
            self._reply(wire, fate.instead, there_s + self.latency_s())

    def _arrive(self, wire: Wire, sent: Sent, fate: Fate) -> None:
        answer = self.server.handle(sent.request)
        self.trace.add(
            f"    {sent.peer.name}'s {sent.request.method} {sent.request.path} = {answer.status}",
            answer.body,
        )
        self.oracle.carried_out(sent, answer)
        if fate.reply is Reply.COMES and fate.instead is None:
            self._reply(wire, answer, self.timeline.now_s + self.latency_s() + fate.reply_late_s)

    def _reply(self, wire: Wire, answer: Answer, when_s: float) -> None:
        def reads() -> None:
            if answer.shown is not None:
                self.oracle.shown(wire.peer, answer)

        def arrives() -> None:
            wire.deliver(answer.encode(), reads)

        self._later(wire, when_s, arrives)

    def _later(self, wire: Wire, when_s: float, deed: Callable[[], object]) -> None:
        """Do it on a connection then: in order, when its stream is not frozen and its process is
        reached.
        """
        wire.incoming.append((when_s, deed))
        if len(wire.incoming) == 1:
            self._pump(wire)

    def _pump(self, wire: Wire) -> None:
        while wire.incoming:
            when_s, deed = wire.incoming[0]
            when_s = max(when_s, wire.frozen_until_s, wire.peer.cut_off_until_s)
            if when_s > self.timeline.now_s:
                self.timeline.at(when_s, partial(self._pump, wire))
                return
            deed()
            wire.incoming.popleft()

    # --- streams ---------------------------------------------------------------------------------

    def _open(self, wire: Wire, request: Request, fate: Fate) -> None:
        place = locate(request.path)
        assert place is not None
        if fate.instead is not None or place.group in self.server.absent:
            self._reply(
                wire,
                fate.instead or self.server.handle(request),
                self.timeline.now_s + self.latency_s(),
            )
            return
        send = partial(self._send, wire, place.kind)
        stream = Stream(
            self.server.store,
            place,
            request,
            send,
            partial(self._send, wire, place.kind, b"", None),
        )
        wire.stream = stream
        self._send(wire, place.kind, STREAM_HEAD, None, head=True)
        refused = stream.begin()
        if refused is not None:
            line = b'{"type":"ERROR","object":' + refused.body + b"}\n"
            self._send(wire, place.kind, line, None)
            self._send(wire, place.kind, b"", None)
            return
        self.watching.append(wire)
        self.timeline.after(float(request.query.get("timeoutSeconds", 300)), stream.close)

    def _heard(self, change: Change) -> None:
        self.watching = self.open_watches()
        for wire in self.watching:
            assert wire.stream is not None
            wire.stream.heard(change)

    def _send(
        self, wire: Wire, resource: str, line: bytes, change: Change | None, *, head: bool = False
    ) -> None:
        """Send a line of a stream; no bytes end it."""
        data = line if head else chunk(line) if line else STREAM_END
        if change is not None and self._rng.random() < self.repeats:
            self.repeated += 1
            data += data

        def arrives() -> None:
            def reads() -> None:
                if change is not None:
                    self.oracle.told(wire.peer, change)

            if wire.deliver(data, reads) and change is not None:
                self.trace.add(
                    f"{wire.peer.name} <- {change.type} {resource} {change.key} at {change.version}"
                )

        self._later(
            wire, self.timeline.now_s + self.latency_s() + wire.peer.lag_s(resource), arrives
        )


class Wire(asyncio.Transport):
    """The client's end of a connection."""

    def __init__(
        self, network: Network, peer: Peer, loop: VirtualLoop, protocol: asyncio.BaseProtocol
    ) -> None:
        super().__init__()
        self.peer = peer
        self.stream: Stream | None = None
        self.incoming: deque[tuple[float, Callable[[], object]]] = deque()
        self.frozen_until_s = 0.0
        self._network, self._loop = network, loop
        self._protocol: Any = protocol
        self._reader = RequestReader()
        self._is_closed = False

    # --- what the client does --------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if self._is_closed or not self.peer.runs:
            return
        for request in self._reader.feed(bytes(data)):
            self._network.leave(self, request)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self._end(None)

    def abort(self) -> None:
        self._end(None)

    def is_closing(self) -> bool:
        return self._is_closed

    def is_reading(self) -> bool:
        return not self._is_closed

    def pause_reading(self) -> None:
        """Go on: what is simulated is small."""

    def resume_reading(self) -> None:
        """Go on."""

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_write_buffer_size(self) -> int:
        return 0

    # --- what the network does -------------------------------------------------------------------

    def deliver(self, data: bytes, on_read: Callable[[], object] = lambda: None) -> bool:
        """Hand bytes to the process; false if nobody takes them.

        `on_read` is called once the process reads them: a reset while it is paused discards what it
        has not read.
        """
        if self._is_closed or not self.peer.runs:
            return False
        self._loop.call_soon(self._receive, data, on_read)
        self.peer.heard += 1
        return True

    def cut(self) -> None:
        """Let the connection end with an error."""
        if self.peer.runs:
            self._end(ConnectionResetError(104, "Connection reset by peer"))

    def _receive(self, data: bytes, on_read: Callable[[], object]) -> None:
        if not self._is_closed:
            self._protocol.data_received(data)
            on_read()

    def _end(self, error: Exception | None) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self.stream is not None:
            self.stream.is_open = False
        self._loop.call_soon(self._protocol.connection_lost, error)
