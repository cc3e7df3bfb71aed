"""aiohttp without the authorities of the system: they are not read, and the environment stays as it
was.
"""

from __future__ import annotations

import json
import os

import pytest

from tests.interpreter import printed_by

CODE = """
import json, os
from gangsched.kube.http import client
from aiohttp import connector
from gangsched.kube.http.aio import VARIABLE
number = connector._SSL_CONTEXT_VERIFIED.cert_store_stats()["x509"]
print(json.dumps([number, os.environ.get(VARIABLE)]))
"""


@pytest.mark.parametrize("variable", [None, "/etc/ssl/certs/ca-certificates.crt"])
def test_the_authorities_are_not_read_and_the_variable_stays(variable: str | None) -> None:
    """Decision 0016; what the administrator points OpenSSL at is for the credentials."""
    environment = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}
    environment |= {"SSL_CERT_FILE": variable} if variable else {}
    assert json.loads(printed_by(CODE, environment)) == [0, variable]
