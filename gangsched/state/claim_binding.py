"""Claim binding: members that Permit let through and whose claims must be bound first (kube-scheduler's PreBind).

Law: such a member waits in the state `waiting for claims`, with its room. Its claims are written once, by the shell;
from then on only what the API server shows of claims, volumes and nodes counts. It ends in the bind being sent, in a
failed bind with the reason in kube-scheduler's words, or with the pod. What was written is never undone: the next plan
finds it. Which claim gets which volume, or which node, was decided before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gangsched.model.inter_pod import selects
from gangsched.model.protocol import Bind, BindClaims, BindFailed, BindGone, ClaimsWritten, Outcome
from gangsched.model.storage import Claim, Selection, Volume
from gangsched.state.cluster import Cluster
from gangsched.state.member_store import MemberStore
from gangsched.state.members import Change, ClaimsWait, Member, State

TIMEOUT_S = 600.0
"""How long claims may take to be bound; kube-scheduler's bindTimeoutSeconds is the same."""


class Refused(Exception):  # noqa: N818  (a refusal is no error of ours)
    """The claims of a member cannot be bound as decided; `str()` is the reason."""


@dataclass(slots=True)
class ClaimCounts:
    """What happened so far, for metrics."""

    submitted: int = 0
    bound: int = 0
    failed: int = 0
    gone: int = 0


