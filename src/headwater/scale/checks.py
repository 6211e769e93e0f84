"""Whether activations keep their size in every width: the test that a parametrization is right, on real steps."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headwater.errors import CannotScaleError

Build: TypeAlias = Callable[[int], tuple[nn.Module, Callable[[], object]]]
"""Builds the model of a given width, and what trains it by one step."""

_FIRST_STEP = 2
"""The first step that counts: before the first update readouts are zero, and nothing has been learnt."""

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8b5a2b")
_PANEL_WIDTH, _PANEL_HEIGHT = 210, 220
_LEFT, _TOP, _GAP = 64, 64, 26


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinateCheck:
    """How large the outputs of each module were, by width and step."""

    widths: tuple[int, ...]
    sizes: Mapping[str, Mapping[int, tuple[float, ...]]]
    """The mean absolute output: by module, by width, and then for steps 1, 2, and so on; modules that ran in each."""

    @property
    def num_steps(self) -> int:
        """How many steps each width was trained for."""
        return max(len(steps) for by_width in self.sizes.values() for steps in by_width.values())

    @property
    def drift(self) -> float:
        """The largest ratio between the sizes of one module in two widths, from the second step on."""
        return max(self.drifts.values(), default=1.0)

    @property
    def drifts(self) -> dict[str, float]:
        """The drift of each module; infinite where its output is zero in one width only, or no number."""
        return {name: max(map(_spread, self._columns(name)), default=1.0) for name in self.sizes}

    @property
    def slopes(self) -> dict[str, float]:
        """The exponent with which each module's size goes with width; that of the step where it is largest."""
        return {
            name: max((_slope(self.widths, column) for column in self._columns(name)), key=abs, default=0.0)
            for name in self.sizes
        }

    @property
    def silent(self) -> tuple[str, ...]:
        """Modules whose output is still zero after every update: they do not learn."""
        return tuple(
            name
            for name in self.sizes
            if (columns := list(self._columns(name))) and not any(size for column in columns for size in column)
        )

    def is_flat(self, limit: float = 1.5) -> bool:
        """Tell whether no module's output is larger in one width than in another by more than this ratio."""
        return self.drift <= limit

    def describe(self, limit: float = 1.5) -> str:
        """Say in a few lines whether sizes are the same in every width, and where they are not."""
        span = f"widths {', '.join(map(str, self.widths))}, {self.num_steps} steps"
        if self.is_flat(limit):
            text = f"Activations keep their size: at most {self.drift:.2f} times as large in one width as in another"
            return f"{text} ({span})." + self._describe_silent()
        drifts, slopes = self.drifts, self.slopes
        worst = sorted((name for name in drifts if drifts[name] > limit), key=drifts.__getitem__, reverse=True)
        lines = [f"Activations drift with width, in {len(worst)} of {len(drifts)} modules ({span}):"]
        lines += [f"  {name}: {drifts[name]:.2f} times, as width^{slopes[name]:+.2f}" for name in worst[:8]]
        lines += [f"  and {len(worst) - 8} more"] if len(worst) > 8 else []
        return "\n".join(lines) + self._describe_silent()

    def _describe_silent(self) -> str:
        return f"\nThese modules give zero in every step: {', '.join(self.silent)}." if self.silent else ""

    def _columns(self, name: str) -> Iterator[list[float]]:
        """The sizes of one module in all widths, for each step that counts."""
        rows = [self.sizes[name][width][_FIRST_STEP - 1 :] for width in self.widths]
        yield from (list(column) for column in zip(*rows, strict=True))


