"""What a live page keeps of the moments that it has seen, in chromium: its own modules, without the
page.
"""

from __future__ import annotations

import json
import random
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Browser

from kubectl_gangsched.page import bundle

pytestmark = pytest.mark.page

ENTRY = "entry.js"
MODULES = """
import { applied, LiveMoments } from './moments.js';
import { Marks } from './owners.js';
globalThis.page = { applied, LiveMoments, Marks };
"""
KEEP = """
(text) => {
  const changes = JSON.parse(text);
  const first = { atS: 0, nodes: {}, gangs: {}, bars: {}, queue: [] };
  const live = new page.LiveMoments(first);
  const seen = new Map([[0, JSON.stringify(first)]]);
  let most = 0;
  for (const change of changes) {
    live.push(page.applied(live.latest, [change]));
    seen.set(change.atS, JSON.stringify(live.latest));
    most = Math.max(most, live.steps.reduce((sum, step) => sum + step.rows, 0));
  }
  const size = (one) => Object.keys(one).length;
  const isSame = (one, other) => (
    one === other || (one && other && typeof one === 'object' && size(one) === size(other)
      && Object.keys(one).every((key) => isSame(one[key], other[key]))));
  const shown = (place) => JSON.parse(JSON.stringify(live.at(place)));
  const wrong = live.times.filter((atS, place) => (
    !isSame(shown(place), JSON.parse(seen.get(atS))) || live.at(place) !== live.at(place)));
  return { times: live.times, wrong, most };
}
"""
MARKS = """
(number) => {
  const marks = new page.Marks();
  for (let n = 0; n < number; n++) marks.of([`team/stays`, `team/gang-${n}`], []);
  return [marks.known.size, marks.known.get('team/stays').letter];
}
"""


def _in_the_browser(browser: Browser, script: str, argument: Any) -> Any:
    """What a script returns that has some of the page's modules."""
    modules = {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in (files("kubectl_gangsched.page") / "assets").iterdir()
        if entry.name.endswith(".js")
    }
    page = browser.new_page()
    try:
        page.evaluate(bundle.bundled(modules | {ENTRY: MODULES}, ENTRY))
        return page.evaluate(script, argument)
    finally:
        page.close()


def _changes(chance: random.Random, number: int, gangs: int, step_s: float) -> list[Any]:
    """So many changes, of which each has some rows that come, go and change, and a queue."""
    queue: list[tuple[str, int]] = []
    changes = []
    for place in range(1, number + 1):
        change: dict[str, Any] = {"atS": place * step_s, "sentence": f"moment {place}"}
        for table in ("nodes", "gangs", "bars"):
            rows = {}
            for _ in range(chance.randrange(1, 6)):
                row = {"n": chance.random()} if chance.random() < 0.8 else None
                rows[f"row-{chance.randrange(gangs)}"] = row

            change[table] = rows

        left = [gang for gang, _ in queue if chance.random() < 0.2]
        rest = [entry for entry in queue if entry[0] not in left]
        at = chance.randrange(len(rest) + 1)
        joined = (f"team/gang-{place}", chance.randrange(3))
        change["queue"] = {"left": left, "parts": [{"at": at, "joined": [joined]}]}
        queue = [*rest[:at], joined, *rest[at:]]
        changes.append(change)

    return changes


@pytest.mark.parametrize("seed", range(5))
def test_every_moment_that_is_kept_is_as_it_was(browser: Browser, seed: int) -> None:
    """Whatever changed since: rows, fields and the queue; also where moments were left out."""
    changes = _changes(random.Random(seed), 2_500, 40, 2.0)
    kept = _in_the_browser(browser, KEEP, json.dumps(changes))
    assert kept["wrong"] == []
    assert 150 < len(kept["times"]) <= 363
    assert kept["times"] == sorted(kept["times"])
    assert kept["times"][-1] == changes[-1]["atS"]


def test_what_is_kept_has_a_bound(browser: Browser) -> None:
    """Where everything changes all the time, the oldest moments go."""
    change = {"nodes": {f"row-{row}": {"n": 1} for row in range(3_000)}}
    changes = []
    for place in range(1, 200):
        rows = {key: {"n": place} for key in change["nodes"]}
        changes.append({"atS": 10_000.0 * place, "nodes": rows})

    kept = _in_the_browser(browser, KEEP, json.dumps(changes))
    assert kept["wrong"] == []
    # One step more than may stay is there for a moment.
    assert kept["most"] <= 43_001
    assert len(kept["times"]) >= 4


def test_letters_of_the_gone_are_forgotten(browser: Browser) -> None:
    """The last thousand keep theirs for when they come back; who stays keeps its own."""
    size, letter = _in_the_browser(browser, MARKS, 5_000)
    assert size <= 1_003
    assert letter == "A"
