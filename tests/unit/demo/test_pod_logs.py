"""What gangsched logs is the log of its pods on the playground."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from demo.pod_logs import OTHERS, OURS, SILENT, STAGES, PodLogs


def lines(path: Path) -> list[str]:
    """The lines of a log as a container runtime has written it, without when they were seen."""
    found = [
        re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z stderr F (.*)", line)
        for line in path.read_text().splitlines()
    ]
    return [line[1] for line in found if line]


def test_each_whole_line_is_copied_once(tmp_path: Path) -> None:
    """A line that is still being written comes when it is whole."""
    log = tmp_path / "gangsched.log"
    log.write_text("one\ntw")
    logs = PodLogs(tmp_path, log)
    logs.update()
    assert lines(tmp_path / OURS) == ["one"]
    with log.open("a") as more:
        more.write("o\n\nthree")
    logs.update()
    logs.update()
    assert lines(tmp_path / OURS) == ["one", "two", ""]


def test_kwok_reads_these_files(tmp_path: Path) -> None:
    """The files that are written are those that its configuration names; other pods say why they
    have no log.
    """
    log = tmp_path / "gangsched.log"
    log.touch()
    PodLogs(tmp_path, log)
    named = [
        Path(spec["logsFile"]).name
        for document in yaml.safe_load_all(STAGES.read_text())
        for spec in document["spec"]["logs"]
    ]
    assert named == [OURS, OTHERS]
    assert lines(tmp_path / OTHERS) == [SILENT]
