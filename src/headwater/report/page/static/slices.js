// The metric against each hyperparameter.
import { h, short, panel, empty, check } from "./dom.js";
import { num } from "./numbers.js";
import { Chart, bounds, robust } from "./chart.js";
import { ramp } from "./colours.js";
import { lastEpoch, wordOf } from "./data.js";

export function slicesView(context) {
  const { study, filter, go } = context;
  const grid = h("div", { class: "grid" });
  let all = false;
  let charts = [];
  const box = panel(
    "Slices",
    `the last ${short(study.metric, 40)} of each trial against one hyperparameter; stronger points trained longer, the best has a ring`,
    h("div", { class: "bar" }, check("all values", all, (value) => ((all = value), refresh()))),
    grid,
  );

  function build() {
    charts.forEach((one) => one.chart.destroy());
    charts = study.varying.map((key) => {
      const chart = new Chart({
        title: `${study.metric} against ${key.key}`,
        height: 210,
        x: { range: [0, 1] },
        y: { range: [0, 1] },
        marks: true,
        draw: (one, pen, look, ratio) => draw(key, one, pen, look, ratio),
        find: (one, x, y) => find(key, one, x, y),
        open: (found) => go(`trial/${found.trial.number}`),
      });
      return { key, chart };
    });
    grid.replaceChildren(
      ...charts.map(({ key, chart }) => h("figure", { class: "small" }, h("figcaption", { title: short(key.domain, 300) }, short(key.key, 40), key.isLog ? h("span", { class: "muted" }, " log") : null), chart.place)),
    );
  }

  const at = (key, trial) => (key.isNumber ? trial.config[key.key] : key.words.indexOf(wordOf(trial.config[key.key])));
  const counted = () => study.trials.filter((trial) => Number.isFinite(study.value(trial)) && filter.has(trial, study));

  function draw(key, one, pen, look, ratio) {
    const [x, y] = [one.scaler("x"), one.scaler("y")];
    const most = Math.max(1, ...study.trials.slice(0, 20000).map(lastEpoch));
    const trials = counted();
    const size = (trials.length > 2000 ? 1.5 : 2.6) * ratio;
    pen.globalAlpha = trials.length > 2000 ? 0.5 : 0.85;
    for (const trial of trials) {
      pen.fillStyle = ramp(0.3 + (0.7 * lastEpoch(trial)) / most, look.isDark);
      pen.beginPath();
      pen.arc(x(at(key, trial)) + jitter(key, trial) * ratio, y(study.value(trial)), size, 0, 2 * Math.PI);
      pen.fill();
    }
    pen.globalAlpha = 1;
    const marked = [study.ranking()[0], one.found?.trial].filter(Boolean);
    pen.lineWidth = 1.8 * ratio;
    pen.strokeStyle = look.text;
    for (const trial of marked) {
      pen.beginPath();
      pen.arc(x(at(key, trial)) + jitter(key, trial) * ratio, y(study.value(trial)), size + 2.5 * ratio, 0, 2 * Math.PI);
      pen.stroke();
    }
  }

  const jitter = (key, trial) => (key.isNumber && key.values.size > 8 ? 0 : ((trial.number * 0.618034) % 1) * 14 - 7);

  function find(key, one, pixel, level) {
    const [x, y] = [one.scaler("x"), one.scaler("y")];
    let [found, least] = [null, 14 * (devicePixelRatio || 1)];
    for (const trial of counted()) {
      const far = Math.hypot(x(at(key, trial)) + jitter(key, trial) - pixel, y(study.value(trial)) - level);
      if (far < least) [found, least] = [trial, far];
    }
    if (!found) return null;
    const value = found.config[key.key];
    return {
      key: found.number,
      trial: found,
      lines: [`trial ${found.number}`, `${short(study.metric, 24)} ${num(study.value(found))}`, `${short(key.key, 24)} ${typeof value === "number" ? num(value) : short(value, 30)}`, `${lastEpoch(found)} epochs`],
    };
  }

  function refresh() {
    const values = study.trials.map((trial) => study.value(trial)).filter(Number.isFinite);
    if (!study.varying.length || !values.length) {
      grid.replaceChildren(empty("Nothing to draw yet.", "Points appear when trials that differ have reported."));
      return;
    }
    if (charts.length !== study.varying.length) build();
    const y = { range: bounds(all ? values : robust(values)) };
    charts.forEach((one, place) => {
      const key = study.varying[place];
      one.key.words = key.words;
      const x = key.isNumber
        ? { ...numberAxis(key), space: 56 }
        : wordAxis(key);
      one.chart.update({ x, y });
    });
  }

  refresh();
  return { element: box, refresh, restyle: () => charts.forEach((one) => one.chart.rebuild()), close: () => charts.forEach((one) => one.chart.destroy()) };
}

export function numberAxis(key) {
  const range = bounds([key.low, key.high], key.isLog);
  const few = key.values.size <= 6 ? Array.from(key.values).sort((one, other) => one - other) : null;
  return { range, isLog: key.isLog, splits: few ? () => few : undefined, sign: few?.join() };
}

export function wordAxis(key) {
  const last = key.words.length - 1;
  return {
    range: [-0.5, last + 0.5],
    isLog: false,
    sign: key.words.join(),
    splits: () => key.words.map((_, place) => place),
    ticks: (_, splits) => splits.map((place) => short(key.words[place] ?? "", 12)),
  };
}
