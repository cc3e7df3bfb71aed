"""What a request to the API server is, in Kubernetes' words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request: `verb` as in RBAC, `resource` such as "pods", `subresource` such as "binding",
    "" without one.

    `is_next_page`: a list that goes on where a continue token points.
    """

    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    is_next_page: bool = False

    @property
    def is_write(self) -> bool:
        """Whether it changes something; what a client asks about its own rights does not."""
        return self.verb in VERBS.values() and self.resource != "selfsubjectaccessreviews"

    @classmethod
    def of(cls, method: str, path: str, *, watch: bool = False, next_page: bool = False) -> Self:
        """Read method and path; what is no path of a resource (/version) has its path
        as resource.
        """
        parts = path.strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else []
        if not rest:
            return cls(VERBS.get(method, "get"), path, "", "", "")
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        resource, name, subresource = (*rest, "", "")[:3]
        read = "watch" if watch else "get" if name else "list"
        return cls(VERBS.get(method, read), resource, subresource, namespace, name, next_page)
