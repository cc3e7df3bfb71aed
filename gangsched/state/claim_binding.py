"""Claim binding: permitted members whose claims must be bound before the pod (kube-scheduler's
PreBind).

Invariant: such a member is in the state `waiting for claims` and keeps its room. Its claims are
written once, by `kube.write`; from then on only the claims, volumes and nodes in the API server
matter. Members that start together wait for each other (`claim_starts`). A wait ends when the bind
is sent, when binding a claim fails (with kube-scheduler's reason), or when the pod is deleted.
Volumes and nodes of the claims were chosen before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from gangsched.model.counter import counter
from gangsched.model.inter_pod import selects
from gangsched.model.objects import PermitStamp
from gangsched.model.protocol import (
    Bind,
    BindClaims,
    BindFailed,
    BindGone,
    ClaimsWritten,
    Outcome,
    ReleaseClaims,
)
from gangsched.model.storage import Claim, Selection, Volume
from gangsched.model.text import named
from gangsched.state.claim_looks import ClaimLooks
from gangsched.state.claim_starts import Starts, is_late
from gangsched.state.cluster import Cluster
from gangsched.state.device_binding import (
    ClaimsRefused,
    follows,
    has_devices,
    idle,
    is_allocated,
    reserves,
)
from gangsched.state.groups import Registry
from gangsched.state.member_store import WAITS, MemberStore
from gangsched.state.members import Change, ClaimsWait, Member, State
from gangsched.state.storage_cache import is_older

SETTLE_S = 0.05
"""How long the last look at devices waits for other schedulers; kube-scheduler wrote up to 11 ms
after gangsched.
"""
TIMEOUT_S = 600.0
"""How long claims may take to be bound; kube-scheduler's bindTimeoutSeconds is the same."""


@dataclass(slots=True)
class ClaimCounts:
    """Counters for metrics."""

    submitted: int = counter("binds whose pods have claims to be provisioned or bound first")
    bound: int = counter("such binds whose claims were all bound")
    failed: int = counter("such binds whose claims could not be bound; retried")
    gone: int = counter("such binds whose pod was deleted meanwhile")


@dataclass(slots=True)
class Due:
    """Actions and failures that result from the current claims."""

    binds: list[Bind] = field(default_factory=list)
    #: Waits that failed, or whose pod is gone.
    ended: list[Outcome] = field(default_factory=list)
    #: Requests for volumes that are withdrawn because they took too long.
    withdrawn: list[ReleaseClaims] = field(default_factory=list)
    #: The groups whose claims took too long.
    late: set[str] = field(default_factory=set)
    #: The groups that wait for other claims than before.
    changed: set[str] = field(default_factory=set)


