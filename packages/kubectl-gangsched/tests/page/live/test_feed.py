"""The live document: as the cluster changes, and as far as the user may read it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from gangsched.kube.http import blocking
from kubectl_gangsched.page.live import feed, login, places
from kubectl_gangsched.session import GANGS, Session
from tests import page_truth
from tests.fake_api import forbidden, listed, node, pod, status
from tests.fake_watches import watched
from tests.live_page import GANG_LISTS, NODES, PODS, WITHIN_S, Stream, cluster, live, opened, tenant


def gang(name: str, position: int | None, **status: Any) -> dict[str, Any]:
    """A gang of the gangs API."""
    members = {"total": 1, "byState": {"pending": 1} if position else {"bound": 1}}
    place = {"position": position, "waitingSince": "2026-01-01T00:00:00Z"} if position else {}
    return {
        "metadata": {"namespace": "team", "name": name},
        "spec": {"min": 1},
        "status": {"members": members, "reason": "Unschedulable", **place, **status},
    }


def users(stream: Stream, name: str) -> dict[str, int]:
    """Who uses a node."""
    (devices,) = stream.moment.nodes[name].devices
    return devices.users


def test_a_bind_is_a_change_of_its_square(tmp_path: Path) -> None:
    """Within a second, as one event that has nothing of the other node."""
    with live(tmp_path, cluster()) as page:
        stream = Stream(page)
        assert users(stream, "n1") == {}
        began_s = time.monotonic()
        page.fake.change("MODIFIED", PODS, pod("waits-0", gang="waits", node="n1", gpus=8))
        stream.until(lambda stream: users(stream, "n1") == {"team/waits": 8})
        assert time.monotonic() < began_s + 2.0
        changes = [data for kind, data in stream.events if kind == "change"]
        assert set(changes[-1]["nodes"]) == {"n1"}
        page.fake.change("DELETED", PODS, pod("waits-0", gang="waits", node="n1", gpus=8))
        stream.until(lambda stream: users(stream, "n1") == {})
        assert "team/waits" not in stream.moment.gangs
        happened, *_ = stream.moment.bars.get("team/waits", [None])
        assert happened is None or happened.to_s is not None
        stream.close()


def test_one_watch_serves_all_tabs(tmp_path: Path) -> None:
    """However many are open."""
    with live(tmp_path, cluster()) as page:
        streams = [Stream(page) for _ in range(4)]
        page.fake.change("ADDED", NODES, node("n2", 8))
        for stream in streams:
            stream.until(lambda stream: "n2" in stream.moment.nodes)
            stream.close()
        assert sorted(page.fake.watching) == [PODS[0], *NODES] or len(page.fake.watching) == 2
        assert len([asked for asked in page.fake.asked if asked.startswith("WATCH")]) == 2


@pytest.mark.parametrize("has_api", [True, False])
def test_random_changes_are_as_the_commands_say(tmp_path: Path, *, has_api: bool) -> None:
    """After 200 random events `map`, `queue` and `why` say the same, with and without the gangs
    API, as in a tab that saw only changes; `make page-long` has more.
    """
    page_truth.check(tmp_path, seed=54, events=200, has_api=has_api)


def test_a_tenant_sees_nothing_of_others(tmp_path: Path) -> None:
    """Rights in one namespace: no byte of 50 planted names in any answer, and each view that lacks
    a right names it.
    """
    planted = [f"planted-{number}" for number in range(50)]
    others = [pod(name, gang=name, node=name) | {} for name in planted]
    for item in others:
        item["metadata"]["namespace"] = item["metadata"]["name"]
    answers = tenant()
    hidden = {
        f"/api/v1/namespaces/{name}/pods": listed(item)
        for name, item in zip(planted, others, strict=True)
    }
    with live(tmp_path, answers | hidden) as page:
        stream = Stream(page)
        page.fake.change("ADDED", PODS[1:], pod("late-0", gang="late"))
        stream.until(lambda stream: "team/late" in stream.moment.gangs)
        moment = stream.moment
        assert {row.namespace for row in moment.gangs.values()} == {"team"}
        assert (moment.nodes, moment.totals) == ({}, [])
        by_view = {unknown.what: unknown for unknown in moment.unknown}
        assert by_view["map"].is_right
        assert "may not list nodes" in by_view["map"].sentence or "pods" in by_view["map"].sentence
        told = [page.ask(path) for path in ("/api/document", "/api/health", "/")]
        told += [page.ask(f"/api/gang?id=team/{name}") for name in ("runs", "late")]
        texts = [answer.body for answer in told] + [json.dumps(stream.events).encode()]
        assert not [name for name in planted if any(name.encode() in text for text in texts)]
        for name in planted:
            # The refusal has only the name that was asked for, and the namespace of the user.
            refusal = page.ask(f"/api/gang?id={name}/{name}").body.decode()
            assert not [other for other in planted if other in refusal.replace(name, "")]
            assert f'"{name}-' not in refusal
        stream.close()


def test_a_right_that_is_taken_away_takes_the_view_away(tmp_path: Path) -> None:
    """Also while the watch goes on; and it comes back with the right."""
    with live(tmp_path, cluster()) as page:
        stream = Stream(page)
        pods = page.fake.answers[PODS[0]]
        page.fake.answers[PODS[0]] = forbidden("list", "pods")
        page.fake.answers[PODS[1]] = forbidden("list", "pods", 'in the namespace "team"')
        stream.until(lambda stream: not stream.moment.nodes and not stream.moment.gangs)
        wanted = {"You (user alice) may not list pods in namespace team."}
        stream.until(
            lambda stream: (
                {each.sentence for each in stream.moment.unknown if each.is_right} == wanted
            )
        )
        page.fake.answers[PODS[0]] = pods
        stream.until(lambda stream: set(stream.moment.nodes) == {"n0", "n1"})
        page.fake.answers[NODES[0]] = forbidden("list", "nodes")
        stream.until(lambda stream: not stream.moment.nodes)
        assert "team/runs" in stream.moment.gangs
        stream.close()


def test_a_watch_that_goes_on_does_not_keep_what_may_not_be_read(tmp_path: Path) -> None:
    """A watch outlives its permission. One that is silent for 15 s would be asked for again, and
    refused; this one never is.
    """
    with live(tmp_path, cluster()) as page:
        stream = Stream(page)
        page.fake.answers[PODS[0]] = forbidden("list", "pods")
        page.fake.answers[PODS[1]] = forbidden("list", "pods", 'in the namespace "team"')
        deadline_s = time.monotonic() + WITHIN_S + 5
        while stream.moment.nodes or stream.moment.gangs:
            page.fake.tell("MODIFIED", PODS[0], pod("runs-0", gang="runs", node="n0", gpus=4))
            assert time.monotonic() < deadline_s, stream.events[-3:]
            time.sleep(0.05)

        asked = page.fake.asked
        assert asked.count(f"WATCH {PODS[0]}") == 1
        stream.close()


@pytest.mark.parametrize("is_narrower", [True, False])
def test_nothing_is_left_of_what_may_not_be_read_any_more(
    tmp_path: Path, *, is_narrower: bool
) -> None:
    """Nor of what happened: no bar, and no change that was sent, names a gang of another namespace,
    whether the right for the own one is left or not.
    """
    other = pod("planted-0", gang="planted", node="n0", gpus=4)
    other["metadata"]["namespace"] = "elsewhere"
    other["status"] |= {"startTime": "2026-01-01T00:00:00Z", "phase": "Running"}
    with live(tmp_path, cluster()) as page:
        stream = Stream(page)
        first, _ = page.document()
        page.fake.change("ADDED", PODS[:1], other)
        stream.until(lambda stream: "elsewhere/planted" in stream.moment.bars)
        page.fake.answers[PODS[0]] = forbidden("list", "pods")
        if not is_narrower:
            page.fake.answers[PODS[1]] = forbidden("list", "pods", 'in the namespace "team"')

        stream.until(lambda stream: "elsewhere/planted" not in stream.moment.gangs)
        assert b"planted" not in page.ask("/api/document").body
        assert page.server.feed.after(first) is None
        stream.close()


def test_while_the_api_server_is_away_the_page_says_for_how_long(tmp_path: Path) -> None:
    """Within two seconds; afterwards what happened meanwhile is there within five."""
    with live(tmp_path, cluster()) as page:
        stream = Stream(page)
        page.fake.is_away = True
        stream.until(lambda stream: stream.events and stream.events[-1][0] == "behind", 4.0)
        assert stream.events[-1][1]["seconds"] >= 1
        assert "No answer from" in stream.events[-1][1]["sentence"]
        assert set(stream.moment.nodes) == {"n0", "n1"}
        page.fake.change("MODIFIED", PODS, pod("waits-0", gang="waits", node="n1", gpus=8))
        page.fake.change("DELETED", PODS, pod("runs-0", gang="runs", node="n0", gpus=4))
        page.fake.is_away = False
        began_s = time.monotonic()
        stream.until(
            lambda stream: (
                stream.events[-1] == ("behind", {"seconds": 0, "sentence": ""})
                or users(stream, "n1")
            )
        )
        stream.until(lambda stream: users(stream, "n1") == {"team/waits": 8})
        stream.until(lambda stream: users(stream, "n0") == {})
        assert time.monotonic() < began_s + 5.0
        stream.close()


def test_a_server_that_says_nothing_is_away(tmp_path: Path) -> None:
    """Packets that are lost, and no connection that is cut: the page says so within two seconds,
    and what happened meanwhile is there within five.
    """
    assert feed.PING_S + feed.SILENCE_S < 2.0
    with live(tmp_path, cluster()) as page:
        stream = Stream(page)
        page.fake.is_silent = True
        began_s = time.monotonic()
        stream.until(lambda stream: stream.events and stream.events[-1][0] == "behind")
        # Twice the time, for a machine that does much else.
        assert time.monotonic() < began_s + 4.0
        page.fake.change("MODIFIED", PODS, pod("waits-0", gang="waits", node="n1", gpus=8))
        page.fake.is_silent = False
        stream.until(lambda stream: users(stream, "n1") == {"team/waits": 8}, 10.0)
        stream.until(
            lambda stream: ("behind", {"seconds": 0, "sentence": ""}) in stream.events[-4:]
        )
        stream.close()


@pytest.mark.parametrize("part", ["_make", "_unknown"])
def test_a_bug_is_told_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Whatever a part of the feed fails with: the page does not look live meanwhile, and goes on
    once it no longer fails.
    """
    monkeypatch.setattr(feed, "REPEAT_S", 0.1)
    with live(tmp_path, cluster()) as page:
        stream = Stream(page)
        good = getattr(page.server.feed, part)

        def bad() -> None:
            raise AssertionError("planted")

        setattr(page.server.feed, part, bad)
        page.fake.change("MODIFIED", PODS, pod("waits-0", gang="waits", node="n1", gpus=8))
        stream.until(lambda stream: stream.events and stream.events[-1][0] == "behind")
        assert "a bug: AssertionError: planted" in stream.events[-1][1]["sentence"]
        setattr(page.server.feed, part, good)
        stream.until(lambda stream: users(stream, "n1") == {"team/waits": 8})
        stream.until(
            lambda stream: ("behind", {"seconds": 0, "sentence": ""}) in stream.events[-4:]
        )
        stream.close()


