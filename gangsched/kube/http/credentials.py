"""Credentials: the address of the API server and the client's identity.

Invariant: kubernetes_asyncio reads kubeconfigs, service-account files and exec plugins; this module
converts its result into what aiohttp needs (address, TLS context, Authorization header), and its
errors into `Misconfigured`.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gangsched.kube.http import location, sdk
from gangsched.kube.http.faults import Misconfigured
from gangsched.kube.http.tls import tls_context

# As client-go: kubelets replace a projected token long before it expires.
RENEW_EVERY_S = 60.0
LOGGER = "kubernetes_asyncio.config.kube_config"


class Credentials:
    """Address and credentials of one API server. Call `load` first, `renew` periodically, and
    `load` again after a 401.
    """

    def __init__(
        self,
        kubeconfig: str | None,
        *,
        now: Callable[[], float],
        context: str | None = None,
    ) -> None:
        """`kubeconfig` is None for the pod's own service account; `context` selects one of its
        contexts, by default the current one.
        """
        self.kubeconfig = kubeconfig
        self._context = context
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
        """Source of the credentials, for messages."""
        if self.kubeconfig is not None:
            return f"kubeconfig {self.kubeconfig}"

        return "the pod's service account"

    async def load(self) -> None:
        """Read address and credentials again. Raises Misconfigured with one sentence."""
        settings = sdk.Configuration()
        try:
            if self.kubeconfig is None:
                sdk.config.load_incluster_config(client_configuration=settings)
            else:
                with _silence():
                    self._loader = await sdk.config.load_kube_config(
                        config_file=self.kubeconfig,
                        context=self._context,
                        client_configuration=settings,
                        # A refreshed token must not be written back: the kubeconfig may be mounted
                        # read-only or be shared.
                        persist_config=False,
                    )
                self._refuse_impersonation()

            self.tls = _tls(settings)
            server = location.server_address(str(settings.host))
        except Misconfigured:
            raise
        except Exception as error:  # YAML, files, TLS and exec plugins each raise their own
            raise Misconfigured(f"Cannot use {self.name}: {_why(error).rstrip('.')}.") from error

        self.settings = settings
        self.server = server
        self.proxy = settings.proxy
        self._take_token()

    async def renew(self) -> None:
        """Replace short-lived tokens before they expire; at most once a minute.

        Never raises: a token that cannot be renewed stays in use until the server answers 401,
        which leads to `load`.
        """
        if self._now() - self._renewed_s < RENEW_EVERY_S:
            return

        self._renewed_s = self._now()
        # Private, but there is no other way to know whether the token comes from an exec plugin.
        user = getattr(self._loader, "_user", None)

        with suppress(Exception):
            if self.kubeconfig is None:
                await self.settings.get_api_key_with_prefix("BearerToken")  # reads the file again
            elif user is not None and "exec" in user:
                # The loader keeps the plugin's answer until shortly before it expires.
                await self._loader.load_from_exec_plugin()
                self.settings.api_key["BearerToken"] = self._loader.token

            self._take_token()

    def _refuse_impersonation(self) -> None:
        """The library ignores `as`, so that the daemon would act with more rights than the
        kubeconfig means.
        """
        # Private, see `renew`.
        user = getattr(self._loader, "_user", None)
        if user is not None and any(
            key in user for key in ("as", "as-uid", "as-groups", "as-user-extra")
        ):
            raise Misconfigured(
                f"Cannot use {self.name}: its user impersonates another one (as), which a daemon"
                " does not do; give it credentials of its own."
            )

    def _take_token(self) -> None:
        self.authorization = str(self.settings.api_key.get("BearerToken", "")).strip()
        self._renewed_s = self._now()


@contextmanager
def _silence() -> Iterator[None]:
    """The library logs what it raises, in words of its own; `Misconfigured` has it in ours."""
    library = logging.getLogger(LOGGER)
    library.disabled = True
    try:
        yield
    finally:
        library.disabled = False


def _why(error: Exception) -> str:
    """The error as part of a sentence that an administrator understands."""
    # what a file of another shape ends in
    if isinstance(error, AttributeError | KeyError | TypeError):
        return "it is not a kubeconfig"

    if isinstance(error, FileNotFoundError):
        # Files have a name here; of a program uvloop tells none.
        if not error.filename:
            return "its exec plugin is not in PATH"

        is_file = os.sep in str(error.filename)
        return (
            f"{error.filename}"
            f" {'does not exist' if is_file else 'is its exec plugin, and is not in PATH'}"
        )

    if isinstance(error, OSError) and error.strerror and error.errno:
        return error.strerror

    return " ".join(str(error).split()) or type(error).__name__


def _tls(settings: Any) -> ssl.SSLContext | None:
    """The TLS context of a loaded configuration; None for plain http."""
    if not str(settings.host).startswith("https"):
        return None

    return tls_context(
        server_name=settings.tls_server_name,
        authority=settings.ssl_ca_cert,
        certificate=settings.cert_file,
        key=settings.key_file,
        verify=settings.verify_ssl,
    )
