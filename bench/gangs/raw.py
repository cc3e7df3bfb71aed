"""The raw binder: binds known pods to known nodes as fast as the API server lets one client, and
does nothing else.

    python -m bench.gangs.raw URL CA CERT KEY < lines of "pod node"

Invariant: no watch, no state, no checks, no Events; all requests are built before the first is
sent.
"""

from __future__ import annotations

import asyncio
import gc
import ssl
import sys

from bench.gangs.cases import PODS, encoded
from bench.gangs.http import Pool

CONNECTIONS = 96


def binding(pod: str, node: str) -> bytes:
    """The body of a bind."""
    return encoded({"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}})


async def bind_all(url: str, context: ssl.SSLContext, pairs: list[tuple[str, str]]) -> None:
    """Bind each pod to its node."""
    async with Pool(url, context, CONNECTIONS) as pool:
        requests = [
            pool.request("POST", f"{PODS}/{pod}/binding", binding(pod, node)) for pod, node in pairs
        ]
        gc.freeze()
        gc.disable()
        await pool.send_all(requests)


def main() -> None:
    """Read the pairs from stdin and bind them."""
    url, ca, cert, key = sys.argv[1:]
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(cert, key)
    pairs = [(pod, node) for pod, node in (line.split() for line in sys.stdin)]
    asyncio.run(bind_all(url, context, pairs))


if __name__ == "__main__":
    main()
