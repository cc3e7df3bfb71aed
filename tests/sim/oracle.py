"""The oracle: what must hold after each step, judged by the API server's truth and by what a
process could know.

Invariant: it sees every request when it leaves and when it is carried out, and every line when it
arrives. A process answers for what it was shown before a request left, and for all that it has done
itself, whether it was told or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from gangsched.api.keys import PERMITTED
from tests.sim.api_server.answers import Answer
from tests.sim.api_server.server import ENDED, LEASES, Place, locate
from tests.sim.api_server.store import ADDED, DELETED, MODIFIED, Change, Object
from tests.sim.cluster import Amounts, Cluster, fits, offered, requests, takes_room
from tests.sim.network import Peer, Sent
from tests.sim.process import Process
from tests.sim.workload import Job

WHOLE_WITHIN_S = 3.0
"""From a gang's first bind to that of the last member it needs."""
KNOWN_AFTER_S = 0.02
"""For how long a line may lie in a process that runs before it is known: two turns of the loop."""
UNDECIDED_S = 75.0
"""For how long a bind without a certain answer may count as carried out, and a little more."""
SAME_S = 1e-6
"""How far two sums of the same pauses may be apart."""
View = tuple[Amounts | None, bool]
"""What a node offers, None when there is none, and whether it is closed."""


class Knowledge:
    """What one process was shown: since when which pods are on nodes, and what nodes offered from
    when on.

    `taken` are the pods on nodes that it was not told have gone, with their keys: what it takes for
    bound.
    """

    def __init__(self) -> None:
        self.bound_s: dict[str, float] = {}
        self.taken: dict[str, str] = {}
        self.nodes: dict[str, list[tuple[float, Amounts | None, bool]]] = {}
        self.pages: dict[str, list[Change]] = {}
        self.binds: dict[str, float] = {}  # uid → when the bind left that was carried out
        self.flying: dict[str, dict[int, str]] = {}  # uid → number → node, may yet be carried out

    def views(self, name: str, since_s: float, until_s: float) -> list[View]:
        """What may have been known of a node between two moments: what was at the first, and all
        that came after it.
        """
        found: list[View] = [(None, False)]
        for at_s, room, closed in self.nodes.get(name, ()):
            if at_s <= since_s:
                found = [(room, closed)]
            elif at_s <= until_s:
                found.append((room, closed))
        return found


