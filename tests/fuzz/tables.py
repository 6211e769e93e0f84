"""What a hunt has found, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tests.fuzz.hunting import Finding, Verdict
from tests.fuzz.kinds import KINDS
from tests.fuzz.programs import CONSTRUCTS, FEATURES, draw_program


def show_summary(findings: Sequence[Finding]) -> str:
    """Count what came of the programs."""
    total = len(findings)
    counts = Counter(finding.verdict for finding in findings)
    trained = sum(finding.is_trained for finding in findings)
    parted = sum(finding.has_parted for finding in findings)
    rows = [
        ("programs", f"{total:,}"),
        ("trained to the end in plain PyTorch", f"{100 * trained / max(total, 1):.1f} %"),
        ("with lanes that parted on the way", f"{100 * parted / max(total, 1):.1f} %"),
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


def show_coverage(seed: int, findings: Sequence[Finding]) -> str:
    """Count how often each family of constructs was applied to each kind of value, and each family of features used."""
    cells: Counter[tuple[str, str]] = Counter()
    features: Counter[str] = Counter()
    for finding in findings:
        program = draw_program(seed, finding.index)
        cells.update((chain.construct.family, chain.kind.name) for chain in program.chains)
        features.update(feature.family for feature in program.features)
    families = list(dict.fromkeys(one.family for one in CONSTRUCTS))
    rows = [(kind.name, *(str(cells[family, kind.name] or "") for family in families)) for kind in KINDS]
    uses = [(family, str(features[family])) for family in dict.fromkeys(one.family for one in FEATURES)]
    return "\n\n".join([_table(("value", *families), rows), _table(("feature", "programs"), uses)])


def count_verdicts(findings: Sequence[Finding]) -> Mapping[Verdict, int]:
    """Count programs by verdict."""
    return Counter(finding.verdict for finding in findings)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table of Markdown, in columns."""
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |" for line in lines
    )
