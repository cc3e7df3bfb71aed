"""The requests of the control plane to itself: readiness and tokens.

Law: one connection per request, no retries, no watch. Tests and benchmarks use `api`.
"""

import http.client
import json
import ssl
from typing import Any


class Rest:
    """A JSON client for one address on 127.0.0.1."""

    def __init__(self, port: int, context: ssl.SSLContext, *, timeout_s: float = 10.0) -> None:
        self._port, self._context, self._timeout_s = port, context, timeout_s

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status code and decoded answer (text if it is not JSON). Raises OSError without an answer."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, context=self._context, timeout=self._timeout_s
        )
        try:
            data = None if body is None else json.dumps(body)
            patch = "application/strategic-merge-patch+json"
            content_type = patch if method == "PATCH" else "application/json"
            connection.request(method, path, body=data, headers={"Content-Type": content_type})
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        except http.client.HTTPException as error:
            raise ConnectionError(f"127.0.0.1:{self._port} does not speak HTTP: {error!r}") from error
        finally:
            connection.close()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text

    def healthy(self, path: str) -> bool:
        """Whether `path` answers 200 now."""
        try:
            return self.call("GET", path)[0] == http.client.OK
        except OSError:
            return False
