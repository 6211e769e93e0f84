"""The figures that there are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from headwater.errors import StudyError
from headwater.report.changes import gather_changes
from headwater.report.figures.axes import BLUE, GREY, HEIGHT, INK, LINE, TOP, WIDTH, Axis, Frame, as_svg, ramp, text
from headwater.report.figures.nodes import draw_nodes
from headwater.report.numbers import show_cell
from headwater.report.page.followed import FollowedStudy, FollowedTrial
from headwater.report.page.importance import measure_importance
from headwater.report.reading import read_study
from headwater.report.timeline import Timeline
from headwater.report.timeline_drawing import draw_timeline
from headwater.store import Store, open_store, read_spans
from headwater.trials import Status
from headwater.trials.flat_rows import flatten

RAMP_LOW = ramp(0.3)
MOST_WORDS = 24
"""A hyperparameter that takes more values than these, and no numbers, has no axis."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a figure is drawn of."""

    study: FollowedStudy
    store: Store
    storage: str
    key: str | None

    def require(self, values: Sequence[Any], what: str) -> None:  # Any: whatever is to be drawn
        """Refuse to draw nothing."""
        if not values:
            raise StudyError(f"study {self.study.info.name!r} has no {what} to draw yet; look again when it has")


def draw_figure(storage: str, name: str | None, kind: str, key: str | None = None) -> str:
    """Draw one of KINDS as SVG.

    A slice is over the hyperparameter `key`, or over the first that varies; a front is of the study's first metric and
    of the metric `key`, or of the second.

    Raises:
        StudyError: There is no such figure, or nothing to draw.
        StoreError: There is no such study.
    """
    if kind not in KINDS:
        raise StudyError(f"there is no figure {kind!r}; give one of {', '.join(KINDS)}")
    with open_store(storage, create=False) as store:
        study = FollowedStudy(store, store.study(name))
        study.refresh()
        return KINDS[kind](Drawn(study, store, storage, key))


def _draw_best(drawn: Drawn) -> str:
    info, steps = drawn.study.info, drawn.study.best.steps
    drawn.require(steps, f"finite {info.metric}")
    times = [step.time - info.created for step in steps]
    ends = [time - info.created for trial in drawn.study.trials.values() for time in trial.times[-1:]]
    x = Axis(name="time since the study began, s", low=0.0, high=max(*times, *ends, 1e-9))
    frame = Frame(x=x, y=Axis.over(info.metric, [step.value for step in steps]), title=f"{info.name}: best so far")
    points: list[tuple[float, float]] = []
    for time, step in zip(times, steps, strict=True):
        points += [(time, points[-1][1]), (time, step.value)] if points else [(time, step.value)]
    return frame.draw([frame.path([*points, (x.high, points[-1][1])], BLUE, 2)])


def _draw_curves(drawn: Drawn) -> str:
    metric = drawn.study.info.metric
    trials = [trial for trial in drawn.study.trials.values() if trial.values.get(metric)]
    drawn.require(trials, "reports")
    ranked = drawn.study.rank()
    places = {trial.number: place for place, trial in enumerate(ranked)}
    values = [value for trial in trials for value in trial.values[metric]]
    epochs = [float(epoch) for trial in trials for epoch in trial.epochs[:1] + trial.epochs[-1:]]
    frame = Frame(x=Axis.over("epoch", epochs), y=Axis.over(metric, values), title=f"{drawn.study.info.name}: curves")
    worst = max(len(ranked) - 1, 1)
    ordered = sorted(trials, key=lambda trial: -places.get(trial.number, worst + 1))

    def draw() -> Iterator[str]:
        for trial in ordered:
            place = places.get(trial.number)
            colour = LINE if place is None else INK if place == 0 else ramp(1 - place / worst)
            points = [(float(epoch), value) for epoch, value in zip(trial.epochs, trial.values[metric], strict=True)]
            yield frame.path(points, colour, 2.2 if place == 0 else 1)

    return frame.draw(draw())


