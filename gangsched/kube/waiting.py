"""Wait for an event with a time limit, on the clock of `sleep`.

`asyncio.timeout` and `wait_for` are not used because they use the event loop's clock, which a
simulator does not control.
"""

from __future__ import annotations

import asyncio

from gangsched.kube.ports import Sleep


async def wait_for_event(
    event: asyncio.Event,
    timeout_s: float,
    *,
    sleep: Sleep = asyncio.sleep,
) -> bool:
    """Wait until `event` is set, at most `timeout_s`; return whether it is set."""
    if event.is_set() or timeout_s <= 0:
        return event.is_set()

    async def give_up() -> None:
        await sleep(timeout_s)

    waits = (asyncio.create_task(event.wait()), asyncio.create_task(give_up()))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()

    return event.is_set()
