"""Whether gangsched may use an optional feature, asked while it runs, so that a role may be bound
or taken away at any time.

Invariant: the feature's objects are read only while `granted` is set. A question that the API
server does not answer changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gangsched.kube.http.faults import Fault
from gangsched.kube.ports import RestClient, Runtime

ASK_EVERY_S: Final = 10.0
"""An administrator who has just bound the role waits about as long for a look at the pods."""


class OptionalRights:
    """`granted` or `denied` is set once it is known which holds; exactly one of them is set from
    then on. `hears` is called with each new obstacle, "" if there is none any more.
    """

    #: The warning about an obstacle, and that it is over.
    refused: str = "{}"
    restored: str = ""

    def __init__(self, client: RestClient, runtime: Runtime, *, asks: bool) -> None:
        """Without `asks` the rights are taken for granted."""
        self.granted = asyncio.Event()
        self.denied = asyncio.Event()
        self.hears: Callable[[str], None] = lambda obstacle: None
        self._client = client
        self._runtime = runtime
        self._asks = asks

        if not asks:
            self.granted.set()

    async def run(self) -> None:
        """Ask again and again until cancelled, and report each change of the answer once."""
        while self._asks:
            # The readers of other resources report an API server that does not answer.
            with suppress(Fault):
                self._answered(await self.obstacle())

            await self._runtime.sleep(ASK_EVERY_S)

    async def obstacle(self) -> str:
        """Why the feature cannot be used; "" if it can. Raises Fault."""
        raise NotImplementedError

    def _answered(self, obstacle: str) -> None:
        if obstacle and not self.denied.is_set():
            self.granted.clear()
            self.denied.set()
            self._runtime.warn(self.refused.format(obstacle))
            self.hears(obstacle)
        elif not obstacle and not self.granted.is_set():
            if self.denied.is_set():
                self._runtime.warn(self.restored)

            self.denied.clear()
            self.granted.set()
            self.hears("")