def test_an_object_that_is_not_understood_is_told(tmp_path: Path) -> None:
    """What is known stays; nothing is shown as if it were whole."""
    with live(tmp_path, cluster()) as page:
        stream = Stream(page)
        strange = node("n2", 8)
        strange["status"]["allocatable"]["nvidia.com/gpu"] = {"no": "amount"}
        page.fake.change("ADDED", NODES, strange)
        stream.until(
            lambda stream: any(
                unknown.sentence.startswith("nodes are not understood: ")
                for unknown in stream.moment.unknown
            )
        )
        assert set(stream.moment.nodes) == {"n0", "n1"}
        page.fake.change("MODIFIED", NODES, node("n2", 8))
        stream.until(lambda stream: "n2" in stream.moment.nodes)
        assert not [unknown for unknown in stream.moment.unknown if unknown.what == "map"]
        stream.close()


def test_changes_that_are_kept_have_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bytes: 256 changes of a whole cluster would be a gigabyte. A tab that is too far behind
    gets the document again, also where one change alone is too long.
    """
    monkeypatch.setattr(feed, "CHANGES_BYTES", 10_000)
    with live(tmp_path, cluster()) as page:
        first, _ = page.document()
        for number in range(4):
            for other in range(30):
                page.fake.change("ADDED", NODES, node(f"more-{number}-{other}", 8))

            deadline_s = time.monotonic() + WITHIN_S
            while len(page.document()[1].moment.nodes) < 2 + 30 * (number + 1):
                assert time.monotonic() < deadline_s
                time.sleep(0.02)

        kept = page.server.feed.after(page.document()[0] - 1)
        assert sum(len(event.data) for event in kept or ()) <= 10_000
        assert page.server.feed.after(first) is None
        monkeypatch.setattr(feed, "CHANGES_BYTES", 10)
        stream = Stream(page)
        page.fake.change("ADDED", NODES, node("last", 8))
        stream.until(lambda stream: stream.events[-1:] == [("again", {})])
        stream.close()


def test_a_watch_that_is_too_old_begins_again(tmp_path: Path) -> None:
    """410: what was deleted meanwhile is gone, what came is there."""
    with live(tmp_path, cluster()) as page:
        stream = Stream(page)
        page.fake.is_away = True
        while page.fake.watching:
            time.sleep(0.01)
        page.fake.change("DELETED", NODES, node("n1", 8))
        page.fake.change("ADDED", NODES, node("n2", 8))
        page.fake.forget()
        page.fake.is_away = False
        stream.until(lambda stream: set(stream.moment.nodes) == {"n0", "n2"})
        stream.close()


def test_gangs_are_those_of_the_gangs_api(tmp_path: Path) -> None:
    """With their positions and promises, as they change; from pods once it is gone."""
    first = gang("waits", 2, message="gang team/waits needs room")
    answers = cluster(**{path: listed(first) for path in GANG_LISTS})
    answers[f"{GANGS}/namespaces/team/gangs/waits"] = first
    with live(tmp_path, answers) as page:
        stream = Stream(page)
        assert stream.moment.queue == [("team/waits", 2)]
        assert stream.moment.order == "scheduler"
        reserved = {"kind": "timed", "startTime": "2030-01-01T00:00:00Z", "nodes": ["n0"]}
        page.fake.change("MODIFIED", GANG_LISTS, gang("waits", 1, reserved=reserved))
        stream.until(lambda stream: stream.moment.nodes["n0"].reserved)
        assert stream.moment.queue == [("team/waits", 1)]
        assert "the latest" in stream.moment.sentence
        page.fake.change("DELETED", GANG_LISTS, first)
        stream.until(lambda stream: not stream.moment.queue)
        assert stream.moment.nodes["n0"].reserved == []
        detail = page.ask("/api/gang?id=team/waits").value
        assert [member["name"] for member in detail["members"]] == ["waits-0"]
        stream.close()


def test_a_tab_that_comes_late_gets_the_document_again(tmp_path: Path) -> None:
    """An id that is no longer known, or not yet."""
    with live(tmp_path, cluster()) as page:
        for after in (1, 10**18):
            raw = page.raw(
                f"GET /api/changes?after={after} HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\n"
                f"Authorization: Bearer {page.key}\r\n\r\n".encode()
            )
            assert b"event: again\n" in raw


def test_the_end_is_told(tmp_path: Path) -> None:
    """Every tab hears that the host has ended."""
    with live(tmp_path, cluster()) as page:
        stream = Stream(page)
        page.server.feed.end()
        stream.until(lambda stream: stream.events and stream.events[-1][0] == "over")
        stream.close()


def test_what_would_help_and_what_if_are_asked_as_the_user(tmp_path: Path) -> None:
    """A PlacementReview of the gang that exists, and the plan of a manifest."""
    review = {"status": {"fits": True, "suggestions": ["8 more\x1b[2J"], "reason": "Scheduled"}}
    answers = cluster(
        **{
            f"{GANGS}/namespaces/team/placementreviews": review,
            GANGS: {"resources": [{"name": "placementreviews"}]},
        }
    )
    manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c}]}\n"
    with live(tmp_path, answers) as page:
        json_type = {"Content_Type": "application/json"}
        body = json.dumps({"gang": "team/waits"}).encode()
        answer = page.ask("/api/ask", "POST", body, **json_type)
        assert answer.value == {"suggestions": ["8 more�[2J."], "holders": ""}
        assert page.fake.bodies[-1]["spec"] == {"gang": {"existing": "waits"}}
        body = json.dumps({"manifest": manifest}).encode()
        answer = page.ask("/api/ask", "POST", body, **json_type)
        assert answer.value["gangs"][0]["fits"] is True
        body = json.dumps({"manifest": "{"}).encode()
        assert page.ask("/api/ask", "POST", body, **json_type).status == 422


def test_idle_time_counts_while_no_tab_is_open(tmp_path: Path) -> None:
    """An open tab is no idle time."""
    with live(tmp_path, cluster()) as page:
        stream = Stream(page)
        page.server.used_s -= 10_000
        assert page.server.idle_s() == 0.0
        stream.close()
        deadline_s = time.monotonic() + WITHIN_S
        while page.server.open_streams and time.monotonic() < deadline_s:
            page.fake.change("MODIFIED", NODES, node("n0", 8))
            page.fake.change("ADDED", NODES, node(f"x{time.monotonic()}", 8))
            time.sleep(0.1)
        assert page.server.open_streams == 0
        page.server.used_s -= 10_000
        assert page.server.idle_s() > 9_000


def test_places_are_asked_for_and_so_are_reserved_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is in a watch: a place that changes is no event, and nodes are for those who may list
    nodes. Nodes stay while the reservation does.
    """
    monkeypatch.setattr(places, "EVERY_S", 0.05)
    reserved = {"kind": "timed", "startTime": "2030-01-01T00:00:00Z", "promised": False}
    first = gang("a", 1)
    second = gang("b", 2, reserved=reserved)
    whole = gang("b", 2, reserved={**reserved, "nodes": ["n1"]})
    answers = cluster(**{path: listed(first, second) for path in GANG_LISTS})
    answers[f"{GANGS}/namespaces/team/gangs/b"] = whole
    with live(tmp_path, answers) as page:
        stream = Stream(page)
        stream.until(lambda stream: stream.moment.nodes["n1"].reserved)
        assert stream.moment.gangs["team/b"].promised_s is None
        rows = [{"namespace": "team", "name": "b", "position": 1}]
        rows += [{"namespace": "team", "name": "a", "position": 3}]
        page.fake.queue = {"kind": "GangQueue", "total": 2, "offset": 0, "items": rows}
        page.fake.change("MODIFIED", GANG_LISTS, gang("a", 1, message="moved"))
        stream.until(lambda stream: stream.moment.queue == [("team/b", 1), ("team/a", 2)])
        page.fake.change("MODIFIED", GANG_LISTS, gang("b", 2, reserved=reserved, message="again"))
        stream.until(lambda stream: "again" in stream.moment.gangs["team/b"].sentence)
        assert stream.moment.nodes["n1"].reserved
        page.fake.change("MODIFIED", GANG_LISTS, gang("b", 2))
        stream.until(lambda stream: not stream.moment.nodes["n1"].reserved)
        stream.close()


