"""Credentials without a library: tokens and client certificates of a kubeconfig or of the pod's
service account.

Importing `credentials` takes too long for a command that should answer within a second. Kubeconfigs
with exec plugins or auth providers are passed to `credentials`, so that every kubeconfig works.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import yaml

from gangsched.kube.http import location
from gangsched.kube.http.faults import Misconfigured, said
from gangsched.kube.http.tls import tls_context

# The loader in C is much faster, but not every build of PyYAML has it.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Access:
    """Address and credentials of one API server."""

    server: str
    #: Where they come from, for messages.
    name: str
    #: The context's namespace.
    namespace: str = "default"
    authorization: str = ""
    tls: ssl.SSLContext | None = None
    proxy: str = ""
    #: Headers that ask the server to act as another user (`impersonation`).
    impersonation: tuple[tuple[str, str], ...] = ()
    #: The kubeconfig's context; "" without one.
    context: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What flags put in place of a kubeconfig's entries, named as its fields; empty values override
    nothing.
    """

    context: str = ""
    #: The cluster and the user to use in place of the context's.
    cluster: str = ""
    user: str = ""
    #: Fields of the cluster, and of the user.
    of_cluster: Mapping[str, Any] = field(default_factory=dict)
    of_user: Mapping[str, Any] = field(default_factory=dict)


NO_OVERRIDES = Overrides()
CREDENTIALS = ("token", "tokenFile", "username", "password", "exec", "auth-provider")
"""Fields of a user of which a flag replaces all: two kinds of credentials would contradict each
other.
"""
AUTHORITY = ("certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify")


def access(kubeconfig: Path | None = None, overrides: Overrides = NO_OVERRIDES) -> Access:
    """Find the credentials as kubectl does: the given file, else $KUBECONFIG, else ~/.kube/config,
    else the pod's service account; flags override their parts.

    Raises Misconfigured with one sentence.
    """
    try:
        paths = location.kubeconfig_path(kubeconfig)
    except Misconfigured:
        names_an_entry = overrides.context or overrides.cluster or overrides.user
        if kubeconfig is not None or names_an_entry:
            raise

        if overrides.of_cluster.get("server"):
            paths = ""  # the flags say it all
        elif location.in_cluster():
            return _impersonating(_of_service_account(), overrides.of_user)
        else:
            raise

    try:
        return _of_kubeconfig(paths, kubeconfig, overrides)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        why = (
            "it is not a kubeconfig"
            if isinstance(error, KeyError | TypeError | AttributeError)
            else said(error)
        )
        raise Misconfigured(f"Cannot use {_named(paths)}: {why}.") from error


def _named(paths: str) -> str:
    if paths:
        return f"kubeconfig {paths}"

    return "the connection flags"


def impersonation(user: Mapping[str, Any], whose: str) -> tuple[tuple[str, str], ...]:
    """The headers for the user's `as`, `as-uid`, `as-groups` and `as-user-extra`, as client-go
    sends them.

    Raises Misconfigured if there is no `as` for the others.
    """
    headers = [("Impersonate-User", user.get("as")), ("Impersonate-Uid", user.get("as-uid"))]
    headers += [("Impersonate-Group", group) for group in user.get("as-groups") or ()]

    for key, values in (user.get("as-user-extra") or {}).items():
        # A key may have any character, a name of a header may not; client-go writes keys in lower
        # case, too.
        name = f"Impersonate-Extra-{quote(str(key).lower(), safe='')}"
        headers += [(name, value) for value in values]

    given = tuple((name, str(value)) for name, value in headers if value)
    if given and given[0][0] != "Impersonate-User":
        raise Misconfigured(
            f"{whose} impersonates a group, a uid or extras without a user: pass --as as well."
        )

    return given


def _impersonating(own: Access, user: Mapping[str, Any]) -> Access:
    return replace(own, impersonation=impersonation(user, own.name))


def _of_service_account() -> Access:
    folder = location.SERVICE_ACCOUNT
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host

    try:
        token = (folder / "token").read_text().strip()
        namespace = (folder / "namespace").read_text().strip()
        tls = tls_context(
            server_name=None,
            authority=str(folder / "ca.crt"),
            certificate=None,
            key=None,
            verify=True,
        )
    except OSError as error:
        raise Misconfigured(f"Cannot use the pod's service account: {said(error)}.") from error

    return Access(
        f"https://{host}:{port}",
        "the pod's service account",
        namespace,
        f"Bearer {token}",
        tls,
    )


def _of_kubeconfig(paths: str, given: Path | None, overrides: Overrides) -> Access:
    merged = _merged([paths] if given is not None else paths.split(os.pathsep))
    context = _context(merged, paths, overrides)
    cluster = _overridden_cluster(
        merged["clusters"].get(context.get("cluster"), {}),
        overrides.of_cluster,
    )
    user = _overridden_user(merged["users"].get(context.get("user"), {}), overrides.of_user)
    server = location.server_address(str(cluster["server"]))

    if "exec" in user or "auth-provider" in user:
        own = _by_library(cluster, user)
    else:
        proxy = str(cluster.get("proxy-url") or "")
        own = Access(server, "", "", _authorization(user), _tls(server, cluster, user), proxy)

    name = _named(paths)
    namespace = str(context.get("namespace") or "default")
    current = overrides.context or str(merged["current-context"])
    own = replace(own, name=name, namespace=namespace, context=current)
    return _impersonating(own, user)


