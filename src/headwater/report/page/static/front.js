// Of a study with several metrics: the trials that no other beats in all of them.
import { h, short, panel, empty, select } from "./dom.js";
import { num, aligned, cell, count } from "./numbers.js";
import { Chart, labelled, bounds } from "./chart.js";
import { ramp } from "./colours.js";

export function frontMetrics(study) {
  return [study.metric, ...Object.keys(study.head.settings?.also || {})];
}

export function frontView(context) {
  const { study, filter, go } = context;
  const metrics = frontMetrics(study);
  const axes = { x: metrics[0], y: metrics[1] ?? metrics[0] };
  const figure = h("div");
  const table = h("div");
  const names = metrics.map((name) => [name, short(name, 30)]);
  const choose = (side) => (value) => ((axes[side] = value), refresh());
  const bar = metrics.length > 2 ? h("div", { class: "bar" }, select("across", names, axes.x, choose("x")), select("up", names, axes.y, choose("y"))) : null;
  const chart = new Chart({
    title: `the front of ${metrics.join(", ")}`,
    x: { range: [0, 1] },
    y: { range: [0, 1] },
    marks: true,
    draw,
    find,
    open: (found) => go(`trial/${found.key}`),
  });
  const box = h("div", { class: "stack" }, panel("Front", "dark: trials that no other beats in all metrics, by their last values; click one to open it", bar, figure), panel("Trials of the front", null, table));

  const onFront = () => new Set(study.front || []);
  const counted = () => study.trials.filter((trial) => trial.status !== "failed" && Number.isFinite(trial.last[axes.x] ?? NaN) && Number.isFinite(trial.last[axes.y] ?? NaN) && filter.has(trial, study));
  const across = (one, other) => one.last[axes.x] - other.last[axes.x] || one.last[axes.y] - other.last[axes.y];

  function draw(one, pen, look, ratio) {
    const [x, y] = [one.scaler("x"), one.scaler("y")];
    const chosen = onFront();
    const trials = counted();
    const dot = (trial, size) => {
      pen.beginPath();
      pen.arc(x(trial.last[axes.x]), y(trial.last[axes.y]), size * ratio, 0, 2 * Math.PI);
      pen.fill();
    };
    pen.fillStyle = ramp(0.35, look.isDark);
    pen.globalAlpha = trials.length > 2000 ? 0.4 : 0.8;
    for (const trial of trials) if (!chosen.has(trial.number)) dot(trial, trials.length > 2000 ? 1.5 : 2.8);
    pen.globalAlpha = 1;
    const front = trials.filter((trial) => chosen.has(trial.number)).sort(across);
    if (metrics.length === 2) {
      // Of more metrics, the front is no line in the plane of two.
      pen.strokeStyle = look.accent;
      pen.lineWidth = 1.4 * ratio;
      pen.beginPath();
      front.forEach((trial, place) => (place ? pen.lineTo(x(trial.last[axes.x]), y(trial.last[axes.y])) : pen.moveTo(x(trial.last[axes.x]), y(trial.last[axes.y]))));
      pen.stroke();
    }
    pen.fillStyle = look.accent;
    for (const trial of front) dot(trial, 4.4);
  }

  function find(one, pixel, level) {
    const [x, y] = [one.scaler("x"), one.scaler("y")];
    let [found, least] = [null, 14 * (devicePixelRatio || 1)];
    for (const trial of counted()) {
      const far = Math.hypot(x(trial.last[axes.x]) - pixel, y(trial.last[axes.y]) - level);
      if (far < least) [found, least] = [trial, far];
    }
    return found ? { key: found.number, lines: [`trial ${found.number}`, ...metrics.map((name) => `${short(name, 24)} ${num(found.last[name])}`)] } : null;
  }

  function refresh() {
    const trials = counted();
    if (!study.front || !trials.length) {
      figure.replaceChildren(study.front ? empty("No trial has finite values of both metrics yet.") : empty("This study has one metric.", 'With metric=["loss", "latency"] it would have a front.'));
      table.replaceChildren(empty("Nothing to list yet."));
      return;
    }
    const isNew = !figure.contains(chart.place);
    if (isNew) figure.replaceChildren(labelled(chart, axes.x, axes.y));
    figure.querySelector(".axis-x").textContent = short(arrow(axes.x), 60);
    figure.querySelector(".axis-y").textContent = short(arrow(axes.y), 60);
    chart.update({ x: { range: bounds(trials.map((trial) => trial.last[axes.x])) }, y: { range: bounds(trials.map((trial) => trial.last[axes.y])) } });
    table.replaceChildren(frontTable());
  }

  function arrow(name) {
    const mode = name === study.metric ? study.head.mode : study.head.settings.also[name];
    return `${mode === "max" ? "↑" : "↓"} ${name}`;
  }

  function frontTable() {
    const chosen = onFront();
    const listed = study.trials.filter((trial) => chosen.has(trial.number)).sort(across);
    const keys = study.varying.slice(0, 8);
    const head = ["trial", ...metrics.map(arrow), ...keys.map((key) => key.key)];
    const row = (trial) =>
      h(
        "tr",
        { tabIndex: 0, class: "link", onclick: () => go(`trial/${trial.number}`), onkeydown: (event) => event.key === "Enter" && go(`trial/${trial.number}`) },
        h("td", null, String(trial.number)),
        ...metrics.map((name) => h("td", { class: "strong" }, aligned(trial.last[name]))),
        ...keys.map((key) => h("td", null, short(cell(trial.config[key.key]), 24))),
      );
    const body = listed.slice(0, 100).map(row);
    const more = listed.length > 100 ? h("p", { class: "muted caption" }, `and ${count(listed.length - 100, "trial")} more`) : null;
    return h("div", { class: "scroll" }, h("table", { class: "plain" }, h("thead", null, h("tr", null, head.map((name) => h("th", { title: short(name, 200) }, short(name, 18))))), h("tbody", null, body)), more);
  }

  refresh();
  return { element: box, refresh, restyle: () => chart.rebuild(), close: () => chart.destroy() };
}
