"""The answer to a review: computed in a separate process, line by line, and assembled here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing

import msgspec

from gangsched.state.hypothetical import Wanted
from gangsched.visibility.ports import Json
from gangsched.visibility.reviews.holders import holders
from gangsched.visibility.reviews.processes import CPU_S, WITHIN_S, Processes
from gangsched.visibility.reviews.request import Review
from gangsched.visibility.reviews.review import Reviewer
from gangsched.visibility.reviews.suggestions import suggestions
from gangsched.visibility.statuses import RequestRefused

MORE = "more was not tried: it takes too long"
ERROR_CHARACTERS = 500


def lines(
    reviewer: Reviewer,
    wanted: Wanted,
    review: Review,
    *,
    sees_nodes: bool,
) -> Iterator[bytes]:
    """Yield the status, then suggestions as they are found, then an empty object. If there is no
    status, yield the reason.
    """
    try:
        about = reviewer.hypothetical(wanted)
        tried = reviewer.attempt(about.group)
        status = reviewer.status(tried, about, review, sees_nodes=sees_nodes)
        yield msgspec.json.encode(
            {"status": status | {"suggestions": reviewer.advice(wanted, about)}}
        )

        if not status["fits"]:
            held = holders(reviewer, tried, about)
            if held is not None:
                yield msgspec.json.encode({"holders": held})

            for suggestion in suggestions(reviewer, tried, sees_nodes=sees_nodes):
                yield msgspec.json.encode({"suggestion": suggestion})

        yield b"{}"
    except RequestRefused as refused:
        yield msgspec.json.encode({"refused": (refused.code, str(refused), refused.retry_after_s)})
    except Exception as error:  # sent to the parent process, which can log it
        yield msgspec.json.encode({"error": f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS]})


async def answer(
    processes: Processes,
    reviewer: Reviewer,
    wanted: Wanted,
    review: Review,
    *,
    sees_nodes: bool,
) -> Json:
    """Return the status. Raises RequestRefused (503, 504); suggestions that take too long are left
    out.
    """
    status: Json | None = None
    is_whole = False
    work = processes.lines(lambda: lines(reviewer, wanted, review, sees_nodes=sees_nodes))

    try:
        async with aclosing(work):
            async for line in work:
                told: Json = msgspec.json.decode(line)
                if "refused" in told:
                    code, words, retry_after_s = told["refused"]
                    raise RequestRefused(code, words, retry_after_s=retry_after_s)

                if "error" in told:
                    raise RuntimeError(told["error"])

                if "status" in told:
                    status = told["status"]
                elif status is not None and "holders" in told:
                    status["holders"] = told["holders"]
                elif status is not None and "suggestion" in told:
                    status["suggestions"].append(told["suggestion"])

                # The empty object at the end: a process that was killed never sends it.
                is_whole = not told
    except TimeoutError:
        pass

    if status is None:
        within = f"{WITHIN_S:g} s, or {CPU_S} s of a processor"
        raise RequestRefused(
            504,
            f"no plan of it was made within {within}: make it smaller",
            retry_after_s=10,
        )

    if is_whole:
        return status

    return status | {"suggestions": [*status["suggestions"], MORE]}
