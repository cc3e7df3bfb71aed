"""The API server: requests in, answers out, at once and in one step each.

Invariant: it does what a scheduler sees of kube-apiserver 1.36: preconditions, the binding,
eviction and status subresources, graceful deletion, optimistic locking, lists in pages. It is never
wrong; faults are made in the network. What it does *not* do: rights, admission, watches (`watch`),
or what controllers and kubelets do.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from tests.sim.api_server.answers import Answer, Request, Shown, ok, raw, refusal
from tests.sim.api_server.store import EPOCH_S, Change, Object, Store, copied, key_of, rfc3339
from tests.sim.timeline import Timeline

CORE = {"pods", "nodes", "namespaces", "services", "persistentvolumeclaims", "persistentvolumes"}
GROUPS = {
    "policy": ("v1", ("poddisruptionbudgets",)),
    "storage.k8s.io": ("v1", ("storageclasses", "csinodes")),
    "coordination.k8s.io": ("v1", ("leases",)),
    "events.k8s.io": ("v1", ("events",)),
    "authorization.k8s.io": ("v1", ("selfsubjectaccessreviews",)),
    "scheduling.x-k8s.io": ("v1alpha1", ("podgroups",)),
    "scheduling.sigs.k8s.io": ("v1alpha1", ("podgroups",)),
}
X_PODGROUPS = "podgroups.scheduling.x-k8s.io"
BUDGETS = "poddisruptionbudgets.policy"
LEASES = "leases.coordination.k8s.io"
EVENTS = "events.events.k8s.io"
PAGE = 6
"""Pages are short, so that small clusters have several."""
ENDED = frozenset({"Succeeded", "Failed"})


class ApiServer:
    """`handle` carries a request out; `store` is the truth."""

    def __init__(self, timeline: Timeline, store: Store) -> None:
        self._timeline = timeline
        self.store = store
        self._pages: dict[str, tuple[int, list[Change]]] = {}
        self.absent: set[str] = set()
        """API groups that are not served for now."""

    def handle(self, request: Request) -> Answer:
        """Carry it out; watches are answered by `watch`."""
        where = locate(request.path)
        if where is None or where.group in self.absent:
            return refusal(404, "NotFound", "the server could not find the requested resource")
        if not where.resource:
            return self._discovery(where.group, where.version)
        if request.method == "GET":
            return self._get(where, request) if where.name else self._list(where, request)
        return self._write(where, request)

    def forget_pages(self) -> None:
        """Let every continue token expire."""
        self._pages.clear()

    # --- reading ---------------------------------------------------------------------------------

    def _discovery(self, group: str, version: str) -> Answer:
        if group not in GROUPS:
            return refusal(404, "NotFound", "the server could not find the requested resource")
        served, names = GROUPS[group]
        if not version:
            return ok(
                {
                    "kind": "APIGroup",
                    "versions": [{"groupVersion": f"{group}/{served}", "version": served}],
                }
            )
        return ok({"kind": "APIResourceList", "resources": [{"name": name} for name in names]})

    def _get(self, where: Place, request: Request) -> Answer:
        body = self.store.get(where.kind, where.key)
        if body is None:
            return self._not_found(where)
        return raw(self.store.last(where.kind, where.key).raw)

    def _list(self, where: Place, request: Request) -> Answer:
        token = request.query.get("continue", "")
        if token:
            if token not in self._pages:
                return refusal(410, "Expired", "The provided continue parameter is too old")
            version, left = self._pages.pop(token)
        else:
            version, left = self.store.version, self.store.changes(where.kind)
        left = [
            change
            for change in left
            if selected(change.body, request.query.get("fieldSelector", ""))
        ]
        limit = min(
            int(request.query.get("limit", 0)) or len(left),
            PAGE if "limit" in request.query else len(left),
        )
        page, left = left[:limit], left[limit:]
        ahead = ""
        if left:
            ahead = (
                base64.urlsafe_b64encode(f"{where.kind}/{version}/{left[0].key}".encode())
                .decode()
                .rstrip("=")
            )
            self._pages[ahead] = (version, left)
        head = {"resourceVersion": str(version), **({"continue": ahead} if ahead else {})}
        only_metadata = "PartialObjectMetadata" in request.accept
        items = [
            msgspec.json.encode({"metadata": each.body["metadata"]}) if only_metadata else each.raw
            for each in page
        ]
        body = (
            b'{"kind":"List","metadata":'
            + msgspec.json.encode(head)
            + b',"items":['
            + b",".join(items)
            + b"]}"
        )
        return Answer(
            200, body, shown=None if only_metadata else Shown(where.kind, page, token, not ahead)
        )

    # --- writing ---------------------------------------------------------------------------------

    def _write(self, where: Place, request: Request) -> Answer:
        body = msgspec.json.decode(request.body) if request.body else {}
        match request.method, where.kind, where.subresource:
            case "POST", _, _ if where.resource == "selfsubjectaccessreviews":
                return ok({"status": {"allowed": True}}, 201)
            case "POST", "pods", "binding":
                return self._bind(where, body)
            case "POST", "pods", "eviction":
                return self._evict(where, body)
            case "DELETE", "pods", "":
                return self._delete_pod(where, body)
            case "PATCH", "pods", "status":
                return self._patch_pod_status(where, body)
            case "PATCH", _, "status" if where.resource == "podgroups":
                return self._patch(where, {"status": body.get("status", {})}, strategic=False)
            case "POST", _, "":
                return self._create(where, body)
            case "PUT", _, "":
                return self._put(where, body)
            case "PATCH", _, "":
                return self._patch(where, body, strategic=False)
        return refusal(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )

    def _create(self, where: Place, body: Object) -> Answer:
        body["metadata"].setdefault("namespace", where.namespace)
        if self.store.get(where.kind, key_of(body)) is not None:
            return refusal(
                409,
                "AlreadyExists",
                f'{where.resource} "{body["metadata"]["name"]}" already exists',
            )
        return ok(self.store.create(where.kind, body), 201)

    def _put(self, where: Place, body: Object) -> Answer:
        old = self.store.get(where.kind, where.key)
        if old is None:
            return self._not_found(where)
        if body["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]:
            return self._conflict(
                where,
                "the object has been modified; please apply your changes to the latest version",
            )

        def edit(new: Object) -> None:
            new["spec"] = body.get("spec", {})

        return ok(self.store.update(where.kind, where.key, edit))

    def _patch(self, where: Place, patch: Object, *, strategic: bool) -> Answer:
        if self.store.get(where.kind, where.key) is None:
            return self._not_found(where)
        return ok(
            self.store.update(
                where.kind, where.key, lambda new: merge(new, patch, strategic=strategic)
            )
        )

    def _patch_pod_status(self, where: Place, body: Object) -> Answer:
        pod = self.store.get("pods", where.key)
        if pod is None:
            return self._not_found(where)
        metadata = dict(body.get("metadata", {}))
        uid = metadata.pop("uid", pod["metadata"]["uid"])
        if uid != pod["metadata"]["uid"]:
            return self._conflict(where, f"Precondition failed: UID in precondition: {uid}")
        patch = {"metadata": metadata, "status": body.get("status", {})}
        return self._patch(where, patch, strategic=True)

    def _bind(self, where: Place, body: Object) -> Answer:
        pod = self.store.get("pods", where.key)
        if pod is None:
            return self._not_found(where)
        uid = body["metadata"].get("uid") or pod["metadata"]["uid"]
        if uid != pod["metadata"]["uid"]:
            return self._conflict(where, f"Precondition failed: UID in precondition: {uid}")
        if pod["metadata"].get("deletionTimestamp"):
            return self._conflict(
                where, f"pod {where.name} is being deleted, cannot be assigned to a host"
            )
        if pod["spec"].get("nodeName"):
            return self._conflict(
                where, f"pod {where.name} is already assigned to node {pod['spec']['nodeName']!r}"
            )
        if pod["spec"].get("schedulingGates"):
            return self._conflict(where, f"pod {where.name} has non-empty .spec.schedulingGates")
        self.assign(where.key, body["target"]["name"], body["metadata"].get("annotations") or {})
        return ok({"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}, 201)

    def assign(self, key: str, node: str, annotations: dict[str, str]) -> None:
        """Bind a pod."""

        def edit(pod: Object) -> None:
            pod["spec"]["nodeName"] = node
            pod["metadata"].setdefault("annotations", {}).update(annotations)
            state = pod.setdefault("status", {})
            state.pop("nominatedNodeName", None)
            merge(
                state, {"conditions": [{"type": "PodScheduled", "status": "True"}]}, strategic=True
            )

        self.store.update("pods", key, edit)

    def _evict(self, where: Place, body: Object) -> Answer:
        pod = self.store.get("pods", where.key)
        if pod is None:
            return self._not_found(where)
        if (refused := self._uid_refused(where, pod, body.get("deleteOptions", {}))) is not None:
            return refused
        if pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") in ENDED:
            self.delete_pod(where.key)
            return ok({"kind": "Status", "status": "Success"}, 201)
        budgets = [budget for budget in self.store.all(BUDGETS) if covers(budget, pod)]
        if len(budgets) > 1:
            return refusal(500, "InternalError", "This pod has more than one PodDisruptionBudget")
        for budget in budgets if pod["status"].get("phase") != "Pending" else ():
            if budget["status"]["disruptionsAllowed"] <= 0:
                cause = {
                    "reason": "DisruptionBudget",
                    "message": f"The disruption budget {key_of(budget)} needs more",
                }
                return refusal(429, "TooManyRequests", "Cannot evict pod", causes=[cause])
            self.store.update(BUDGETS, key_of(budget), _one_less)
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "",
        }
        self.store.update(
            "pods",
            where.key,
            lambda new: merge(new["status"], {"conditions": [condition]}, strategic=True),
        )
        self.delete_pod(where.key)
        return ok({"kind": "Status", "status": "Success"}, 201)

    def _delete_pod(self, where: Place, body: Object) -> Answer:
        pod = self.store.get("pods", where.key)
        if pod is None:
            return self._not_found(where)
        if (refused := self._uid_refused(where, pod, body)) is not None:
            return refused
        self.delete_pod(where.key)
        return ok({"kind": "Status", "status": "Success"})

    def delete_pod(self, key: str, *, grace_s: float | None = None) -> None:
        """Delete a pod: at once if it runs nowhere, else when its kubelet says so."""
        pod = self.store.get("pods", key)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        is_kept = bool(pod["metadata"].get("finalizers"))
        runs = bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") not in ENDED
        if not runs and not is_kept:
            self.store.remove("pods", key)
            return
        grace = pod["spec"].get("terminationGracePeriodSeconds", 30) if grace_s is None else grace_s
        until = rfc3339(EPOCH_S + self._timeline.now_s + grace)
        self.store.update("pods", key, lambda new: new["metadata"].update(deletionTimestamp=until))

    def _uid_refused(self, where: Place, pod: Object, options: Object) -> Answer | None:
        uid = (options.get("preconditions") or {}).get("uid") or pod["metadata"]["uid"]
        if uid == pod["metadata"]["uid"]:
            return None
        return self._conflict(
            where, f"the UID in the precondition ({uid}) does not match the UID in record"
        )

    @staticmethod
    def _not_found(where: Place) -> Answer:
        return refusal(404, "NotFound", f'{where.resource} "{where.name}" not found')

    @staticmethod
    def _conflict(where: Place, why: str) -> Answer:
        return refusal(
            409,
            "Conflict",
            f'Operation cannot be fulfilled on {where.resource} "{where.name}": {why}',
        )


class Place(msgspec.Struct, frozen=True):
    """What a path leads to."""

    group: str
    version: str
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def kind(self) -> str:
        """The resource as `Store` names it."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    @property
    def key(self) -> str:
        """The key as `Store` has it."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def locate(path: str) -> Place | None:
    """What a path leads to; None if nothing is served there."""
    parts = path.strip("/").split("/")
    if parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 1:
        group, version, rest = parts[1], parts[2] if len(parts) > 2 else "", parts[3:]
    else:
        return None
    if not rest:
        return Place(group, version)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    served = CORE if not group else set(GROUPS.get(group, ("", ()))[1])
    if rest[0] not in served:
        return None
    name, subresource = (rest[1] if len(rest) > 1 else ""), (rest[2] if len(rest) > 2 else "")
    return Place(group, version, rest[0], namespace, name, subresource)


def merge(into: Object, patch: Object, *, strategic: bool) -> None:
    """Apply a merge patch (RFC 7386); a strategic one merges conditions by type."""
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif strategic and key == "conditions":
            into[key] = _merged_conditions(into.get(key) or [], value)
        elif isinstance(value, dict):
            if not isinstance(into.get(key), dict):
                into[key] = {}
            merge(into[key], value, strategic=strategic)
        else:
            into[key] = copied(value)


def _merged_conditions(old: list[Object], new: list[Object]) -> list[Object]:
    by_type: dict[str, Object] = {condition["type"]: condition for condition in old}
    for condition in new:
        by_type[condition["type"]] = {**by_type.get(condition["type"], {}), **condition}
    return list(by_type.values())


def covers(budget: Object, pod: Object) -> bool:
    """Whether a PodDisruptionBudget is about a pod."""
    wanted = budget["spec"]["selector"].get("matchLabels", {})
    same = budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return bool(same and wanted.items() <= pod["metadata"].get("labels", {}).items())


def _one_less(budget: Object) -> None:
    budget["status"]["disruptionsAllowed"] -= 1


def selected(body: Object, selector: str) -> bool:
    """Whether a field selector of the form `a=b,c=d` means the object."""
    for term in filter(None, selector.split(",")):
        path, _, wanted = term.partition("=")
        found: Any = body
        for part in path.split("."):
            found = found.get(part, "") if isinstance(found, dict) else ""
        if (found or "") != wanted:
            return False
    return True