def check_coordinates(
    build: Build, widths: Sequence[int], *, num_steps: int = 5, seeds: Sequence[int] = (0,)
) -> CoordinateCheck:
    """Train models of several widths for a few real steps, and record how large the outputs of their modules are.

    ```python
    def build(width: int) -> tuple[nn.Module, Callable[[], object]]:
        model = make_model(width)
        optimizer = make_optimizer(model)

        def step() -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

        return model, step

    print(check_coordinates(build, [64, 128, 256]).describe())
    ```

    Args:
        build: Makes the model of a width and its optimizer; every width should see the same data.
        widths: Three or more.
        num_steps: How often each model is trained; the first step shows the model before any update.
        seeds: Torch is seeded with each of these before `build`; sizes are means over them.

    Raises:
        CannotScaleError: There are fewer than three widths or two steps, or the models differ in their modules, or
            the step does not run them.
    """
    if len(set(widths)) < 3 or num_steps < _FIRST_STEP:
        raise CannotScaleError(
            f"widths {list(widths)} and {num_steps} steps show no trend; give three widths and two steps or more"
        )
    runs = {width: _mean([_record(build, width, num_steps, seed) for seed in seeds]) for width in sorted(set(widths))}
    names = list(next(iter(runs.values())))
    if not names:
        raise CannotScaleError("no module of the model ran in every step; build the model that the step trains")
    for width, run in runs.items():
        if list(run) != names:
            differing = ", ".join(sorted(set(names) ^ set(run))[:3])
            raise CannotScaleError(f"the model of width {width} has other modules than the first ({differing})")
    return CoordinateCheck(
        widths=tuple(runs), sizes={name: {width: run[name] for width, run in runs.items()} for name in names}
    )


def draw_svg(check: CoordinateCheck, title: str = "Size of activations by width") -> str:
    """Draw the check as one panel for each step that counts; flat lines are what one wants to see.

    The eight modules that drift most have colours and names, the others are grey.
    """
    drifts = check.drifts
    named = sorted(drifts, key=drifts.__getitem__, reverse=True)[: len(_COLOURS)]
    colours = {name: _COLOURS[named.index(name)] if name in named else "#c8c8c8" for name in check.sizes}
    low, high = _decades(check)
    num_panels = check.num_steps - _FIRST_STEP + 1
    width = _LEFT + num_panels * (_PANEL_WIDTH + _GAP) + 230
    height = _TOP + _PANEL_HEIGHT + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11" fill="#222">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(_LEFT, 24, title, size=15),
        _text(16, _TOP + _PANEL_HEIGHT / 2, "mean |output|", anchor="middle", turn=-90),
    ]
    for panel in range(num_panels):
        parts += _panel(check, panel, colours, (low, high))
    parts += _legend(named, colours, drifts, _LEFT + num_panels * (_PANEL_WIDTH + _GAP))
    return "\n".join([*parts, "</svg>"])


def _record(build: Build, width: int, num_steps: int, seed: int) -> dict[str, tuple[float, ...]]:
    """The sizes of every module's output in one training, for each step."""
    torch.manual_seed(seed)
    model, step = build(width)
    steps: list[dict[str, float]] = []
    for _ in range(num_steps):
        seen: dict[str, list[float]] = {}
        with _watching(model, seen):
            step()
        steps.append({name: sum(sizes) / len(sizes) for name, sizes in seen.items()})
    always = [name for name in steps[0] if all(name in sizes for sizes in steps)]
    return {name: tuple(sizes[name] for sizes in steps) for name in always}


def mean_size(output: Tensor) -> float:
    """Return how large a module's output is."""
    return float(output.abs().mean())


