"""Which kinds of owners must be read, because a pod or a namespace asks for the gangs of owners
(semantics O1, O7).

Invariant: nothing is read where nobody asks. What was asked once is read until the process ends.
Objects of operators are read only once a pod of such an owner asks, or a Job of such an owner is
read: without the operator each try would be refused, and reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from gangsched.api import keys
from gangsched.model.objects import Namespace, Pod
from gangsched.model.owners import OWNER_KINDS, TABLE, JobOwner, OwnerGangs, OwnerObject
from gangsched.model.protocol import Applied, Gone, Message, Object, Replaced


class OwnerAsks:
    """`asked` has an event for each kind of owner, set once owners of that kind must be read.
    `pods_again` is set when pods that were decoded before must be decoded again.
    """

    def __init__(self, setting: OwnerGangs) -> None:
        self.asked = {kind: asyncio.Event() for kind in OWNER_KINDS.values()}
        self._setting = setting
        self._unasked = set(self.asked)
        self._namespaces: set[str] = set()
        #: Namespaces that existed before, of which pods may have been decoded.
        self._seen: set[str] = set()
        self.pods_again = asyncio.Event()

        if setting is OwnerGangs.ALL:
            self._ask_for_built_in()

    def of(self, namespace: str) -> OwnerGangs:
        """Whose pods in a namespace become gangs of their owners."""
        if self._setting is OwnerGangs.ASKED and namespace in self._namespaces:
            return OwnerGangs.ALL

        return self._setting

    @property
    def all_asked(self) -> bool:
        """Whether all kinds are read, so that messages need not be inspected for new ones."""
        return not self._unasked

    def take(self, message: Message) -> None:
        """Inspect a message."""
        if self._setting is OwnerGangs.OFF or (self.all_asked and not self._follows_namespaces):
            return

        match message:
            case Applied(item=item):
                self._take_object(item)
            case Replaced(items=items):
                self._take_list(message.kind, items)
            case Gone(key=key):
                if message.kind is Namespace:
                    self._namespaces.discard(key)
                    self._seen.discard(key)

    @property
    def _follows_namespaces(self) -> bool:
        """Whether the labels of namespaces count."""
        return self._setting is OwnerGangs.ASKED

    def _take_list(self, kind: type[Object], items: Iterable[Object]) -> None:
        if kind is Namespace:
            names = {item.name for item in items if isinstance(item, Namespace)}
            self._namespaces &= names
            self._seen &= names
        elif kind not in (Pod, JobOwner):
            return

        for item in items:
            self._take_object(item)

    def _take_object(self, item: object) -> None:
        if isinstance(item, Pod):
            # Nearly all pods have no such metadata, and no namespace asks for them.
            if not item.owner or self.all_asked:
                return

            if item.gang_metadata or self._namespaces or not self._follows_namespaces:
                self._take_pod(item)
        elif isinstance(item, JobOwner):
            if item.controller is not None:
                self._ask(OWNER_KINDS[item.controller.kind])
        elif isinstance(item, Namespace) and self._follows_namespaces:
            self._take_namespace(item)

    def _take_namespace(self, namespace: Namespace) -> None:
        name = namespace.name
        asked = name in self._namespaces
        asks = namespace.labels.get(keys.OWNER_GANG) == keys.OWNER
        # The label decides what is kept of a pod (`api.pod_metadata`), and whether an ended one is.
        if asks != asked and name in self._seen:
            self.pods_again.set()

        self._seen.add(name)
        if asks:
            self._namespaces.add(name)
            self._ask_for_built_in()
        else:
            self._namespaces.discard(name)

    def _take_pod(self, pod: Pod) -> None:
        kind = OWNER_KINDS.get(pod.controller_kind)
        if kind is None or kind not in self._unasked:
            return

        if keys.asks_for_owner(dict(pod.gang_metadata), self.of(pod.namespace)):
            self._ask(kind)

    def _ask_for_built_in(self) -> None:
        for kind in TABLE.values():
            if kind.built_in:
                self._ask(kind.owner)

    def _ask(self, kind: type[OwnerObject]) -> None:
        self._unasked.discard(kind)
        self.asked[kind].set()
