"""aiohttp, imported without the authorities of the system.

Invariant: aiohttp reads these when it is imported, for connections that name no TLS context: 50 ms of every start, and
no option keeps it from that. Ours name one (`client`), so OpenSSL is pointed at an empty file meanwhile, by its
variable.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE = "SSL_CERT_FILE"


@contextmanager
def _without_authorities() -> Iterator[None]:
    kept = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = os.devnull
    try:
        yield
    finally:
        if kept is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = kept


with _without_authorities():
    importlib.import_module("aiohttp")

import aiohttp as aiohttp  # noqa: E402, PLC0414  (the same, with its types)
