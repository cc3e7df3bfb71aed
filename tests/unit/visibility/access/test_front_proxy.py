"""Whom the server believes."""

from __future__ import annotations

from typing import Any

import pytest
from control_plane.pki import make_pki
from multidict import CIMultiDict

from gangsched.visibility.access.front_proxy import FrontProxy, User

HEADERS = {"X-Remote-User": "alice", "X-Remote-Group": "team"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The ConfigMap's data, as kube-apiserver writes it."""
    return {
        "requestheader-client-ca-file": (
            make_pki(tmp_path_factory.mktemp("pki")).proxy_ca.read_text()
        ),
        "requestheader-allowed-names": '["front-proxy-client"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-uid-headers": '["X-Remote-Uid"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }


def certificate(name: str) -> dict[str, Any]:
    """A peer's certificate as `ssl` shows it."""
    return {"subject": ((("organizationName", "x"),), (("commonName", name),))}


def test_user_groups_uid_and_extra_come_from_the_headers(data: dict[str, str]) -> None:
    """As the API server's requestheader authenticator reads them, the group of all that are known
    added.
    """
    headers = CIMultiDict(HEADERS)
    headers.add("x-remote-group", "other")
    headers.add("X-Remote-Uid", "7")
    headers.add("X-Remote-Extra-Acme.com%2FScope", "a")
    headers.add("X-Remote-Extra-Acme.com%2FScope", "b")
    user = FrontProxy.of({"data": data}).user(certificate("front-proxy-client"), headers)
    assert user == User(
        "alice", "7", ("team", "other", "system:authenticated"), (("acme.com/scope", ("a", "b")),)
    )


@pytest.mark.parametrize(
    ("change", "peer"),
    [
        ({}, None),
        ({}, {}),
        ({}, certificate("somebody-else")),
        ({"requestheader-client-ca-file": ""}, certificate("front-proxy-client")),
        ({"requestheader-client-ca-file": "no certificate"}, certificate("front-proxy-client")),
        ({"requestheader-allowed-names": "front-proxy-client"}, certificate("front-proxy-client")),
        ({"requestheader-allowed-names": "[1]"}, certificate("front-proxy-client")),
        ({"requestheader-username-headers": "[]"}, certificate("front-proxy-client")),
    ],
)
def test_nobody_else_is_believed(
    data: dict[str, str], change: dict[str, str], peer: dict[str, Any] | None
) -> None:
    """No certificate, another name, or a ConfigMap that cannot be understood: nobody."""
    assert FrontProxy.of({"data": data | change}).user(peer, CIMultiDict(HEADERS)) is None


def test_any_name_is_allowed_where_none_is_listed(data: dict[str, str]) -> None:
    """As the API server reads an empty list; a request without a user is nobody's all the same."""
    proxy = FrontProxy.of({"data": data | {"requestheader-allowed-names": "[]"}})
    assert proxy.user(certificate("any"), CIMultiDict(HEADERS)) is not None
    assert proxy.user(certificate("any"), CIMultiDict({"X-Remote-User": ""})) is None


@pytest.mark.parametrize("config_map", [{}, {"data": None}, {"data": []}])
def test_nothing_read_lets_nobody_in(config_map: dict[str, Any]) -> None:
    """An empty ConfigMap is no permission."""
    assert FrontProxy.of(config_map).user(certificate("any"), CIMultiDict(HEADERS)) is None
