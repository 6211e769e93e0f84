// The first view of a study: where it stands, how it came there, and what is best.
import { h, short, panel, empty, select, check } from "./dom.js";
import { num, aligned, seconds, cell, count } from "./numbers.js";
import { Chart, labelled, bounds } from "./chart.js";
import { ramp } from "./colours.js";
import { lastEpoch, statusWord, wordOf } from "./data.js";

export function overviewView(context) {
  const { study, go } = context;
  let axis = "time";
  let all = false;
  let points = [];
  const box = h("div", { class: "stack" });
  const chart = new Chart({
    title: `best ${study.metric} over time`,
    x: { range: [0, 1] },
    y: { range: [0, 1] },
    marks: true,
    draw: drawSteps,
    find: (one, x, y) => findPoint(one, x, y) || findStep(one, x),
    open: (found) => go(`trial/${found.number}`),
  });
  const at = (step) => (axis === "time" ? step.time : step.epochs);
  const end = () => (axis === "time" ? lastTime(study) : study.head.num_epochs);

  function drawSteps(one, pen, look, ratio) {
    const [x, y] = [one.scaler("x"), one.scaler("y")];
    pen.fillStyle = ramp(0.45, look.isDark);
    pen.globalAlpha = points.length > 2000 ? 0.35 : 0.7;
    for (const { time, trial } of points) {
      pen.beginPath();
      pen.arc(x(time), y(study.value(trial)), (points.length > 2000 ? 1.4 : 2.4) * ratio, 0, 2 * Math.PI);
      pen.fill();
    }
    pen.globalAlpha = 1;
    pen.strokeStyle = look.accent;
    pen.lineWidth = 2 * ratio;
    pen.lineJoin = "round";
    pen.beginPath();
    study.steps.forEach((step, place) => {
      const left = x(at(step));
      if (place) pen.lineTo(left, y(study.steps[place - 1].value));
      place ? pen.lineTo(left, y(step.value)) : pen.moveTo(left, y(step.value));
    });
    if (study.steps.length) pen.lineTo(x(end()), y(study.steps[study.steps.length - 1].value));
    pen.stroke();
    pen.fillStyle = study.steps.length > 40 ? look.accent : look.surface;
    for (const step of study.steps.slice(-200)) {
      pen.beginPath();
      pen.arc(x(at(step)), y(step.value), (study.steps.length > 40 ? 1 : 3) * ratio, 0, 2 * Math.PI);
      pen.fill();
      pen.stroke();
    }
  }

  function findPoint(one, pixel, level) {
    const [x, y] = [one.scaler("x"), one.scaler("y")];
    let [found, least] = [null, 8 * (devicePixelRatio || 1)];
    for (const { time, trial } of points) {
      const far = Math.hypot(x(time) - pixel, y(study.value(trial)) - level);
      if (far < least) [found, least] = [{ time, trial }, far];
    }
    if (!found) return null;
    const { time, trial } = found;
    return { key: trial.number, number: trial.number, lines: [`trial ${trial.number}, ${statusWord(trial.status, study.head)}`, `${short(study.metric, 30)} ${num(study.value(trial))}`, `after ${count(lastEpoch(trial), "epoch")}, ${seconds(time)} in`] };
  }

  function findStep(one, pixel) {
    const x = one.scaler("x");
    let found = null;
    for (const step of study.steps) if (x(at(step)) <= pixel + 4) found = step;
    if (!found) return null;
    const when = axis === "time" ? `from ${seconds(found.time)} on` : `from epoch ${found.epochs} of all on`;
    return { key: found, number: found.number, lines: [`best ${short(study.metric, 30)} ${num(found.value)}`, `trial ${found.number}`, when] };
  }

  const note = h("span", { class: "muted" });
  const table = h("div");
  const about = h("dl", { class: "facts" });
  const body = panel(
    "Best so far",
    study.head.settings?.judge === "best" ? "the line: the best value of any trial; points: trials where they ended or paused" : "the line: the best last value of any trial, as the ranking has it; points: trials where they ended or paused",
    h("div", { class: "bar" }, select("over", [["time", "time"], ["epochs", "epochs of all trials"]], axis, change), check("all values", all, (value) => ((all = value), refresh())), note),
  );
  const figure = h("div");
  body.append(figure);
  box.append(body, h("div", { class: "columns" }, panel("Best trials", null, table), panel("Study", null, about)));

  function change(value) {
    axis = value;
    refresh();
  }

  function refresh() {
    const has = study.steps.length > 0;
    if (!has) figure.replaceChildren(empty(`No trial has a finite ${short(study.metric)} yet.`, "The curve begins with the first report."));
    else if (!figure.contains(chart.place))
      figure.replaceChildren(labelled(chart, "", study.metric));
    if (has) {
      const isTime = axis === "time";
      figure.querySelector(".axis-x").textContent = isTime ? "time since the study began" : "epochs of all trials";
      points = isTime ? endings(study) : [];
      const values = all ? [...study.steps.map((step) => step.value), ...points.map(({ trial }) => study.value(trial))] : usualBest();
      const range = bounds(values);
      const outside = points.filter(({ trial }) => study.value(trial) < range[0] || study.value(trial) > range[1]).length;
      note.textContent = outside ? `${count(outside, "trial")} beyond what is drawn` : "";
      chart.update({ x: { range: [0, Math.max(end(), 1e-9) * 1.02], isTime, isWhole: !isTime, sign: axis }, y: { range } });
    }
    table.replaceChildren(bestTable(study, go));
    about.replaceChildren(...facts(study));
  }

  function usualBest() {
    // What was the best during the last nine tenths, from the first report on: how it began would flatten the rest.
    const from = 0.9 * at(study.steps[0]) + 0.1 * end();
    const late = study.steps.filter((step, place) => at(step) >= from || (study.steps[place + 1] && at(study.steps[place + 1]) > from));
    return (late.length ? late : study.steps.slice(-1)).map((step) => step.value);
  }

  refresh();
  return { element: box, refresh, restyle: () => chart.rebuild(), close: () => chart.destroy() };
}