class Oracle:
    """A `network.Oracle`. `found` are the violations, the first one first."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.checks: Counter[str] = Counter()
        self._cluster: Cluster | None = None
        self._known: dict[str, Knowledge] = {}
        self._processes: dict[str, Process] = {}  # that ever sent anything
        # uid of a nominated pod → priority, until when it was one
        self._wanted: dict[str, tuple[int, float]] = {}
        self._holder = ""
        self._acquired_s: dict[str, float] = {}  # identity → when it last became the holder
        self._ours: dict[str, float] = {}  # uid → when one of us bound it
        self._left_s: dict[str, float] = {}  # uid → when the last bind of it left
        self._undecided_s: dict[str, float] = {}  # uid → when a bind of it had no certain answer
        self._disturbed_s = float("-inf")
        self._edited: set[str] = set()  # keys of PodGroups that are not as they were created
        self._evicted_uids: set[str] = set()
        self._harmed: set[str] = set()  # keys of gangs in trouble

    def begin(self, cluster: Cluster) -> None:
        """Look at this cluster."""
        self._cluster = cluster
        cluster.store.listeners.append(self._heard)

    @property
    def cluster(self) -> Cluster:
        """What is looked at."""
        assert self._cluster is not None
        return self._cluster

    def complain(self, sentence: str) -> None:
        """Something does not hold."""
        self.found.append(f"{self.cluster.timeline.now_s:.3f} s: {sentence}")

    def disturb(self) -> None:
        """Something goes wrong now: a gang that starts may be whole later."""
        self._disturbed_s = self.cluster.timeline.now_s

    def known(self, peer: Peer) -> Knowledge:
        """What a process was shown so far."""
        return self._known.setdefault(peer.name, Knowledge())

    # --- what arrives ----------------------------------------------------------------------------

    def shown(self, peer: Peer, answer: Answer) -> None:
        """A page of a list has arrived; the last one makes the list known."""
        known, page = self.known(peer), answer.shown
        assert page is not None
        pages = known.pages.setdefault(page.resource, [])
        if not page.token:
            pages.clear()
        pages.extend(page.changes)
        if not page.is_last:
            return
        for change in pages:
            self._learn(peer, change)
        if page.resource == "pods":
            uids = {change.body["metadata"]["uid"] for change in pages}
            known.taken = {uid: key for uid, key in known.taken.items() if uid in uids}
        if page.resource == "nodes":
            listed = {change.key for change in pages}
            for name, history in known.nodes.items():
                if name not in listed and history[-1][1] is not None:
                    history.append((peer.active_s(), None, False))

    def told(self, peer: Peer, change: Change) -> None:
        """A line of a watch has arrived."""
        self._learn(peer, change)

    def _learn(self, peer: Peer, change: Change) -> None:
        known = self.known(peer)
        if change.resource == "pods" and change.body["spec"].get("nodeName"):
            uid = change.body["metadata"]["uid"]
            known.bound_s.setdefault(uid, peer.active_s())
            if change.type == DELETED or change.body["status"].get("phase") in ENDED:
                known.taken.pop(uid, None)
            else:
                known.taken[uid] = change.key
        elif change.resource == "nodes":
            room = None if change.type == DELETED else offered(change.body)
            closed = bool(change.body["spec"].get("unschedulable"))
            known.nodes.setdefault(change.key, []).append((peer.active_s(), room, closed))

    # --- what leaves and is carried out ----------------------------------------------------------

    def left(self, sent: Sent) -> None:
        """A request left: nobody else may write, and no second bind elsewhere while one is open."""
        assert isinstance(sent.peer, Process)
        self._processes[sent.peer.name] = sent.peer
        place = locate(sent.request.path)
        if place is None or not sent.request.writes or place.resource == "selfsubjectaccessreviews":
            return
        self._by_one(sent, place)
        if place.subresource in {"binding", "eviction", "status"} and place.resource == "pods":
            self._has_uid(sent, place)
        if place.subresource == "binding":
            self._left_bind(sent, place)

    def carried_out(self, sent: Sent, answer: Answer) -> None:
        """The server has carried a request out, or refused it."""
        place = locate(sent.request.path)
        if place is None or place.resource != "pods" or not sent.request.writes:
            return
        if place.subresource == "binding":
            self._landed(sent)
            if answer.status >= 500:
                self._undecided_s[_bind_of(sent)[0]] = self.cluster.timeline.now_s
            if answer.status >= 400:
                self._missed(place.key)
            if answer.status < 400:
                self._bound(sent, place)
            elif self._is_of_another(sent, place):
                self.disturb()
        elif answer.status < 400 and (
            place.subresource == "eviction" or sent.request.method == "DELETE"
        ):
            self._evicted(sent, place)

    def lost(self, sent: Sent) -> None:
        """A request will never be carried out."""
        place = locate(sent.request.path)
        if place is not None and place.subresource == "binding":
            self._landed(sent)
            self._undecided_s[_bind_of(sent)[0]] = self.cluster.timeline.now_s
            self._missed(place.key)

    def _by_one(self, sent: Sent, place: Place) -> None:
        """Whose Lease was deleted may write until it is over, while another has made a new one and
        waits.
        """
        process = sent.peer
        assert isinstance(process, Process)
        if not process.settings.leader_elect or place.resource == "leases":
            return
        self.checks["writes of one at a time"] += 1
        others = [
            each.name for each in self._processes.values() if each is not process and each.may_write
        ]
        if others:
            self.complain(
                f"{process.name} sends {sent.request.method} {sent.request.path}, and"
                f" {' and '.join(others)} may write"
            )

    def _has_uid(self, sent: Sent, place: Place) -> None:
        body: Any = msgspec.json.decode(sent.request.body)
        options = body.get("deleteOptions", {}).get("preconditions", {})
        if not (body.get("metadata", {}).get("uid") or options.get("uid")):
            self.complain(
                f"{sent.peer.name} sends {sent.request.path} for whatever pod has that name"
            )

    def _left_bind(self, sent: Sent, place: Place) -> None:
        uid, node = _bind_of(sent)
        flying = self.known(sent.peer).flying.setdefault(uid, {})
        others = {other for other in flying.values() if other != node}
        self.checks["binds that left"] += 1
        if others:
            self.complain(
                f"{sent.peer.name} sends {place.key} to {node}, and may yet bind it to"
                f" {', '.join(sorted(others))}"
            )
        flying[sent.number] = node
        self._left_s[uid] = self.cluster.timeline.now_s

    def _is_of_another(self, sent: Sent, place: Place) -> bool:
        """Whether its pod was deleted, or made anew under its name: its process had not
        been told.
        """
        pod = self.cluster.store.get("pods", place.key)
        return pod is None or pod["metadata"]["uid"] != _bind_of(sent)[0]

    def _counts_on_the_gone(self, known: Knowledge, key: str) -> bool:
        """Whether a process takes another pod of the gang for bound that is gone: to it, the gang
        runs.
        """
        job = self.cluster.job_named(key)
        there = {pod["metadata"]["uid"] for pod in self._pods_of(job)} if job is not None else set()
        return any(
            self.cluster.job_named(other) is job and uid not in there
            for uid, other in known.taken.items()
        )

    def _landed(self, sent: Sent) -> None:
        uid, _ = _bind_of(sent)
        self.known(sent.peer).flying.get(uid, {}).pop(sent.number, None)

    def _bound(self, sent: Sent, place: Place) -> None:
        """A bind was carried out: the node was open and had room, by all that its process could
        know.
        """
        self.checks["binds"] += 1
        uid, name = _bind_of(sent)
        peer, known = sent.peer, self.known(sent.peer)
        known.binds[uid] = sent.active_s
        known.taken[uid] = place.key
        if self._counts_on_the_gone(known, place.key):
            self.disturb()
        self._ours[uid] = self.cluster.timeline.now_s
        pod = self.cluster.store.get("pods", place.key)
        assert pod is not None
        assert isinstance(peer, Process)
        by_s = sent.active_s - KNOWN_AFTER_S
        views = [
            view for view in known.views(name, by_s, sent.active_s + SAME_S) if view[0] is not None
        ]
        if not views:
            self.complain(f"{peer.name} binds {place.key} to {name}, which it was told is gone")
        elif all(closed for _, closed in views):
            self.complain(f"{peer.name} binds {place.key} to {name}, which it was told is closed")
        else:
            self._fits(sent, pod, name)

    def _fits(self, sent: Sent, pod: Object, name: str) -> None:
        """What its process could know of is not too much for the node as it was when the last of
        these binds left.
        """
        peer, known, uid = sent.peer, self.known(sent.peer), pod["metadata"]["uid"]
        total: Amounts = Counter(requests(pod))
        seen, last_s = [], sent.active_s
        for other in self.cluster.on(name):
            other_uid = other["metadata"]["uid"]
            if other_uid == uid:
                continue
            by_us = self._ours.get(other_uid, float("inf")) < self._acquired_s.get(
                peer.name, float("-inf")
            )
            is_known = known.bound_s.get(other_uid, float("inf")) <= sent.active_s - KNOWN_AFTER_S
            if by_us or other_uid in known.binds or is_known:
                total.update(requests(other))
                seen.append(other["metadata"]["name"])
                last_s = max(last_s, known.binds.get(other_uid, last_s))
        # what it does not ask for, it needs not
        total = Counter({name: total[name] for name in requests(pod)})
        views = known.views(name, sent.active_s - KNOWN_AFTER_S, last_s + SAME_S)
        rooms = [room for room, _ in views if room is not None]
        if not any(fits(total, each) for each in rooms):
            self.complain(
                f"{peer.name} binds {pod['metadata']['namespace']}/{pod['metadata']['name']} to"
                f" {name}, where {', '.join(seen)} are: together they ask for {dict(total)} of"
                f" {dict(rooms[-1])}"
            )

    def _evicted(self, sent: Sent, place: Place) -> None:
        """An eviction was carried out: somebody of higher priority was nominated lately, and the
        victim was marked.
        """
        self.checks["evictions"] += 1
        pod = self.cluster.store.get("pods", place.key)
        if pod is None:
            return
        self._evicted_uids.add(pod["metadata"]["uid"])
        priority = pod["spec"].get("priority", 0)
        now_s = self.cluster.timeline.now_s
        if not any(
            wanted > priority and until_s >= now_s - 60 for wanted, until_s in self._wanted.values()
        ):
            self.complain(
                f"{sent.peer.name} evicts {place.key} of priority {priority} for nobody of a"
                " higher one"
            )

    def _heard(self, change: Change) -> None:
        if change.resource == LEASES:
            holder = change.body["spec"].get("holderIdentity") or ""
            if holder != self._holder:
                self._acquired_s[holder] = self.cluster.timeline.now_s
            self._holder = holder
        if change.resource.startswith("podgroups.") and change.type != ADDED:
            body, job = change.body, self.cluster.jobs.get(change.key)
            if change.type == DELETED or (
                job and job.pod_group and body["spec"] != job.pod_group["spec"]
            ):
                self._edited.add(change.key)
        if change.resource != "pods":
            return
        self._started(change)
        uid = change.body["metadata"]["uid"]
        self._harm(change)
        if change.type in {ADDED, MODIFIED} and change.body["status"].get("nominatedNodeName"):
            self._wanted[uid] = (change.body["spec"].get("priority", 0), float("inf"))
        elif uid in self._wanted and self._wanted[uid][1] == float("inf"):
            self._wanted[uid] = (self._wanted[uid][0], self.cluster.timeline.now_s)

    def _started(self, change: Change) -> None:
        """A gang that starts is whole in a while, unless something goes wrong meanwhile."""
        job = self.cluster.job_of(change.body)
        stamp = change.body["metadata"].get("annotations", {}).get(PERMITTED, "")
        is_leaving = change.type == DELETED or change.body["metadata"].get("deletionTimestamp")
        if job is None or is_leaving or change.body["status"].get("phase") in ENDED:
            self.disturb()
            return
        if stamp and change.body["status"].get("phase") == "Pending" and self._bound_of(job) == 1:
            minimum, since_s = int(stamp.partition("/")[0]), min(self._left_of(job), default=0.0)
            self.cluster.timeline.after(
                WHOLE_WITHIN_S, lambda: self._is_whole(job, minimum, since_s)
            )

    def _is_whole(self, job: Job, minimum: int, since_s: float) -> None:
        paused_s = max((each.paused_until_s for each in self._processes.values()), default=0.0)
        if max(self._disturbed_s, paused_s) < since_s - 1.0:
            self.checks["gangs that started"] += 1
            if (bound := self._may_be_bound_of(job)) < minimum:
                self.complain(f"{job.key} started with {bound} of {minimum} members")

    def _harm(self, change: Change) -> None:
        """Note a gang that lost a member without an eviction, or of which a rival has bound one."""
        job, pod = self.cluster.job_of(change.body), change.body
        is_lost = change.type == DELETED or pod["status"].get("phase") in ENDED
        by_rival = pod["spec"].get("nodeName") and PERMITTED not in pod["metadata"].get(
            "annotations", {}
        )
        if job is not None and (
            by_rival or (is_lost and pod["metadata"]["uid"] not in self._evicted_uids)
        ):
            self._harmed.add(job.key)

    def _missed(self, key: str) -> None:
        """A bind failed after another one of its gang had succeeded: its room may be gone by the
        next try.
        """
        job = self.cluster.job_named(key)
        if job is not None and self._bound_of(job):
            self._harmed.add(job.key)

    def rests(self) -> None:
        """Trouble is over, and nothing moves: no gang has a part of its minimum, nor a tree of its
        children.

        Gangs that lost members by trouble, or a bind when another one had succeeded, may lack room
        to heal, so they and their trees are left out.
        """
        for job in self.cluster.jobs.values():
            if job.tree is None and job.key not in self._edited | self._harmed:
                if 0 < (number := self._bound_of(job)) < job.minimum:
                    self.complain(f"gang {job.key} rests with {number} of {job.minimum}")
                self.checks["gangs that rest"] += 1
        trees = {
            id(job.tree): job.tree for job in self.cluster.jobs.values() if job.tree is not None
        }
        for tree in trees.values():
            if tree.keys & (self._edited | self._harmed):
                continue
            started = 0
            for child in tree.children:
                bound = {job.key: self._bound_of(job) for job in child}
                is_whole = all(bound[job.key] >= job.minimum for job in child)
                started += is_whole
                if any(bound.values()) and not is_whole:
                    self.complain(f"a child of a tree rests in part: {bound}")
            self.checks[f"trees that rest {'with' if started else 'without'} children"] += 1
            if 0 < started < tree.least:
                self.complain(
                    f"the tree of {min(tree.keys)} rests with {started} of {tree.least} children"
                )

    def _bound_of(self, job: Job) -> int:
        return sum(map(takes_room, self._pods_of(job)))

    def _left_of(self, job: Job) -> Iterator[float]:
        """When binds of its pods left."""
        uids = (pod["metadata"]["uid"] for pod in self._pods_of(job))
        return (self._left_s[uid] for uid in uids if uid in self._left_s)

    def _may_be_bound_of(self, job: Job) -> int:
        """Those that are bound, and those that who sent their bind must take for bound (semantics
        B3).
        """
        since_s = self.cluster.timeline.now_s - UNDECIDED_S
        open_now = {
            uid for known in self._known.values() for uid, flying in known.flying.items() if flying
        }
        may_be = open_now | {uid for uid, at_s in self._undecided_s.items() if at_s > since_s}
        return sum(
            takes_room(pod) or pod["metadata"]["uid"] in may_be for pod in self._pods_of(job)
        )

    def _pods_of(self, job: Job) -> Iterator[Object]:
        """Those of its pods that exist."""
        pods = (self.cluster.store.get("pods", f"{job.namespace}/{name}") for name in job.pods)
        return (pod for pod in pods if pod is not None)

    def over_committed(self) -> list[str]:
        """The nodes whose pods ask for more than they offer."""
        store = self.cluster.store
        return [
            name
            for name in (node["metadata"]["name"] for node in store.all("nodes"))
            if any(amount < 0 for amount in self.cluster.room(name).values())
        ]


def _bind_of(sent: Sent) -> tuple[str, str]:
    body: Object = msgspec.json.decode(sent.request.body)
    return body["metadata"].get("uid", ""), body["target"]["name"]
