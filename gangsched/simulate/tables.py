"""CSV files by column name, with errors that name the file and the line.

Invariant: unreadable values are refused with one sentence, never skipped. Unknown columns are
ignored.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gangsched.model.resources import ResourceVector, parse_resources
from kubernetes_cel.amounts import QuantityError


class InputError(Exception):
    """A file cannot be used; `str()` is one sentence that names the file and, if possible, the
    line.
    """


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a file; an empty value counts as missing."""

    file: Path
    line: int
    values: Mapping[str, str]

    def text(self, column: str, default: str = "") -> str:
        """The value as text."""
        return self.values.get(column) or default

    def whole(self, column: str, default: int | None = None) -> int:
        """A whole number of at least 0; the value is required if there is no default."""
        return int(self._read(column, default, int, "a whole number of at least 0"))

    def signed(self, column: str, default: int) -> int:
        """A whole number."""
        return int(self._read(column, default, int, "a whole number", least=-math.inf))

    def number(self, column: str, default: float | None = None) -> float:
        """A number of at least 0; the value is required if there is no default."""
        return self._read(column, default, float, "a number of at least 0")

    def time_s(self, column: str) -> float:
        """Seconds since an arbitrary moment, or a date and time (UTC if it has no zone) as seconds
        since the epoch.
        """
        return self._read(column, None, _seconds, "seconds or a time such as 2017-10-09 07:01:55")

    def resources(self, columns: Mapping[str, str]) -> ResourceVector:
        """Kubernetes quantities by resource; `columns` names the column of each."""
        try:
            return parse_resources(
                {resource: self.text(column, "0") for resource, column in columns.items()}
            )
        except QuantityError as error:
            raise self.refused(str(error).rstrip(".")) from error

    def refused(self, what: str) -> InputError:
        """An error that names this line."""
        return InputError(f"Line {self.line} of {self.file} cannot be used: {what}.")

    def _read(
        self,
        column: str,
        default: float | None,
        convert: Callable[[str], float],
        kind: str,
        *,
        least: float = 0,
    ) -> float:
        value = self.text(column)
        if not value and default is not None:
            return default

        try:
            number = convert(value)
        except ValueError:
            number = math.nan

        if not least <= number < math.inf:
            raise self.refused(
                f'{column} is "{value}", not {kind}' if value else f"it has no {column}"
            )

        return number


def read_table(file: Path) -> tuple[frozenset[str], list[Row]]:
    """The columns and the rows of a CSV file with a header. Raises InputError, also for a file
    without rows.
    """
    try:
        # Spreadsheets write a byte order mark, which would become part of the first column's name.
        with file.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines)
            rows = list(_rows(file, reader))
            columns = frozenset(reader.fieldnames or ())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"The file {file} cannot be read: {why}.") from error

    if not rows:
        raise InputError(f"The file {file} has no rows below its header.")

    return columns, rows


def _rows(file: Path, reader: csv.DictReader[str]) -> Iterator[Row]:
    for values in reader:
        row = Row(file, reader.line_num, values)
        # csv.DictReader collects surplus values under the key None.
        if None in values:
            raise row.refused("it has more values than the header has columns")

        yield row


def _seconds(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