class ClaimBinding:
    """Begins and ends the waits. `_waiting` are the members that have begun one, until `due` sees that it is over."""

    def __init__(self, members: MemberStore, cluster: Cluster, *, timeout_s: float = TIMEOUT_S) -> None:
        self.counts = ClaimCounts()
        self._members = members
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._waiting: dict[str, Member] = {}

    def order(self, member: Member, now_s: float) -> Bind | BindClaims | None:
        """The action for a member that begins to bind or to wait; None if it only waits."""
        if member.state is State.BINDING:
            return _bind(member)
        self.counts.submitted += 1
        self._waiting[member.pod.uid] = member
        storage = self._cluster.storage_cache
        writes: list[Selection] = []
        wait = member.wait = ClaimsWait()
        for selection in _of_volumes(member):
            claim = storage.claim(selection.key)
            if selection.node and claim is not None and _is_asked(claim, selection):
                wait.versions[selection.key] = claim.resource_version  # an earlier try asked for it
            elif selection.node or selection.volume:
                writes.append(selection)
        if not writes:
            wait.deadline_s, wait.is_stale = now_s + self._timeout_s, True
            return None
        pod, volumes = member.pod, storage.volumes
        free = frozenset(name for each in writes if (name := each.volume) and _is_free(volumes.get(name)))
        return BindClaims(pod.uid, pod.namespace, pod.name, member.node, tuple(writes), free)

    def written(self, outcome: ClaimsWritten, now_s: float) -> None:
        """The claims of a member are written; from now on it waits for them to be bound."""
        member = self._members.get(outcome.uid)
        if member is None:
            return
        self._members.change(member, Change.CLAIMS_WRITTEN)
        if member.wait is not None:
            member.wait.versions.update(outcome.versions)
            member.wait.deadline_s, member.wait.is_stale = now_s + self._timeout_s, True

    def failed(self, uid: str) -> None:
        """A bind failed; if it was still to be sent, the claims could not be written."""
        self.counts.failed += self._waiting.pop(uid, None) is not None

    def due(self, now_s: float) -> tuple[list[Bind], list[Outcome]]:
        """The binds of members whose claims are all bound, and the outcomes of waits that failed."""
        changed = self._cluster.storage_cache.take_changed()
        binds: list[Bind] = []
        ended: list[Outcome] = []
        for uid, member in list(self._waiting.items()):
            if member.wait is None:
                del self._waiting[uid]
                self.counts.gone += 1
                ended.append(BindGone(uid, "", "the pod was deleted while it waited for its volumes"))
                continue
            if member.wait.deadline_s == math.inf:
                continue  # they are being written
            try:
                is_over = self._is_over(member, member.wait, changed, now_s)
            except Refused as refusal:
                self.counts.failed += 1
                ended.append(BindFailed(uid, member.node, f"binding volumes: {refusal}"))
            else:
                if not is_over:
                    continue
                self.counts.bound += 1
                self._members.change(member, Change.SEND_BIND)
                binds.append(_bind(member))
            del self._waiting[uid]
        return binds, ended

    def next_deadline_s(self) -> float | None:
        """When `due` must be called even if no message comes."""
        waits = (member.wait for member in self._waiting.values())
        return min((wait.deadline_s for wait in waits if wait is not None), default=None)

    def waiting(self) -> Mapping[str, Member]:
        """The members that have begun to wait, by uid; also those whose wait has ended since `due`."""
        return self._waiting

    def _is_over(self, member: Member, wait: ClaimsWait, changed: set[str], now_s: float) -> bool:
        """Whether all claims are bound. Raises Refused if that is impossible or too late."""
        if member.node not in self._cluster.nodes:
            raise Refused(f'node "{member.node}" is gone')
        selections = _of_volumes(member)
        is_concerned = any(each.key in changed or each.volume in changed for each in selections)
        if not (wait.is_stale or is_concerned or now_s >= wait.deadline_s):
            return False
        wait.is_stale = False
        unbound = [each for each in selections if not self._is_bound(each, member.node, wait)]
        if unbound and now_s >= wait.deadline_s:
            raise Refused(f"claim {unbound[0].key} was not bound within {self._timeout_s:g} s")
        return not unbound

    def _is_bound(self, selection: Selection, node: str, wait: ClaimsWait) -> bool:
        """Whether a claim is bound and its volume can be used on the node. Raises Refused if that is impossible."""
        claim, volumes = self._cluster.storage_cache.claim(selection.key), self._cluster.storage_cache.volumes
        if claim is None or claim.uid != selection.uid:
            raise Refused(f'persistentvolumeclaim "{selection.name}" not found')
        if claim.deleting:
            raise Refused(f'persistentvolumeclaim "{selection.name}" is being deleted')
        if claim.bound:
            volume = volumes.get(claim.volume_name)
            if volume is not None and not _reaches(volume, self._cluster.nodes[node].labels):
                raise Refused(f'pv "{volume.name}" node affinity doesn\'t match node "{node}"')
            return volume is not None  # else word of it has not come yet
        is_news = not _older(claim.resource_version, wait.versions.get(claim.key))
        if selection.node and is_news and claim.selected_node != selection.node:
            raise Refused(f'provisioning failed for PVC "{claim.name}"')  # which the provisioner says by taking it away
        if selection.volume:
            _look_at_given(selection, claim, volumes.get(selection.volume), wait)
        return False


def _look_at_given(selection: Selection, claim: Claim, volume: Volume | None, wait: ClaimsWait) -> None:
    """Raises Refused if the volume that was given to a claim is no longer the claim's."""
    if volume is None:
        raise Refused(f'pv "{selection.volume}" is gone')
    is_news = not _older(volume.resource_version, wait.versions.get(volume.name))
    if is_news and (volume.claim is None or volume.claim.uid != claim.uid):
        raise Refused(f'ClaimRef got reset for pv "{volume.name}"')


def waits(selections: tuple[Selection, ...]) -> bool:
    """Whether a member with these must wait before its bind is sent; ResourceClaims need no waiting."""
    return bool(selections) and not all(each.reserve for each in selections)


def _of_volumes(member: Member) -> list[Selection]:
    return [each for each in member.selections if not each.reserve]


def _bind(member: Member) -> Bind:
    pod, devices = member.pod, tuple(each for each in member.selections if each.reserve) if member.selections else ()
    return Bind(pod.uid, pod.namespace, pod.name, member.node, devices, member.permit)


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


def _older(version: str, written: str | None) -> bool:
    """Whether what we see is from before our own write; versions are numbers that grow (KEP-5504)."""
    return written is not None and version.isdigit() and written.isdigit() and int(version) < int(written)
