"""What is in the way of the first bind: until then nothing is scheduled (decision 0016)."""

from __future__ import annotations

import pytest

from tests.interpreter import printed_by

COMMAND_LINE = (
    "from gangsched import __main__, cli; from gangsched.configuration import load_settings"
)
LOGS = "from gangsched.telemetry.logs import configure_logging"
READING = "from gangsched.app import run_daemon"
DECIDING = "from gangsched.daemon import Daemon"
NEVER = (
    "cryptography",  # certificates of the gangs API, which is off by default
    "kubectl_gangsched",
    "gangsched.simulate",
    "gangsched.visibility",
    "kopf",  # once what was waiting at the start is bound
    "kubernetes_asyncio.client.api",
    "kubernetes_asyncio.client.models",
    "matplotlib",
    "rich",  # draws tables and tracebacks for people
)
NOT_FOR_READING = ("gangsched.core", "gangsched.state", "numpy", "prometheus_client", "aiohttp.web")


def imported_by(*lines: str) -> set[str]:
    """The modules in a fresh interpreter after these lines."""
    code = "; ".join((*lines, "import sys", "print(*sys.modules)"))
    return set(printed_by(code).split())


@pytest.mark.parametrize(
    ("lines", "needless"),
    [
        ((COMMAND_LINE,), (*NEVER, *NOT_FOR_READING, "aiohttp", "structlog")),
        ((COMMAND_LINE, LOGS, READING), (*NEVER, *NOT_FOR_READING)),
        ((COMMAND_LINE, LOGS, READING, DECIDING), NEVER),
    ],
    ids=["command line", "reading", "deciding"],
)
def test_nothing_heavy_is_in_the_way_of_the_first_bind(
    lines: tuple[str, ...], needless: tuple[str, ...]
) -> None:
    """Each stage of a start imports what it needs, in the order of `cli` and `app`, and nothing for
    later.
    """
    assert not imported_by(*lines) & set(needless)
