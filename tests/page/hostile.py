"""A cluster whose every name and message tries to be something else than text."""

from __future__ import annotations

from kubectl_gangsched.page.document import (
    Bar,
    Detail,
    Devices,
    Document,
    Health,
    Moment,
    Need,
    PageDomain,
    PageEvent,
    PageFinding,
    PageGang,
    PageMember,
    PageNode,
    Promise,
    Reservation,
    Total,
    Unknown,
)

NOW_S = 1_795_874_700
"""2026-11-28T14:05:00Z."""
PARTS = (
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    '"><svg onload=window.pwned=1>',
    "</script><script>window.pwned=1</script>",
    "javascript:window.pwned=1",
    "{{constructor.constructor('window.pwned=1')()}}",
    "${window.pwned=1}",
    "<!--<script>",
    "&lt;b&gt;&amp;",
    "\u202etxt.exe\u2066",
    "__proto__",
    "constructor",
    "<a href='https://example.com/'>link</a>",
    "';window.pwned=1;//",
    "\u0000\ufffe\uffff",
    "<iframe srcdoc='<script>top.pwned=1</script>'>",
    "<style>*{display:none}</style>",
    "%3Cscript%3E",
    "a/b?c#d",
    "x" * 253,
)


def names() -> list[str]:
    """A hundred names."""
    return [f"{part}{number}" for number in range(5) for part in PARTS]


def hostile() -> Document:
    """The cluster: a node and a gang of each name, and details, findings and facts as well."""
    moment = Moment(
        at_s=NOW_S,
        sentence=PARTS[0],
        remark=PARTS[1],
        levels=[f"example.com/{PARTS[2]}", PARTS[3]],
        totals=[Total(resource=PARTS[5], total=800, free=400, most_free=8, nodes=100)],
        unknown=[Unknown(what="queue", sentence=PARTS[0], is_right=True)],
    )
    for place, name in enumerate(names()):
        _add(moment, place, name)

    moment.health = Health(
        findings=[PageFinding(check=PARTS[6], sentence=PARTS[7], todo=PARTS[1])],
        not_checked={PARTS[8]: PARTS[9]},
        facts={PARTS[10]: PARTS[11], PARTS[0]: PARTS[16]},
        promises=[Promise(gang=f"{PARTS[0]}/{PARTS[1]}", promised_s=NOW_S - 60)],
    )
    return Document(
        source="snapshot", title=PARTS[0], user=PARTS[1], namespace=PARTS[2], moment=moment
    )


def _add(moment: Moment, place: int, name: str) -> None:
    waits = place % 2 == 0
    key = f"{name}/{name}"
    moment.nodes[name] = PageNode(
        path=[PARTS[place % 3], PARTS[place % 7]],
        product=name,
        devices=[Devices(resource=PARTS[5], total=8, free=4, users={key: 2, f"pod:{key}": 2})],
        taints=[f"{name}={name}:NoSchedule"],
        closed=name if place == 7 else "",
        reserved=[Reservation(gang=key, start_s=NOW_S + 60)] if waits else [],
        held=[key],
        nominated=[key],
    )
    moment.gangs[key] = PageGang(
        namespace=name,
        name=name,
        waits=waits,
        sentence=name,
        phase=name,
        reason=name,
        pods=2,
        bound=0 if waits else 2,
        min_member=2,
        needs=[Need(pods=2, requests={name: name})],
        problems=[name],
        parent=name,
        group=[key, name],
        promise=name,
        waiting_since_s=NOW_S - 60,
    )
    moment.bars[key] = [Bar(kind="happened", from_s=NOW_S - 600, nodes=[name])]
    moment.details[key] = Detail(
        members=[PageMember(name=name, state=name, node=name, message=name)],
        domains=[PageDomain(domain=name, holds=1, lacks=1)],
        events=[PageEvent(at_s=NOW_S, what=name, message=name)],
        events_from=name,
        next=name,
        holders=name,
        not_created=name,
    )
    if waits:
        moment.queue.append((key, 1))
