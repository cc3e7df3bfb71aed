"""The parts of `make conformance` that need no control plane: reports of Ginkgo, the table, and its
reasons.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance import table
from tests.conformance.results import Outcome, State, load, read_report, save

PASSES, FAILS, SKIPS = State.PASSES, State.FAILS, State.SKIPS


def spec(text: str, state: str = "passed", /, **rest: Any) -> dict[str, Any]:
    """A spec as a report of Ginkgo has it."""
    return {
        "ContainerHierarchyTexts": ["[sig-scheduling] Preemption [Serial]", "of many"],
        "LeafNodeType": "It",
        "LeafNodeLocation": {
            "FileName": "k8s.io/kubernetes@v1.37.2/test/e2e/scheduling/preemption.go"
        },
        "LeafNodeText": text,
        "State": state,
        "RunTime": 1_500_000_000,
        **rest,
    }


def report(*specs: dict[str, Any]) -> str:
    """A report with one suite."""
    return json.dumps([{"SpecReports": list(specs)}])


def outcomes(**states: State) -> dict[str, Outcome]:
    """An outcome for each name."""
    return {name: Outcome(state, 1.0) for name, state in states.items()}


def test_a_report_is_read_as_one_outcome_a_spec() -> None:
    """Tags go, failures keep what they say, and only specs of scheduling that were asked
    for count.
    """
    failed: dict[str, Any] = {"Failure": {"Message": "2 pods are pending"}}
    skipped: dict[str, Any] = {"Failure": {"Message": "needs two zones"}}
    elsewhere: dict[str, Any] = {
        "LeafNodeLocation": {"FileName": "k8s.io/kubernetes/test/e2e/common/apimachinery/x.go"}
    }
    read = read_report(
        report(
            spec("works [Conformance]"),
            spec("evicts", "failed", **failed),
            spec("hangs", "timedout", **failed),
            spec("spreads", "skipped", **skipped),
            spec("was not asked for", "skipped"),
            spec("is of the API", **elsewhere),
            spec("", LeafNodeType="SynchronizedBeforeSuite", ContainerHierarchyTexts=None),
        )
    )
    assert read == {
        "Preemption of many works": Outcome(PASSES, 1.5),
        "Preemption of many evicts": Outcome(FAILS, 1.5, "2 pods are pending"),
        "Preemption of many hangs": Outcome(FAILS, 1.5, "2 pods are pending"),
        "Preemption of many spreads": Outcome(SKIPS, 1.5, "needs two zones"),
    }


def test_two_specs_of_one_name_and_an_unknown_state_are_refused() -> None:
    """Neither is passed over: one outcome would hide the other."""
    with pytest.raises(ValueError, match="Two specs are called 'Preemption of many works'"):
        read_report(report(spec("works"), spec("works [Slow]")))
    with pytest.raises(ValueError, match="'flaked'"):
        read_report(report(spec("works", "flaked")))


def test_outcomes_are_kept_between_parts_of_a_run(tmp_path: Any) -> None:
    """What was saved is loaded; nothing is there before the first part."""
    path = tmp_path / "kept" / "ours.json"
    assert load(path) == {}
    save(path, {"a": Outcome(FAILS, 2.0, "no"), "b": Outcome(PASSES, 1.0)})
    assert load(path) == {"a": Outcome(FAILS, 2.0, "no"), "b": Outcome(PASSES, 1.0)}


REASON = (
    '[[difference]]\nspec = "a"\nours = "fails"\ntheirs = "passes"\nwhy = """because\n  of it"""\n'
)


def test_a_reason_counts_only_for_the_outcomes_it_was_written_for() -> None:
    """A known difference is sound; a new one, one that became another, and one that is gone are
    not.
    """
    known = table.read_differences(REASON)
    assert known == {"a": table.Difference(FAILS, PASSES, "because of it")}
    theirs = outcomes(a=PASSES, b=PASSES)
    assert list(table.complaints(outcomes(a=FAILS, b=PASSES), theirs, known)) == []
    (new,) = table.complaints(outcomes(a=FAILS, b=FAILS), theirs, known)
    assert new.startswith("b: fails with gangsched and passes with kube-scheduler")
    (other,) = table.complaints(outcomes(a=SKIPS, b=PASSES), theirs, known)
    assert other.startswith("a: skips with gangsched")
    (both,) = table.complaints(outcomes(a=FAILS, b=PASSES), outcomes(a=FAILS, b=PASSES), known)
    assert both.startswith("a: fails with gangsched and fails with kube-scheduler")
    (gone,) = table.complaints(outcomes(a=PASSES, b=PASSES), theirs, known)
    assert gone.startswith("a: passes in both")
    (alone,) = table.complaints(outcomes(a=FAILS, b=PASSES), outcomes(a=PASSES), known)
    assert alone.startswith("b: only run with gangsched")
    assert list(table.unheard_of(outcomes(a=FAILS), known)) == []
    assert len(list(table.unheard_of(outcomes(b=PASSES), known))) == 1


@pytest.mark.parametrize(
    "text",
    [REASON + REASON, REASON.replace("because", "").replace("of it", ""), "[[difference]]\n"],
)
def test_a_reason_is_whole_and_of_one_spec(text: str) -> None:
    """A second reason for a spec, an empty one and one of no spec are refused."""
    with pytest.raises(ValueError, match="A difference needs a spec of its own and a reason"):
        table.read_differences(text)


def test_the_table_is_put_into_its_place() -> None:
    """The page keeps its own text, and what it shows can be read again; the counts are those of the
    rows.
    """
    known = table.read_differences(REASON.replace('"a"', '"GangScheduling a"'))
    ours = {
        "GangScheduling a": Outcome(FAILS, 1.0),
        "b": Outcome(PASSES, 1.0),
        "c": Outcome(FAILS, 1.0),
    }
    theirs = {
        "GangScheduling a": Outcome(PASSES, 1.0),
        "b": Outcome(PASSES, 1.0),
        "c": Outcome(FAILS, 1.0),
    }
    made = table.rows(ours, theirs, known)
    page = table.with_table(
        "# Title\n\n<!-- conformance: x -->\nold\n<!-- end of conformance -->\nend\n", made
    )
    assert page.startswith(
        "# Title\n\n<!-- conformance: x -->\nOf 3 specs kube-scheduler passes 2, and gangsched 1 "
    )
    assert "of the 1 specs of gangs gangsched passes 0." in page
    assert page.endswith("<!-- end of conformance -->\nend\n")
    assert table.rows_of(page) == made
    assert table.with_table(page, made) == page
    with pytest.raises(ValueError, match="no single place"):
        table.with_table("# Title\n", made)


def test_the_page_has_the_reasons_of_the_file() -> None:
    """Rows that do not pass in both have the reasons of the file, and none is left over; the manual
    has the counts.
    """
    known = table.read_differences(table.DIFFERENCES.read_text())
    shown = table.rows_of(table.PAGE.read_text())
    assert len(shown) > 30
    explained = {
        row.spec: table.Difference(row.ours, row.theirs, row.why)
        for row in shown
        if not row.passes_in_both
    }
    assert explained == known
    assert all(table.summary(shown) in page.read_text() for page in (table.PAGE, table.MANUAL))
