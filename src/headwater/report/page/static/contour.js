// The metric over two hyperparameters at once, smoothed.
import { h, short, panel, empty, select } from "./dom.js";
import { num } from "./numbers.js";
import { Chart, labelled, bounds, robust } from "./chart.js";
import { ramp } from "./colours.js";
import { wordOf } from "./data.js";
import { numberAxis, wordAxis } from "./slices.js";

const CELLS = 48; // nodes of the surface; between them it is interpolated
const BLOCK = 3; // pixels
const WIDTH = 0.09; // of the kernel, as a part of an axis
const LEAST_WEIGHT = 0.3; // where no trial is near, nothing is drawn
const LEVELS = 7;

export function contourView(context) {
  const { study, filter, go } = context;
  const state = { x: null, y: null };
  const tools = h("div", { class: "bar" });
  const figure = h("div");
  const legend = h("span", { class: "ramp" });
  const box = panel("Contour", "a smooth surface through the last values; points are trials, the large one the best; where none is near, nothing is drawn", tools, figure);
  let chart = null;
  let surface = null;

  const find = (name) => study.varying.find((key) => key.key === name);
  const share = (key, trial) => {
    const value = key.isNumber ? trial.config[key.key] : key.words.indexOf(wordOf(trial.config[key.key]));
    if (typeof value !== "number" || (!key.isNumber && value < 0)) return NaN;
    const [low, high] = axisOf(key).range;
    return key.isLog ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  };

  function compute(x, y) {
    const points = study.trials
      .filter((trial) => trial.status !== "failed" && Number.isFinite(study.value(trial)) && filter.has(trial, study))
      .map((trial) => ({ trial, x: share(x, trial), y: share(y, trial), value: study.value(trial) }))
      .filter((point) => Number.isFinite(point.x) && Number.isFinite(point.y));
    const [low, high] = robust(points.map((point) => point.value));
    const used = points.length > 1500 ? points.filter((_, place) => place % Math.ceil(points.length / 1500) === 0) : points;
    const values = new Float64Array(CELLS * CELLS).fill(NaN);
    for (let row = 0; row < CELLS; row += 1)
      for (let column = 0; column < CELLS; column += 1) {
        let [sum, weights] = [0, 0];
        const [cx, cy] = [column / (CELLS - 1), row / (CELLS - 1)];
        for (const point of used) {
          const far = ((point.x - cx) ** 2 + (point.y - cy) ** 2) / (2 * WIDTH ** 2);
          if (far > 8) continue;
          const weight = Math.exp(-far);
          sum += weight * Math.min(Math.max(point.value, low), high);
          weights += weight;
        }
        if (weights > LEAST_WEIGHT) values[row * CELLS + column] = sum / weights;
      }
    return { points, values, low, high };
  }

  function draw(one, pen, look, ratio) {
    const { left, top, width, height } = one.plot.bbox;
    const { values, low, high, points } = surface;
    const level = (value) => Math.floor(Math.min(Math.max((study.sign > 0 ? high - value : value - low) / (high - low || 1), 0), 0.9999) * LEVELS);
    const step = BLOCK * ratio;
    const at = (px, py) => {
      const [x, y] = [(px / width) * (CELLS - 1), (1 - py / height) * (CELLS - 1)];
      const [column, row] = [Math.min(Math.max(Math.floor(x), 0), CELLS - 2), Math.min(Math.max(Math.floor(y), 0), CELLS - 2)];
      const [u, v] = [x - column, y - row];
      const node = row * CELLS + column;
      return (values[node] * (1 - u) + values[node + 1] * u) * (1 - v) + (values[node + CELLS] * (1 - u) + values[node + CELLS + 1] * u) * v;
    };
    const colours = Array.from({ length: LEVELS }, (_, place) => ramp(0.1 + (0.8 * place) / (LEVELS - 1), look.isDark));
    for (let py = 0; py < height; py += step) {
      let [begin, before] = [0, -1];
      const flush = (px) => {
        if (before >= 0) {
          pen.fillStyle = colours[before];
          pen.fillRect(left + begin, top + py, px - begin + 0.5, step + 0.5);
        }
        begin = px;
      };
      for (let px = 0; px < width; px += step) {
        const value = at(px + step / 2, py + step / 2);
        const here = Number.isNaN(value) ? -1 : level(value);
        if (here !== before) {
          flush(px);
          before = here;
        }
      }
      flush(width);
    }
    const best = study.ranking()[0];
    const isCrowded = points.length > 800;
    for (const point of points) {
      const isMarked = point.trial === best || point.trial === one.found?.trial;
      pen.globalAlpha = isCrowded && !isMarked ? 0.35 : 1;
      pen.beginPath();
      pen.arc(left + point.x * width, top + (1 - point.y) * height, (isMarked ? 5 : isCrowded ? 1 : 2.6) * ratio, 0, 2 * Math.PI);
      pen.fillStyle = isMarked || isCrowded ? look.text : look.surface;
      pen.strokeStyle = isMarked ? look.surface : look.text;
      pen.lineWidth = (isMarked ? 2 : 1) * ratio;
      pen.fill();
      if (!isCrowded || isMarked) pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  function nearest(one, pixel, level) {
    const { left, top, width, height } = one.plot.bbox;
    let [found, least] = [null, 16 * (devicePixelRatio || 1)];
    for (const point of surface.points) {
      const far = Math.hypot(left + point.x * width - pixel, top + (1 - point.y) * height - level);
      if (far < least) [found, least] = [point.trial, far];
    }
    if (!found) return null;
    const shown = [state.x, state.y].map((name) => `${short(name, 24)} ${typeof found.config[name] === "number" ? num(found.config[name]) : short(found.config[name], 24)}`);
    return { key: found.number, trial: found, lines: [`trial ${found.number}`, `${short(study.metric, 24)} ${num(study.value(found))}`, ...shown] };
  }

  function refresh() {
    const keys = study.varying;
    if (keys.length < 2 || study.ranking().length < 4) {
      figure.replaceChildren(empty("Nothing to draw yet.", "It takes two hyperparameters that vary, and four trials with values."));
      return;
    }
    if (!find(state.x)) state.x = keys[0].key;
    if (!find(state.y)) state.y = keys.find((key) => key.key !== state.x).key;
    const options = keys.map((key) => [key.key, key.key]);
    const [x, y] = [find(state.x), find(state.y)];
    surface = compute(x, y);
    legend.replaceChildren(h("span", null, num(study.sign > 0 ? surface.high : surface.low, 3)), h("span", { class: "ramp-bar" }), h("span", null, num(study.sign > 0 ? surface.low : surface.high, 3)), h("span", { class: "muted" }, short(study.metric, 30)));
    tools.replaceChildren(
      select("across", options, state.x, (value) => pick("x", value)),
      select("up", options, state.y, (value) => pick("y", value)),
      legend,
    );
    if (chart) chart.destroy();
    chart = new Chart({ title: `${study.metric} over ${x.key} and ${y.key}`, height: "max(440px, 52vh)", zoom: false, cursor: false, x: axisOf(x), y: axisOf(y), marks: true, draw, find: nearest, open: (found) => go(`trial/${found.trial.number}`) });
    figure.replaceChildren(labelled(chart, x.key + (x.isLog ? ", log" : ""), y.key + (y.isLog ? ", log" : "")));
  }

  function pick(side, value) {
    const other = side === "x" ? "y" : "x";
    if (state[other] === value) state[other] = state[side];
    state[side] = value;
    refresh();
  }

  refresh();
  return { element: box, refresh, restyle: () => chart && chart.rebuild(), close: () => chart && chart.destroy() };
}

function axisOf(key) {
  return key.isNumber ? numberAxis(key) : wordAxis(key);
}