def _draw_importance(drawn: Drawn) -> str:
    info = drawn.study.info
    found = measure_importance(drawn.storage, info.name)
    drawn.require(found["shares"], f"importance ({found['reason']})")
    most = max(share for _, share in found["shares"]) or 1.0
    caption = f"{info.name}: importance ({found['method']}, {found['num_trials']} trials at epoch {found['epoch']})"
    shapes = [text(20, 24, caption, weight="bold")]
    for place, (key, share) in enumerate(found["shares"]):
        y = 50 + 28 * place
        width = 420 * share / most
        shapes.append(text(190, y + 13, key[:26], anchor="end"))
        shapes.append(f'<rect x="200" y="{y}" width="{width:.1f}" height="18" fill="{BLUE}"/>')
        shapes.append(text(208 + width, y + 13, f"{share:.1%}", colour=GREY))
    return as_svg(shapes, 70 + 28 * len(found["shares"]))


def _draw_slice(drawn: Drawn) -> str:
    info, ranked = drawn.study.info, drawn.study.rank()
    drawn.require(ranked, f"finite {info.metric}")
    scales = _find_scales(drawn, ranked)
    drawn.require(list(scales), "hyperparameter that varies")
    key = drawn.key or next(iter(scales))
    if key not in scales:
        raise StudyError(f"no hyperparameter {key!r} varies; give --key with one of {', '.join(scales)}")
    scale = scales[key]
    y = Axis.over(info.metric, [drawn.study.value_of(trial) for trial in ranked])
    frame = Frame(x=scale.axis.aired(), y=y, title=f"{info.name}: {info.metric} against {key}")
    most = max(len(trial.epochs) for trial in ranked)
    shapes = []
    for trial in reversed(ranked):
        left, top = frame.at(scale.place(trial), drawn.study.value_of(trial))
        if math.isfinite(left):
            fill = ramp(0.3 + 0.7 * len(trial.epochs) / most)
            edge = f' stroke="{INK}" stroke-width="2"' if trial is ranked[0] else ""
            shapes.append(f'<circle cx="{left:.1f}" cy="{top:.1f}" r="{5 if edge else 3}" fill="{fill}"{edge}/>')
    return frame.draw(shapes)


def _draw_front(drawn: Drawn) -> str:
    info = drawn.study.info
    if not info.also:
        raise StudyError(
            f"study {info.name!r} has one metric, and a front has several; draw best, curves or slice instead"
        )
    other = drawn.key or next(iter(info.also))
    if other not in info.also:
        raise StudyError(f"{other!r} is no further metric of the study; give --key with one of {', '.join(info.also)}")
    sound = [trial for trial in drawn.study.trials.values() if trial.status is not Status.FAILED]
    points = [(trial.number, trial.value(info.metric), trial.value(other)) for trial in sound]
    points = [point for point in points if math.isfinite(point[1]) and math.isfinite(point[2])]
    drawn.require(points, f"finite {info.metric} and {other}")
    chosen = set(drawn.study.find_front())
    x = Axis.over(info.metric, [point[1] for point in points])
    frame = Frame(x=x, y=Axis.over(other, [point[2] for point in points]), title=f"{info.name}: front")

    def dot(point: tuple[int, float, float], radius: float, colour: str) -> str:
        left, top = frame.at(*point[1:])
        return f'<circle cx="{left:.1f}" cy="{top:.1f}" r="{radius}" fill="{colour}"/>'

    front = sorted((point for point in points if point[0] in chosen), key=lambda point: point[1:])
    # Of more than two metrics, the front is no line in the plane of two.
    line = [frame.path([point[1:] for point in front], BLUE, 1)] if len(info.also) == 1 and len(front) > 1 else []
    others = (dot(point, 3, RAMP_LOW) for point in points if point[0] not in chosen)
    return frame.draw([*others, *line, *(dot(point, 4.5, INK) for point in front)])


