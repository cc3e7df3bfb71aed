"""The TLS contexts of connections to the API server."""

from __future__ import annotations

import socket
import ssl


class _NamedContext(ssl.SSLContext):
    """A TLS context that checks for a given name whatever the address: the kubeconfig's
    `tls-server-name`.
    """

    name: str | None = None

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Called by asyncio for a new connection."""
        return super().wrap_bio(
            incoming,
            outgoing,
            server_side,
            self.name or server_hostname,
            session,
        )

    def wrap_socket(
        self,
        sock: socket.socket,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLSocket:
        """Called by http.client for a new connection."""
        name = self.name or server_hostname
        return super().wrap_socket(
            sock,
            server_side,
            do_handshake_on_connect,
            suppress_ragged_eofs,
            name,
            session,
        )


def tls_context(
    *,
    server_name: str | None,
    authority: str | None,
    certificate: str | None,
    key: str | None,
    verify: bool,
) -> ssl.SSLContext:
    """The TLS context of a client; `authority`, `certificate` and `key` are paths of files.

    Raises OSError for a file that cannot be read, and ssl.SSLError (a subclass) for a file that is
    not a certificate.
    """
    # Unlike create_default_context this does not ask for VERIFY_X509_STRICT, for whose extensions
    # many running clusters have CAs that are too old.
    context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.name = server_name

    if authority:
        context.load_verify_locations(cafile=authority)
    else:
        # A kubeconfig without an authority, such as that of a cloud with a public certificate.
        context.load_default_certs()

    if certificate:
        context.load_cert_chain(certificate, keyfile=key)

    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE

    return context
