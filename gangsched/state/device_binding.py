"""Claims that get devices, as `claim_binding` looks at them: whether they have them, and which are idle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gangsched.model.storage import ResourceClaim, Selection
from gangsched.state.member_store import WAITS
from gangsched.state.members import ClaimsWait, Member
from gangsched.state.storage_cache import StorageCache, is_older


class ClaimsRefused(Exception):  # noqa: N818  (a refusal is no error of ours)
    """The claims of a member cannot be bound as decided; `str()` is the reason."""


def has_devices(selection: Selection, wait: ClaimsWait, storage: StorageCache) -> bool:
    """Whether our watch shows the devices that were written. Raises ClaimsRefused if others have them (A17)."""
    claim, allocation = storage.resource_claim(selection.key), selection.allocation
    assert allocation is not None
    assert storage.allocator is not None
    if claim is None or claim.uid != selection.uid:
        raise ClaimsRefused(f'resourceclaim "{selection.name}" not found')
    if claim.deleting:
        raise ClaimsRefused(f'resourceclaim "{selection.name}" is being deleted')
    if is_older(claim.resource_version, wait.versions.get(selection.key)):
        return False
    results = claim.asks.results if claim.asks is not None else None
    if results is None or {each.id for each in results} != {each.id for each in allocation.results}:
        raise ClaimsRefused(f'resourceclaim "{selection.name}" has been changed by somebody else')
    if rival := storage.allocator.rival(selection.key, results, allocation.node):
        raise ClaimsRefused(rival)
    return True


def follows(member: Member) -> bool:
    """Whether the member waits for claims that are allocated for other pods."""
    return any(each.follows for each in member.selections)


def is_allocated(selection: Selection, waiting: Mapping[str, Member], storage: StorageCache) -> bool:
    """Whether a claim that is allocated for another pod has devices where they were chosen, and that pod's look at them
    is over. Raises ClaimsRefused if nobody allocates it there any more.
    """
    claim = storage.resource_claim(selection.key)
    if claim is None or claim.uid != selection.uid:
        raise ClaimsRefused(f'resourceclaim "{selection.name}" not found')
    if claim.deleting:
        raise ClaimsRefused(f'resourceclaim "{selection.name}" is being deleted')
    if storage.is_outdated(selection.key):
        return False
    owners = storage.chosen_for(selection.key)
    if not claim.allocated:
        if not owners:
            raise ClaimsRefused(f'resourceclaim "{selection.name}" was not allocated')
        return False
    if claim.required != selection.required:
        raise ClaimsRefused(f'resourceclaim "{selection.name}" has been allocated elsewhere')
    waits = (member.wait for uid in owners if (member := waiting.get(uid)) is not None)
    return all(wait is not None and wait.is_ready for wait in waits)


def idle(members: Iterable[Member], storage: StorageCache) -> Iterator[tuple[Member, list[Selection]]]:
    """Allocated claims that only these members use, none of whom has a node, by member (A8).

    They are left over from a start that failed or was interrupted, or were allocated by somebody who went.
    """
    if storage.allocator is None:
        return
    waiting = {each.pod.uid: each for each in members if not each.node and each.state in WAITS}
    for member in waiting.values():
        keys = (use.key(member.pod.namespace) for use in member.pod.claims if use.device)
        claims = (claim for key in keys if (claim := storage.resource_claim(key)) is not None)
        found = [
            _as_it_is(each)
            for each in claims
            if each.allocated and not each.deleting and not storage.is_outdated(each.key)
            if waiting.keys() >= {*each.reserved, *storage.users().get(each.key, ())}
        ]
        if found:
            yield member, found


def _as_it_is(claim: ResourceClaim) -> Selection:
    return Selection(
        namespace=claim.namespace, name=claim.name, uid=claim.uid, resource_version=claim.resource_version, reserve=True
    )
