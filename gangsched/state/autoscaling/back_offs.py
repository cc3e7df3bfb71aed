"""When a gang, or a namespace, may ask an autoscaler again after requests that brought no start
(semantics E10).

Invariant: what is known here outlives a gang, so that one which is changed, or created again, for
each request does not ask without end. It is forgotten once it can delay nothing any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from gangsched.state.autoscaling.node_request import RequestStep
from gangsched.state.timers import Timers

RETRY_S: Final = 60.0
LONGEST_RETRY_S: Final = 1_800.0
MOST_IN_VAIN: Final = 100
"""Requests of one namespace that may end within `IN_VAIN_S` without a start of their gang."""
IN_VAIN_S: Final = 3_600.0


@dataclass(slots=True)
class BackOff:
    """Of one gang. Times are monotonic seconds."""

    until_s: float
    #: How long the next request that brings no start delays the one after it.
    wait_s: float
    #: How it waits, and why.
    step: RequestStep
    why: str = ""


def _ends() -> deque[float]:
    # A full one has the oldest end first: it says when there are fewer again.
    return deque(maxlen=MOST_IN_VAIN)


@dataclass(slots=True)
class BackOffs:
    """Back-offs by group id, and by namespace when requests ended in vain."""

    _of_gang: dict[str, BackOff] = field(default_factory=dict)
    _ended_s: dict[str, deque[float]] = field(default_factory=dict)
    _forgotten: Timers = field(default_factory=Timers)

    def of_gang(self, group_id: str, now_s: float) -> BackOff | None:
        """The back-off of a gang that has not passed yet."""
        back_off = self._of_gang.get(group_id)
        if back_off is None or back_off.until_s <= now_s:
            return None

        return back_off

    def of_namespaces(self, namespaces: Iterable[str], now_s: float) -> float:
        """When a gang of these namespaces may ask, as far as their other gangs let it."""
        until_s = now_s
        for namespace in namespaces:
            ended_s = self._ended_s.get(namespace)
            if ended_s is not None and len(ended_s) == MOST_IN_VAIN:
                until_s = max(until_s, ended_s[0] + IN_VAIN_S)

        return until_s

    def failed(
        self,
        group_id: str,
        namespaces: Iterable[str],
        why: str,
        now_s: float,
    ) -> BackOff:
        """A request ended without a start: the next one waits, twice as long each time."""
        before = self._of_gang.get(group_id)
        wait_s = before.wait_s if before is not None else RETRY_S
        longer_s = min(2 * wait_s, LONGEST_RETRY_S)
        back_off = BackOff(now_s + wait_s, longer_s, RequestStep.RETRYING, why)

        self._remember(group_id, back_off)
        self._end(namespaces, now_s)
        return back_off

    def changed(self, group_id: str, namespaces: Iterable[str], now_s: float) -> None:
        """A request was withdrawn since its gang asks for something else, or is gone: the first
        time without a delay.
        """
        if group_id in self._of_gang:
            self.failed(group_id, namespaces, "the gang has changed again", now_s)
            return

        back_off = BackOff(now_s, RETRY_S, RequestStep.RETRYING)
        self._remember(group_id, back_off)
        self._end(namespaces, now_s)

    def rest(
        self,
        group_id: str,
        namespaces: Iterable[str],
        why: str,
        until_s: float,
        now_s: float,
    ) -> BackOff:
        """A request brought nothing, and the gang asks as any other pod until then."""
        before = self._of_gang.get(group_id)
        wait_s = before.wait_s if before is not None else RETRY_S
        back_off = BackOff(until_s, wait_s, RequestStep.RESTING, why)

        self._remember(group_id, back_off)
        self._end(namespaces, now_s)
        return back_off

    def started(self, group_id: str) -> None:
        """A gang has started."""
        self._of_gang.pop(group_id, None)

    def forget(self, now_s: float) -> None:
        """Forget what delays nothing any more."""
        for key in self._forgotten.take_due(now_s):
            back_off = self._of_gang.get(key)
            if back_off is not None and back_off.until_s + LONGEST_RETRY_S <= now_s:
                del self._of_gang[key]

            ended_s = self._ended_s.get(key)
            if ended_s is not None and ended_s[-1] + IN_VAIN_S <= now_s:
                del self._ended_s[key]

    def next_s(self) -> float:
        """When `forget` must be called although nothing changes."""
        return self._forgotten.next_s()

    def _remember(self, group_id: str, back_off: BackOff) -> None:
        self._of_gang[group_id] = back_off
        self._forgotten.set(group_id, back_off.until_s + LONGEST_RETRY_S)

    def _end(self, namespaces: Iterable[str], now_s: float) -> None:
        for namespace in namespaces:
            self._ended_s.setdefault(namespace, _ends()).append(now_s)
            # No group has the name of a namespace alone.
            self._forgotten.set(namespace, now_s + IN_VAIN_S)
