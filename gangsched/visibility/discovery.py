"""Discovery of resources, in the old and the aggregated form (apidiscovery.k8s.io/v2)."""

from __future__ import annotations

from functools import cache

import msgspec

from gangsched.visibility.ports import API_VERSION, GROUP, VERSION, Json

GANG_VERBS = ["get", "list", "watch"]
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"


def api_group() -> Json:
    """The document at /apis/GROUP."""
    version = {"groupVersion": API_VERSION, "version": VERSION}
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": GROUP,
        "versions": [version],
        "preferredVersion": version,
    }


def api_groups() -> Json:
    """The document at /apis."""
    group = {key: value for key, value in api_group().items() if key not in {"kind", "apiVersion"}}
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}


def resources() -> Json:
    """The document at /apis/GROUP/VERSION."""
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": API_VERSION,
        "resources": [
            {
                "name": "gangs",
                "singularName": "gang",
                "namespaced": True,
                "kind": "Gang",
                "verbs": GANG_VERBS,
            },
            {
                "name": "gangs/history",
                "singularName": "",
                "namespaced": True,
                "kind": "GangHistory",
                "verbs": ["get"],
            },
            {
                "name": "placementreviews",
                "singularName": "placementreview",
                "namespaced": True,
                "kind": "PlacementReview",
                "verbs": ["create"],
            },
        ],
    }


def aggregated(accept: str) -> tuple[str, bytes] | None:
    """Content type and body of /apis in the aggregated form, if the client prefers it; otherwise
    None.
    """
    for part in accept.split(","):
        stated = {each.strip() for each in part.split(";")[1:]}
        if "as=APIGroupDiscoveryList" in stated and "g=apidiscovery.k8s.io" in stated:
            # The API server asks for both and prefers v2; kube-aggregator before 1.30 knows v2beta1
            # only.
            for version in ("v2", "v2beta1"):
                if f"v={version}" in stated:
                    return AGGREGATED.format(version), _discovery(version)

    return None


def _kind(resource: Json) -> Json:
    return {"group": GROUP, "version": VERSION, "kind": resource["kind"]}


@cache
def _discovery(version: str) -> bytes:
    served = resources()["resources"]
    listed = []

    for each in served:
        if "/" not in each["name"]:
            listed.append(
                {
                    "resource": each["name"],
                    "responseKind": _kind(each),
                    "scope": "Namespaced",
                    "singularResource": each["singularName"],
                    "verbs": each["verbs"],
                    "subresources": [
                        {
                            "subresource": sub["name"].partition("/")[2],
                            "responseKind": _kind(sub),
                            "verbs": sub["verbs"],
                        }
                        for sub in served
                        if sub["name"].startswith(f"{each['name']}/")
                    ],
                }
            )

    found = {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": GROUP, "creationTimestamp": None},
                "versions": [{"version": VERSION, "resources": listed, "freshness": "Current"}],
            }
        ],
    }
    return msgspec.json.encode(found)
