"""Sentences about gangs of owners (semantics O3, O6, O8)."""

from __future__ import annotations

from gangsched.api import keys
from gangsched.model.owners import TABLE
from gangsched.model.text import counted


def one_by_one(kind: str, key: str) -> str:
    """The owner creates its pods one after the other."""
    return (
        f"{kind} {key} starts its pods one by one (OrderedReady), so they are not a gang:"
        " set podManagementPolicy to Parallel"
    )


def no_minimum(kind: str, key: str) -> str:
    """The owner does not say how many pods start together."""
    return (
        f"{kind} {key} does not say how many of its pods start together, so they are not a gang."
        f" Set {keys.MIN[0]} on its pods, or create a PodGroup"
    )


def unread(kind: str, key: str) -> str:
    """Owners of this kind cannot be read."""
    return (
        f"gangsched cannot read {kind}s, so the pods of {kind} {key} are not a gang: apply"
        f" manifests/{TABLE[kind].manifest}, or set {keys.MIN[0]} on its pods"
    )


def begun(kind: str, key: str) -> str:
    """The owner became known after its first pods had started."""
    return (
        f"{kind} {key} became known after its first pods had started one by one, so they are not a"
        " gang until all of them are gone"
    )


def unknown(kind: str, key: str) -> str:
    """The owner does not exist among those that were read."""
    return (
        f"{kind} {key} is not known, so its pods are not a gang: set {keys.MIN[0]} on its pods,"
        " or create a PodGroup"
    )


def out_of_reach(who: str, stated: int, pods: int) -> str:
    """The owner states a minimum that its pods never reach."""
    return (
        f"minAvailable {stated} of {who} is above the {counted(pods, 'pod')} that it makes"
        f" together. Used instead: {pods}."
    )


def awaited(who: str) -> str:
    """The owner was not read yet."""
    return f"waiting for {who}, which says how many pods start together"


def suspended(who: str) -> str:
    """The owner has no pods until it is resumed."""
    return f"waiting until {who} is resumed"


def without_pods(who: str) -> str:
    """The owner is scaled to nothing."""
    return f"waiting until {who} makes pods: as last read, its size is 0"


def unread_jobs(kind: str, key: str) -> str:
    """Owners of Jobs cannot be read."""
    return (
        f"gangsched cannot read {kind}s, so each Job of {kind} {key} starts by itself: apply"
        f" manifests/{TABLE[kind].manifest}"
    )


def unknown_jobs(kind: str, key: str) -> str:
    """An owner of Jobs does not exist among those that were read."""
    return f"{kind} {key} is not known, so each of its Jobs starts by itself"


def too_many_jobs(kind: str, key: str, jobs: int, most: int) -> str:
    """More Jobs would start together than a tree may have."""
    return (
        f"{kind} {key} has {jobs} Jobs, and at most {most} start together, so each of them starts"
        " by itself: use fewer Jobs with more pods"
    )


def awaited_jobs(kind: str, key: str) -> str:
    """The owner of a Job was not read yet."""
    return f"waiting for {kind} {key}, which says how many Jobs start together"
