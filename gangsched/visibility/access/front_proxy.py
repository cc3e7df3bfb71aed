"""Authentication: the API server's front proxy names the user in headers.

Invariant: the headers count only on a connection with a client certificate that the front proxy's
authority signed and, if names are configured, that has one of these names. Both come from the
ConfigMap kube-system/extension-apiserver-authentication, which the API server writes; until it was
read, every request is refused. As in k8s.io/apiserver's authentication/request/headerrequest, an
authenticated user is in the group system:authenticated.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import unquote

CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = "system:anonymous"


class Headers(Protocol):
    """Case-insensitive headers; a name may occur several times."""

    def getall(self, key: str, default: list[str]) -> list[str]:
        """All values of a name."""

    def items(self) -> Iterable[tuple[str, str]]:
        """All name-value pairs."""


@dataclass(frozen=True, slots=True)
class User:
    """The authenticated user, as user.Info."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """How the front proxy is identified: certificates of its authority (PEM), common names (any if
    there are none), and header names.
    """

    authority: str = ""
    names: frozenset[str] = frozenset()
    user_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()

    @classmethod
    def of(cls, config_map: Mapping[str, Any]) -> FrontProxy:
        """Parse the ConfigMap. A value that is not a list of texts counts as missing, and then no
        user is authenticated.
        """
        data = config_map.get("data")
        data = data if isinstance(data, Mapping) else {}

        def texts(key: str) -> tuple[str, ...]:
            try:
                listed = json.loads(data.get(f"requestheader-{key}") or "[]")
            except ValueError:
                return ()

            if isinstance(listed, list) and all(isinstance(each, str) for each in listed):
                return tuple(listed)

            return ()

        authority = str(data.get("requestheader-client-ca-file") or "")
        names = texts("allowed-names")
        # Reading it as "any name" would let every certificate of this authority impersonate users.
        if not names and (data.get("requestheader-allowed-names") or "[]").strip() not in {
            "[]",
            "null",
        }:
            return cls()  # it restricts names in a way that we do not understand

        return cls(
            authority if _is_pem(authority) else "",
            frozenset(names),
            texts("username-headers"),
            texts("uid-headers"),
            texts("group-headers"),
            texts("extra-headers-prefix"),
        )

    def user(self, certificate: Mapping[str, Any] | None, headers: Headers) -> User | None:
        """The user of a request, None if not authenticated; `certificate` is the client's verified
        certificate, in the format of `ssl`.
        """
        # OpenSSL has verified the certificate already; without an authority it verified nothing.
        if not self.authority or not certificate:
            return None
        if self.names and not self.names & common_names(certificate):
            return None

        name = next(
            (value for key in self.user_headers for value in headers.getall(key, []) if value), ""
        )
        if not name:
            return None

        uid = next(
            (value for key in self.uid_headers for value in headers.getall(key, []) if value), ""
        )
        groups = [value for key in self.group_headers for value in headers.getall(key, []) if value]
        # The front proxy forwards the groups of the request; RBAC grants discovery to
        # system:authenticated.
        if name != ANONYMOUS and not {AUTHENTICATED, UNAUTHENTICATED} & set(groups):
            groups.append(AUTHENTICATED)

        return User(name, uid, tuple(groups), self._extra(headers))

    def _extra(self, headers: Headers) -> tuple[tuple[str, tuple[str, ...]], ...]:
        found: dict[str, list[str]] = {}
        for key, value in headers.items():
            for prefix in self.extra_prefixes:
                if key.lower().startswith(prefix.lower()):
                    # Header names have no case, so the API server percent-encodes keys and lowers
                    # them.
                    found.setdefault(unquote(key[len(prefix) :].lower()), []).append(value)

        return tuple((key, tuple(values)) for key, values in sorted(found.items()))


def common_names(certificate: Mapping[str, Any]) -> set[str]:
    """The common names of a certificate's subject."""
    result: set[str] = set()
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                result.add(value)

    return result


def _is_pem(text: str) -> bool:
    try:
        ssl.create_default_context(cadata=text)
    except (ssl.SSLError, ValueError):
        return False

    return bool(text.strip())
