"""The server's identity: the Secret shared by all replicas, and the caBundle of the APIService.

Invariant: only the leader writes, through the write gate of its lease; a standby waits for the
leader's Secret. The manifests create the Secret, empty, so that no permission to create Secrets is
needed. If certificate and key are files, nothing is written, because their issuer (cert-manager)
sets the caBundle.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gangsched.visibility.access.certificates import (
    Serving,
    lasts,
    make_serving,
    newest_authority,
    utc,
)
from gangsched.visibility.ports import GROUP, SECRET, SERVICE, VERSION, Calls, Json

API_SERVICE = f"/apis/apiregistration.k8s.io/v1/apiservices/{VERSION}.{GROUP}"
KEYS = ("ca.crt", "tls.crt", "tls.key")


class Identity:
    """Keeps the Secret and the caBundle up to date."""

    def __init__(
        self,
        calls: Calls,
        namespace: str,
        *,
        directory: Path | None,
        leads: Callable[[], bool],
        wall_s: Callable[[], float],
        warn: Callable[[str], None],
    ) -> None:
        """`namespace` contains the Service and the Secret; `directory`, if given, contains tls.crt
        and tls.key.
        """
        self._calls = calls
        self._directory = directory
        self._leads = leads
        self._wall_s = wall_s
        self._warn = warn

        #: A standby found the Secret and no certificate in it: only a leader can make one.
        self.awaits_leader = False
        self._path = f"/api/v1/namespaces/{namespace}/secrets/{SECRET}"
        self._names = [f"{SERVICE}.{namespace}.svc", f"{SERVICE}.{namespace}.svc.cluster.local"]

    async def look(self) -> Serving | None:
        """Update the Secret and the caBundle; return the current certificate, None if there is none
        yet.
        """
        self.awaits_leader = False
        if self._directory is not None:
            return self._read(self._directory)

        answer = await self._calls("GET", self._path)
        if not answer.is_ok:
            hint = (
                "apply manifests/visibility/secret.yaml"
                if answer.status in {403, 404}
                else "it is asked for again"
            )
            self._warn(f"The Secret {self._path} cannot be read (status {answer.status}): {hint}.")
            return None

        serving = _read(answer.body)
        now = utc(self._wall_s())

        if not self._leads():
            self.awaits_leader = serving is None
            return serving

        if serving is None or not lasts(serving, self._names, now):
            before = newest_authority(serving.authority, now) if serving is not None else ""
            made = make_serving(self._names, now, before)
            # Trusted before it is shown: between the two writes the old certificate is still
            # believed.
            if not await self._is_trusted(made.authority) or not await self._stored(
                answer.body,
                made,
            ):
                return serving

            return made

        await self._is_trusted(serving.authority)
        return serving

    def _read(self, directory: Path) -> Serving | None:
        try:
            return Serving(
                "",
                (directory / "tls.crt").read_text(),
                (directory / "tls.key").read_text(),
            )
        except (OSError, UnicodeDecodeError) as error:
            self._warn(f"The certificate of the visibility API cannot be read: {error}.")
            return None

    async def _stored(self, secret: Json, made: Serving) -> bool:
        values = dict(zip(KEYS, (made.authority, made.certificate, made.key), strict=True))
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}

        # With the version that was read: whoever comes second is refused and reads what the first
        # one wrote.
        answer = await self._calls("PUT", self._path, {**secret, "data": data})
        return answer.is_ok

    async def _is_trusted(self, authority: str) -> bool:
        """See to it that the API server believes this authority."""
        answer = await self._calls("GET", API_SERVICE)
        if not answer.is_ok:
            self._warn(f"The APIService {VERSION}.{GROUP} cannot be read (status {answer.status}).")
            return False

        wanted = base64.b64encode(authority.encode()).decode()
        if answer.body.get("spec", {}).get("caBundle") == wanted:
            return True

        written = await self._calls("PATCH", API_SERVICE, {"spec": {"caBundle": wanted}})
        if not written.is_ok:
            self._warn(
                f"The caBundle of the APIService {VERSION}.{GROUP} cannot be written (status"
                f" {written.status})."
            )

        return written.is_ok


def _read(secret: Any) -> Serving | None:
    data = secret.get("data") or {}
    try:
        return Serving(*(base64.b64decode(data[key]).decode() for key in KEYS))
    except (KeyError, ValueError, TypeError):
        return None
