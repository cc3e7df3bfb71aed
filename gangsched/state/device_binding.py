"""Allocations of ResourceClaims, for `claim_binding`: whether the watch shows them, and which are
idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gangsched.model.devices import MadeClaim
from gangsched.model.storage import GroupConsumer, ResourceClaim, Selection
from gangsched.state.member_store import WAITS
from gangsched.state.members import ClaimsWait, Member
from gangsched.state.storage_cache import StorageCache, is_older


class ClaimsRefused(Exception):  # noqa: N818  (a refusal is no error of ours)
    """The claims of a member cannot be bound as decided; `str()` is the reason."""


def has_devices(
    selection: Selection,
    member: Member,
    wait: ClaimsWait,
    storage: StorageCache,
) -> bool:
    """Whether the watch shows the devices that gangsched wrote to the claims. Raises ClaimsRefused
    if another claim has one of these devices as well.
    """
    allocation = selection.allocation
    assert allocation is not None
    assert storage.allocator is not None

    is_created = selection.makes is not None and not selection.uid
    # A claim that somebody deleted is never shown again: waiting for it would last until the
    # deadline.
    if (
        is_created
        and storage.resource_claim(selection.key) is None
        and not storage.was_deleted(selection.key)
    ):
        return False  # the watch does not show yet that it was created

    claim = _existing(selection, storage, owner=member.pod.uid if is_created else "")
    if is_older(claim.resource_version, wait.versions.get(selection.key)):
        return False

    results = claim.asks.results if claim.asks is not None else None
    if results is None or {result.id for result in results} != {
        result.id for result in allocation.results
    }:
        raise ClaimsRefused(f'resourceclaim "{selection.name}" has been changed by another client')
    if rival := storage.allocator.rival(selection.key, results):
        raise ClaimsRefused(rival)

    return True


def _existing(selection: Selection, storage: StorageCache, *, owner: str = "") -> ResourceClaim:
    """The claim of a decision, created for the pod `owner` if one is given. Raises ClaimsRefused if
    the claim, or the PodGroup it is reserved for, is gone.
    """
    claim = storage.resource_claim(selection.key)
    if claim is None or (claim.owner_uid != owner if owner else claim.uid != selection.uid):
        raise ClaimsRefused(f'resourceclaim "{selection.name}" not found')
    if claim.deleting:
        raise ClaimsRefused(f'resourceclaim "{selection.name}" is being deleted')
    # controller-manager deallocates what is reserved for a PodGroup that is gone, under the feet of
    # running pods.
    if (group := selection.consumer) is not None and not storage.groups.is_current(
        selection.namespace,
        group,
    ):
        raise ClaimsRefused(f'PodGroup "{group.name}" is gone')

    return claim


def reserves(selection: Selection) -> bool:
    """Whether the consumer must be added to a claim before the bind; a PodGroup is added with the
    allocation.
    """
    return (
        selection.reserve
        and selection.allocation is None
        and not (selection.follows and selection.consumer is not None)
    )


def follows(member: Member) -> bool:
    """Whether one of the member's claims is allocated for another pod, so that the member waits for
    that allocation.
    """
    return any(selection.follows for selection in member.selections)


def is_allocated(
    selection: Selection,
    waiting: Mapping[str, Member],
    storage: StorageCache,
) -> bool:
    """Whether a claim that is allocated for another pod has its devices on the chosen node, and has
    passed that pod's check for rival claims. Raises ClaimsRefused if it will no longer be allocated
    there.
    """
    claim = _existing(selection, storage)
    # Our write is under way or not shown yet, so that what the cache has of the claim is the state
    # before it.
    if storage.is_outdated(selection.key):
        return False

    owners = storage.chosen_for(selection.key)
    if not claim.allocated:
        # Nobody's decision has this claim any more: the pod that was to have it allocated failed or
        # is gone.
        if not owners:
            raise ClaimsRefused(f'resourceclaim "{selection.name}" was not allocated')

        return False

    # Another allocation reaches other nodes than the one that this pod was placed for.
    if claim.required != selection.required:
        raise ClaimsRefused(f'resourceclaim "{selection.name}" has been allocated elsewhere')

    waits = (member.wait for uid in owners if (member := waiting.get(uid)) is not None)
    # The owner's look for rivals covers its followers; before it is over, they could start on
    # devices of two pods.
    return all(wait is not None and wait.is_ready for wait in waits)


def idle(
    members: Iterable[Member],
    storage: StorageCache,
) -> Iterator[tuple[Member, list[Selection]]]:
    """By member, the allocated claims that are used only by members of `members` without a node,
    and claims created for these members.

    Such claims are left from a start that failed or was interrupted, or were allocated for a pod
    that is gone.
    """
    if storage.allocator is None:
        return

    # A pod with a node may be running, or be about to: its devices are never taken, whatever else
    # names the claim.
    waiting = {
        member.pod.uid: member for member in members if not member.node and member.state in WAITS
    }
    freed: set[str] = set()  # a claim that thousands share is freed once

    for member in waiting.values():
        pod = member.pod
        uses = (
            (storage.resource_claim(use.key(pod.namespace)), use)
            for use in pod.claims
            if use.device
        )
        claims = (
            (claim, use, storage.groups.consumer(pod, use))
            for claim, use in uses
            if claim is not None
        )
        found = [
            _as_it_is(claim, consumer, created=use.extended)
            for claim, use, consumer in claims
            # A created claim is deleted whether it has devices or not; one of the same name that is
            # not ours is left.
            if (claim.owner_uid == pod.uid if use.extended else claim.allocated)
            if not claim.deleting and claim.key not in freed and not storage.is_outdated(claim.key)
            # A PodGroup uses its claim as long as one of its pods does.
            if waiting.keys()
            >= _consumers(claim, consumer) | storage.users().get(claim.key, {}).keys()
        ]
        freed.update(selection.key for selection in found)

        if found:
            yield member, found


def _consumers(claim: ResourceClaim, group: GroupConsumer | None) -> set[str]:
    """The uids of the claim's consumers, without the PodGroup."""
    return {*claim.reserved} - ({group.uid} if group is not None else set())


def _as_it_is(claim: ResourceClaim, consumer: GroupConsumer | None, *, created: bool) -> Selection:
    return Selection(
        namespace=claim.namespace,
        name=claim.name,
        uid=claim.uid,
        resource_version=claim.resource_version,
        reserve=True,
        consumer=consumer,
        makes=MadeClaim() if created else None,
    )
