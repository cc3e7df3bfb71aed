"""Permissions that a user needs for a review: to use its priorities, and to list pods of other
namespaces that it names.

Invariant: a review reveals no more than the user could find out by creating pods. The user must be
allowed to use the priority, and pods of other namespaces count only if the user may list them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gangsched.model.inter_pod import PodTerm
from gangsched.model.objects import Pod, Shape
from gangsched.visibility.access.authorization import Attributes, Authorizer
from gangsched.visibility.access.front_proxy import User
from gangsched.visibility.ports import Calls, Json
from gangsched.visibility.reviews.request import KIND
from gangsched.visibility.statuses import RequestRefused, invalid

PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
SYSTEM_CLASSES = "system-"
SYSTEM_NAMESPACE = "kube-system"
SCOPE = "PriorityClass"
NAMESPACES = 16
"""Namespaces that the terms of one review may name: each costs a SubjectAccessReview."""


class Priorities:
    """The PriorityClasses, and the subset that a namespace may use."""

    def __init__(
        self,
        classes: Iterable[Json],
        quotas: Iterable[Json],
        namespace: str,
        *,
        is_master: bool,
    ) -> None:
        self._classes = {class_["metadata"]["name"]: class_ for class_ in classes}
        self._quotas = list(quotas)
        self._namespace = namespace
        self._is_master = is_master

    @classmethod
    async def read(cls, calls: Calls, namespace: str, *, is_master: bool) -> Priorities:
        """Read the current PriorityClasses. Raises RequestRefused (503)."""
        classes = await calls("GET", PRIORITY_CLASSES)
        # A quota of 0 pods for a PriorityClass is how clusters keep a namespace from using it.
        quotas = await calls("GET", f"/api/v1/namespaces/{namespace}/resourcequotas")
        if not classes.is_ok or not quotas.is_ok:
            raise RequestRefused(
                503,
                "the PriorityClasses and ResourceQuotas cannot be read",
                retry_after_s=1,
            )

        return cls(
            classes.body.get("items") or (),
            quotas.body.get("items") or (),
            namespace,
            is_master=is_master,
        )

    def of_number(self, priority: int) -> int:
        """Validate and return a numeric priority. Raises RequestRefused (403) if it is above all
        permitted priorities.
        """
        usable = []
        for name, each in self._classes.items():
            if self._may_use(name):
                usable.append(each.get("value", 0))

        highest = max(usable, default=0)
        # Any pod may have priority 0 or less without a class.
        if priority > max(highest, 0) and not self._is_master:
            text = (
                f"it is above {highest}, the highest that may be used in the namespace"
                f" {self._namespace}"
            )
            raise RequestRefused(403, f"spec.gang.priority: {text}")

        return priority

    def of_class(self, name: str, field: str) -> tuple[int, bool]:
        """Value of a PriorityClass ("" for the default), and whether it never preempts. Raises
        RequestRefused (403, 422).
        """
        if name:
            if name not in self._classes:
                raise invalid(KIND, "", [(field, f'there is no PriorityClass "{name}"')])
            if not self._is_master and not self._may_use(name):
                raise RequestRefused(
                    403,
                    f"{field}: {name} may not be used in the namespace {self._namespace}",
                )

            found = [self._classes[name]]
        else:
            # Of several global defaults the lowest counts (plugin/pkg/admission/priority).
            found = [class_ for class_ in self._classes.values() if class_.get("globalDefault")]

        chosen: Json = min(found, key=lambda each: each.get("value", 0), default={})
        return int(chosen.get("value", 0)), chosen.get("preemptionPolicy") == "Never"

    def _may_use(self, name: str) -> bool:
        if name.startswith(SYSTEM_CLASSES) and self._namespace != SYSTEM_NAMESPACE:
            return False

        return not any(_keeps_out(quota.get("spec") or {}, name) for quota in self._quotas)


def _keeps_out(quota: Json, name: str) -> bool:
    """Whether a quota of its scope leaves no pod of a class."""
    hard = quota.get("hard") or {}
    stated = (quota.get("scopeSelector") or {}).get("matchExpressions") or []
    if not any(str(hard.get(key)) == "0" for key in ("pods", "count/pods")) or not stated:
        return False

    return all(each.get("scopeName") == SCOPE and _selects(each, name) for each in stated)


def _selects(expression: Json, name: str) -> bool:
    """v1.ScopedResourceSelectorRequirement; a pod that names no class is not asked about."""
    operator = expression.get("operator")
    values = expression.get("values") or ()
    return {"In": name in values, "NotIn": name not in values, "Exists": True}.get(
        str(operator),
        False,
    )


async def check_namespaces(
    authorizer: Authorizer,
    user: User,
    namespace: str,
    pods: Iterable[Pod],
) -> None:
    """Raise RequestRefused (403, 422) if terms are about pods that the user may not list."""
    terms = [term for shape in {pod.shape for pod in pods} for term in _terms(shape)]
    # A selector may mean any namespace, so the user must be allowed to list pods of all.
    if any(term.namespace_selector is not None for term in terms):
        await authorizer.check(user, _list_pods(""))
        return

    named = {name for term in terms for name in term.namespaces} - {namespace}
    if len(named) > NAMESPACES:
        raise invalid(
            KIND,
            "",
            [
                (
                    "spec.podSets",
                    f"affinity terms name {len(named)} namespaces; {NAMESPACES} at most",
                )
            ],
        )

    for name in sorted(named):
        await authorizer.check(user, _list_pods(name))


def _terms(shape: Shape) -> Iterator[PodTerm]:
    constraints = shape.constraints
    yield from constraints.affinity
    yield from constraints.anti_affinity
    yield from (weighted_pod_term.term for weighted_pod_term in constraints.preferred)


def _list_pods(namespace: str) -> Attributes:
    found: dict[str, Any] = {"group": "", "version": "v1"}
    return Attributes("list", "pods", namespace, **found)
