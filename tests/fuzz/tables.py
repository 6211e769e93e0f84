"""What a hunt has found, as text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from tests.fuzz.hunting import Course, Dimensions, Finding, Verdict
from tests.fuzz.kinds import KINDS
from tests.fuzz.programs import CONSTRUCTS, draw_program
from tests.fuzz.running import ALONE, LANES, MEASURED


def show_summary(findings: Sequence[Finding]) -> str:
    """Count what came of the programs."""
    total = len(findings)
    counts = Counter(finding.verdict for finding in findings)
    trained = sum(finding.is_trained for finding in findings)
    courses = Counter(finding.course for finding in findings)
    told = sum(bool(finding.refusals) for finding in findings)
    rows = [
        ("programs", f"{total:,}"),
        ("trained to the end in plain PyTorch", f"{100 * trained / max(total, 1):.1f} %"),
        *((f"lanes {course}", f"{100 * courses[course] / max(total, 1):.1f} %") for course in Course),
        ("told that a paused trial cannot continue", f"{100 * told / max(total, 1):.1f} %"),
        *((str(verdict), f"{counts[verdict]:,}") for verdict in Verdict),
        ("seconds of computing", f"{sum(finding.seconds for finding in findings):,.0f}"),
    ]
    return _table(("", "number"), rows)


def show_culprits(findings: Sequence[Finding]) -> str:
    """Count the differing programs by the construct or feature that they differ by."""
    counts: Counter[str] = Counter()
    examples: dict[str, int] = {}
    for finding in findings:
        for culprit in {culprit.split(" (")[0] if " + " not in culprit else culprit for culprit in finding.culprits}:
            counts[culprit] += 1
            examples.setdefault(culprit, finding.index)
    rows = [(name, str(count), str(examples[name])) for name, count in sorted(counts.items())]
    return _table(("construct or feature", "programs", "for instance"), rows) if rows else "No difference."


def show_kinds(findings: Sequence[Finding]) -> str:
    """Count the differing programs by the kind of the part that they differ by, and by the ways in which they do."""
    programs: dict[str, list[Finding]] = {}
    for finding in findings:
        for kind in {_kind_of(culprit, finding.ways) for culprit in finding.culprits}:
            programs.setdefault(kind, []).append(finding)
    rows = [(kind, str(len(found)), str(found[0].index)) for kind, found in sorted(programs.items())]
    return _table(("kind", "programs", "for instance"), rows) if rows else "No kind of difference."


def _kind_of(culprit: str, ways: Sequence[str]) -> str:
    """Return the kind of a part; parts of any kind may keep state that only a pause loses."""
    if " + " in culprit:
        return "several parts together"
    kind = culprit.split(" (", maxsplit=1)[0].rsplit(": ", 1)[0]
    if kind.startswith(("state: ", "process: ")) or {ALONE.name, LANES.name, MEASURED.name} & {*ways}:
        return kind
    return "state: of another part"


def show_refusals(findings: Sequence[Finding]) -> str:
    """Count the messages that a paused trial cannot continue, with numbers left out."""
    counts = Counter(re.sub(r"\d+", "N", text)[:160] for finding in findings for text in finding.refusals)
    rows = [(text.replace("\n", " ").replace("|", "/"), str(count)) for text, count in counts.most_common(20)]
    return _table(("told", "studies"), rows) if rows else "No study refused to continue."


def show_coverage(seed: int, findings: Sequence[Finding], dimensions: Dimensions) -> str:
    """Count how often each family of constructs was applied to each kind of value, and each family of features used."""
    cells: Counter[tuple[str, str]] = Counter()
    features: Counter[str] = Counter()
    for finding in findings:
        program = draw_program(seed, finding.index, has_unknown_code=dimensions.unknown_code)
        cells.update((chain.construct.family, chain.kind.name) for chain in program.chains)
        features.update(feature.family for feature in program.features)
    families = list(dict.fromkeys(one.family for one in CONSTRUCTS))
    rows = [(kind.name, *(str(cells[family, kind.name] or "") for family in families)) for kind in KINDS]
    uses = [(family, str(count)) for family, count in sorted(features.items())]
    return "\n\n".join([_table(("value", *families), rows), _table(("feature", "programs"), uses)])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table of Markdown, in columns."""
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |" for line in lines
    )
