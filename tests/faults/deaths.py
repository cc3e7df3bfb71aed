"""A process that is hurt at one of the calls it makes.

Invariant: the signal is sent from within the proxy, at the moment that its point names; nothing is
waited for but the answer.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from enum import Enum
from itertools import repeat

from aiohttp import web

from tests.faults.requests import ApiRequest
from tests.faults.rules import Cut, Exchange, Held, Rule, nth

READ_WITHIN_S = 0.02
"""How long a process on loopback has for what it does with an answer that has been written to its
socket.
"""


class Point(Enum):
    """A moment in the life of a call."""

    BEFORE = "before it is sent"
    APPLIED = "after it is applied"
    ANSWERED = "after its answer"


@dataclass(frozen=True)
class Hurt:
    """A signal, SIGKILL by default, to the process of that pid at a point of a call.

    `met` is the call; `done` is set after the signal.
    """

    pid: Callable[[], int]
    point: Point
    number: signal.Signals = signal.SIGKILL
    done: threading.Event = field(default_factory=threading.Event)
    met: list[ApiRequest] = field(default_factory=list)

    async def strike(self, exchange: Exchange) -> web.StreamResponse:
        self.met.append(exchange.asked)
        if self.point is Point.ANSWERED:
            return await self._after_the_answer(exchange)
        if self.point is Point.APPLIED:
            await exchange.carry_out()
        self._signal()
        raise Cut

    async def _after_the_answer(self, exchange: Exchange) -> web.StreamResponse:
        if exchange.asked.verb == "watch":
            return await exchange.stream(self._once_open)
        answer = await exchange.forward()
        await answer.prepare(exchange.request)
        await answer.write_eof()
        await asyncio.sleep(READ_WITHIN_S)
        self._signal()
        return answer

    async def _once_open(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        await asyncio.sleep(READ_WITHIN_S)
        self._signal()
        async for line in lines:
            yield line

    def _signal(self) -> None:
        os.kill(self.pid(), self.number)
        self.done.set()


def at_call(number: int, hurt: Hurt, where: Callable[[ApiRequest], bool]) -> list[Rule]:
    """Rules that hurt at the n-th call (from 1) of some; what is written after it does not reach
    the server.

    Clients send many calls at once: those before have been carried out then, and those behind never
    were.
    """
    struck = Rule(nth(number, hurt), where=where)
    return [
        struck,
        Rule(repeat(Held(hurt.done)), where=lambda asked: asked.is_write and bool(hurt.met)),
    ]