def test_places_come_in_parts_that_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a server's parts are shorter than asked for, or repeat the same gangs: as many
    rows are asked for as there are, and no more.
    """
    # The page's own questions would mix with those below.
    monkeypatch.setattr(feed.Feed, "_ask_places", lambda self: 60.0)
    answers = cluster(**{path: listed(gang("a", 7), gang("b", 8)) for path in GANG_LISTS})
    with live(tmp_path, answers) as page:
        rows = [{"namespace": "team", "name": "a", "position": 2}]
        page.fake.queue = {"kind": "GangQueue", "total": 3, "offset": 0, "items": rows}
        page.server.feed._places.ask(GANG_LISTS[0])
        assert page.fake.queue_asked[-3:] == ["0", "1", "2"]
        assert page.server.feed.cluster.positions == {"team/a": 2}
        page.fake.queue = {"kind": "GangQueue", "total": 3, "offset": 0, "items": []}
        page.server.feed._places.ask(GANG_LISTS[0])
        assert page.fake.queue_asked[-1] == "0"


def test_a_scheduler_without_places_is_asked_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be replaced while the page is open; until then the positions of the gangs count."""
    monkeypatch.setattr(places, "EVERY_S", 0.05)
    monkeypatch.setattr(places, "UNSERVED_S", 0.1)
    answers = cluster(**{path: listed(gang("a", 7)) for path in GANG_LISTS})
    with live(tmp_path, answers) as page:
        stream = Stream(page)
        page.fake.queue = {"kind": "GangList", "items": []}
        stream.until(lambda stream: stream.moment.queue == [("team/a", 7)])
        rows = [{"namespace": "team", "name": "a", "position": 2}]
        page.fake.queue = {"kind": "GangQueue", "total": 1, "offset": 0, "items": rows}
        stream.until(lambda stream: stream.moment.queue == [("team/a", 2)])
        page.fake.queue = {"kind": "GangQueue", "total": 1, "offset": 0, "items": [{}]}
        stream.until(
            lambda stream: [unknown.what for unknown in stream.moment.unknown] == ["order"]
        )
        assert stream.moment.queue == [("team/a", 2)]
        stream.close()


