"""What transfer.py found, in a file and in tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from transfer_workloads import WORKLOADS, Workload

from headwater.plan import measure_trust

FloatArray: TypeAlias = NDArray[np.float64]

VALLEY = 1.05
"""A loss within this factor of the lowest is hardly worse."""


@dataclass(frozen=True)
class Sweep:
    """The losses of a grid of learning rates at every width."""

    rates: Sequence[float]
    losses: Mapping[int, Sequence[float]]
    """By scale; infinite where a training diverged."""
    ceiling: float
    """The loss of guessing, which stands for anything worse."""

    def best(self, scale: int) -> tuple[float, float]:
        """Return the best learning rate and its loss, by a parabola fitted to the valley that the lowest point lies in.

        To the valley belong the lowest point, its neighbours, and whatever is hardly worse: where the ground is flat,
        the lowest point alone says little. A valley that rises slowly on one side only is no parabola, and the best
        rate of one would lie beyond the neighbours of the lowest point; then these three points alone are fitted.
        """
        place = self.lowest(scale)
        if self.is_at_edge(scale):
            return self.rates[place], self.losses[scale][place]
        places, lowered = np.log2(self.rates), np.minimum(self.losses[scale], self.ceiling)
        valley = lowered <= VALLEY * lowered[place]
        valley[place - 1 : place + 2] = True
        near = slice(place - 1, place + 2)
        best, loss = _fit(places[valley], lowered[valley])
        if not places[near][0] < best < places[near][-1]:
            best, loss = _fit(places[near], lowered[near])
        return float(2**best), float(loss)

    def lowest(self, scale: int) -> int:
        return min(range(len(self.rates)), key=self.losses[scale].__getitem__)

    def is_at_edge(self, scale: int) -> bool:
        return self.lowest(scale) in (0, len(self.rates) - 1)

    @property
    def move(self) -> float:
        """By what factor the best rate differs between the narrowest and the widest model."""
        ends = self.best(max(self.losses))[0], self.best(min(self.losses))[0]
        return max(ends) / min(ends)

    @property
    def penalty(self) -> float:
        """By what share the target's loss at the rate that suits the narrowest lies above its lowest of the grid."""
        widest = np.minimum(self.losses[1], self.ceiling)
        rate, _ = self.best(max(self.losses))
        return float(np.interp(math.log2(rate), np.log2(self.rates), widest) / widest.min() - 1)


def _fit(places: FloatArray, losses: FloatArray) -> tuple[float, float]:
    """Return where a parabola through these points is lowest, and how low."""
    square, slope, height = np.polyfit(places, losses, 2)
    return -slope / (2 * square), height - slope * slope / (4 * square)


