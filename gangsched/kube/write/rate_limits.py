"""Rate limits of writes per object, per namespace and in total (docs/reference/settings.md).

Invariant: token buckets. A writer asks for the time until a token is available, and takes the token
then; these functions do not sleep.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gangsched.kube.ports import Now
from gangsched.kube.write.pause import INSTANT_S

K = TypeVar("K", bound=Hashable)
BUCKETS = 100
"""So many are remembered before anybody looks which of them are nearly full."""


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `burst` writes at once, and one more every `every_s`."""

    burst: int
    every_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteLimits:
    """Rates of all writes except binds.

    `total` and `namespace` limit conditions and statuses together, and Events separately. `object`
    limits the condition of each pod and the status of each PodGroup, `event` the Events about each
    object.
    """

    total: Rate = Rate(5_000, 1 / 400)
    namespace: Rate = Rate(2_000, 1 / 200)
    # a PodGroup's counts change with every pod: one job's life stays below the burst
    object: Rate = Rate(10, 5.0)
    # client-go's spam filter: an API server expects no more from one source
    event: Rate = Rate(25, 300.0)

    @classmethod
    def of(cls, writes_per_s: float) -> WriteLimits:
        """Limits derived from the sustained rate of the whole cluster.

        The burst is the rate times 12.5 s: 5,000 at 400/s, so that a gang of 5,000 pods is reported
        at once. A namespace has half of the rate and 40 % of the burst, so that no namespace delays
        the others.
        """
        burst = max(1, round(12.5 * writes_per_s))
        own_burst = max(1, round(5 * writes_per_s))
        return cls(
            total=Rate(burst, 1 / writes_per_s),
            namespace=Rate(own_burst, 2 / writes_per_s),
        )


class TokenBuckets(Generic[K]):
    """One bucket of the same rate per key; the bucket of an unknown key is full.

    A bucket is stored as one number: the time at which it will be full again (generic cell rate
    algorithm). Buckets of deleted objects are dropped, and nearly full buckets whenever the number
    of buckets has doubled.
    """

    def __init__(self, rate: Rate, now: Now) -> None:
        self._rate = rate
        self._now = now
        self._full_s: dict[K, float] = {}
        self._forget_at = BUCKETS

    def __len__(self) -> int:
        """Buckets remembered."""
        return len(self._full_s)

    def wait_s(self, key: K) -> float:
        """Seconds until a token is available; 0 if one is."""
        full_s = self._full_s.get(key)
        if full_s is None:
            return 0.0

        # The bucket holds a token as long as it is not more than burst - 1 tokens from being full.
        rate = self._rate
        left_s = full_s - self._now() - (rate.burst - 1) * rate.every_s
        if left_s <= INSTANT_S:
            return 0.0

        return left_s

    def take(self, key: K) -> None:
        """Take a token; if none is available, the next one is delayed accordingly."""
        every_s = self._rate.every_s
        if not every_s:
            return

        now_s = self._now()
        full_s = self._full_s.get(key, now_s)

        self._full_s[key] = max(full_s, now_s) + every_s
        if len(self._full_s) > self._forget_at:
            soon_s = now_s + every_s
            full = [name for name, at_s in self._full_s.items() if at_s <= soon_s]
            for name in full:
                del self._full_s[name]

            # Amortised: each sweep is paid by as many writes as buckets remain.
            self._forget_at = max(BUCKETS, 2 * len(self._full_s))

    def change(self, rate: Rate) -> None:
        """Use another rate from now on."""
        self._rate = rate

    def forget(self, key: K) -> None:
        """Drop the buckets of a deleted object; a recreated object has another uid."""
        self._full_s.pop(key, None)


class WriteBudget:
    """Limits of all namespaces together and of each namespace."""

    def __init__(self, limits: WriteLimits, now: Now) -> None:
        self._total: TokenBuckets[None] = TokenBuckets(limits.total, now)
        self._namespaces: TokenBuckets[str] = TokenBuckets(limits.namespace, now)

    def change(self, limits: WriteLimits) -> None:
        """Use other limits from now on."""
        self._total.change(limits.total)
        self._namespaces.change(limits.namespace)

    def wait_s(self, namespace: str) -> float:
        """Seconds until a write in the namespace is allowed."""
        in_all_s = self._total.wait_s(None)
        own_s = self._namespaces.wait_s(namespace)
        return max(in_all_s, own_s)

    def take(self, namespace: str) -> None:
        """Count a write in the namespace."""
        self._total.take(None)
        self._namespaces.take(namespace)
