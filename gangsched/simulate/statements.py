"""Declared run times in a simulation: as in the file, or as if all owners, or no owners, declared
them.

Invariant: only `Job.stated_s` changes; the real run time stays as in the file.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final, assert_never

from gangsched.simulate.tables import InputError
from gangsched.simulate.workload import Job

HOUR_S: Final = 3_600.0
DAY_S: Final = 24 * HOUR_S
CLASSES_S: Final = (600.0, HOUR_S, 4 * HOUR_S, DAY_S, 3 * DAY_S, 7 * DAY_S, 30 * DAY_S, 90 * DAY_S)
"""The limits that people choose from: those of the partitions of many clusters."""


class Stated(StrEnum):
    """The run times that jobs declare; with HALF, half of the jobs, chosen by name, declare their
    class.
    """

    FILE = "file"
    EXACT = "exact"
    CLASS = "class"
    HALF = "half"
    NOTHING = "nothing"


def parse_stated(text: str) -> Stated:
    """Parse the option. Raises InputError."""
    try:
        return Stated(text)
    except ValueError:
        raise InputError(
            f'--stated is "{text}": it should be one of {", ".join(Stated)}.'
        ) from None


def stating(jobs: Sequence[Job], what: Stated) -> list[Job]:
    """Return the jobs with these declared run times."""
    match what:
        case Stated.FILE:
            return list(jobs)
        case Stated.EXACT:
            return [replace(job, stated_s=job.run_s) for job in jobs]
        case Stated.CLASS:
            return [replace(job, stated_s=run_class_s(job)) for job in jobs]
        case Stated.HALF:
            return [
                replace(job, stated_s=run_class_s(job) if _by_lot(job) else None) for job in jobs
            ]
        case Stated.NOTHING:
            return [replace(job, stated_s=None) for job in jobs]
        case _:
            assert_never(what)


def run_class_s(job: Job) -> float:
    """Upper bound of the class of a run time, in seconds; above the last class the run
    time itself.
    """
    return next((bound_s for bound_s in CLASSES_S if job.run_s <= bound_s), job.run_s)


def _by_lot(job: Job) -> bool:
    """Half of the jobs, the same ones in every run."""
    # Not hash(): that of texts differs from process to process.
    return zlib.crc32(job.name.encode()) % 2 == 0
