// Parallel axes: one for each hyperparameter that varies and one for the metric; drag along an axis to filter.
import { h, short, panel, empty } from "./dom.js";
import { num, count } from "./numbers.js";
import { theme, robust } from "./chart.js";
import { ramp, shareOfRank } from "./colours.js";
import { rampLegend } from "./curves.js";
import { wordOf } from "./data.js";

const [TOP, BOTTOM, SIDE] = [46, 26, 54];
const LEAST_GAP = 84;

export function parallelView(context) {
  const { study, filter, go } = context;
  const canvas = h("canvas", { class: "parallel", role: "img", "aria-label": "parallel axes of all hyperparameters that vary" });
  const tip = h("div", { class: "tip", hidden: true });
  const scroll = h("div", { class: "scroll chart-wide" }, h("div", { class: "parallel-box" }, canvas, tip));
  const note = h("span", { class: "muted" });
  const body = h("div");
  const box = panel(
    "Parallel axes",
    "drag along an axis to keep only trials that pass there, click the axis to let go; the filter holds for all views",
    h("div", { class: "bar" }, rampLegend("rank", ["worst", "best"]), note),
    body,
  );
  let axes = [];
  let drag = null;
  let hovered = null;
  const watcher = new ResizeObserver(() => paint());
  watcher.observe(scroll);

  function makeAxes() {
    const values = study.trials.map((trial) => study.value(trial));
    const [low, high] = robust(values);
    const metric = {
      key: `value:${study.metric}`,
      name: study.metric,
      isMetric: true,
      at: (trial) => (study.value(trial) - low) / (high - low || 1),
      show: (share) => num(low + share * (high - low), 3),
    };
    return [...study.varying.map(keyAxis), metric];
  }

  function keyAxis(key) {
    if (!key.isNumber) {
      const last = Math.max(key.words.length - 1, 1);
      const at = (trial) => {
        const place = key.words.indexOf(wordOf(trial.config[key.key]));
        return place < 0 ? NaN : place / last;
      };
      return { key: key.key, name: key.key, words: key.words, at, show: (share) => key.words[Math.round(share * last)] ?? "" };
    }
    const map = key.isLog ? Math.log : Number;
    const back = key.isLog ? Math.exp : Number;
    const [low, span] = [map(key.low), map(key.high) - map(key.low) || 1];
    const at = (trial) => (typeof trial.config[key.key] === "number" ? (map(trial.config[key.key]) - low) / span : NaN);
    const few = key.values.size <= 8 ? Array.from(key.values, (value) => (map(value) - low) / span) : null;
    return { key: key.key, name: key.key, isLog: key.isLog, few, at, show: (share) => num(back(low + share * span), 3) };
  }

  const geometry = () => {
    const width = Math.max(scroll.clientWidth, axes.length * LEAST_GAP + 2 * SIDE - LEAST_GAP);
    const height = Math.max(440, Math.round(innerHeight * 0.45));
    const gap = (width - 2 * SIDE) / Math.max(axes.length - 1, 1);
    return { width, height, x: (place) => SIDE + place * gap, y: (share) => TOP + (1 - share) * (height - TOP - BOTTOM), gap };
  };

  function paint() {
    if (!axes.length || !scroll.clientWidth) return;
    const { width, height, x, y } = geometry();
    const ratio = devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const look = theme();
    const shares = shareOfRank(study);
    const kept = study.trials.filter((trial) => filter.has(trial, study));
    const others = filter.isOn ? study.trials.filter((trial) => !filter.has(trial, study)) : [];
    pen.lineWidth = 1;
    pen.globalAlpha = Math.max(0.15, Math.min(0.5, 60 / Math.max(others.length, 1)));
    pen.strokeStyle = look.line;
    strokeLines(pen, others, x, y);
    const sorted = kept.slice().sort((one, other) => (shares(one) ?? -1) - (shares(other) ?? -1));
    for (let bin = 0; bin < 10; bin += 1) {
      const part = sorted.filter((trial) => Math.min(Math.floor((shares(trial) ?? 0) * 10), 9) === bin);
      pen.globalAlpha = Math.max(0.1, Math.min(0.95, 40 / Math.max(kept.length, 1) + bin / 14));
      pen.lineWidth = bin === 9 ? 1.6 : 1.1;
      pen.strokeStyle = ramp(bin / 9, look.isDark);
      strokeLines(pen, part, x, y);
    }
    pen.globalAlpha = 1;
    if (hovered) {
      pen.lineWidth = 2.6;
      pen.strokeStyle = look.text;
      strokeLines(pen, [hovered], x, y);
    }
    axes.forEach((axis, place) => paintAxis(pen, look, axis, x(place), y));
    note.textContent = filter.isOn ? `${kept.length} of ${count(study.trials.length, "trial")} kept` : count(kept.length, "trial");
  }

  function strokeLines(pen, trials, x, y) {
    pen.beginPath();
    for (const trial of trials) {
      let isDown = false;
      axes.forEach((axis, place) => {
        const share = axis.at(trial);
        if (!Number.isFinite(share)) return (isDown = false);
        const clamped = Math.min(Math.max(share, -0.02), 1.02);
        isDown ? pen.lineTo(x(place), y(clamped)) : pen.moveTo(x(place), y(clamped));
        isDown = true;
      });
    }
    pen.stroke();
  }

  function paintAxis(pen, look, axis, left, y) {
    pen.strokeStyle = look.muted;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(left, y(0));
    pen.lineTo(left, y(1));
    pen.stroke();
    pen.textAlign = "center";
    pen.fillStyle = look.text;
    pen.font = `${axis.isMetric ? "600 " : ""}12px system-ui`;
    pen.fillText(fit(pen, axis.name, geometry().gap - 10), left, 16);
    pen.font = "11px system-ui";
    pen.fillStyle = look.muted;
    if (axis.isLog) pen.fillText("log", left, 29);
    pen.textAlign = "left";
    const marks = axis.words ? axis.words.slice(0, 12).map((_, at) => at / Math.max(axis.words.length - 1, 1)) : axis.few || [0, 0.25, 0.5, 0.75, 1];
    for (const share of marks) {
      pen.fillStyle = look.surface;
      const text = short(axis.show(share), 12);
      pen.globalAlpha = 0.75;
      pen.fillRect(left + 4, y(share) - 7, pen.measureText(text).width + 4, 14);
      pen.globalAlpha = 1;
      pen.fillStyle = look.muted;
      pen.fillText(text, left + 6, y(share) + 4);
      pen.fillRect(left - 3, y(share), 6, 1);
    }
    const range = drag?.axis === axis ? drag.range : filter.ranges.get(axis.key)?.range;
    if (!range) return;
    pen.fillStyle = look.accent;
    pen.globalAlpha = 0.22;
    pen.fillRect(left - 9, y(range[1]), 18, y(range[0]) - y(range[1]));
    pen.globalAlpha = 1;
    pen.strokeStyle = look.accent;
    pen.strokeRect(left - 9, y(range[1]), 18, y(range[0]) - y(range[1]));
  }

  function fit(pen, name, most) {
    let text = short(name, 40);
    while (text.length > 4 && pen.measureText(text).width > most) text = `${text.slice(0, -2)}…`;
    return text;
  }

  function locate(event) {
    const rect = canvas.getBoundingClientRect();
    const { x, height, gap } = geometry();
    const [left, top] = [event.clientX - rect.left, event.clientY - rect.top];
    const place = Math.min(Math.max(Math.round((left - SIDE) / gap), 0), axes.length - 1);
    const share = 1 - (top - TOP) / (height - TOP - BOTTOM);
    return { axis: axes[place], isNear: Math.abs(left - x(place)) < 18, share: Math.min(Math.max(share, 0), 1), left, top };
  }

  canvas.addEventListener("pointerdown", (event) => {
    const at = locate(event);
    if (!at.isNear) return;
    drag = { axis: at.axis, from: at.share, range: [at.share, at.share] };
    canvas.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = locate(event);
    if (drag) {
      drag.range = [Math.min(drag.from, at.share), Math.max(drag.from, at.share)];
      return paint();
    }
    canvas.style.cursor = at.isNear ? "row-resize" : "default";
    hover(at);
  });
  canvas.addEventListener("pointerup", () => {
    if (!drag) return;
    const { axis, range } = drag;
    drag = null;
    filter.setRange(axis, range[1] - range[0] < 0.01 ? null : [range[0] - 1e-9, range[1] + 1e-9]);
  });
  canvas.addEventListener("pointerleave", () => ((hovered = null), (tip.hidden = true), paint()));
  canvas.addEventListener("click", (event) => hovered && !locate(event).isNear && go(`trial/${hovered.number}`));

  function hover(at) {
    const { x, y, gap } = geometry();
    const first = Math.min(Math.max(Math.floor((at.left - SIDE) / gap), 0), axes.length - 2);
    const part = (at.left - x(first)) / gap;
    let [found, least] = [null, 8];
    if (axes.length > 1 && !at.isNear)
      for (const trial of study.trials) {
        const [one, other] = [axes[first].at(trial), axes[first + 1].at(trial)];
        const far = Math.abs(y(one + (other - one) * part) - at.top);
        if (far < least && filter.has(trial, study)) [found, least] = [trial, far];
      }
    if (found !== hovered) {
      hovered = found;
      paint();
    }
    tip.hidden = !found;
    if (!found) return;
    tip.replaceChildren(h("div", { class: "tip-head" }, `trial ${found.number}`), h("div", null, `${short(study.metric, 30)} ${num(study.value(found))}`));
    tip.style.left = `${at.left + 14}px`;
    tip.style.top = `${at.top + 10}px`;
  }

  function refresh() {
    axes = makeAxes();
    if (axes.length < 2 || !study.trials.length) {
      body.replaceChildren(empty("Nothing varies yet.", "Axes appear when trials differ in a hyperparameter."));
      return;
    }
    if (!body.contains(scroll)) body.replaceChildren(scroll);
    paint();
  }

  refresh();
  return { element: box, refresh, restyle: paint, close: () => watcher.disconnect() };
}
