"""A fake API server for the commands: canned answers by path, and what was asked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from tests.server_thread import ServerThread

Json = dict[str, Any]


def status(code: int, reason: str, message: str) -> Json:
    """A metav1.Status."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "code": code,
        "reason": reason,
        "message": message,
    }


def text(body: str) -> Json:
    """An answer that is no JSON."""
    return {"kind": "Text", "text": body}


def forbidden(verb: str, resource: str, where: str = "at the cluster scope") -> Json:
    """A refusal in the words of the API server."""
    text = (
        f'{resource} is forbidden: User "alice" cannot {verb} resource "{resource}" in API group ""'
        f" {where}"
    )
    return status(403, "Forbidden", text)


class FakeApi:
    """`answers` by path without its query; a Status of an error is sent with its code, a `text` as
    it is. Others are 404 pages.
    """

    def __init__(self, answers: Mapping[str, Json]) -> None:
        self.answers = dict(answers)
        self.asked: list[str] = []
        self.bodies: list[Json] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        self.asked.append(f"{request.method} {request.path_qs}")
        if request.can_read_body:
            self.bodies.append(json.loads(await request.read()))
        answer = self.answers.get(unquote(request.path))
        if answer is None:
            return web.Response(status=404, text="404 page not found")
        if answer.get("kind") == "Text":
            return web.Response(text=answer["text"])
        if "labelSelector" in request.query and "items" in answer:
            key, _, value = request.query["labelSelector"].partition("=")
            chosen = [
                item
                for item in answer["items"]
                if item["metadata"].get("labels", {}).get(key) == value
            ]
            answer = {**answer, "items": chosen}
        return web.json_response(
            answer, status=answer.get("code", 200) if answer.get("kind") == "Status" else 200
        )


def kubeconfig(path: Path, server: str, **context: str) -> Path:
    """A kubeconfig of one context, "here"."""
    document = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", **context}}],
        "current-context": "here",
    }
    path.write_text(json.dumps(document))
    return path


@contextmanager
def served(tmp_path: Path, answers: Mapping[str, Json]) -> Iterator[tuple[FakeApi, Path]]:
    """The fake at work, and a kubeconfig for it whose namespace is "team"."""
    fake = FakeApi(answers)
    server = ServerThread(fake.handle)
    server.start()
    try:
        yield fake, kubeconfig(tmp_path / "kubeconfig", server.url, namespace="team")
    finally:
        server.stop()


def pod(name: str, *, gang: str = "", node: str = "", message: str = "", **more: Any) -> Json:
    """A pod of namespace "team", as the API server shows it."""
    labels = {**({"scheduling.x-k8s.io/pod-group": gang} if gang else {}), **more.pop("labels", {})}
    conditions = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    ]
    requests = {"requests": {"nvidia.com/gpu": str(more.pop("gpus", 1))}}
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "creationTimestamp": more.pop("created", "2026-01-01T00:00:00Z"),
            "labels": labels,
            "annotations": more.pop("annotations", {}),
        },
        "spec": {
            "schedulerName": more.pop("scheduler", "gangsched"),
            "containers": [{"name": "c", "resources": requests}],
            **({"nodeName": node} if node else {}),
            **more,
        },
        "status": {
            "phase": "Running" if node else "Pending",
            **({"conditions": conditions} if message else {}),
        },
    }


def listed(*items: Json) -> Json:
    """A list of one page."""
    return {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": list(items)}


def pod_group(name: str, minimum: int, message: str = "") -> Json:
    """A PodGroup of namespace "team"."""
    condition = {
        "type": "Scheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
    }
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-group-{name}"},
        "spec": {"minMember": minimum},
        "status": {"phase": "PreScheduling", "conditions": [condition] if message else []},
    }


def node(name: str, gpus: int, **spec: Any) -> Json:
    """A node with GPUs."""
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {}},
        "spec": spec,
        "status": {
            "allocatable": {
                "nvidia.com/gpu": str(gpus),
                "cpu": "64",
                "memory": "64Gi",
                "pods": "110",
            }
        },
    }