def _context(merged: Mapping[str, Any], paths: str, overrides: Overrides) -> dict[str, Any]:
    """The context, with the names of its cluster and user as the flags want them. Raises
    Misconfigured.
    """
    name = overrides.context or merged["current-context"]
    # Whoever names the server and the user needs no context.
    is_needed = overrides.context or not (overrides.cluster or overrides.of_cluster.get("server"))
    if name not in merged["contexts"] and (is_needed or name):
        said_so = f'has no context "{name}"' if name else "has no current context: pass --context"
        raise Misconfigured(f"Kubeconfig {paths} {said_so}.")

    context = dict(merged["contexts"].get(name, {}))
    for kind, section, given in (
        ("clusters", "cluster", overrides.cluster),
        ("users", "user", overrides.user),
    ):
        if given and given not in merged[kind]:
            raise Misconfigured(f'Kubeconfig {paths} has no {section} "{given}".')

        context[section] = given or context.get(section)
        # A context without a user is valid: the server may admit anonymous requests.
        needed = (
            not overrides.of_cluster.get("server")
            if section == "cluster"
            else bool(context[section])
        )
        if needed and context[section] not in merged[kind]:
            raise Misconfigured(
                f'Context "{name}" of kubeconfig {paths} names a {section} that is not there.'
            )

    return context


def _overridden_cluster(cluster: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster with the flags' fields, by client-go's rules."""
    changed = dict(cluster)
    if given.get("server"):
        # The name was for the other server's certificate.
        changed.pop("tls-server-name", None)

    if any(given.get(key) for key in AUTHORITY):
        for key in AUTHORITY:
            changed.pop(key, None)

    return {**changed, **{key: value for key, value in given.items() if value}}


def _overridden_user(user: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The user with the flags' fields, by client-go's rules."""
    changed = dict(user)
    if any(given.get(key) for key in CREDENTIALS):
        for key in CREDENTIALS:
            changed.pop(key, None)

    for key in ("client-certificate", "client-key"):
        if given.get(key):
            changed.pop(f"{key}-data", None)

    return {**changed, **{key: value for key, value in given.items() if value}}


def _merged(paths: list[str]) -> dict[str, Any]:
    """The entries of all files by kind and name, the first of a name wins; files are told by whole
    paths.
    """
    merged: dict[str, Any] = {"clusters": {}, "users": {}, "contexts": {}, "current-context": ""}
    for path in (location.expanded(path) for path in paths if path):
        try:
            text = path.read_text()
        except (FileNotFoundError, NotADirectoryError):
            continue

        document = cast(Mapping[str, Any], yaml.load(text, Loader=LOADER) or {})
        # The first file that names one wins, as for kubectl.
        merged["current-context"] = (
            merged["current-context"] or document.get("current-context") or ""
        )

        for kind, singular in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            for entry in document.get(kind) or ():
                values = dict(entry.get(singular) or {})
                command = (values.get("exec") or {}).get("command") or ""
                if os.sep in command:
                    values["exec"] = {
                        **values["exec"],
                        "command": str(path.parent / location.expanded(command)),
                    }

                for key in (
                    "certificate-authority",
                    "client-certificate",
                    "client-key",
                    "tokenFile",
                ):
                    if values.get(key):
                        # Relative paths are relative to their kubeconfig. An absolute path stays as
                        # it is: `/` discards the left side.
                        values[key] = str(path.parent / location.expanded(values[key]))

                merged[kind].setdefault(entry["name"], values)

    return merged


def _authorization(user: Mapping[str, Any]) -> str:
    """The header's value; a token file wins over a token, as for client-go."""
    if user.get("tokenFile"):
        return f"Bearer {Path(user['tokenFile']).read_text().strip()}"
    if user.get("token"):
        return f"Bearer {user['token']}"

    if user.get("username"):
        pair = f"{user['username']}:{user.get('password', '')}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"

    return ""


def _tls(server: str, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext | None:
    if not server.startswith("https"):
        return None

    with (
        _file(cluster, "certificate-authority") as authority,
        _file(user, "client-certificate") as certificate,
        _file(user, "client-key") as key,
    ):
        return tls_context(
            server_name=cluster.get("tls-server-name"),
            authority=authority,
            certificate=certificate,
            key=key,
            verify=not cluster.get("insecure-skip-tls-verify"),
        )


@contextmanager
def _file(entry: Mapping[str, Any], key: str) -> Iterator[str | None]:
    """The path of what is given as a path or inline; an inline one is on disk only within."""
    inline = entry.get(f"{key}-data")
    if not inline:
        yield entry.get(key)
        return

    with tempfile.NamedTemporaryFile() as file:  # readable by its owner alone
        file.write(base64.b64decode(inline))
        file.flush()
        yield file.name


def _by_library(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> Access:
    """Credentials that need a plugin: the library reads a kubeconfig of these two entries alone."""
    import asyncio
    import time

    from gangsched.kube.http.credentials import Credentials

    # Its `as` is ours to send: the library knows none.
    without_as = {key: value for key, value in user.items() if not key.startswith("as")}
    document = {
        "clusters": [{"name": "it", "cluster": dict(cluster)}],
        "users": [{"name": "it", "user": without_as}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "current-context": "it",
    }

    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:  # readable by its owner alone
        yaml.safe_dump(document, file)
        file.flush()
        credentials = Credentials(file.name, now=time.monotonic)

        try:
            asyncio.run(credentials.load())
        except Misconfigured as error:
            # Whoever reads it knows no temporary file.
            raise ValueError(
                str(error).partition(f"{credentials.name}: ")[2] or str(error)
            ) from error

    proxy = credentials.proxy or ""
    return Access(credentials.server, "", "", credentials.authorization, credentials.tls, proxy)
