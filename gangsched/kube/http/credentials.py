"""Credentials: the address of the API server and our identity.

Law: kubernetes_asyncio reads kubeconfigs, service-account files and exec plugins; this module only turns its result
into what aiohttp needs (address, TLS context, Authorization header), and its many errors into `Misconfigured`.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gangsched.kube.http import sdk
from gangsched.kube.http.faults import Misconfigured

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
RENEW_EVERY_S = 60.0


def in_cluster() -> bool:
    """Whether this process runs in a pod with a service-account token."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").is_file()


def kubeconfig_path(given: Path | None) -> str:
    """The kubeconfig to use: the given one, else $KUBECONFIG (which may join several), else ~/.kube/config.

    Raises Misconfigured when none of its files exists.
    """
    text = str(given) if given is not None else os.environ.get("KUBECONFIG") or "~/.kube/config"
    paths = [text] if given is not None else text.split(os.pathsep)
    if not any(path and Path(path).expanduser().is_file() for path in paths):
        raise Misconfigured(
            f"There is no kubeconfig at {text}: pass --kubeconfig with a file that exists, or set KUBECONFIG."
        )
    return text


class Credentials:
    """Address and credentials of one API server; `load` before use, `renew` now and then, `load` again after a 401."""

    def __init__(self, kubeconfig: str | None, *, now: Callable[[], float]) -> None:
        """`kubeconfig` is None for the pod's own service account."""
        self.kubeconfig = kubeconfig
        self.server = ""
        self.authorization = ""
        self.tls: ssl.SSLContext | None = None
        self.proxy: str | None = None
        self.settings: Any = None
        self._loader: Any = None
        self._now = now
        self._renewed_s = 0.0

    @property
    def name(self) -> str:
        """Where the credentials come from, for messages."""
        return f"kubeconfig {self.kubeconfig}" if self.kubeconfig is not None else "the pod's service account"

    async def load(self) -> None:
        """Read everything afresh. Raises Misconfigured with one sentence."""
        settings = sdk.Configuration()
        try:
            if self.kubeconfig is None:
                sdk.config.load_incluster_config(client_configuration=settings)
            else:
                self._loader = await sdk.config.load_kube_config(
                    config_file=self.kubeconfig, client_configuration=settings, persist_config=False
                )
            self.tls = _tls(settings)
        except Exception as error:  # YAML, files, TLS and exec plugins each raise their own
            raise Misconfigured(f"Cannot use {self.name}: {_why(error).rstrip('.')}.") from error
        self.settings = settings
        self.server = str(settings.host).rstrip("/")
        self.proxy = settings.proxy
        self._take_token()

    async def renew(self) -> None:
        """Replace short-lived tokens before they expire; at most once a minute.

        Never raises: a token that cannot be renewed is kept, and the server's 401 leads to `load`.
        """
        if self._now() - self._renewed_s < RENEW_EVERY_S:
            return
        self._renewed_s = self._now()
        user = getattr(self._loader, "_user", None)
        with suppress(Exception):
            if self.kubeconfig is None:
                await self.settings.get_api_key_with_prefix("BearerToken")  # reads the file again
            elif user is not None and "exec" in user:
                # The loader keeps the plugin's answer until shortly before it expires.
                await self._loader.load_from_exec_plugin()
                self.settings.api_key["BearerToken"] = self._loader.token
            self._take_token()

    def _take_token(self) -> None:
        self.authorization = str(self.settings.api_key.get("BearerToken", "")).strip()
        self._renewed_s = self._now()


def _why(error: Exception) -> str:
    """What is wrong, as part of a sentence that an administrator understands."""
    if isinstance(error, AttributeError | KeyError | TypeError):  # what a file of another shape ends in
        return "it is not a kubeconfig"
    if isinstance(error, FileNotFoundError) and error.filename:
        is_file = os.sep in str(error.filename)
        return f"{error.filename} {'does not exist' if is_file else 'is its exec plugin, and is not in PATH'}"
    return " ".join(str(error).split()) or type(error).__name__


class _NamedContext(ssl.SSLContext):
    """A TLS context that checks for a given name whatever the address: the kubeconfig's `tls-server-name`."""

    name: str | None = None

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """As asyncio calls it for a new connection."""
        return super().wrap_bio(incoming, outgoing, server_side, self.name or server_hostname, session)


def _tls(settings: Any) -> ssl.SSLContext | None:
    """The TLS context of a loaded configuration; None for plain http."""
    if not str(settings.host).startswith("https"):
        return None
    # Unlike create_default_context this does not ask for VERIFY_X509_STRICT, for whose extensions many running
    # clusters have CAs that are too old.
    context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.name = settings.tls_server_name
    if settings.ssl_ca_cert:
        context.load_verify_locations(cafile=settings.ssl_ca_cert)
    else:
        context.load_default_certs()
    if settings.cert_file:
        context.load_cert_chain(settings.cert_file, keyfile=settings.key_file)
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
