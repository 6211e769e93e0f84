// How far a search by narrow models can be trusted, and how far the target is.
import { h, s, short, panel, empty } from "./dom.js";
import { num, aligned, seconds, count } from "./numbers.js";
import { Chart, labelled, bounds } from "./chart.js";
import { GLYPHS } from "./data.js";

export function surrogateView(context) {
  const { study, open } = context;
  const box = h("div", { class: "stack" });
  let charts = [];

  function refresh() {
    charts.forEach((chart) => chart.destroy());
    charts = [];
    const found = study.surrogate;
    if (!found) {
      box.replaceChildren(panel("Surrogates", null, empty("This study trains its models as they are written.", "With surrogate=8 it would search on models of an eighth of the width.")));
      return;
    }
    const texts = [...study.notes.filter((note) => note.kind === "surrogate").map((note) => note.text), ...study.start];
    const said = Array.from(new Set(texts), (text) => h("li", null, text));
    box.replaceChildren(
      h("div", { class: "grid wide" }, ...found.targets.map(targetPanel), ...found.checks.map(checkPanel)),
      ...(said.length ? [panel("What was said", null, h("ul", { class: "lines" }, said))] : []),
    );
  }

  function targetPanel(target) {
    const wanted = study.head.max_epochs;
    const points = target.curve.filter(([, value]) => value !== null);
    const best = study.head.best?.value;
    const chart = new Chart({
      title: `the target's ${study.metric}`,
      height: 260,
      x: { range: [0.9, Math.max(wanted || 0, target.epochs, 2) + 0.1], space: 40, isWhole: true },
      y: { range: bounds([...points.map(([, value]) => value), best ?? NaN]) },
      draw: (one, pen, look, ratio) => {
        const [x, y] = [one.scaler("x"), one.scaler("y")];
        if (best !== undefined) {
          pen.strokeStyle = look.muted;
          pen.setLineDash([5 * ratio, 4 * ratio]);
          pen.beginPath();
          pen.moveTo(one.plot.bbox.left, y(best));
          pen.lineTo(one.plot.bbox.left + one.plot.bbox.width, y(best));
          pen.stroke();
          pen.setLineDash([]);
        }
        pen.strokeStyle = look.accent;
        pen.lineWidth = 2 * ratio;
        pen.beginPath();
        points.forEach(([epoch, value], place) => (place ? pen.lineTo(x(epoch), y(value)) : pen.moveTo(x(epoch), y(value))));
        pen.stroke();
        pen.fillStyle = look.accent;
        for (const [epoch, value] of points) {
          pen.beginPath();
          pen.arc(x(epoch), y(value), 3 * ratio, 0, 2 * Math.PI);
          pen.fill();
        }
      },
      find: (one, pixel) => {
        const x = one.scaler("x");
        const near = points.slice().sort(([a], [b]) => Math.abs(x(a) - pixel) - Math.abs(x(b) - pixel))[0];
        return near ? { key: near[0], lines: [`epoch ${near[0]}`, `${study.metric} ${num(near[1])}`] } : null;
      },
    });
    charts.push(chart);
    const progress = wanted ? `epoch ${target.epochs} of ${wanted}` : count(target.epochs, "epoch");
    const status = target.status ? `${GLYPHS[target.status]} ${target.status}` : "waiting";
    return panel(
      target.is_settled ? "The target" : "A target that was begun",
      `${status}, ${progress}, ${study.metric} ${num(target.value)}, ${seconds(target.seconds)} in training`,
      points.length ? labelled(chart, "epoch", study.metric) : empty("It has not reported yet."),
      h("p", { class: "muted caption" }, "dashed: the best surrogate. ", h("a", { href: "#", onclick: (event) => (event.preventDefault(), open(target.id)) }, short(target.study, 60))),
    );
  }

  function checkPanel(checked) {
    const pairs = checked.pairs.filter((pair) => pair.values.every((value) => value !== null));
    if (pairs.length < 2) return panel(`The ranking at 1/${checked.scale} of the width`, null, empty("Too few trials to compare yet."));
    const ranks = [0, 1].map((side) => rank(pairs.map((pair) => study.sign * pair.values[side])));
    const agreement = correlate(...ranks);
    return panel(
      `The ranking at 1/${checked.scale} of the width`,
      `${pairs.length} configurations trained at both widths: rank agreement ${agreement.toFixed(2)}`,
      bumps(pairs, ranks, [`1/${study.surrogate.scale}`, `1/${checked.scale}`]),
      h("p", { class: "muted caption" }, "lines that do not cross rank alike; values of ", short(study.metric, 30), " beside each"),
    );
  }

  refresh();
  return { element: box, refresh, restyle: refresh, close: () => charts.forEach((chart) => chart.destroy()) };
}

function rank(values) {
  const order = values.map((_, place) => place).sort((one, other) => values[one] - values[other]);
  const ranks = new Array(values.length);
  order.forEach((place, at) => (ranks[place] = at));
  return ranks;
}

function correlate(one, other) {
  const size = one.length;
  const squares = one.reduce((sum, value, place) => sum + (value - other[place]) ** 2, 0);
  return 1 - (6 * squares) / (size * (size ** 2 - 1));
}

function bumps(pairs, [left, right], names) {
  const [width, gap, top] = [420, 30, 34];
  const height = top + gap * pairs.length;
  const y = (place) => top + gap * (place + 0.5);
  const parts = pairs.map((pair, place) => {
    const isBest = left[place] === 0 || right[place] === 0;
    return s(
      "g",
      { class: isBest ? "bump best" : "bump" },
      s("line", { x1: 140, y1: y(left[place]), x2: width - 100, y2: y(right[place]) }),
      s("circle", { cx: 140, cy: y(left[place]), r: 4 }),
      s("circle", { cx: width - 100, cy: y(right[place]), r: 4 }),
      s("text", { x: 0, y: y(left[place]) + 4 }, `trial ${pair.number}`),
      s("text", { x: 128, y: y(left[place]) + 4, "text-anchor": "end" }, aligned(pair.values[0])),
      s("text", { x: width - 88, y: y(right[place]) + 4 }, aligned(pair.values[1])),
    );
  });
  const heads = [s("text", { x: 140, y: 18, "text-anchor": "middle", class: "bump-head" }, names[0]), s("text", { x: width - 100, y: 18, "text-anchor": "middle", class: "bump-head" }, names[1])];
  return s("svg", { viewBox: `0 0 ${width} ${height}`, class: "bumps", role: "img", "aria-label": "ranks at both widths" }, heads, parts);
}
