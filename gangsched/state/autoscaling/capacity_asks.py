"""All that groups ask of autoscalers: by the reasons of their pods, and by ProvisioningRequests
(semantics E9, E10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set

from gangsched.model.plan import Verdict
from gangsched.model.protocol import (
    Applied,
    Gone,
    Message,
    ProvisioningAnswer,
    ProvisioningOrder,
    Replaced,
    Unread,
)
from gangsched.model.provisioning import NodeFence, ProvisioningRequest
from gangsched.state.autoscaling.patience import Patience
from gangsched.state.autoscaling.request_book import ProvisioningRequests
from gangsched.state.autoscaling.requesting import Provisioning
from gangsched.state.cluster import Cluster
from gangsched.state.group_record import GroupRecord
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.queueing.queue import Queue
from gangsched.state.rule_set import Rules


class CapacityAsks:
    """`changed` is called with a group whose members get another reason."""

    def __init__(
        self,
        members: MemberStore,
        registry: Registry,
        cluster: Cluster,
        queue: Queue,
        rules: Rules,
        changed: Callable[[GroupRecord, float], None],
    ) -> None:
        patience_s = rules.autoscaler_patience_s
        requests = ProvisioningRequests(rules.provisioning.requested_by)
        self._requests = requests
        self._patience = Patience(registry, cluster, patience_s, changed)
        self._provisioning = Provisioning(
            members,
            registry,
            cluster,
            queue,
            rules.provisioning,
            requests,
            changed,
        )

    def read(self, message: Message) -> bool:
        """Apply a message about ProvisioningRequests; False for any other."""
        match message:
            case Applied(item=ProvisioningRequest() as request):
                self._requests.apply(request)
            case Gone() if message.kind is ProvisioningRequest:
                self._requests.drop(message.key)
            case Replaced() if message.kind is ProvisioningRequest:
                self._requests.replace(message.items)
            case Unread() if message.kind is ProvisioningRequest:
                self._requests.forget()
            case _:
                return False

        return True

    def answered(self, answer: ProvisioningAnswer, now_s: float) -> tuple[()]:
        """Record what became of an order, or whether any can be carried out; no Events."""
        self._provisioning.answered(answer, now_s)
        return ()

    def committed(self, group: GroupRecord, verdict: Verdict, now_s: float) -> None:
        """Record a committed verdict."""
        self._patience.committed(group, verdict, now_s)
        self._provisioning.committed(group, verdict, now_s)

    def changed(self, group: GroupRecord, now_s: float) -> None:
        """Follow the members of a group."""
        self._provisioning.changed(group, now_s)

    def gone(self, group: GroupRecord, now_s: float) -> None:
        """Forget a group that is gone."""
        self._patience.gone(group)
        self._provisioning.gone(group, now_s)

    def due(self, now_s: float, wall_s: float) -> list[ProvisioningOrder]:
        """Begin and end pauses; return what is to be asked for or withdrawn now."""
        self._patience.due(now_s, wall_s)
        return self._provisioning.due(now_s, wall_s)

    def fenced(self, now_s: float) -> tuple[NodeFence, ...]:
        """The nodes that were added for groups which have not started on them yet."""
        return self._provisioning.fenced(now_s)

    def next_deadline_s(self) -> float:
        """When `due` must be called although nothing changes."""
        return min(self._patience.next_deadline_s(), self._provisioning.next_deadline_s())

    def indexes(self) -> Iterator[tuple[str, Set[str], Callable[[GroupRecord], bool]]]:
        """For validation: each index with its groups, and a predicate for the groups that should be
        in it.
        """
        yield from self._patience.indexes()
        yield from self._provisioning.indexes()