class ClaimBinding:
    """Starts and ends the waits; `_looks` has the waiting members until `due` ends their wait."""

    def __init__(self, members: MemberStore, cluster: Cluster, registry: Registry) -> None:
        self.counts = ClaimCounts()
        self._members = members
        self._cluster = cluster
        self._looks = ClaimLooks()
        self._registry = registry
        self._starts = Starts(registry, cluster)
        members.when_gone(self._looks.mark)

        #: Gangs with a wait that began, ended or became ready, or that changed, since their start
        #: was last decided.
        self._news: dict[str, None] = {}

    def order(
        self,
        member: Member,
        permit: PermitStamp | None,
        now_s: float,
        *,
        is_alone: bool = False,
    ) -> Bind | BindClaims | None:
        """The action for a member that starts to bind or to wait; None if it only waits.

        `permit` is the stamp of its bind. A member whose bind is retried does not wait for other
        members, because its gang has started.
        """
        # The committer chose this path: none of the member's claims has to be bound first, and its
        # start waits for nobody's.
        if member.state is State.BINDING:
            member.permit = permit
            member.is_proven = permit is not None
            return _bind(member)

        prepared = _prepared(member)
        self.counts.submitted += bool(prepared)
        names = frozenset(
            name for selection in prepared for name in (selection.key, selection.volume) if name
        )
        self._looks.begin(member, names, follows=follows(member))
        self._news[member.gang] = None
        storage = self._cluster.storage_cache
        writes: list[Selection] = []

        wait = member.wait = ClaimsWait(permit=permit, is_alone=is_alone, began_s=now_s)
        for selection in prepared:
            # An allocation is always written: it has the devices of this plan, whatever an earlier
            # try wrote.
            claim = None if selection.allocation is not None else storage.claim(selection.key)
            if selection.node and claim is not None and _is_asked(claim, selection):
                wait.versions[selection.key] = claim.resource_version  # an earlier try asked for it
            elif selection.node or selection.volume or selection.allocation is not None:
                writes.append(selection)

        # Only waits for others: followers of a shared claim, or members whose claims an earlier try
        # has asked for.
        if not writes:
            self._look_from(member, wait, now_s)
            return None

        pod = member.pod
        volumes = storage.volumes

        # Whoever reserved a volume for the claim before, such as an administrator, wants that to
        # outlast the claim.
        free = frozenset(
            name
            for selection in writes
            if (name := selection.volume) and _is_free(volumes.get(name))
        )
        return BindClaims(pod.uid, pod.namespace, pod.name, member.node, tuple(writes), free)

    def written(self, outcome: ClaimsWritten, now_s: float) -> None:
        """Record that a member's claims were written; it then waits until they are bound."""
        member = self._members.get(outcome.uid)
        if member is None:
            return

        self._members.change(member, Change.CLAIMS_WRITTEN)
        if member.wait is not None:
            member.wait.versions.update(outcome.versions)
            self._look_from(member, member.wait, now_s)
            # The API server checks no two claims for the same device, so both writes succeed, and
            # only a look after the other scheduler's write can tell.
            if self._cluster.storage_cache.has_rivals and any(
                selection.allocation for selection in member.selections
            ):
                member.wait.settles_s = now_s + SETTLE_S
                self._looks.look_at(outcome.uid, member.wait.settles_s)

            self._news[member.gang] = None
            # From now on it may give up its room (V6).
            self._registry.touch(member.gang)

    def _look_from(self, member: Member, wait: ClaimsWait, now_s: float) -> None:
        """Nothing more is to be written for a member: its claims are looked at from now on."""
        wait.deadline_s = now_s + TIMEOUT_S
        self._looks.mark(member.pod.uid)
        self._looks.look_at(member.pod.uid, wait.deadline_s)

    def failed(self, uid: str) -> None:
        """Record a failed bind. A bind that was not sent yet has failed because its claims could
        not be written.
        """
        if self._end(uid):
            self.counts.failed += 1

    def _end(self, uid: str) -> bool:
        """End the wait of a pod, if it waits, which is news for its gang."""
        if uid not in self._looks.members:
            return False

        self._news[self._looks.gang_of(uid)] = None
        self._looks.end(uid)
        return True

    def due(self, now_s: float) -> Due:
        """Request the binds of members whose claims are all bound, and end the waits
        that failed.
        """
        due = Due()
        failed: dict[str, str] = {}
        changed = self._cluster.storage_cache.take_changed()
        for uid in self._members.take_ended_waits():
            self._looks.mark(uid)

        for member in self._looks.take(changed, self._cluster.nodes, now_s):
            self._look(member, due, failed, now_s)

        if self._news:
            gangs = self._starts.together(self._news)
            self._news = {}
            self._decide(due, gangs, failed, now_s)

        return due

    def changed(self, gangs: Iterable[str]) -> None:
        """The group of these gangs was read again: its minimum may be another one."""
        for gang in gangs:
            if self._looks.any_of(gang):
                self._news[gang] = None

    def _look(
        self,
        member: Member,
        due: Due,
        failed: dict[str, str],
        now_s: float,
    ) -> None:
        """Look at the claims of a waiting member."""
        uid = member.pod.uid
        wait = member.wait
        # Another transition ended the wait (`MemberStore._become`), such as the watch showing the
        # pod on a node or deleted.
        if wait is None:
            self._end(uid)
            self.counts.gone += 1
            due.ended.append(
                BindGone(uid, "", "the pod was deleted while it waited for its volumes")
            )
            return
        if self._members.get(uid) is not member:  # it began again, knowing nothing of a wait (I10)
            self._end(uid)
            return
        # While a write is under way it is left alone: the wait ends with the answer, which says
        # what exists.
        if not wait.is_written:
            return

        was_ready = wait.is_ready
        unbound = wait.unbound
        try:
            self._look_at_claims(member, wait, now_s)
        except ClaimsRefused as refusal:
            failed[uid] = str(refusal)

        if wait.unbound != unbound:
            due.changed.add(self._starts.group_of(member))

        if uid in failed or wait.is_ready is not was_ready or is_late(member, now_s):
            self._news[member.gang] = None

        self._looks.look_at(uid, wait.settles_s or wait.deadline_s)

    def next_deadline_s(self) -> float:
        """Time at which `due` must be called even without a message."""
        # At once: a change that came after the last `due` of a turn must not wait for the next
        # message.
        if self._news and self._looks.members:
            return -math.inf

        return self._looks.next_s()

    def give_up(self, members: Iterable[Member]) -> list[ReleaseClaims]:
        """Deallocate claims that are used only by members of `members` without a node, so that
        other pods can use the devices, and ask for no volume on a node that is gone.

        Such requests and allocations are left from a start that failed or was interrupted, or were
        made by another scheduler.
        """
        waiting = [*members]
        if not any(member.pod.claims for member in waiting):
            return []

        storage = self._cluster.storage_cache
        orders = [_release(member, claims) for member, claims in idle(waiting, storage)]

        # Before the write is sent: a plan that starts meanwhile would take the old allocation for
        # the claim's.
        storage.releasing(selection.key for order in orders for selection in order.claims)
        return orders + self._forsaken(waiting)

    def _forsaken(self, members: Iterable[Member]) -> list[ReleaseClaims]:
        """Take back requests for volumes on nodes that are gone: nobody else does, as long as the
        provisioner waits for the node.
        """
        nodes = self._cluster.nodes
        orders: list[ReleaseClaims] = []
        seen: set[str] = set()

        for member in members:
            if member.node or member.state not in WAITS:
                continue

            claims: list[Selection] = []
            for claim in self._cluster.storage_cache.requested_by(member):
                if claim.key in seen or claim.selected_node in nodes:
                    continue

                seen.add(claim.key)
                claims.append(
                    Selection(
                        namespace=claim.namespace,
                        name=claim.name,
                        uid=claim.uid,
                        resource_version=claim.resource_version,
                        node=claim.selected_node or "",
                    )
                )

            if claims:
                orders.append(_release(member, claims))

        return orders

    def give_way(self, members: Iterable[Member]) -> list[ReleaseClaims]:
        """End the waits of these members, whose room a group of higher priority takes; return what
        is taken back of their claims. Members that do not wait for claims are left alone.
        """
        orders: list[ReleaseClaims] = []
        for member in members:
            if member.state is not State.WAITING_FOR_CLAIMS:
                continue

            # Before its state changes: with that, the versions of our writes are gone.
            if (order := self._withdraw(member)) is not None:
                orders.append(order)

            orders += self._deallocate(member)
            self._end(member.pod.uid)
            self._members.change(member, Change.RELEASE)

        return orders

    def waiting(self) -> Mapping[str, Member]:
        """Members whose wait `due` has not ended yet, by uid."""
        return self._looks.members

    def _decide(
        self,
        due: Due,
        gangs: Iterable[str],
        failed: dict[str, str],
        now_s: float,
    ) -> None:
        """Carry out what is decided of the waits of these gangs; those of one start end
        together.
        """
        decision = self._starts.decide(self._looks.of_gangs(gangs), failed, now_s)
        for member in decision.sent:
            self.counts.bound += bool(_prepared(member))
            permit = member.wait.permit if member.wait is not None else None

            # Sending ends the wait, and the stamp with it: it is read before and set again after.
            self._members.change(member, Change.SEND_BIND)
            member.permit = permit
            member.is_proven = permit is not None
            due.binds.append(_bind(member))
            self._looks.end(member.pod.uid)

        for reasons in decision.ended:
            members = [self._looks.members[uid] for uid in reasons]
            for uid in reasons:
                self._looks.end(uid)

            withdrawn: list[ReleaseClaims] = []

            if any(is_late(member, now_s) for member in members):
                # Their next try comes after 30 s and more, while other failures are tried again
                # within 10 s (B7).
                due.late |= {self._starts.group_of(member) for member in members}
                withdrawn = [
                    order for member in members if (order := self._withdraw(member)) is not None
                ]

            # Claims of another namespace are not for this one to know (I4).
            namespaces = {member.pod.namespace for member in members}
            aftermath = {}

            for namespace in namespaces:
                aftermath[namespace] = self._aftermath(members, withdrawn, namespace)

            for member, reason in zip(members, reasons.values(), strict=True):
                self.counts.failed += bool(_prepared(member))
                what = (
                    "allocating devices"
                    if any(map(_is_for_devices, member.selections))
                    else "binding volumes"
                )
                due.ended.append(
                    BindFailed(
                        member.pod.uid,
                        member.node,
                        f"{what}: {reason}{aftermath[member.pod.namespace]}",
                    )
                )

            due.withdrawn += withdrawn + [
                release_claims for member in members for release_claims in self._deallocate(member)
            ]

    def _withdraw(self, member: Member) -> ReleaseClaims | None:
        """Take back the request for volumes that have not been made, so that the next plan may
        choose other nodes.
        """
        claims: list[Selection] = []
        for selection in _prepared(member):
            claim = self._cluster.storage_cache.claim(selection.key)
            # With the version that was read: a provisioner that has made the volume meanwhile wins,
            # and its volume stays.
            if (
                selection.node
                and claim is not None
                and not claim.volume_name
                and _is_asked(claim, selection)
            ):
                claims.append(
                    msgspec.structs.replace(selection, resource_version=claim.resource_version)
                )

        return _release(member, claims) if claims else None

    def _deallocate(self, member: Member) -> list[ReleaseClaims]:
        """Free the devices that were allocated to a member."""
        versions = member.wait.versions if member.wait is not None else {}
        # Without a version of ours the allocation never reached the API server, and what stands
        # there is somebody else's.
        claims = [
            msgspec.structs.replace(selection, resource_version=versions[selection.key])
            for selection in member.selections
            if selection.allocation is not None and selection.key in versions
        ]

        # As in `give_up`: no plan may use the claim between this order and its answer.
        self._cluster.storage_cache.releasing(selection.key for selection in claims)
        return [_release(member, claims)] if claims else []

    def _aftermath(
        self,
        members: list[Member],
        withdrawn: list[ReleaseClaims],
        namespace: str,
    ) -> str:
        """The sentences about the claims that these members have in a namespace: volumes that exist
        stay with their owner.
        """
        storage = self._cluster.storage_cache
        own = [member for member in members if member.pod.namespace == namespace]
        keys = {selection.key for member in own for selection in _prepared(member)}
        made = sorted(
            key for key in keys if (claim := storage.claim(key)) is not None and claim.bound
        )
        is_start = made and len(members) > 1
        text = (
            f". The volumes provisioned for {named(made)} stay until these claims are deleted"
            if is_start
            else ""
        )

        asked = sorted(
            {
                selection.key
                for order in withdrawn
                if order.namespace == namespace
                for selection in order.claims
            }
        )
        if asked:
            return f"{text}. The request for {named(asked)} is withdrawn"

        return text

    def _look_at_claims(self, member: Member, wait: ClaimsWait, now_s: float) -> None:
        """Whether all claims of a member are bound. Raises ClaimsRefused if that is impossible or
        too late.
        """
        if member.node not in self._cluster.nodes:
            raise ClaimsRefused(f'node "{member.node}" is gone')
        if now_s < wait.settles_s:
            return

        # Others may have written meanwhile.
        wait.settles_s = 0.0
        unbound = [
            selection
            for selection in _prepared(member)
            if not self._is_bound(selection, member, wait)
        ]

        wait.is_ready = not unbound
        wait.unbound = tuple(selection.key for selection in unbound)
        if unbound and now_s >= wait.deadline_s:
            raise ClaimsRefused(f"claim {unbound[0].key} was not bound within {TIMEOUT_S:g} s")

    def _is_bound(self, selection: Selection, member: Member, wait: ClaimsWait) -> bool:
        """Whether a claim is bound and its volume can be used on the member's node. Raises
        ClaimsRefused if that cannot be.
        """
        node = member.node
        if selection.allocation is not None:
            return has_devices(selection, member, wait, self._cluster.storage_cache)
        if selection.follows:
            return is_allocated(selection, self._looks.members, self._cluster.storage_cache)

        claim = self._cluster.storage_cache.claim(selection.key)
        volumes = self._cluster.storage_cache.volumes

        if claim is None or claim.uid != selection.uid:
            raise ClaimsRefused(f'persistentvolumeclaim "{selection.name}" not found')
        if claim.deleting:
            raise ClaimsRefused(f'persistentvolumeclaim "{selection.name}" is being deleted')

        if claim.bound:
            volume = volumes.get(claim.volume_name)
            if volume is not None and not _reaches(volume, self._cluster.nodes[node].labels):
                raise ClaimsRefused(
                    f'pv "{volume.name}" node affinity doesn\'t match node "{node}"'
                )

            return volume is not None  # else word of it has not come yet

        # A watch that is behind shows the claim as it was before our write, without the node: that
        # is no refusal.
        is_news = not is_older(claim.resource_version, wait.versions.get(claim.key))
        if selection.node and is_news and claim.selected_node != selection.node:
            raise ClaimsRefused(
                f'provisioning failed for PVC "{claim.name}"'
            )  # which the provisioner says by taking it away

        if selection.volume:
            _look_at_given(selection, claim, volumes.get(selection.volume), wait)

        return False


