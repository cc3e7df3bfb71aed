"""Inter-pod constraints: the parts of a pod that depend on other pods.

Invariant: terms are stored as written. A term without namespaces applies to the namespace of its
pod. That namespace is not stored in the term, so equal pods of several namespaces share one
`Shape`. `model.pods_by_node` has the pods; `core.filter` and `core.preferences` evaluate the terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

import msgspec

from gangsched.model.bounds import UP_TO_MANY

ANY_IP = "0.0.0.0"


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """One selector requirement: `operator` is In, NotIn, Exists, DoesNotExist and, for nodes only,
    Gt or Lt.
    """

    key: str
    operator: str
    values: Annotated[tuple[str, ...], UP_TO_MANY] = ()


Selector: TypeAlias = tuple[Requirement, ...] | None
"""A label selector: all requirements must hold; () selects everything, None nothing (as the API's
`{}` and null).
"""


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether `labels` meet every requirement of `selector` (metav1.LabelSelectorAsSelector)."""
    if selector is None:
        return False

    for requirement in selector:
        value = labels.get(requirement.key)
        match requirement.operator:
            case "In":
                holds = value is not None and value in requirement.values
            case "NotIn":
                # As in labels.Requirement: an object without the key matches NotIn.
                holds = value is None or value not in requirement.values
            case "Exists":
                holds = value is not None
            case "DoesNotExist":
                holds = value is None
            case _:  # operators of the future: no match, as the safe answer
                holds = False

        if not holds:
            return False

    return True


class HostPort(msgspec.Struct, frozen=True, gc=False):
    """A host port of a pod; `ip` is `ANY_IP` for all addresses. `::` is a single address, as in
    kube-scheduler.
    """

    protocol: str
    port: int
    ip: str = ANY_IP

    def conflicts(self, other: HostPort) -> bool:
        """Whether the two ports cannot both be used on one node (kube-scheduler HostPortInfo)."""
        return (
            # Only IPv4's wildcard is one here, as in kube-scheduler's HostPortInfo.
            self.port == other.port
            and self.protocol == other.protocol
            and (self.ip == other.ip or ANY_IP in {self.ip, other.ip})
        )


class PodTerm(msgspec.Struct, frozen=True, gc=False):
    """An inter-pod affinity term: it selects pods that match `selector`, in some namespaces, within
    one topology domain.

    Without `namespaces`, and with `namespace_selector` None, it applies to the namespace of its
    pod.
    """

    topology_key: str
    selector: Selector = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector = None

    def means_namespace(
        self,
        own_namespace: str,
        namespace: str,
        labels: Mapping[str, str] | None,
    ) -> bool:
        """Whether the term, of a pod in `own_namespace`, is about pods in `namespace`, which has
        these labels (None: nobody knows the namespace).
        """
        if not self.namespaces and self.namespace_selector is None:
            return namespace == own_namespace
        # An empty selector selects every namespace; None means no selector.
        if self.namespace_selector == () or namespace in self.namespaces:
            return True

        return labels is not None and selects(self.namespace_selector, labels)


class WeightedPodTerm(msgspec.Struct, frozen=True, gc=False):
    """A preferred term; `weight` is 1-100, negative for anti-affinity."""

    weight: int
    term: PodTerm


class Spread(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A topology spread constraint; `match_label_keys` add the pod's own label values to
    `selector`.
    """

    topology_key: str
    max_skew: int
    selector: Selector = None
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False
    match_label_keys: tuple[str, ...] = ()


class InterPodConstraints(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """All constraints of a pod that depend on other pods. A shape without such constraints has
    `inter_pod` None.
    """

    ports: tuple[HostPort, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    preferred: tuple[WeightedPodTerm, ...] = ()
    soft_spread: tuple[Spread, ...] = ()

    @property
    def hard(self) -> bool:
        """Whether any constraint can exclude a node."""
        return bool(self.ports or self.affinity or self.anti_affinity or self.spread)

    @property
    def has_terms(self) -> bool:
        """Whether the pod has affinity terms, by which it affects the placement of other pods."""
        return bool(self.affinity or self.anti_affinity or self.preferred)

    @property
    def keys(self) -> frozenset[str]:
        """The keys of pod labels that the terms read."""
        terms = (
            *self.affinity,
            *self.anti_affinity,
            *(weighted.term for weighted in self.preferred),
        )
        spreads = (*self.spread, *self.soft_spread)
        selectors = [*(term.selector for term in terms), *(spread.selector for spread in spreads)]
        selected = (requirement.key for selector in selectors for requirement in selector or ())

        return frozenset(
            (*selected, *(key for spread in spreads for key in spread.match_label_keys))
        )
