"""Reads the orders of an administrator from the annotations of the leader election Lease.

Invariant: any annotations can be read. The Lease is in the scheduler's namespace, so no tenant may
change it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from gangsched.api.keys import NO_RESERVATION, PAUSE, PAUSE_PREEMPTION, SET_ASIDE
from gangsched.model.orders import Orders

LONGEST_REASON: Final = 200
"""In characters: the reason is part of messages to users."""
ORDERS: Final = (PAUSE, PAUSE_PREEMPTION, SET_ASIDE, NO_RESERVATION)
PREFIX: Final = "gangsched.dev/"


def read_orders(annotations: Mapping[str, object]) -> Orders:
    """The orders in these annotations."""
    return Orders(
        paused=_reason(annotations.get(PAUSE)),
        no_preemption=_reason(annotations.get(PAUSE_PREEMPTION)),
        set_aside=_gangs(annotations.get(SET_ASIDE)),
        unreserved=_gangs(annotations.get(NO_RESERVATION)),
    )


def changes(before: Orders, now: Orders) -> list[str]:
    """One sentence for each order that was given or withdrawn."""
    sentences = []
    if before.paused != now.paused:
        sentences.append(
            f"Scheduling is paused: {now.paused} ({PAUSE})."
            if now.paused
            else "Scheduling is resumed."
        )

    if before.no_preemption != now.no_preemption:
        reason = f"Preemption is paused: {now.no_preemption} ({PAUSE_PREEMPTION})."
        sentences.append(reason if now.no_preemption else "Preemption is resumed.")

    given = now.set_aside - before.set_aside
    withdrawn = before.set_aside - now.set_aside
    sentences += [f"Gang {gang} is set aside ({SET_ASIDE})." for gang in sorted(given)]
    sentences += [f"Gang {gang} is no longer set aside." for gang in sorted(withdrawn)]
    given = now.unreserved - before.unreserved
    withdrawn = before.unreserved - now.unreserved
    sentences += [
        f"No capacity is reserved for gang {gang} ({NO_RESERVATION})." for gang in sorted(given)
    ]
    sentences += [f"Capacity may be reserved for gang {gang} again." for gang in sorted(withdrawn)]

    return sentences


def misread(annotations: Mapping[str, object]) -> list[str]:
    """One sentence for each annotation that looks like an order, and is none that can be obeyed."""
    sentences = []
    for key in sorted(annotations):
        if key.startswith(PREFIX) and key not in ORDERS:
            words = [order.removeprefix(PREFIX) for order in ORDERS]
            nearest = difflib.get_close_matches(key.removeprefix(PREFIX), words, n=1)
            meant = f"; did you mean {PREFIX}{nearest[0]}?" if nearest else "."
            sentences.append(f"Annotation {key} is no order{meant}")

    for key in (SET_ASIDE, NO_RESERVATION):
        for gang in sorted(_gangs(annotations.get(key))):
            namespace, _, name = gang.partition("/")
            if not namespace or not name or "/" in name:
                sentences.append(f'"{gang}" ({key}) is not the id of a gang: it is NAMESPACE/NAME.')

    return sentences


def _reason(value: object) -> str:
    """The text of an order. `false` and an empty text are none, as whoever writes them means it."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    if text.lower() == "false":
        return ""

    return text[:LONGEST_REASON]


def _gangs(value: object) -> frozenset[str]:
    """Ids of gangs, separated by commas or spaces."""
    if isinstance(value, str):
        return frozenset(value.replace(",", " ").split())

    return frozenset()
