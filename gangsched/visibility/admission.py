"""Admission: rate and concurrency of requests, in total and per user.

Invariant: a user's quota does not depend on other users' requests, and is only a part of the total,
so that no user locks out the others (decision 0044). All service accounts of a namespace count as
one user, since an editor of the namespace can create any number of them.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from typing import NamedTuple

from gangsched.visibility.statuses import RequestRefused

SERVICE_ACCOUNT = "system:serviceaccount:"
# Users can invent names only through impersonation, but a cluster may have more than these.
USERS = 1_000


class RequestRate(NamedTuple):
    """A sustained rate per second, and a burst."""

    per_s: float
    burst: float


ALL = RequestRate(200.0, 200.0)
OF_USER = RequestRate(25.0, 50.0)
DOCUMENTS_OF_USER = RequestRate(20.0, 60.0)
CONNECTED = (256, 32)
READING = (64, 8)
REVIEWING = (16, 2)
WATCHING = (100, 10)
DRAINING = (64, 8)
"""The most at once, of all users and of each: requests of any kind from head to answer, lists,
reviews, watches, and bodies of refused requests that are read on."""


class Bucket:
    """A token bucket."""

    __slots__ = ("_at_s", "_burst", "_left", "_per_s")

    def __init__(self, per_s: float, burst: float, now_s: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._at_s = now_s

    def take(self, now_s: float) -> float:
        """Take a token; return 0, or the seconds until one is available."""
        self._left = min(self._burst, self._left + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        if self._left < 1:
            return (1 - self._left) / self._per_s

        self._left -= 1
        return 0.0


class Buckets:
    """A bucket per user; above `USERS` the least recently used one is dropped."""

    def __init__(self, rate: RequestRate) -> None:
        self._rate = rate
        self.known: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, user: str, now_s: float) -> float:
        """Take a token (see `Bucket.take`)."""
        bucket = self.known.pop(user, None) or Bucket(*self._rate, now_s)
        # pop and insert: the dict stays in the order of use.
        self.known[user] = bucket
        if len(self.known) > USERS:
            self.known.popitem(last=False)

        return bucket.take(now_s)


class Places:
    """Concurrent requests, limited in total and per user."""

    def __init__(self, size: tuple[int, int], what: str) -> None:
        self._most, self._of_user = size
        self._what = what
        self._taken: Counter[str] = Counter()

    @contextmanager
    def place(self, user: str) -> Iterator[None]:
        """Count as one of the concurrent requests inside the context. Raises RequestRefused (429)
        if the limit is reached.
        """
        payer = payer_of(user)
        if self._taken[payer] >= self._of_user or self._taken.total() >= self._most:
            raise RequestRefused(
                429,
                f"Too many {self._what} at once, please try again later.",
                retry_after_s=1,
            )

        self._taken[payer] += 1
        try:
            yield
        finally:
            self._taken[payer] -= 1
            if not self._taken[payer]:
                del self._taken[payer]


class Admission:
    """`admit` and `admit_document` limit the rate of requests; `Places` limit the number of
    concurrent requests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all = Bucket(*ALL, clock())
        self.users = Buckets(OF_USER)
        self.readers = Buckets(DOCUMENTS_OF_USER)
        self.connected = Places(CONNECTED, "requests")
        self.reading = Places(READING, "lists")
        self.reviewing = Places(REVIEWING, "reviews")
        self.watching = Places(WATCHING, "watches")
        self.draining = Places(DRAINING, "bodies")

    def admit(self, user: str) -> None:
        """Admit a request of `user`, or raise RequestRefused (429)."""
        now_s = self._clock()
        # The user's quota first: a refused request must not use up the common one.
        _refuse(self.users.take(payer_of(user), now_s) or self._all.take(now_s))

    def admit_document(self, user: str) -> None:
        """Admit a request for a discovery document, which is cheap and which every client needs."""
        _refuse(self.readers.take(payer_of(user), self._clock()))


def payer_of(user: str) -> str:
    """The user whose quota a request counts against."""
    if user.startswith(SERVICE_ACCOUNT):
        # The namespace pays: its editors create as many service accounts as they like.
        return user.rpartition(":")[0]

    return user


def _refuse(wait_s: float) -> None:
    if wait_s:
        raise RequestRefused(
            429,
            "Too many requests, please try again later.",
            retry_after_s=max(1, ceil(wait_s)),
        )
