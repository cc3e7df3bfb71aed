"""Orders of an administrator to a running scheduler, such as to pause it."""

from __future__ import annotations

import msgspec


class Orders(msgspec.Struct, frozen=True):
    """What an administrator ordered. Each text is the reason that they gave, "" without an order.

    `paused`: no decisions are made. `no_preemption`: no pod is evicted. `set_aside` has ids of
    gangs that are not scheduled, `unreserved` ids of gangs for which no capacity is reserved.
    """

    paused: str = ""
    no_preemption: str = ""
    set_aside: frozenset[str] = frozenset()
    unreserved: frozenset[str] = frozenset()


NO_ORDERS = Orders()
