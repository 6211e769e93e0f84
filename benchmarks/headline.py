"""The picture of the first page, drawn from the first table of end_to_end.md: `python benchmarks/headline.py`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from transfer_drawing import text

FOLDER = Path(__file__).parent
TABLE, PICTURE = FOLDER / "end_to_end.md", FOLDER / "headline.svg"
COLUMN = "s for 200"
EXTRAPOLATED = "(extrapolated)"
SHADES = {"Headwater": "#08519c", "Optuna": "#9a9a9a", "Ray Tune": "#c4c4c4"}
LEFT, WIDTH, RIGHT = 104, 272, 144
BAR, ROW, TOP = 20, 112, 72
SHOWN_WIDTH = 660
"""On a wide page; on a telephone it is as wide as that, and letters can still be read."""


def read_seconds(page: str) -> dict[str, dict[str, list[str]]]:
    """Return the seconds of random search as they stand in the table, by workload and by who."""
    lines = iter(page.splitlines())
    names = next(cells for line in lines if COLUMN in (cells := split_row(line)))
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        if not line.startswith("|"):
            break
        row = dict(zip(names, split_row(line), strict=True))
        if row["search"] == "random" and row[COLUMN] != "-":
            seconds = row[COLUMN] if EXTRAPOLATED in row[COLUMN] else row["wall s"]  # the same, less rounded
            found[row["workload"]][row["who"].split(",")[0]].append(seconds)
    return found


def split_row(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def average(cells: list[str]) -> float:
    return sum(float(cell.removesuffix(EXTRAPOLATED)) for cell in cells) / len(cells)


def draw(found: Mapping[str, Mapping[str, list[str]]]) -> str:
    """Draw a bar for everyone under each workload, as long as the seconds, and how many times faster we are."""
    most = max(average(cells) for by_who in found.values() for cells in by_who.values())
    width, height = LEFT + WIDTH + RIGHT, TOP + ROW * len(found) + 30
    title = ("Seconds to tune a model by 200 random trials", "on two cores, its final training included")
    shapes = [f'<rect width="{width}" height="{height}" fill="white" rx="6"/>']
    lines = "".join(text(16, 28 + 21 * place, line, anchor="start") for place, line in enumerate(title))
    shapes.append(f'<g font-size="17" font-weight="bold">{lines}</g>')
    for row, (workload, by_who) in enumerate(found.items()):
        shapes += draw_workload(workload, by_who, TOP + ROW * row, WIDTH / most)
    source = "Means over runs; Optuna and Ray Tune ran some of the 200 trials, extrapolated."
    shapes.append(f'<g font-size="12" fill="#666">{text(16, height - 14, source, anchor="start")}</g>')
    style = f'width="{SHOWN_WIDTH}" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="15" fill="#222"'
    body = "\n".join(shapes)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {style}>\n{body}\n</svg>\n'


def draw_workload(workload: str, by_who: Mapping[str, list[str]], y: float, scale: float) -> Iterator[str]:
    yield f'<g font-weight="bold">{text(16, y + 14, workload, anchor="start")}</g>'
    for place, who in enumerate(SHADES):
        seconds, top = average(by_who[who]), y + 22 + place * (BAR + 4)
        times = f"{seconds:,.0f} s"
        if who != "Headwater":
            times += f", {seconds / average(by_who['Headwater']):.0f} times"
        yield text(16, top + 15, who, anchor="start")
        yield f'<rect x="{LEFT}" y="{top}" width="{seconds * scale:.1f}" height="{BAR}" fill="{SHADES[who]}" rx="2"/>'
        yield text(LEFT + seconds * scale + 8, top + 15, times, anchor="start")


if __name__ == "__main__":
    found = read_seconds(TABLE.read_text(encoding="utf-8"))
    peers = [cell for by_who in found.values() for who, cells in by_who.items() if who != "Headwater" for cell in cells]
    assert all(EXTRAPOLATED in cell for cell in peers), "the picture says that others were extrapolated"
    PICTURE.write_text(draw(found), encoding="utf-8")