def _look_at_given(
    selection: Selection,
    claim: Claim,
    volume: Volume | None,
    wait: ClaimsWait,
) -> None:
    """Raises ClaimsRefused if the volume that was given to a claim is no longer the claim's."""
    if volume is None:
        raise ClaimsRefused(f'pv "{selection.volume}" is gone')

    is_news = not is_older(volume.resource_version, wait.versions.get(volume.name))
    if is_news and (volume.claim is None or volume.claim.uid != claim.uid):
        raise ClaimsRefused(f'ClaimRef got reset for pv "{volume.name}"')


def waits(selections: tuple[Selection, ...]) -> bool:
    """Whether a member with these selections waits before its bind; ResourceClaims that have
    devices need no wait.
    """
    return any(selection.waits for selection in selections)


def _prepared(member: Member) -> list[Selection]:
    return [selection for selection in member.selections if selection.waits]


def _is_for_devices(selection: Selection) -> bool:
    return selection.allocation is not None or selection.follows


def _bind(member: Member) -> Bind:
    pod = member.pod
    devices = tuple(selection for selection in member.selections if reserves(selection))
    return Bind(pod.uid, pod.namespace, pod.name, member.node, devices, member.permit)


def _release(member: Member, claims: Iterable[Selection]) -> ReleaseClaims:
    pod = member.pod
    return ReleaseClaims(pod.uid, pod.namespace, pod.name, member.node, tuple(claims))


def _is_asked(claim: Claim, selection: Selection) -> bool:
    """Whether a volume for the node has been requested."""
    return claim.uid == selection.uid and claim.selected_node == selection.node


def _is_free(volume: Volume | None) -> bool:
    """Whether a volume is not reserved for any claim."""
    return volume is None or volume.claim is None


def _reaches(volume: Volume, labels: Mapping[str, str]) -> bool:
    """Whether the volume's node affinity lets a node with these labels use it."""
    if volume.required is None:
        return True

    return any(bool(term.labels) and selects(term.labels, labels) for term in volume.required)
