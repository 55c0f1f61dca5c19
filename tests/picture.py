"""docs/states.svg: the states of a job and what leads from one to another, found by the model.

`python tests/picture.py` writes it. What is drawn is what the model does to one job in every state
that it can reach; where each arrow runs is told here, and an arrow without a course is an error.
"""

from pathlib import Path

from model import FAR, Model

FILE = Path(__file__).parents[1] / "docs" / "states.svg"
BEGINNING = "unknown"
Edge = tuple[str, str]

STEPS = (
    ("enqueue", {}),
    ("enqueue", {"delay": 3600}),
    ("reserve", {"lease": 3600}),
    ("retry", {}),
    ("retry", {"delay": 3600}),
    *((verb, {}) for verb in ("ack", "fail", "release", "extend", "cancel", "redrive", "reap")),
    ("reschedule", {"delay": 0}),
    ("reschedule", {"delay": 3600}),
    ("purge", {}),
    ("purge_failed", {}),
)
HELD = ("ack", "retry", "fail", "release", "extend")
OF_ONE = (*HELD, "enqueue", "cancel", "redrive", "reschedule")


def transitions() -> dict[Edge, list[str]]:
    """Return what leads from one state to another, found by trying everything everywhere."""
    found: dict[Edge, set[str]] = {}
    seen, frontier = set(), [Model(), Model(max_attempts=1)]
    while frontier:
        before = frontier.pop()
        ended = any(time < FAR for time in (before.leases | before.dues).values())
        for verb, kwargs in STEPS:
            if verb == "reserve" and ended:
                continue  # first a reap, then a reserve
            after = before.copy()
            args = ("job",) if verb in OF_ONE else ()
            if verb in HELD:
                args += (after.attempts.get("job", 1),)
            if not getattr(after, verb)(*args, **kwargs) and before.state() == after.state():
                continue
            edge = (before.where("job"), after.where("job"))
            found.setdefault(edge, set()).add(verb)
            if after.attempts.get("job", 0) <= 2 and after.state() not in seen:
                seen.add(after.state())
                frontier.append(after)
        if before.leases or before.dues:
            before.expire("job", 1)
            if before.state() not in seen:
                seen.add(before.state())
                frontier.append(before)
        elif before.max_attempts is None and before.line():
            before.max_attempts = 1  # a limit that comes into force while it waits
            frontier.append(before)
    return {edge: sorted(verbs) for edge, verbs in sorted(found.items())}


BOXES = {
    "delayed": (46, 190, 170, 200),
    "waiting": (345, 190, 170, 200),
    "in_flight": (644, 190, 170, 200),
    "cancelled": (46, 566, 170, 64),
    "purged": (262, 566, 140, 64),
    "failed": (440, 566, 160, 64),
    "finished": (644, 566, 170, 64),
}
# Of each arrow: its course (it stops 11 short of a box: the head spans the rest), where its first
# label stands, on which side of that, and how far apart the labels are (0: in one line).
COURSES: dict[Edge, tuple[str, int, int, str, int]] = {
    (BEGINNING, "waiting"): ("M430 38 V178", 444, 84, "start", 0),
    (BEGINNING, "delayed"): ("M424 32 H139 q-8 0 -8 8 V178", 145, 84, "start", 0),
    ("delayed", "waiting"): ("M217 250 H333", 275, 220, "middle", 20),
    ("waiting", "delayed"): ("M344 330 H228", 285, 320, "middle", 20),
    ("waiting", "in_flight"): ("M516 230 H632", 574, 220, "middle", 20),
    ("in_flight", "waiting"): ("M643 340 H527", 585, 290, "middle", 20),
    ("in_flight", "delayed"): (
        "M729 189 V158 q0 -8 -8 -8 H184 q-8 0 -8 8 V178",
        300,
        142,
        "middle",
        0,
    ),
    ("delayed", "delayed"): ("M115 391 V408 q0 8 8 8 H147 q8 0 8 -8 V402", 150, 437, "middle", 0),
    ("waiting", "waiting"): ("M392 391 V408 q0 8 8 8 H424 q8 0 8 -8 V402", 414, 437, "middle", 0),
    ("in_flight", "in_flight"): (
        "M722 391 V408 q0 8 8 8 H754 q8 0 8 -8 V402",
        743,
        437,
        "middle",
        0,
    ),
    ("delayed", "cancelled"): ("M76 391 V554", 86, 484, "start", 20),
    ("waiting", "cancelled"): (
        "M358 391 V502 q0 8 -8 8 H158 q-8 0 -8 8 V554",
        200,
        502,
        "start",
        0,
    ),
    ("in_flight", "cancelled"): (
        "M658 391 V466 q0 8 -8 8 H194 q-8 0 -8 8 V554",
        600,
        466,
        "middle",
        0,
    ),
    ("waiting", "failed"): ("M470 391 V554", 462, 545, "end", 20),
    ("failed", "waiting"): ("M500 565 V402", 510, 545, "start", 20),
    ("in_flight", "failed"): (
        "M700 391 V520 q0 8 -8 8 H597 q-8 0 -8 8 V554",
        710,
        480,
        "start",
        20,
    ),
    ("in_flight", "finished"): ("M790 391 V554", 800, 505, "start", 20),
    ("failed", "purged"): ("M439 598 H414", 424, 654, "middle", 20),
}
STYLE = """\
    text { font: 16px system-ui, -apple-system, "Segoe UI", Arial, sans-serif; fill: #1f2328 }
    .state { font-size: 20px; font-weight: 600; text-anchor: middle }
    .middle { text-anchor: middle }
    .end { text-anchor: end }
    .op { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-weight: 600 }
    .bold { font-weight: 600 }
    .page { fill: #ffffff; stroke: #d1d9e0 }
    .frame { fill: #f6f8fa; stroke: #818b98; stroke-width: 1.5; stroke-dasharray: 6 5 }
    .box { stroke-width: 2; fill: #eaeef2; stroke: #59636e }
    .waiting, .delayed { fill: #ddf4ff; stroke: #0969da }
    .in_flight { fill: #fff8c5; stroke: #9a6700 }
    .finished { fill: #dafbe1; stroke: #1a7f37 }
    .failed { fill: #ffebe9; stroke: #cf222e }
    .arrow { fill: none; stroke: #424a53; stroke-width: 2; marker-end: url(#head) }
    .head { fill: #424a53 }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc }
      .page { fill: #0d1117; stroke: #3d444d }
      .frame { fill: #151b23; stroke: #7d8590 }
      .box { fill: #262c36; stroke: #9198a1 }
      .waiting, .delayed { fill: #10294b; stroke: #4493f8 }
      .in_flight { fill: #33280d; stroke: #d29922 }
      .finished { fill: #12301f; stroke: #3fb950 }
      .failed { fill: #3c1618; stroke: #f85149 }
      .arrow { stroke: #c0c8d1 }
      .head { fill: #c0c8d1 }
    }"""


