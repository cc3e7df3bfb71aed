"""The stamp of a Permit as text: "<min>/<epoch> <uid of the pod>", and after a space the room of members to come as
JSON (semantics B4, B8).

Invariant: no text raises an error; malformed room is read as none.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gangsched.api.later_members import MOST_TO_COME
from gangsched.api.timestamps import format_timestamp, parse_timestamp
from gangsched.model.objects import PermitStamp, PromisedRoom
from gangsched.model.resources import format_quantity, parse_resources

_PERMIT: Final = re.compile(r"([0-9]{1,10})/([0-9]{1,10}) ([^ ]+)(?: (\{.*\}))?")


class _StatedRoom(msgspec.Struct, forbid_unknown_fields=True):
    until: str
    each: dict[str, str]
    nodes: dict[str, int]


_decoder: Final = msgspec.json.Decoder(_StatedRoom)


def parse_permit(text: str, uid: str) -> PermitStamp | None:
    """The stamp, if `text` is one for the pod with this `uid`; None for any other text, such as a stamp copied from
    another pod.
    """
    # Ten digits bound the number: an annotation may hold any digits that a user writes.
    match = _PERMIT.fullmatch(text)
    # The API server draws the uid when it creates a pod, so nobody can create a pod with a stamp of its own: the
    # admission policy need not look at the pods that anybody creates.
    if match is None or match[3] != uid:
        return None
    return PermitStamp(int(match[1]), int(match[2]), None if match[4] is None else _parse_room(match[4]))


def format_permit(stamp: PermitStamp, uid: str) -> str:
    """The text that `parse_permit` reads."""
    text = f"{stamp.min_member}/{stamp.epoch} {uid}"
    if stamp.room is None:
        return text
    until_s, each, places = stamp.room
    asked = {name: format_quantity(name, amount) for name, amount in each}
    room = _StatedRoom(format_timestamp(until_s), asked, dict(places))
    return f"{text} {msgspec.json.encode(room).decode()}"


def _parse_room(text: str) -> PromisedRoom | None:
    try:
        room = _decoder.decode(text)
        each = parse_resources(room.each)
    except (msgspec.DecodeError, ValueError):
        return None
    until_s = parse_timestamp(room.until)
    # More than gangsched ever writes, so it is not ours.
    if until_s is None or len(room.nodes) > MOST_TO_COME:
        return None
    return PromisedRoom(until_s, each, tuple(sorted(room.nodes.items())))