def test_a_standby_is_said_and_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows no reservations: the page says so, and asks again once the leader answers."""
    monkeypatch.setattr(places, "EVERY_S", 0.05)
    monkeypatch.setattr(feed, "LEADER_S", 0.2)
    standby = {"servedBy": {"role": "standby", "identity": "b"}}
    leader = {"servedBy": {"role": "leader", "identity": "a"}}
    answers = cluster(**{path: listed(gang("a", 1, **standby)) for path in GANG_LISTS})
    with live(tmp_path, answers) as page:
        stream = Stream(page)
        page.fake.queue |= standby
        stream.until(lambda stream: [unknown.what for unknown in stream.moment.unknown])
        (unknown,) = stream.moment.unknown
        assert (unknown.what, unknown.sentence) == ("reservations", feed.OF_STANDBY)
        assert page.fake.asked.count(f"GET {GANG_LISTS[0]}?limit=500") == 1
        reserved = {"kind": "timed", "startTime": "2030-01-01T00:00:00Z", "nodes": ["n1"]}
        for path in GANG_LISTS:
            page.fake.answers[path] = listed(gang("a", 1, reserved=reserved, **leader))

        page.fake.queue |= leader
        stream.until(lambda stream: stream.moment.nodes["n1"].reserved)
        stream.until(lambda stream: stream.moment.unknown == [])
        stream.close()


def test_a_gang_that_is_gone_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose nodes are refused, or that is gone by now, is asked for once a minute; the others
    have theirs.
    """
    monkeypatch.setattr(places, "EVERY_S", 0.05)
    monkeypatch.setattr(places, "RESERVED_ASKED", 1)
    reserved = {"kind": "timed", "startTime": "2030-01-01T00:00:00Z"}
    answers = cluster(
        **{
            path: listed(gang("a", 1, reserved=reserved), gang("b", 2, reserved=reserved))
            for path in GANG_LISTS
        }
    )
    whole = gang("b", 2, reserved={**reserved, "nodes": ["n1"]})
    answers[f"{GANGS}/namespaces/team/gangs/b"] = whole
    with live(tmp_path, answers) as page:
        stream = Stream(page)
        stream.until(lambda stream: stream.moment.nodes["n1"].reserved)
        gone = f"GET {GANGS}/namespaces/team/gangs/a"
        assert page.fake.asked.count(gone) == 1
        stream.close()