def _draw_parallel(drawn: Drawn) -> str:
    info, ranked = drawn.study.info, drawn.study.rank()
    drawn.require(ranked, f"finite {info.metric}")
    values = [drawn.study.value_of(trial) for trial in ranked]
    last = Axis(name=info.metric, low=min(values), high=max(values) if max(values) > min(values) else min(values) + 1)
    axes = [*_find_scales(drawn, ranked).values(), Scale(axis=last, place=drawn.study.value_of)]
    gap = (WIDTH - 120) / max(len(axes) - 1, 1)
    bottom = HEIGHT - 30
    shapes = [text(20, 20, f"{info.name}: parallel axes", weight="bold")]
    for rank, trial in reversed(list(enumerate(ranked))):
        places = [scale.axis.share(scale.place(trial)) for scale in axes]
        points = [(60 + gap * at, bottom - share * (bottom - TOP - 36)) for at, share in enumerate(places)]
        steps = " ".join(f"{x:.1f},{y:.1f}" for x, y in points if math.isfinite(y))
        colour = INK if rank == 0 else ramp(1 - rank / max(len(ranked) - 1, 1))
        shapes.append(
            f'<polyline points="{steps}" fill="none" stroke="{colour}" stroke-width="{2 if rank == 0 else 1}"/>'
        )
    for at, scale in enumerate(axes):
        x, name = 60 + gap * at, scale.axis.name
        shapes.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP + 36}" y2="{bottom}" stroke="{GREY}"/>')
        shapes.append(text(x, TOP + 16, name[: max(int(gap / 6.4), 4)], anchor="middle"))
        shapes.append(text(x, TOP + 30, scale.axis.show(scale.axis.high), anchor="middle", colour=GREY))
        shapes.append(text(x, bottom + 16, scale.axis.show(scale.axis.low), anchor="middle", colour=GREY))
    return as_svg(shapes)


def _draw_timeline(drawn: Drawn) -> str:
    name = drawn.study.info.name
    timeline = Timeline.of(name, read_spans(drawn.store, name), gather_changes(drawn.study.notes))
    drawn.require(timeline.devices, "spans")
    return draw_timeline(timeline)


def _draw_nodes(drawn: Drawn) -> str:
    spending = read_study(drawn.store, drawn.study.info.name, drawn.storage).result.spending
    drawn.require(() if spending is None else spending.stays, "nodes that came and went")
    assert spending is not None
    return draw_nodes(drawn.study.info.name, spending)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The axis of a hyperparameter, and where on it a trial is."""

    axis: Axis
    place: Callable[[FollowedTrial], float]


def _find_scales(drawn: Drawn, trials: Sequence[FollowedTrial]) -> dict[str, Scale]:
    """Return an axis for each hyperparameter in which trials differ, as the space has them."""
    flat = {trial.number: dict(flatten(trial.config)) for trial in trials}
    rows = drawn.study.info.space if isinstance(drawn.study.info.space, list) else []
    domains = {str(row.get("key")): str(row.get("text")) for row in rows if isinstance(row, dict)}
    keys = dict.fromkeys(key for config in flat.values() for key in config)
    scales: dict[str, Scale] = {}
    for key in keys:
        values = [config[key] for config in flat.values() if key in config]
        if len({repr(value) for value in values}) > 1:
            scale = _make_scale(key, values, flat, is_log="log" in domains.get(key, "").partition("(")[0])
            scales |= {} if scale is None else {key: scale}
    return scales


def _make_scale(
    key: str, values: Sequence[Any], flat: Mapping[int, Mapping[str, Any]], *, is_log: bool
) -> Scale | None:  # Any: JSON values
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        finite = [float(value) for value in values if math.isfinite(value)]
        if len(set(finite)) < 2:
            return None
        axis = Axis(name=key, low=min(finite), high=max(finite), is_log=is_log and min(finite) > 0)
        return Scale(axis=axis, place=lambda trial: float(flat[trial.number].get(key, math.nan)))
    words = tuple(sorted({show_cell(value) for value in values}))
    if not 2 <= len(words) <= MOST_WORDS:
        return None
    axis = Axis(name=key, low=0, high=len(words) - 1, words=words)

    def place(trial: FollowedTrial) -> float:
        config = flat[trial.number]
        return float(words.index(show_cell(config[key]))) if key in config else math.nan

    return Scale(axis=axis, place=place)


KINDS: Mapping[str, Callable[[Drawn], str]] = MappingProxyType(
    {
        "best": _draw_best,
        "curves": _draw_curves,
        "timeline": _draw_timeline,
        "nodes": _draw_nodes,
        "parallel": _draw_parallel,
        "importance": _draw_importance,
        "slice": _draw_slice,
        "front": _draw_front,
    }
)
"""What can be drawn, by name."""
