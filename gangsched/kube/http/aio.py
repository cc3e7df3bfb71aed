"""aiohttp, imported without loading the system's certificate authorities.

aiohttp loads these at import, for connections without a TLS context, which takes 50 ms per start
and cannot be turned off. gangsched's connections have a context (`client`), so OpenSSL's
environment variable points to an empty file during the import.
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
    # OpenSSL reads this variable when default authorities are loaded; an empty file is parsed in no
    # time.
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
