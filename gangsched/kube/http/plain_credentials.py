"""Credentials without a library: tokens and client certificates of a kubeconfig or of the pod's service account.

Importing `credentials` takes too long for a command that should answer within a second. Kubeconfigs with exec plugins
or auth providers are passed to `credentials`, so that every kubeconfig works.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from gangsched.kube.http import location
from gangsched.kube.http.faults import Misconfigured, said
from gangsched.kube.http.tls import tls_context

# The loader in C is much faster, but not every build of PyYAML has it.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Access:
    """Address and credentials of one API server. `namespace` is the context's namespace; `name` is for messages."""

    server: str
    name: str
    namespace: str = "default"
    authorization: str = ""
    tls: ssl.SSLContext | None = None
    proxy: str = ""


def access(kubeconfig: Path | None = None, context: str | None = None) -> Access:
    """Find the credentials as kubectl does: the given file, else $KUBECONFIG, else ~/.kube/config, else the pod's
    service account.

    Raises Misconfigured with one sentence.
    """
    try:
        paths = location.kubeconfig_path(kubeconfig)
    except Misconfigured:
        if kubeconfig is None and context is None and location.in_cluster():
            return _of_service_account()
        raise
    try:
        return _of_kubeconfig(paths, kubeconfig, context)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        why = "it is not a kubeconfig" if isinstance(error, KeyError | TypeError | AttributeError) else said(error)
        raise Misconfigured(f"Cannot use kubeconfig {paths}: {why}.") from error


def _of_service_account() -> Access:
    folder = location.SERVICE_ACCOUNT
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    try:
        token = (folder / "token").read_text().strip()
        namespace = (folder / "namespace").read_text().strip()
        tls = tls_context(server_name=None, authority=str(folder / "ca.crt"), certificate=None, key=None, verify=True)
    except OSError as error:
        raise Misconfigured(f"Cannot use the pod's service account: {said(error)}.") from error
    return Access(f"https://{host}:{port}", "the pod's service account", namespace, f"Bearer {token}", tls)


def _of_kubeconfig(paths: str, given: Path | None, wanted: str | None) -> Access:
    merged = _merged([paths] if given is not None else paths.split(os.pathsep))
    name = wanted or merged["current-context"]
    if name not in merged["contexts"]:
        said_so = f'has no context "{name}"' if name else "has no current context: pass --context"
        raise Misconfigured(f"Kubeconfig {paths} {said_so}.")
    context = merged["contexts"][name]
    for kind, of in (("clusters", "cluster"), ("users", "user")):
        # A context without a user is valid: the server may admit anonymous requests.
        if context.get(of) not in merged[kind] and (of == "cluster" or context.get(of)):
            raise Misconfigured(f'Context "{name}" of kubeconfig {paths} names a {of} that is not there.')
    cluster, user = merged["clusters"][context["cluster"]], merged["users"].get(context.get("user"), {})
    namespace = str(context.get("namespace") or "default")
    if "exec" in user or "auth-provider" in user:
        return _by_library(paths, name, namespace)
    server = str(cluster["server"]).rstrip("/")
    proxy = str(cluster.get("proxy-url") or "")
    return Access(server, f"kubeconfig {paths}", namespace, _authorization(user), _tls(server, cluster, user), proxy)


def _merged(paths: list[str]) -> dict[str, Any]:
    """The entries of all files by kind and name, the first of a name wins; files are told by whole paths."""
    merged: dict[str, Any] = {"clusters": {}, "users": {}, "contexts": {}, "current-context": ""}
    for path in (location.expanded(path) for path in paths if path):
        if not path.is_file():
            continue
        document = cast(Mapping[str, Any], yaml.load(path.read_text(), Loader=LOADER) or {})
        # The first file that names one wins, as for kubectl.
        merged["current-context"] = merged["current-context"] or document.get("current-context") or ""
        for kind, of in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            for entry in document.get(kind) or ():
                values = dict(entry.get(of) or {})
                for key in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
                    if values.get(key):
                        # Relative paths are relative to their kubeconfig. An absolute path stays as it is: `/` discards
                        # the left side.
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


def _by_library(paths: str, context: str, namespace: str) -> Access:
    import asyncio
    import time

    from gangsched.kube.http.credentials import Credentials

    credentials = Credentials(paths, now=time.monotonic, context=context)
    asyncio.run(credentials.load())
    return Access(
        credentials.server,
        credentials.name,
        namespace,
        credentials.authorization,
        credentials.tls,
        credentials.proxy or "",
    )
