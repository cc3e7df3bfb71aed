"""Free ports of 127.0.0.1, outside the kernel's ephemeral range, so that they are still free a
second later.
"""

import secrets
import socket

#: Below the range that Linux hands out to outgoing connections.
PORTS = range(20_000, 32_000)


def free_ports(count: int) -> list[int]:
    """Distinct ports of 127.0.0.1 without a listener."""
    found: list[int] = []
    while len(found) < count:
        port = PORTS[secrets.randbelow(len(PORTS))]
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


def listens(port: int) -> bool:
    """Whether a port of 127.0.0.1 accepts connections."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
