"""The live document, and its changes as they are sent to every tab.

Invariant: a change is made once, whoever listens. A tab that is too far behind gets the document
again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from gangsched import __version__
from gangsched.kube.http.blocking import BlockingClient
from gangsched.kube.http.faults import SERVER_ERROR, UNAUTHORIZED, ApiFault, Fault
from kubectl_gangsched.page.changes import between, is_nothing
from kubectl_gangsched.page.cluster import Cluster
from kubectl_gangsched.page.document import Document, Moment, Unknown
from kubectl_gangsched.page.live.login import Login
from kubectl_gangsched.page.live.places import Places
from kubectl_gangsched.page.live.sources import Gangs, sources
from kubectl_gangsched.page.live.watch import RIGHTS_S, Watch
from kubectl_gangsched.page.moments import Moments
from kubectl_gangsched.session import Session, explained, told
from kubectl_gangsched.terminal import clean

TICK_S = 0.25
PING_S = 0.5
SILENCE_S = 1.2
"""Without a word of the API server for so long it is away; with a ping, within two seconds."""
REPEAT_S = 2.0
"""After a bug, until the same is tried again."""
FIRST_S = 30.0
"""How long the first lists may take before the page shows what is known."""
CHANGES_KEPT = 256
CHANGES_BYTES = 8 * 2**20
"""All that are kept, together: the document of a large cluster is about as long."""
LEADER_S = 5.0
MOST_LEADER_S = 300.0
"""Between two lists of gangs that could come from the leader, at first and at most: each may be of
ten thousand gangs.
"""
OF_STANDBY = (
    "A standby of the scheduler answers, which decides nothing: reservations, promised starts and"
    " what is held are not known until the leader does."
)
NOT_GANGS = (
    "Positions, reservations and promised starts are not known, and the queue is shown by age: "
)


class LiveDocument(Document, kw_only=True):
    """The document, and the id behind which its changes come."""

    id: int


@dataclass(frozen=True, slots=True)
class Sent:
    """An event as it is sent: its id, its kind and its data."""

    id: int
    kind: str
    data: bytes


class Feed:
    """Reads the cluster, and has the document and the events behind it."""

    def __init__(self, session: Session, user: str, *, rights_s: float = RIGHTS_S) -> None:
        """Nothing is read before `start`."""
        self._session = session
        self._user = user
        self._rights_s = rights_s
        # Its own connections: a ping must not wait behind a list.
        self._pinger = BlockingClient(session.client.access, within_s=SILENCE_S)
        self._login = Login(session, user, self._pinger)
        self._lock = threading.Lock()
        self._cluster = Cluster()
        self._moments = Moments(self._cluster)
        self._places = Places(session.client, self._cluster, self._lock)
        self._moment = Moment(at_s=0.0)
        self._id = int(time.time() * 1_000)
        self._events: deque[Sent] = deque()
        self._events_bytes = 0
        self._encoded: tuple[int, bytes] | None = None
        self._dirty = threading.Event()
        self._over = threading.Event()
        self._heard_s = time.monotonic()
        self._behind = ""
        #: What each part failed with, and since when; parts that went on are not there.
        self._bugs: dict[str, tuple[float, str]] = {}
        self.news = threading.Condition()
        self.watches = []

        self._gangs = Gangs(self._cluster, session.namespace)
        self._relist_s = 0.0
        self._relist_wait_s = LEADER_S
        for source in sources(self._cluster, session.namespace, self._gangs):
            watch = Watch(session.client, source, self._lock, self._dirty.set, rights_s)
            self.watches.append(watch)

    def start(self) -> None:
        """Begin to read."""
        for watch in self.watches:
            watch.start()

        for step, first_s in (
            (self._tick, 0.0),
            (self._ping, PING_S),
            (self._check_rights, self._rights_s),
            (self._ask_places, 0.0),
        ):
            name = step.__name__
            repeating = threading.Thread(target=self._repeat, args=(step, first_s), name=name)
            repeating.daemon = True
            repeating.start()

    def end(self) -> None:
        """End all threads; does not wait for them."""
        self._over.set()
        self._dirty.set()
        for watch in self.watches:
            watch.end()

        with self.news:
            self.news.notify_all()

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._over.is_set()

    def wait_for_first(self) -> None:
        """Wait until each resource is read, or it is known why not."""
        deadline_s = time.monotonic() + FIRST_S
        for watch in self.watches:
            watch.ready.wait(max(0.0, deadline_s - time.monotonic()))

        self._make()

    def document(self) -> bytes:
        """The document as JSON."""
        with self.news:
            if self._encoded is None or self._encoded[0] != self._id:
                document = LiveDocument(
                    id=self._id,
                    source="live",
                    title=self._session.client.access.context,
                    user=self._user,
                    made_by=__version__,
                    namespace=self._session.namespace,
                    moment=self._moment,
                )
                self._encoded = self._id, msgspec.json.encode(document)

            return self._encoded[1]

    @property
    def lock(self) -> threading.Lock:
        """Held while the cluster changes."""
        return self._lock

    @property
    def cluster(self) -> Cluster:
        """What is known; read it while `lock` is held."""
        return self._cluster

    def after(self, last: int) -> list[Sent] | None:
        """The events behind an id; None if some of them are no longer kept."""
        if last > self._id:
            return None

        events = [event for event in self._events if event.id > last]
        kept = self._id - len(self._events)
        return events if last >= kept else None

    def behind(self) -> tuple[int, str]:
        """For how many seconds what is shown may be old, and why; 0 if it is not."""
        since_s, sentence = self._heard_s, self._behind
        if not sentence:
            bugs = list(self._bugs.values())
            if not bugs:
                return 0, ""

            since_s, sentence = min(bugs)

        return max(1, int(time.monotonic() - since_s)), sentence

    # --- threads ---------------------------------------------------------------------------------

    def _repeat(self, step: Callable[[], float], wait_s: float) -> None:
        """Do one thing again and again, until the end. A bug in it is told on the page, which would
        look live otherwise, and does not end it.
        """
        while not self._over.wait(wait_s):
            try:
                wait_s = step()
                self._bugs.pop(step.__name__, None)
            except Exception as error:
                since_s, _ = self._bugs.get(step.__name__, (time.monotonic(), ""))
                sentence, _ = explained(error)
                self._bugs[step.__name__] = since_s, sentence
                wait_s = REPEAT_S
                with self.news:
                    self.news.notify_all()

    def _tick(self) -> float:
        self._dirty.wait()
        self._dirty.clear()
        if not self._over.is_set():
            try:
                self._make()
            except BaseException:
                self._dirty.set()
                raise

        return TICK_S

    def _make(self) -> None:
        """Make the moment, and the change to it if there is one."""
        with self._lock:
            self._cluster.unknown = self._unknown()
            is_past_lost = self._cluster.is_past_lost
            moment = self._moments.at(time.time())

        with self.news:
            if is_past_lost:
                self._keep(0)

            change = between(self._moment, moment)
            self._moment = moment
            if not is_nothing(change):
                self._id += 1
                event = Sent(self._id, "change", msgspec.json.encode(change))
                self._events.append(event)
                self._events_bytes += len(event.data)
                self._keep(CHANGES_BYTES)
                self.news.notify_all()

    def _keep(self, most_bytes: int) -> None:
        """Forget the oldest events; whoever is behind them gets the document again."""
        while self._events_bytes > most_bytes or len(self._events) > CHANGES_KEPT:
            oldest = self._events.popleft()
            self._events_bytes -= len(oldest.data)

    def _unknown(self) -> list[Unknown]:
        unknown = []
        for watch in self.watches:
            hides = watch.source.hides
            if watch.missing and not self._is_needless(watch):
                text = NOT_GANGS + watch.missing if hides == "order" else watch.missing
                unknown.append(Unknown(hides, text, watch.is_right))

        if self._gangs.of_standby:
            unknown.append(Unknown("reservations", OF_STANDBY))
        if self._places.trouble:
            unknown.append(Unknown("order", self._places.trouble))

        cluster = self._cluster
        if cluster.pods is not None and not cluster.all_pods:
            text = "You may not list pods of all namespaces, and the map is made of these."
            unknown.append(Unknown("map", text, is_right=True))

        return unknown

    def _is_needless(self, watch: Watch) -> bool:
        """Whether nothing is missing without a resource: the gangs API knows what is in PodGroups,
        and without nodes there is no map for devices.
        """
        if not watch.source.is_optional:
            return False
        if not watch.is_served:
            return True

        if watch.source.hides == "gang":
            return self._cluster.gangs is not None

        return self._cluster.nodes is None

    def _ping(self) -> float:
        """Notice within two seconds that the API server is away, or there again."""
        try:
            self._pinger.get("/version")
        except ApiFault as fault:
            is_away = fault.status >= SERVER_ERROR or fault.status == UNAUTHORIZED
            away = told(fault) if is_away else ""
            if fault.status == UNAUTHORIZED:
                self._login.renew()
        except Fault as fault:
            away = str(fault)
        else:
            away = ""

        heard_s = max(watch.heard_s for watch in self.watches)
        now_s = time.monotonic()
        if away and now_s - heard_s < SILENCE_S:
            away = ""  # busy, and there

        if not away and self._behind:
            # A connection of before may be dead without anybody having been told.
            for watch in self.watches:
                watch.reconnect()

        if not away:
            self._heard_s = now_s

        self._behind = clean(away)
        with self.news:
            self.news.notify_all()

        return PING_S

    def _ask_places(self) -> float:
        gangs = next(watch for watch in self.watches if watch.source.name == "gangs")
        wait_s = self._places.ask(gangs.path)
        self._look_for_leader(gangs)
        self._dirty.set()
        return wait_s

    def _look_for_leader(self, gangs: Watch) -> None:
        """Ask for gangs again where they came from a standby and the leader answers, too."""
        now_s = time.monotonic()
        if not self._gangs.of_standby:
            self._relist_wait_s = LEADER_S
        elif self._places.is_of_leader and now_s > self._relist_s:
            gangs.relist()
            self._relist_s = now_s + self._relist_wait_s
            self._relist_wait_s = min(MOST_LEADER_S, 2 * self._relist_wait_s)

    def _check_rights(self) -> float:
        for watch in self.watches:
            watch.check_rights()

        return self._rights_s