def note_sizes(
    model: nn.Module, seen: dict[str, list[float]], prefix: str = "", size_of: Callable[[Tensor], float] = mean_size
) -> list[RemovableHandle]:
    """Have a model note how large its modules' outputs are whenever it runs in training; return what ends that."""

    def watch(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def note(module: nn.Module, inputs: Any, output: Any) -> None:
            tensor = _first_tensor(output) if torch.is_grad_enabled() else None
            if tensor is not None:
                seen.setdefault(name, []).append(size_of(tensor.detach()))

        return note

    modules = [(name, module) for name, module in model.named_modules() if _is_watched(module)]
    return [module.register_forward_hook(watch(f"{prefix}{name or 'model'}")) for name, module in modules]


@contextmanager
def _watching(model: nn.Module, seen: dict[str, list[float]]) -> Iterator[None]:
    """Note the size of each output while this lasts."""
    handles = note_sizes(model, seen)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _is_watched(module: nn.Module) -> bool:
    """All but those that only pass on what their last part answers."""
    return not isinstance(module, nn.Sequential) or not len(module)


def _first_tensor(output: Any) -> Tensor | None:
    if isinstance(output, Tensor):
        return output if output.is_floating_point() and output.numel() else None
    items = output.values() if isinstance(output, Mapping) else output if isinstance(output, list | tuple) else ()
    return next((tensor for item in items if (tensor := _first_tensor(item)) is not None), None)


def _mean(runs: Sequence[Mapping[str, tuple[float, ...]]]) -> dict[str, tuple[float, ...]]:
    return {
        name: tuple(sum(sizes) / len(sizes) for sizes in zip(*(run[name] for run in runs), strict=True))
        for name in runs[0]
    }


def _spread(sizes: Sequence[float]) -> float:
    """The ratio of the largest to the smallest."""
    if not all(math.isfinite(size) for size in sizes):
        return math.inf
    if min(sizes) == 0:
        return 1.0 if max(sizes) == 0 else math.inf
    return max(sizes) / min(sizes)


def _slope(widths: Sequence[int], sizes: Sequence[float]) -> float:
    """The least-squares slope of log size over log width."""
    if not all(math.isfinite(size) and size > 0 for size in sizes):
        return 0.0 if not any(sizes) else math.inf
    xs, ys = [math.log(width) for width in widths], [math.log(size) for size in sizes]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    covariance = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return covariance / sum((x - x_mean) ** 2 for x in xs)


def _decades(check: CoordinateCheck) -> tuple[int, int]:
    """The powers of ten between which all sizes lie."""
    sizes = [size for name in check.sizes for column in check._columns(name) for size in column if _can_draw(size)]
    low, high = (math.log10(bound(sizes, default=1.0)) for bound in (min, max))
    return math.floor(low), max(math.ceil(high), math.floor(low) + 1)


def _can_draw(size: float) -> bool:
    return math.isfinite(size) and size > 0


def _panel(check: CoordinateCheck, panel: int, colours: Mapping[str, str], decades: tuple[int, int]) -> Iterator[str]:
    """One step: its axes, and a line for each module."""
    left, bottom = _LEFT + panel * (_PANEL_WIDTH + _GAP), _TOP + _PANEL_HEIGHT
    xs = _places(check.widths, left)
    yield (f'<rect x="{left}" y="{_TOP}" width="{_PANEL_WIDTH}" height="{_PANEL_HEIGHT}" fill="none" stroke="#888"/>')
    yield _text(left + _PANEL_WIDTH / 2, _TOP - 10, f"step {panel + _FIRST_STEP}", anchor="middle", size=12)
    yield _text(left + _PANEL_WIDTH / 2, bottom + 38, "width", anchor="middle")
    for x, width in zip(xs, check.widths, strict=True):
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}" stroke="#888"/>'
        yield _text(x, bottom + 18, str(width), anchor="middle")
    for power in range(decades[0], decades[1] + 1):
        y = _height(10.0**power, decades)
        yield f'<line x1="{left}" x2="{left + _PANEL_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e4e4e4"/>'
        if panel == 0:
            yield _text(left - 6, y + 4, f"{10.0**power:g}", anchor="end")
    for name in sorted(check.sizes, key=lambda name: colours[name] in _COLOURS):
        sizes = [check.sizes[name][width][panel + _FIRST_STEP - 1] for width in check.widths]
        points = [(x, _height(size, decades)) for x, size in zip(xs, sizes, strict=True) if _can_draw(size)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        yield f'<polyline points="{line}" fill="none" stroke="{colours[name]}" stroke-width="1.6"/>'
        yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4" fill="{colours[name]}"/>' for x, y in points)


def _places(widths: Sequence[int], left: float) -> list[float]:
    """Where widths lie on the horizontal axis, by their logarithm."""
    low, high = math.log(widths[0]), math.log(widths[-1])
    inner = _PANEL_WIDTH - 40
    return [left + 20 + inner * (math.log(width) - low) / (high - low) for width in widths]


def _height(size: float, decades: tuple[int, int]) -> float:
    low, high = decades
    return _TOP + _PANEL_HEIGHT * (high - math.log10(size)) / (high - low)


def _legend(
    named: Sequence[str], colours: Mapping[str, str], drifts: Mapping[str, float], left: float
) -> Iterator[str]:
    yield _text(left, _TOP - 10, "module (largest : smallest)", size=12)
    for row, name in enumerate(named):
        y = _TOP + 10 + 20 * row
        yield f'<line x1="{left}" x2="{left + 18}" y1="{y}" y2="{y}" stroke="{colours[name]}" stroke-width="3"/>'
        yield _text(left + 24, y + 4, f"{name[-22:]} ({drifts[name]:.2f})")
    if len(drifts) > len(named):
        yield _text(left, _TOP + 14 + 20 * len(named), f"{len(drifts) - len(named)} others in grey")


def _text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 11, turn: int = 0) -> str:
    turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{turned}>{html.escape(words)}</text>'
    )
