"""Peers: the pods that kube-scheduler's default spread constraints count for a pod
(helper.DefaultSelector).

Invariant: values only. The peers of a pod of a ReplicaSet, StatefulSet or ReplicationController are
the pods of that controller; the peers of any other pod are the pods that match the selectors of all
Services that select it. The controller's selector is not read, because the owner references of pods
identify the same pods. Services do not change the peers of a pod with a controller, because all
pods of one template are behind the same Services.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from gangsched.model.objects import Labels, Pod

NO_LABELS: Labels = frozenset()
COMPARED_PER_POD = 64
"""Selectors compared with one pod, so that thousands of Services in one namespace delay nobody
else.
"""


class Behind(NamedTuple):
    """The pods of a namespace that are behind Services whose selectors together
    require `labels`.
    """

    namespace: str
    labels: Labels

    def includes(self, other: PeerKey) -> bool:
        """Whether this set includes every pod of `other`: the namespace is the same, and `other`
        requires at least these labels.
        """
        return (
            isinstance(other, Behind)
            and other.namespace == self.namespace
            and self.labels <= other.labels
        )


PeerKey: TypeAlias = str | Behind
"""The uid of a controller, or `Behind`."""


class Selectors:
    """The selectors of the Services of one namespace; immutable.

    Each selector is indexed by its rarest label, so that a pod is compared only with Services that
    may select it.
    """

    __slots__ = ("_by_label",)

    def __init__(self, selectors: Iterable[Labels] = ()) -> None:
        # Sorted, so that the same Services always give the same index and, where it is cut off, the
        # same answer.
        distinct = sorted(set(selectors), key=sorted)
        uses = Counter(label for selector in distinct for label in selector)
        self._by_label: dict[tuple[str, str], list[Labels]] = {}

        for selector in distinct:
            rarest = min(selector, key=lambda label: (uses[label], label))
            self._by_label.setdefault(rarest, []).append(selector)

    def merged(self, labels: Mapping[str, str]) -> Labels:
        """The labels that all selectors matching `labels` require together; empty if no selector
        matches.
        """
        pairs = labels.items()
        merged = NO_LABELS
        left = COMPARED_PER_POD

        for label in pairs:
            known = self._by_label.get(label)
            if known is None:
                continue

            for selector in known[:left]:
                if selector <= pairs:
                    # mostly one, whose hash is known
                    merged = merged | selector if merged else selector

            left -= len(known)
            if left <= 0:
                break

        return merged


@dataclass(frozen=True, slots=True, eq=False)
class PeerNumbers:
    """`counts[key][node]`: number of pods on a node that count for a key; a pod counts once per
    key. Immutable.

    `behind[namespace]` are the labels of the `Behind` keys in `counts`. A namespace without
    `selectors` has no such keys: it has no Service, or no pod whose peers depend on Services.
    """

    counts: Mapping[PeerKey, Mapping[str, int]] = field(default_factory=dict)
    behind: Mapping[str, tuple[Labels, ...]] = field(default_factory=dict)
    selectors: Mapping[str, Selectors] = field(default_factory=dict)

    def keys(self, pod: Pod) -> tuple[PeerKey, ...]:
        """The keys for which a placed pod counts; none while it terminates. The first key
        identifies the peers of a pending pod.
        """
        if pod.deleting:
            return ()

        uid = pod.replica_of
        selectors = self.selectors.get(pod.namespace)
        of_controller: tuple[PeerKey, ...] = (uid,) if uid else ()

        labels = selectors.merged(pod.labels) if selectors is not None else NO_LABELS
        if labels:
            return (*of_controller, Behind(pod.namespace, labels))

        return of_controller

    def listed(self) -> Iterator[Behind]:
        """The `Behind` keys that `behind` lists."""
        return (
            Behind(namespace, labels)
            for namespace, selectors in self.behind.items()
            for labels in selectors
        )

    def numbers(self, key: PeerKey) -> Iterator[tuple[str, int]]:
        """Pairs of a node and a number of pods on it; a node may occur several times."""
        if isinstance(key, str):
            yield from self.counts.get(key, {}).items()
            return

        for labels in self.behind.get(key.namespace, ()):
            if key.labels <= labels:
                yield from self.counts[Behind(key.namespace, labels)].items()
