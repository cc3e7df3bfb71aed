"""The port of the gangs API.

Invariant: it can be opened long before the server, which takes time to import; early clients wait
in the kernel.
"""

from __future__ import annotations

import socket

from gangsched.settings import Settings, SettingsError

BACKLOG = 128


def listen(settings: Settings) -> socket.socket:
    """Listen on the port, on IPv4 and IPv6 unless an address is set. Raises SettingsError if it is
    not available.
    """
    host = settings.bind_address
    port = settings.visibility_port

    try:
        if host:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        # One socket for both families; a kernel without IPv6 gets a plain IPv4 socket below.
        elif socket.has_dualstack_ipv6():
            listener = socket.create_server(
                ("", port),
                family=socket.AF_INET6,
                dualstack_ipv6=True,
                backlog=BACKLOG,
            )
        else:
            listener = socket.create_server(("", port), backlog=BACKLOG)
    except OSError as error:
        text = f"Cannot serve the visibility API on port {port}: {error.strerror}"
        raise SettingsError(
            f"{text}; choose another GANGSCHED_VISIBILITY_PORT, or 0 for none."
        ) from error

    listener.setblocking(False)
    return listener
