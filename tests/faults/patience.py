"""Creating objects while the API server comes and goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from control_plane import objects as make
from control_plane.api import Api, ApiError, Object

AWAY_FOR_S = 60.0
PAUSE_S = 0.1
CONFLICT, SERVER_ERROR = 409, 500


def create_patiently(api: Api, bodies: Sequence[Object]) -> None:
    """Create objects, each again where the API server is away; what exists already is as good as
    created.
    """
    try:
        make.create_all(api, bodies)
    except (ApiError, OSError):
        for body in bodies:
            _until_done(partial(_create, api, body))


def _create(api: Api, body: Object) -> None:
    api.post(api.path_of(body), body)


def _until_done(work: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + AWAY_FOR_S
    while True:
        try:
            work()
        except (ApiError, OSError) as error:
            status = error.status if isinstance(error, ApiError) else SERVER_ERROR
            if status == CONFLICT:
                return
            if status < SERVER_ERROR or time.monotonic() > deadline_s:
                raise
            time.sleep(PAUSE_S)
        else:
            return
