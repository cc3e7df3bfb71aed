"""kopf, embedded in the daemon's event loop as an operator that only watches.

Invariant: it writes nothing, does not change signal handlers, tasks or logs of the daemon, and
sends requests no more often than `RequestPace` allows. It ends with a `Fault`, or when it is
stopped. It does *not* survive a fault: kopf ends on any ERROR line but 410, on a 410 during a list,
and on a malformed line. The caller restarts it.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from types import ModuleType
from typing import Any, cast

import aiohttp

from gangsched.api.dialects import DIALECTS
from gangsched.kube.http.backoff import RequestPace
from gangsched.kube.http.client import ApiClient
from gangsched.kube.http.faults import Fault, Unreachable, said
from gangsched.kube.read.podgroup_informer import Handler
from gangsched.kube.read.reflector import SILENCE_S, WATCH_S

CLIENTS = ("kubernetes", "kubernetes_asyncio", "kubernetes_asyncio.client")


@contextmanager
def _not_to_be_found() -> Iterator[None]:
    modules = cast(dict[str, ModuleType | None], sys.modules)  # None: there is no such module
    kept = {name: modules[name] for name in CLIENTS if name in modules}
    modules.update(dict.fromkeys(CLIENTS))

    try:
        yield
    finally:
        for name in CLIENTS:
            modules.pop(name, None)

        modules.update(kept)


# kopf imports the clients for the types of two classes that handlers may return, which ours do not,
# and works without them. Importing their 700 models costs every process 170 ms and 35 MiB.
with _not_to_be_found():
    importlib.import_module("kopf")

import kopf as kopf  # noqa: E402, PLC0414  (the same, with its types)

IDENTITY = "gangsched"
"""Names this operator among peers, of which a standalone one has none."""
WORKER_IDLE_S = 0.1
"""kopf's worker of an object keeps the last line about it for so long, five seconds by default.
Lines are cycles, and those that a collection of the youngest garbage meets alive wait ten minutes
for the next one of the older (`heap`).
"""


class OperatorEnded(Fault):
    """kopf's operator ended without being stopped."""


async def follow(
    client: ApiClient,
    api_group: str,
    version: str,
    on_event: Handler,
    *,
    pace: RequestPace,
    stop: asyncio.Event,
    restore_signals: Callable[[], None],
) -> None:
    """Pass every event about PodGroups of one API version to `on_event` until `stop` is set. Raises
    OperatorEnded.

    `restore_signals` is called right after kopf has installed its handlers for SIGINT and SIGTERM,
    before any signal can arrive.
    """
    # every end is reported by our caller, in its own words
    logging.getLogger("kopf").setLevel(logging.CRITICAL)
    sessions = _Sessions(client, pace)
    registry = _registry(api_group, version, on_event, sessions)

    try:
        tasks = await kopf.spawn_tasks(
            registry=registry,
            settings=_settings(),
            clusterwide=True,
            standalone=True,
            # Without one kopf asks for the user's name. The image's UID has none, and the operator
            # would end at once.
            identity=IDENTITY,
            stop_flag=stop,
        )
        restore_signals()

        # On its way out kopf cancels every task it does not know, ours among them, unless told to
        # ignore them.
        await kopf.run_tasks(tasks, ignored=_Everything())
    except Exception as error:
        raise OperatorEnded(f"The watch of {api_group} ended: {_cause(error)[:300]}.") from error
    finally:
        stop.set()  # ends the task in which kopf waits for it
        await sessions.aclose()


def _cause(error: Exception) -> str:
    """What ended it, without a full stop; of a refusal only the API server's sentence, since kopf's
    text shows the whole Status.
    """
    message = getattr(error, "message", None)
    return message.rstrip(".") if isinstance(message, str) and message else said(error)


class _Sessions(AsyncExitStack):
    """The sessions that kopf was given, the last one in use; kopf takes none twice."""

    def __init__(self, client: ApiClient, pace: RequestPace) -> None:
        super().__init__()
        self._client = client
        self._pace = pace
        self._asked = False

    async def login(self, **_: Any) -> Any:
        """Login handler for kopf. kopf calls it again after the server has rejected the last
        credentials, so it reads them again.
        """
        if self._asked and not await self._client.reload():
            raise Unreachable("The credentials cannot be read again.")

        self._asked = True
        await self.aclose()
        session = await self.enter_async_context(self._client.session(self._in_turn))

        return kopf.AiohttpSession(server=self._client.credentials.server, aiohttp_session=session)

    async def _in_turn(
        self,
        request: aiohttp.ClientRequest,
        handler: aiohttp.ClientHandlerType,
    ) -> aiohttp.ClientResponse:
        query = request.url.query
        # Pages of one list belong together, and only its first request waits for a turn.
        if "continue" not in query:
            await self._pace.turn("watch" if "watch" in query else request.url.path)

        return await handler(request)


def _registry(api_group: str, version: str, on_event: Handler, sessions: _Sessions) -> Any:
    registry = kopf.OperatorRegistry()

    async def heard(event: Mapping[str, Any], **_: Any) -> None:
        on_event(event["type"], event["object"])

    kopf.on.login(registry=registry, retries=3, backoff=1.0)(sessions.login)
    dialect = DIALECTS[api_group]
    kopf.on.event(dialect.api_group, version, dialect.plural, registry=registry)(heard)

    return registry


def _settings() -> Any:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True

    # else it SIGKILLs the process ten minutes after its own end
    settings.process.ultimate_exiting_timeout = None
    settings.watching.server_timeout = WATCH_S
    settings.watching.client_timeout = settings.watching.inactivity_timeout = SILENCE_S
    settings.networking.request_timeout = 30
    settings.networking.error_backoffs = (0.5, 1, 2)  # then it ends, and we start it again
    settings.queueing.exit_timeout = 0.5
    settings.queueing.idle_timeout = WORKER_IDLE_S

    return settings


class _Everything(Collection[Any]):
    """The collection that every task is in."""

    def __contains__(self, item: object) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0