@dataclass(frozen=True, kw_only=True)
class Winner:
    """The random configuration that won at S = 8, trained at full width."""

    config: Mapping[str, Any]
    target: float
    """Its loss as a study with a surrogate trains the target."""
    plain: float
    """Its loss in a plain script."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    work: Workload
    plain: Sweep
    scaled: Sweep
    ranking: Mapping[int, Sequence[float]]
    """The losses of the random configurations, by scale."""
    winner: Winner
    heading: str
    """Where and how it was measured."""


def save(name: str, findings: Findings, path: Path) -> None:
    """Add what was found for one workload to the file."""
    known = json.loads(path.read_text()) if path.exists() else {}
    parts = {"plain": asdict(findings.plain), "scaled": asdict(findings.scaled), "winner": asdict(findings.winner)}
    content = {**parts, "ranking": dict(findings.ranking), "heading": findings.heading}
    path.write_text(json.dumps({**known, name: content}, indent=1, sort_keys=True) + "\n")


def load(path: Path) -> dict[str, Findings]:
    """Read what was found for each workload, in the order of this script."""
    known = json.loads(path.read_text())
    return {name: load_one(work, known[name]) for name, work in WORKLOADS.items() if name in known}


def load_one(work: Workload, content: Mapping[str, Any]) -> Findings:
    plain, scaled = (
        Sweep(part["rates"], {int(scale): losses for scale, losses in part["losses"].items()}, part["ceiling"])
        for part in (content["plain"], content["scaled"])
    )
    ranking = {int(scale): losses for scale, losses in content["ranking"].items()}
    winner = Winner(**content["winner"])
    return Findings(work=work, plain=plain, scaled=scaled, ranking=ranking, winner=winner, heading=content["heading"])


def show(findings: Findings) -> Iterator[str]:
    """Yield the tables of one workload."""
    work = findings.work
    yield f"\n## {work.title}\n\n{findings.heading}"
    yield f"{work.num_steps} steps of {work.batch_size} examples, none seen twice."
    for name, sweep in (("Without", findings.plain), ("With", findings.scaled)):
        yield f"\n{name} the parametrization, loss by learning rate:\n"
        yield f"| S | {' | '.join(f'2^{exponent}' for exponent in work.exponents)} | best |"
        yield "|---" * (len(work.exponents) + 2) + "|"
        for scale, losses in sweep.losses.items():
            cells = [f"{loss:.3f}" if math.isfinite(loss) else "-" for loss in losses]
            cells[sweep.lowest(scale)] = f"**{cells[sweep.lowest(scale)]}**"
            edge = " (edge)" if sweep.is_at_edge(scale) else ""
            yield f"| {scale} | {' | '.join(cells)} | 2^{math.log2(sweep.best(scale)[0]):.2f}{edge} |"
    yield from show_ranking(findings)


def show_ranking(findings: Findings) -> Iterator[str]:
    """Yield how the widths rank random configurations, and what became of the one that won."""
    config, target = findings.winner.config, findings.ranking[1]
    yield f"\n{len(target)} random configurations ({', '.join(findings.work.space)}), with the parametrization:\n"
    yield "| S | best to worst (small letters diverged) | Spearman with S = 1 | 95 % interval |"
    yield "|---|---|---|---|"
    for scale, losses in findings.ranking.items():
        trust = measure_trust(scale, 1, list(zip(losses, target, strict=True)))
        against = f"{trust.agreement:.2f} | {trust.low:.2f} to {trust.high:.2f}" if scale > 1 else "- | -"
        yield f"| {scale} | {order_of(losses)} | {against} |"
    settings = ", ".join(f"{key} {value:.3g}" for key, value in config.items())
    yield f"\nThe winner of S = 8 ({settings}), trained at full width:\n"
    yield "| as the target of a study | winning configuration in a plain script | lowest of all ten, in lanes |"
    yield "|---|---|---|"
    yield f"| {findings.winner.target!r} | {findings.winner.plain!r} | {min(target):.4f} |"


def order_of(losses: Sequence[float]) -> str:
    """Name the configurations by letters, the best first; small letters diverged."""
    places = sorted(range(len(losses)), key=losses.__getitem__)
    return " ".join(chr(ord("A" if math.isfinite(losses[place]) else "a") + place) for place in places)


def summarise(all_findings: Mapping[str, Findings]) -> Iterator[str]:
    """Yield a line for each workload and way."""
    yield "\n## Summary\n"
    yield "Aims: the best rate moves by less than 2, and costs the target less than 1 % of the grid's lowest loss.\n"
    yield "| | best rate moves, S = 8 to 1 | target at the best rate of S = 8 | Spearman at S = 8 | plain script |"
    yield "|---|---|---|---|---|"
    for name, findings in all_findings.items():
        pairs = list(zip(findings.ranking[8], findings.ranking[1], strict=True))
        agreement = f"{measure_trust(8, 1, pairs).agreement:.2f}"
        same = "the same" if findings.winner.plain == findings.winner.target else "differs"
        ways = (("without", findings.plain, "- | -"), ("with", findings.scaled, f"{agreement} | {same}"))
        for way, sweep, rest in ways:
            yield f"| {name}, {way} | {sweep.move:.1f} | {sweep.penalty:+.1%} | {rest} |"