def words(state: str) -> str:
    return "nothing" if state == BEGINNING else state.replace("_", " ")


def text(kind: str, x: int, y: int, words: str) -> str:
    return f'  <text class="{kind}" x="{x}" y="{y}">{words}</text>'


def drawn(edges: dict[Edge, list[str]]) -> str:
    """Return the picture of these transitions."""
    told = "; ".join(
        f"{' and '.join(verbs)}: from {words(a)} to {words(b)}" for (a, b), verbs in edges.items()
    )
    lines = [
        (
            '<svg xmlns="http://www.w3.org/2000/svg" width="860" height="710" viewBox="0 0 860 710"'
            ' role="img" aria-labelledby="title" aria-describedby="desc">\n'
            '  <title id="title">The states of a job</title>\n'
            f'  <desc id="desc">What leads from one state to another. {told}.</desc>\n'
            f"  <style>\n{STYLE}\n  </style>\n"
            '  <marker id="head" markerUnits="userSpaceOnUse" markerWidth="12" markerHeight="12"'
            ' refX="0" refY="6" orient="auto">'
            '<path class="head" d="M0 0.5 L11 6 L0 11.5 Z"/></marker>'
        )
    ]
    lines += [
        '  <rect class="page" x="0.5" y="0.5" width="859" height="709" rx="12"/>',
        '  <rect class="frame" x="16" y="106" width="828" height="344" rx="12"/>',
        text("end", 830, 130, '<tspan class="bold">active</tspan>: counts against capacity'),
        '  <rect class="frame" x="16" y="536" width="828" height="158" rx="12"/>',
        text(
            "end", 830, 680, '<tspan class="bold">retired</tspan>: the id is never accepted again'
        ),
        '  <circle class="head" cx="430" cy="32" r="6"/>',
    ]
    for state, (x, y, width, height) in BOXES.items():
        place = f'x="{x}" y="{y}" width="{width}" height="{height}"'
        lines.append(f'  <rect class="box {state}" {place} rx="8"/>')
        lines.append(text("state", x + width // 2, y + height // 2 + 7, words(state)))
    for edge, verbs in edges.items():
        course, x, y, side, step = COURSES[edge]
        lines.append(f'  <path class="arrow" d="{course}"/>')
        labels = verbs if step else [", ".join(verbs)]
        for number, label in enumerate(labels):
            lines.append(
                f'  <text class="op {side}" x="{x}" y="{y + number * step}">{label}</text>'
            )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    FILE.write_text(drawn(transitions()))
