"""Stand-ins for members to come, as a number and a shape (semantics B8).

Invariant: a sequence takes as much memory as it has fields, whatever its length. Its pods are made
when they are asked for, and only those of the last few sequences are kept: 3,000 pods with 512
members to come each would be 1.5 million.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, overload

from gangsched.model.objects import Pod, Shape

TO_COME: Final = "to-come:"
"""Begins the uid of a stand-in; the id of its gang follows."""
SEQUENCES_KEPT: Final = 16
"""A plan reads the members of the group that it decides about ten times, and hardly those of
others.
"""


class LazyPods(Sequence[Pod]):
    """Pods that are made when they are asked for."""

    __slots__ = ()

    @abstractmethod
    def make(self) -> tuple[Pod, ...]:
        """Make all of them."""

    def __iter__(self) -> Iterator[Pod]:
        """Iterate over the pods."""
        return iter(_made(self))

    @overload
    def __getitem__(self, place: int) -> Pod: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Pod]: ...
    def __getitem__(self, place: int | slice) -> Pod | Sequence[Pod]:
        """One pod, or some."""
        return _made(self)[place]


@lru_cache(maxsize=SEQUENCES_KEPT)
def _made(pods: LazyPods) -> tuple[Pod, ...]:
    return pods.make()


@dataclass(frozen=True, slots=True)
class StandIns(LazyPods):
    """The members to come of one gang: `number` pods of one shape, with the indexes below `total`
    that no present member has.
    """

    gang: str
    number: int
    total: int
    shape: Shape
    priority: int
    indexes_taken: frozenset[int] = frozenset()

    def __len__(self) -> int:
        """Number of members to come."""
        return self.number

    def __contains__(self, pod: object) -> bool:
        """Whether the pod is one of them."""
        # By the uid first, since most pods that are asked about are of other gangs.
        return (
            isinstance(pod, Pod)
            and pod.uid.startswith(f"{TO_COME}{self.gang}#")
            and pod in _made(self)
        )

    def make(self) -> tuple[Pod, ...]:
        """Make the stand-ins."""
        free = (index for index in range(self.total) if index not in self.indexes_taken)
        name = self.gang.partition("/")[2]
        pods = []

        for serial in range(self.number):
            shown = f"{name} (member {serial + 1} to come)"
            pods.append(
                stand_in(self.gang, str(serial), self.shape, self.priority, shown, next(free, -1))
            )

        return tuple(pods)


def stand_in(
    gang: str,
    place: str,
    shape: Shape,
    priority: int,
    name: str = "",
    index: int = -1,
) -> Pod:
    """A pod for a member to come; `place` distinguishes it from other stand-ins of its gang."""
    return Pod(
        uid=f"{TO_COME}{gang}#{place}",
        namespace=gang.partition("/")[0],
        name=name,
        creation_s=0,
        shape=shape,
        priority=priority,
        index=index,
    )