def test_credentials_that_have_expired_are_said_to_be(tmp_path: Path) -> None:
    """The page is not live then, though the server answers."""
    with live(tmp_path, cluster()) as page:
        stream = Stream(page)
        page.fake.answers["/version"] = status(401, "Unauthorized", "Unauthorized")
        stream.until(lambda stream: stream.events and stream.events[-1][0] == "behind")
        assert "log in again" in stream.events[-1][1]["sentence"]
        stream.close()


@pytest.mark.parametrize("is_same", [True, False])
def test_credentials_are_read_again_once_they_have_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_same: bool
) -> None:
    """A new token of the same user is used, and that of another one is not: what the page shows is
    of one user.
    """
    monkeypatch.setattr(login, "FIRST_S", 0.1)
    monkeypatch.setattr(login, "MOST_S", 0.1)
    answers = cluster(**{login.REVIEW: {"status": {"userInfo": {"username": "alice"}}}})
    with live(tmp_path, answers) as page:
        stream = Stream(page)
        if not is_same:
            page.fake.answers[login.REVIEW] = {"status": {"userInfo": {"username": "bob"}}}

        page.fake.token = "later"
        page.fake.drops += 1
        stream.until(lambda stream: stream.events and stream.events[-1][0] == "behind")
        config = tmp_path / "kubeconfig"
        config.write_text(config.read_text().replace('"token": "t"', '"token": "later"'))
        reviews = page.fake.asked.count(f"POST {login.REVIEW}")
        page.fake.change("MODIFIED", PODS, pod("waits-0", gang="waits", node="n1", gpus=8))
        if is_same:
            stream.until(lambda stream: users(stream, "n1") == {"team/waits": 8})
            stream.until(
                lambda stream: ("behind", {"seconds": 0, "sentence": ""}) in stream.events[-4:]
            )
        else:
            deadline_s = time.monotonic() + WITHIN_S
            while page.fake.asked.count(f"POST {login.REVIEW}") < reviews + 3:
                assert time.monotonic() < deadline_s
                time.sleep(0.02)

            assert users(stream, "n1") == {}
            assert "log in again" in stream.events[-1][1]["sentence"]

        stream.close()


