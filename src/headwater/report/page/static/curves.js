// What trials reported, epoch by epoch, with the rungs at which a search chose who goes on.
import { h, short, panel, empty, select, check } from "./dom.js";
import { num, count } from "./numbers.js";
import { Chart, labelled, bounds, robust } from "./chart.js";
import { ramp, shareOfRank } from "./colours.js";
import { epochAt, lastEpoch, GLYPHS, statusWord } from "./data.js";

const BINS = 8;

export function curvesView(context) {
  const { study, source, filter, go } = context;
  const state = { metric: study.metric, isLog: false, all: false, by: "", rungs: true };
  const box = h("div");
  const figure = h("div");
  const note = h("span", { class: "muted" });
  const tools = h("div", { class: "bar" });
  const chart = new Chart({
    title: `curves of ${study.metric}`,
    height: "max(440px, 52vh)",
    x: { range: [0, 1] },
    y: { range: [0, 1] },
    marks: true,
    draw,
    find,
    open: (found) => go(`trial/${found.trial.number}`),
  });
  box.append(panel("Curves", "one line for each trial; hover to see which, click to open it, drag to zoom, double click to zoom out", tools, figure));

  let shown = [];
  let shares = () => 0;

  function draw(one, pen, look, ratio) {
    const [x, y] = [one.scaler("x"), one.scaler("y")];
    const alpha = Math.max(0.12, Math.min(0.9, 60 / Math.max(shown.length, 1)));
    const bins = Array.from({ length: BINS + 1 }, () => []);
    for (const trial of shown) {
      const share = shares(trial);
      bins[share === undefined ? 0 : 1 + Math.min(Math.floor(share * BINS), BINS - 1)].push(trial);
    }
    if (state.rungs) drawRungs(one, pen, look, ratio, x);
    pen.lineWidth = (shown.length > 300 ? 1 : 1.4) * ratio;
    pen.lineJoin = "round";
    bins.forEach((trials, bin) => {
      pen.globalAlpha = bin === BINS ? 1 : bin === 0 ? alpha * 0.7 : alpha + ((1 - alpha) * bin) / BINS / 2;
      pen.strokeStyle = bin === 0 ? look.faint : ramp((bin - 1) / (BINS - 1), look.isDark);
      pen.beginPath();
      for (const trial of trials) trace(pen, trial, x, y);
      pen.stroke();
    });
    pen.globalAlpha = 1;
    const ranked = study.ranking();
    for (const trial of [ranked.find((one) => filter.has(one, study)), one.found?.trial]) if (trial) emphasise(pen, look, ratio, trial, x, y);
  }

  function trace(pen, trial, x, y) {
    const values = trial.curves[state.metric];
    if (!values) return;
    let isDown = false;
    for (let place = 0; place < values.length; place += 1) {
      const value = values[place];
      if (!Number.isFinite(value) || (state.isLog && value <= 0)) {
        isDown = false;
        continue;
      }
      const [left, top] = [x(epochAt(trial, place)), y(value)];
      if (isDown) pen.lineTo(left, top);
      else {
        pen.moveTo(left, top);
        // A value that stands alone would be no line.
        if (!Number.isFinite(values[place + 1] ?? NaN)) pen.arc(left, top, 1.6 * (devicePixelRatio || 1), 0, 2 * Math.PI);
      }
      isDown = true;
    }
  }

  function emphasise(pen, look, ratio, trial, x, y) {
    pen.strokeStyle = look.surface;
    pen.lineWidth = 4 * ratio;
    pen.beginPath();
    trace(pen, trial, x, y);
    pen.stroke();
    pen.strokeStyle = look.text;
    pen.lineWidth = 2.2 * ratio;
    pen.beginPath();
    trace(pen, trial, x, y);
    pen.stroke();
    const values = trial.curves[state.metric];
    if (!values?.length) return;
    const last = values.length - 1;
    const [left, top] = [x(epochAt(trial, last)), y(values[last])];
    pen.font = `600 ${12 * ratio}px system-ui`;
    const text = `${GLYPHS[trial.status]} ${trial.number}`;
    const width = pen.measureText(text).width;
    const right = edges(chart).right;
    pen.textAlign = "left";
    const at = [Math.min(left + 6 * ratio, right - width - 2 * ratio), Math.max(top - 6 * ratio, chart.plot.bbox.top + 13 * ratio)];
    pen.strokeStyle = look.surface;
    pen.lineWidth = 4 * ratio;
    pen.strokeText(text, ...at);
    pen.fillStyle = look.text;
    pen.fillText(text, ...at);
  }

  function drawRungs(one, pen, look, ratio, x) {
    const { top, height } = one.plot.bbox;
    pen.strokeStyle = look.muted;
    pen.fillStyle = look.muted;
    pen.lineWidth = ratio;
    pen.font = `${11 * ratio}px system-ui`;
    pen.textAlign = "left";
    const isNarrow = one.plot.bbox.width < 600 * ratio;
    const ends = [-Infinity, -Infinity, -Infinity];
    const rungs = study.rungs().map((rung) => ({ ...rung, left: Math.round(x(rung.epoch)) + 0.5 }));
    pen.setLineDash([4 * ratio, 4 * ratio]);
    pen.beginPath();
    for (const { left } of rungs) {
      pen.moveTo(left, top);
      pen.lineTo(left, top + height);
    }
    pen.stroke();
    pen.setLineDash([]);
    for (const rung of rungs) {
      const { left } = rung;
      const text = isNarrow ? `${rung.promoted}/${rung.reached}` : `epoch ${rung.epoch}: ${rung.promoted} of ${rung.reached} went on`;
      const width = pen.measureText(text).width;
      const { right } = edges(one);
      const start = left + 5 * ratio + width > right ? left - 5 * ratio - width : left + 5 * ratio;
      const row = ends.findIndex((end) => start > end);
      if (row < 0) continue;
      pen.fillStyle = look.surface;
      pen.fillRect(start - 3 * ratio, top + (3 + row * 15) * ratio, width + 6 * ratio, 15 * ratio);
      pen.fillStyle = look.muted;
      pen.fillText(text, start, top + (14 + row * 15) * ratio);
      ends[row] = start + width + 8 * ratio;
    }
  }

  function find(one, pixel, level) {
    const [x, y] = [one.scaler("x"), one.scaler("y")];
    const { min, max } = one.plot.scales.x;
    const epoch = min + ((pixel - one.plot.bbox.left) / one.plot.bbox.width) * (max - min);
    let [found, least, where] = [null, 18 * (devicePixelRatio || 1), 0];
    for (const trial of shown) {
      const values = trial.curves[state.metric];
      if (!values?.length) continue;
      const place = nearest(trial, epoch);
      const far = Math.hypot(Math.max(0, Math.abs(x(epochAt(trial, place)) - pixel) - one.plot.bbox.width / 40), y(values[place]) - level);
      if (far < least) [found, least, where] = [trial, far, place];
    }
    if (!found) return null;
    const config = study.varying.slice(0, 6).map((key) => `${short(key.key, 20)} ${typeof found.config[key.key] === "number" ? num(found.config[key.key]) : short(found.config[key.key] ?? "–", 20)}`);
    const rank = found.rank ? `, rank ${found.rank}` : "";
    return {
      key: `${found.number}/${where}`,
      trial: found,
      lines: [
        `trial ${found.number}${rank}, ${statusWord(found.status, study.head)}`,
        `${short(state.metric, 30)} ${num(found.curves[state.metric][where])} at epoch ${epochAt(found, where)}`,
        ...config,
      ],
    };
  }

  function colourBy() {
    if (!state.by) return shareOfRank(study);
    const key = study.keys.find((one) => one.key === state.by);
    if (!key.isNumber) return (trial) => key.words.indexOf(String(trial.config[key.key])) / Math.max(key.words.length - 1, 1);
    const map = key.isLog ? Math.log : Number;
    const [low, span] = [map(key.low), map(key.high) - map(key.low) || 1];
    return (trial) => (typeof trial.config[key.key] === "number" ? (map(trial.config[key.key]) - low) / span : undefined);
  }

  async function pickMetric(metric) {
    state.metric = metric;
    if (!study.loaded.has(metric) && source.curves) study.absorb({ ...(await source.curves(study.head.id, metric)), version: study.version });
    refresh();
  }

  function controls() {
    const metrics = (study.head.metrics || [study.metric]).map((name) => [name, name]);
    const keys = [["", "rank"], ...study.varying.map((key) => [key.key, key.key])];
    tools.replaceChildren(
      metrics.length > 1 ? select("metric", metrics, state.metric, pickMetric) : "",
      select("colour by", keys, state.by, (value) => ((state.by = value), refresh())),
      check("log", state.isLog, (value) => ((state.isLog = value), refresh())),
      check("all values", state.all, (value) => ((state.all = value), refresh())),
      study.rungs().length ? check("rungs", state.rungs, (value) => ((state.rungs = value), refresh())) : "",
      rampLegend(state.by ? short(state.by, 20) : "rank", state.by ? ["low", "high"] : ["worst", "best"]),
      note,
    );
  }

  function refresh() {
    controls();
    shown = study.trials.filter((trial) => trial.epochs.length && filter.has(trial, study));
    shares = colourBy();
    note.textContent = filter.isOn ? `${shown.length} of ${count(study.trials.length, "trial")}` : count(shown.length, "trial");
    if (!shown.length) {
      figure.replaceChildren(empty(filter.isOn ? "The filter leaves no trial." : "No trial has reported yet.", filter.isOn ? "Reset it above." : "Curves appear with the first report."));
      return;
    }
    if (!figure.contains(chart.place)) figure.replaceChildren(labelled(chart, "epoch", state.metric));
    figure.querySelector(".axis-y").textContent = short(state.metric, 60);
    const values = shown.flatMap((trial) => Array.from(trial.curves[state.metric] || []));
    const range = state.isLog ? bounds(values, true) : bounds(state.all ? values : robust(values));
    const last = Math.max(...shown.map(lastEpoch), 1);
    const first = Math.min(...shown.slice(0, 1000).map((trial) => epochAt(trial, 0)));
    const air = Math.max((last - first) * 0.02, 0.15);
    chart.update({
      x: { range: [first - air, last + air * 2], space: 40, isWhole: true },
      y: { range, isLog: state.isLog },
    });
  }

  refresh();
  return { element: box, refresh, restyle: () => chart.rebuild(), close: () => chart.destroy() };
}

function edges(chart) {
  const { left, width } = chart.plot.bbox;
  return { right: left + width };
}

function nearest(trial, epoch) {
  const last = trial.epochs.length - 1;
  const first = epochAt(trial, 0);
  const guess = Math.round(((epoch - first) / Math.max(epochAt(trial, last) - first, 1)) * last);
  return Math.min(Math.max(guess, 0), last);
}

export function rampLegend(name, ends) {
  return h("span", { class: "ramp", title: `colour: ${name}` }, h("span", null, ends[0]), h("span", { class: "ramp-bar" }), h("span", null, ends[1]));
}
