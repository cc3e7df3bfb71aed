"""The stamp of a Permit as text: "<min>/<epoch> <uid of the pod>", and after a space what the
Permit promised, as JSON: the room of members to come, and what starts together (semantics B4, B8).

Invariant: no text raises an error; a malformed promise is read as none.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Final, TypeAlias

import msgspec

from gangsched.api.later_members import MOST_TO_COME
from gangsched.api.timestamps import format_timestamp, parse_timestamp
from gangsched.model.objects import JointStart, PermitStamp, PromisedRoom
from gangsched.model.resources import format_quantity, parse_resources

_PERMIT: Final = re.compile(r"([0-9]{1,10})/([0-9]{1,10}) ([^ ]+)(?: (\{.*\}))?")


_LONGEST_KEPT: Final = 100
"""Longest text of promises that is kept, which has room for what starts together and no nodes:
users may write 256 KiB.
"""
_Promises: TypeAlias = tuple[PromisedRoom | None, JointStart | None]


class _Together(msgspec.Struct, forbid_unknown_fields=True):
    members: Annotated[int, msgspec.Meta(ge=0, lt=10**10)]
    youngest: str


class _Promise(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    until: str = ""
    each: dict[str, str] = {}
    nodes: dict[str, int] = {}
    together: _Together | None = None


_decoder: Final = msgspec.json.Decoder(_Promise)


def parse_permit(text: str, uid: str) -> PermitStamp | None:
    """The stamp, if `text` is one for the pod with this `uid`; None for any other text, such as a
    stamp copied from another pod.
    """
    # Ten digits bound the number: an annotation may hold any digits that a user writes.
    match = _PERMIT.fullmatch(text)
    # The API server draws the uid when it creates a pod, so nobody can create a pod with a stamp of
    # its own: the admission policy need not look at the pods that anybody creates.
    if match is None or match[3] != uid:
        return None

    min_member = int(match[1])
    epoch = int(match[2])
    stated = match[4]
    if stated is None:
        return PermitStamp(min_member, epoch)

    # All members of a gang have the same text, which is read again whenever one of them changes.
    promises = _again if len(stated) <= _LONGEST_KEPT else _promises
    room, together = promises(stated)

    return PermitStamp(min_member, epoch, room, together)


def _promises(text: str) -> _Promises:
    try:
        promise = _decoder.decode(text)
    except (msgspec.DecodeError, ValueError):
        return None, None

    return _room(promise), _joint_start(promise.together)


_again: Final = lru_cache(maxsize=1_000)(_promises)


def format_permit(stamp: PermitStamp, uid: str) -> str:
    """The text that `parse_permit` reads."""
    text = f"{stamp.min_member}/{stamp.epoch} {uid}"
    if stamp.room is None and stamp.together is None:
        return text

    return f"{text} {_format_promises(stamp.room, stamp.together)}"


# All binds of a start promise the same; a few starts are sent at a time.
@lru_cache(maxsize=16)
def _format_promises(room: PromisedRoom | None, together: JointStart | None) -> str:
    promise = _Promise()
    if room is not None:
        until_s, of_each, places = room
        promise.until = format_timestamp(until_s)
        promise.each = {name: format_quantity(name, amount) for name, amount in of_each}
        promise.nodes = dict(places)

    if together is not None:
        members, youngest_s = together
        promise.together = _Together(members, format_timestamp(youngest_s))

    return msgspec.json.encode(promise).decode()


def _joint_start(stated: _Together | None) -> JointStart | None:
    youngest_s = parse_timestamp(stated.youngest) if stated is not None else None
    if stated is not None and youngest_s is not None:
        return JointStart(stated.members, youngest_s)

    return None


def _room(promise: _Promise) -> PromisedRoom | None:
    try:
        of_each = parse_resources(promise.each)
    except ValueError:
        return None

    until_s = parse_timestamp(promise.until)
    # More than gangsched ever writes, so it is not ours.
    if until_s is None or len(promise.nodes) > MOST_TO_COME:
        return None

    return PromisedRoom(until_s, of_each, tuple(sorted(promise.nodes.items())))