@pytest.mark.parametrize(
    "garbage",
    [b"<html>login</html>", b"[]", b'{"metadata":{},"items":[', b"[" * 200_000, b'{"items":5}'],
    ids=["html", "no object", "cut", "deep", "no list"],
)
def test_a_list_that_is_garbage_is_told_at_once(tmp_path: Path, garbage: bytes) -> None:
    """A cluster without nodes would look the same; what was garbage is read again."""
    answers = cluster()
    with watched(tmp_path, answers) as (fake, config):
        fake.garbage[NODES[0]] = garbage
        began_s = time.monotonic()
        with opened(Session(None, config)) as page:
            assert time.monotonic() < began_s + WITHIN_S
            page.enter()
            stream = Stream(page)
            assert stream.moment.unknown[0].what == "map"
            assert stream.moment.unknown[0].sentence.startswith("nodes ")
            fake.garbage.clear()
            stream.until(lambda stream: set(stream.moment.nodes) == {"n0", "n1"})
            assert "map" not in {unknown.what for unknown in stream.moment.unknown}
            stream.close()


def test_a_watch_line_without_an_end_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told once it is longer than any object, and the resource is read again."""
    monkeypatch.setattr(blocking, "LINE_BYTES", 1 << 16)
    with live(tmp_path, cluster()) as page:
        stream = Stream(page)
        page.fake.garbage[NODES[0]] = b"a" * (1 << 20)
        page.fake.drops += 1
        stream.until(
            lambda stream: any(
                unknown.sentence.endswith("does not end.") for unknown in stream.moment.unknown
            )
        )
        assert set(stream.moment.nodes) == {"n0", "n1"}
        page.fake.garbage.clear()
        page.fake.change("ADDED", NODES, node("n2", 8))
        stream.until(lambda stream: "n2" in stream.moment.nodes)
        stream.until(lambda stream: "map" not in {one.what for one in stream.moment.unknown})
        stream.close()
