"""The informers: everything that the daemon reads, and whether it is synced.

Invariant: reading starts before the state exists; earlier messages are queued in order and
delivered first (`deliver_to`). Optional resources never delay the daemon: resources that it may not
read are reported as `Unread`. Messages are passed on without being inspected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any, Final

from gangsched.api.dialects import NAMES, read_groups, unread_marks
from gangsched.kube.http.client import ApiClient
from gangsched.kube.ports import Runtime, Sink
from gangsched.kube.read import provisioning as requests
from gangsched.kube.read import resources
from gangsched.kube.read.device_rights import DeviceRights
from gangsched.kube.read.optional_rights import OptionalRights
from gangsched.kube.read.owner_asks import OwnerAsks
from gangsched.kube.read.podgroup_informer import Follow, PodGroupInformer
from gangsched.kube.read.provisioning import ProvisioningRights
from gangsched.kube.read.reflector import Reflector
from gangsched.kube.read.scheduler_names import SchedulerNames
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.store import Store
from gangsched.model.devices import CLASS_PREFIX, DeviceClass, DeviceScope
from gangsched.model.objects import Pod
from gangsched.model.owners import OwnerGangs, OwnerObject
from gangsched.model.protocol import Applied, Message, Object, ProvisioningAvailable, Replaced

PODS: Final = "pods"
_MOST_NAMES: Final = 10_000
LIST_AGAIN_EVERY_S: Final = 10.0
"""How often at most pods are listed again because labels of namespaces change."""


class ClaimWatch:
    """Decides when devices are read: once a pod needs devices, so that other clusters have no cost.

    `is_named`: a pod requests extended resources, so classes are read; `is_claimed`: devices are
    read.
    """

    def __init__(self, *, extends: bool = True) -> None:
        """`extends`: devices serve extended resources."""
        self._extends = extends
        self.is_named = asyncio.Event()
        self.is_claimed = asyncio.Event()
        self._requested: set[str] = set()
        self._served: set[str] = set()

    def take(self, message: Message) -> None:
        """Inspect a message; no effect once devices are read."""
        if isinstance(message, Applied):
            self._take_object(message.item)
        elif isinstance(message, Replaced):
            for item in message.items:
                self._take_object(item)

        if self._requested:
            self.is_named.set()

        # Names are any text of users: rather than remember them all, devices are read.
        if not self._served.isdisjoint(self._requested) or len(self._requested) > _MOST_NAMES:
            self.is_claimed.set()

        if self.is_claimed.is_set():
            self.is_named.set()

    def _take_object(self, item: Object) -> None:
        if isinstance(item, Pod):
            # Names of resources, not pods: their number is small, and bounded below.
            if self._extends and item.shape.extended:
                self._requested.update(resource.name for resource in item.shape.extended)
            if item.claims and item.claims_devices:
                self.is_claimed.set()
        elif isinstance(item, DeviceClass):
            self._served |= {item.extended_resource, CLASS_PREFIX + item.name}


class Informers:
    """`stores` and `reflectors` are by resource name; the daemon sets `backlog_bound` once the pods
    that waited at the start are bound.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        runtime: Runtime,
        restore_signals: Callable[[], None],
        sweep_every_s: float,
        scheduler_names: Iterable[str] = (),
        node_selector: str = "",
        disruption_budgets: bool = True,
        dialects: Collection[str] = NAMES,
        owner_gangs: OwnerGangs = OwnerGangs.ASKED,
        services: bool = True,
        devices: DeviceScope = DeviceScope.ALLOCATED,
        extends: bool = True,
        requested_by: str = "",
        follow: Follow | None = None,
    ) -> None:
        """For `restore_signals`, `sweep_every_s` and `follow` see `PodGroupInformer`.

        Only nodes that `node_selector` selects are read, PodDisruptionBudgets only with
        `disruption_budgets`, since only preemption uses them, and Services only with `services`,
        for the spread of plain pods. Unless `devices` is `allocated`, they are read once a pod has
        ResourceClaims, or extended resources that a class serves, while gangsched may allocate
        them; classes are read once a pod has extended resources. Without `extends` devices serve no
        extended resources. ProvisioningRequests of the scheduler `requested_by`, "" for none, are
        read while gangsched may make them. `dialects` are the enabled ones of the dialects in
        `api.dialects` that can be disabled. Owners of a kind are read once `owner_gangs`, a
        namespace or a pod asks for their gangs.
        """
        warn = runtime.warn
        self._sleep = runtime.sleep
        self.backlog_bound = asyncio.Event()
        self.stores: dict[str, Store[Any, Any]] = {}
        self.reflectors: dict[str, Reflector[Any, Any]] = {}

        # Reading begins while the daemon is still being imported, which takes longer than the first
        # lists.
        self._early: list[Message] = []  # until `deliver_to`
        self._is_early = True
        self._sink: Sink = self._early.append
        self.scheduler_names = names = SchedulerNames(scheduler_names, warn)
        self.owner_asks = OwnerAsks(owner_gangs)
        nodes = resources.nodes(warn, node_selector)
        required: tuple[Any, ...] = (
            resources.pods(ShapeTable(), names, unread_marks(dialects), self.owner_asks),
            nodes,
            resources.NAMESPACES,
        )
        optional: list[Any] = [*resources.STORAGE]
        optional += [resources.DISRUPTION_BUDGETS] if disruption_budgets else []
        optional += [resources.SERVICES] if services else []
        later: tuple[Any, ...] = resources.ALLOCATED if devices is not DeviceScope.ALLOCATED else ()
        self._claims = ClaimWatch(extends=extends)
        self._claims_matter = bool(later)
        self._device_rights = DeviceRights(client, runtime, asks=devices is DeviceScope.AUTO)
        self.provisioning_rights = ProvisioningRights(client, runtime, asks=bool(requested_by))
        self.provisioning_rights.hears = self._hear_of_provisioning
        self._provisioning: ProvisioningAvailable | None = None
        self._requests: tuple[Any, ...] = (
            (resources.provisioning_requests(requested_by),) if requested_by else ()
        )
        #: Set once the requests of an earlier process are known, or cannot be read.
        self._requests_known = asyncio.Event()
        owners: tuple[Any, ...] = ()
        if owner_gangs is not OwnerGangs.OFF:
            owners = resources.OWNERS

        for resource in (*required, *optional, *later, *owners, *self._requests):
            self.stores[resource.name] = store = Store(resource, self._take, warn)
            # Required resources are retried forever; without them nothing may be planned.
            refused = store.refused if resource.optional else None
            self.reflectors[resource.name] = Reflector(
                client,
                store,
                runtime=runtime,
                refused=refused,
            )

        self.pod_groups = PodGroupInformer(
            client,
            self._take,
            runtime=runtime,
            api_groups=read_groups(dialects),
            restore_signals=restore_signals,
            backlog_bound=self.backlog_bound,
            sweep_every_s=sweep_every_s,
            follow=follow,
        )
        # Not part of `synced`: most clusters have no devices, and must not wait for them.
        self._later = {resource.name for resource in (*later, *self._requests)}
        self._owners: dict[str, type[OwnerObject]] = {}
        for resource in owners:
            self._owners[resource.name] = resource.kind

        synced = {}

        beside = self._later | self._owners.keys()
        for name, reflector in self.reflectors.items():
            if name not in beside:
                synced[name] = reflector.synced

        self._synced = synced | {"podgroups": self.pod_groups.synced}
        for resource in self._requests:
            # Else the first plan would give away nodes that an autoscaler added for a gang.
            self._synced[resource.name] = self._requests_known

    def deliver_to(self, sink: Sink) -> None:
        """Deliver all messages to `sink`, the first one including earlier messages; a sink that
        replaces another first receives all known objects.
        """
        if self._is_early:
            messages = self._early
            self._early = []
            self._is_early = False
        else:
            messages = self.known()

        self._sink = sink
        for message in messages:
            sink(message)

    def known(self) -> list[Message]:
        """Messages that tell a new receiver everything that is known."""
        messages: list[Message] = []
        for store in self.stores.values():
            messages += store.known()

        available = [self._provisioning] if self._provisioning is not None else []
        return [*messages, *available, *self.pod_groups.known()]

    def waiting_for(self) -> list[str]:
        """Resources that have not been read yet."""
        return [name for name, synced in self._synced.items() if not synced.is_set()]

    async def synced(self) -> None:
        """Return once everything has been read."""
        for synced in self._synced.values():
            await synced.wait()

    async def run(self) -> None:
        """List and watch all resources until cancelled; never returns."""
        async with asyncio.TaskGroup() as group:
            for name, reflector in self.reflectors.items():
                group.create_task(self._reading(name, reflector), name=name)

            if self._claims_matter:
                group.create_task(self._ask_for_devices(), name="device rights")

            if self._requests:
                asking = self.provisioning_rights.run()
                group.create_task(asking, name="provisioning rights")
                group.create_task(self._follow_requests(), name="provisioning requests")

            if self._owners:
                group.create_task(self._decode_pods_again(), name="pods again")

            group.create_task(self.pod_groups.run(), name="podgroups")

    async def _decode_pods_again(self) -> None:
        """List the pods again when a namespace begins or ceases to ask for the gangs of owners."""
        pods_again = self.owner_asks.pods_again
        while True:
            await pods_again.wait()
            pods_again.clear()
            self.reflectors[PODS].list_again()
            # Each time, all pods of the cluster are listed.
            await self._sleep(LIST_AGAIN_EVERY_S)

    async def _reading(self, name: str, reflector: Reflector[Any, Any]) -> None:
        """Read a resource from when it is needed."""
        if any(resource.name == name for resource in self._requests):
            await self._read_requests(name, reflector)
        if name in self._later:
            await self._read_devices(name, reflector)

        if name in self._owners:
            kind = self._owners[name]
            await self.owner_asks.asked[kind].wait()
        if name == PODS and self._owners:
            # The label of a namespace decides what is kept of its pods.
            namespaces = self.reflectors[resources.NAMESPACES.name]
            await namespaces.synced.wait()

        await reflector.run()

    def _hear_of_provisioning(self, obstacle: str) -> None:
        self._provisioning = ProvisioningAvailable(obstacle)
        self._take(self._provisioning)

    async def _follow_requests(self) -> None:
        """Note once what is known of the requests of an earlier process."""
        (resource,) = self._requests
        reflector = self.reflectors[resource.name]
        await _first(reflector.synced.wait(), self.provisioning_rights.denied.wait())
        self._requests_known.set()

    async def _read_requests(self, name: str, reflector: Reflector[Any, Any]) -> None:
        """Read ProvisioningRequests in the served version, while they may be made."""
        (resource,) = self._requests
        rights = self.provisioning_rights
        while True:
            await rights.granted.wait()
            group = requests.GROUP
            resource.path = f"/apis/{group}/{rights.version}/{resource.name}"
            await self._read_until_denied(name, reflector, rights)

    async def _read_until_denied(
        self,
        name: str,
        reflector: Reflector[Any, Any],
        rights: OptionalRights,
    ) -> None:
        await _first(reflector.run(), rights.denied.wait())
        self.stores[name].refused(forbidden=True)
        reflector.heard_s = None  # a watch that was ended is not stale

    async def _ask_for_devices(self) -> None:
        await self._claims.is_named.wait()
        await self._device_rights.run()

    async def _read_devices(self, name: str, reflector: Reflector[Any, Any]) -> None:
        """Read a kind once a pod needs it, while devices may be allocated."""
        rights = self._device_rights
        await (
            self._claims.is_named
            if name == resources.DEVICE_CLASSES.name
            else self._claims.is_claimed
        ).wait()

        while True:
            await _first(rights.granted.wait(), rights.denied.wait())
            if rights.granted.is_set():
                await self._read_until_denied(name, reflector, rights)
            else:
                self.stores[name].refused(forbidden=True)

            await rights.granted.wait()

    def _take(self, message: Message) -> None:
        # Once devices are read there is nothing left to find out, and messages pass untouched.
        if self._claims_matter and not self._claims.is_claimed.is_set():
            self._claims.take(message)

        self.owner_asks.take(message)
        self._sink(message)


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait for the first of them to end, and cancel the others. Raises what it raised."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(wait) for wait in waits]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

        for task in tasks:
            task.cancel()
