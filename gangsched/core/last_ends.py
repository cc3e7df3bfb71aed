"""The latest expected end of any pod on each node, used to place pods that end together on the same
node, so that whole nodes become free (semantics H10).

Invariant: this only ranks nodes that earlier rules rank equally, and excludes none. Nothing is
computed before the first group with a known run time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np

from gangsched.model.gang import Group, Placement
from gangsched.model.snapshot import Bools, Floats, NodeTable

PUSH_S = 3_600.0
"""By how much a pod may push back the last end of a node and count as ending with the others."""


class LastEnds:
    """Latest expected ends in a plan at epoch second `wall_s`; `ask` returns that of each node,
    -inf without pods.
    """

    def __init__(
        self,
        ask: Callable[[NodeTable], Floats],
        table: NodeTable,
        wall_s: float,
    ) -> None:
        self._ask = ask
        self._table = table
        self._wall_s = wall_s

    @cached_property
    def _last_s(self) -> Floats:
        """A node that is empty is so from now on."""
        last_s: Floats = np.maximum(self._ask(self._table), self._wall_s)
        return last_s

    def pushed(self, group: Group) -> Bools | None:
        """`pushed[n]`: the group would keep node `n` occupied more than `PUSH_S` longer than its
        current pods; None if the group's run time is unknown.
        """
        run_time_s = group.run_time_s
        if run_time_s == math.inf:
            return None

        pushed: Bools = self._wall_s + run_time_s > self._last_s + PUSH_S
        return pushed

    def take(self, placed: Iterable[Placement], group: Group) -> None:
        """Record the nodes of a placed group, so that later groups take its expected end into
        account.
        """
        # cached_property stores its value there, once somebody has asked.
        if "_last_s" not in self.__dict__:
            # nobody asked; the places of this group are those of a group whose end nobody knows
            return

        nodes = [self._table.index[placement.node] for placement in placed]
        self._last_s[nodes] = np.maximum(self._last_s[nodes], self._wall_s + group.run_time_s)