function endings(study) {
  // When each trial that has a value ended or paused last.
  const found = [];
  for (const trial of study.trials) {
    const move = trial.moves[trial.moves.length - 1];
    if (move && move.status !== "running" && trial.status !== "failed" && Number.isFinite(study.value(trial))) found.push({ time: move.time, trial });
  }
  return found;
}

function lastTime(study) {
  let last = study.steps.length ? study.steps[study.steps.length - 1].time : 0;
  for (const trial of study.trials) for (const move of trial.moves) last = Math.max(last, move.time);
  return last;
}

function bestTable(study, go) {
  const ranked = study.ranking().slice(0, 8);
  if (!ranked.length) return empty("Nothing to rank yet.");
  const keys = study.varying.slice(0, 8);
  const head = ["", "trial", study.metric, "epochs", ...keys.map((key) => key.key)];
  const row = (trial, place) =>
    h(
      "tr",
      { tabIndex: 0, class: "link", onclick: () => go(`trial/${trial.number}`), onkeydown: (event) => event.key === "Enter" && go(`trial/${trial.number}`) },
      h("td", { class: "muted" }, String(place + 1)),
      h("td", null, String(trial.number)),
      h("td", { class: "strong" }, aligned(study.value(trial))),
      h("td", null, String(lastEpoch(trial))),
      ...keys.map((key) => h("td", null, short(cell(trial.config[key.key]), 24))),
    );
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: "plain" },
      h("thead", null, h("tr", null, head.map((name) => h("th", { title: short(name, 200) }, short(name, 18))))),
      h("tbody", null, ranked.map(row)),
    ),
  );
}

function facts(study) {
  const { head } = study;
  const rows = [
    ["wanted", `the ${head.mode === "max" ? "largest" : "smallest"} ${head.metric}`],
    ...study.keys.filter((key) => key.domain).map((key) => [key.key, key.domain]),
    ...Object.entries(head.settings || {})
      .filter(([, value]) => value !== null)
      .map(([name, value]) => [name.replace(/_/g, " "), wordOf(value)]),
    ["seed", String(head.seed)],
  ];
  return rows.flatMap(([name, value]) => [h("dt", { title: short(name, 200) }, short(name, 30)), h("dd", null, short(value, 160))]);
}
