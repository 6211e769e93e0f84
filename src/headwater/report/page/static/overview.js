// The first view of a study: where it stands, how it came there, and what is best.
import { h, short, panel, empty, select } from "./dom.js";
import { num, seconds, cell } from "./numbers.js";
import { Chart, labelled, bounds } from "./chart.js";
import { lastEpoch } from "./data.js";

export function overviewView(context) {
  const { study, go } = context;
  let axis = "time";
  const box = h("div", { class: "stack" });
  const chart = new Chart({
    title: `best ${study.metric} over time`,
    x: { range: [0, 1] },
    y: { range: [0, 1] },
    marks: true,
    draw: drawSteps,
    find: (one, x) => findStep(one, x),
    open: (found) => go(`trial/${found.step.number}`),
  });
  const at = (step) => (axis === "time" ? step.time : step.epochs);
  const end = () => (axis === "time" ? lastTime(study) : study.head.num_epochs);

  function drawSteps(one, pen, look, ratio) {
    const [x, y] = [one.scaler("x"), one.scaler("y")];
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
    pen.fillStyle = look.surface;
    for (const step of study.steps.slice(-200)) {
      pen.beginPath();
      pen.arc(x(at(step)), y(step.value), 3 * ratio, 0, 2 * Math.PI);
      pen.fill();
      pen.stroke();
    }
  }

  function findStep(one, pixel) {
    const x = one.scaler("x");
    let found = null;
    for (const step of study.steps) if (x(at(step)) <= pixel + 4) found = step;
    if (!found) return null;
    const when = axis === "time" ? `from ${seconds(found.time)} on` : `from epoch ${found.epochs} of all on`;
    return { key: found, step: found, lines: [`${study.metric} ${num(found.value)}`, `trial ${found.number}`, when] };
  }

  const note = h("span", { class: "muted" });
  const table = h("div");
  const about = h("dl", { class: "facts" });
  const body = panel(
    "Best so far",
    "the best last value of any trial, as the ranking has it",
    h("div", { class: "bar" }, select("over", [["time", "time"], ["epochs", "epochs of all trials"]], axis, change), note),
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
      figure.replaceChildren(labelled(chart, axis === "time" ? "time since the study began, s" : "epochs of all trials", study.metric));
    if (has) {
      figure.querySelector(".axis-x").textContent = axis === "time" ? "time since the study began, s" : "epochs of all trials";
      const right = Math.max(end(), 1e-9);
      chart.update({ x: { range: [0, right * 1.02] }, y: { range: bounds(study.steps.map((step) => step.value)) } });
    }
    table.replaceChildren(bestTable(study, go));
    about.replaceChildren(...facts(study));
  }

  refresh();
  return { element: box, refresh, restyle: () => chart.rebuild(), close: () => chart.destroy() };
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
      h("td", { class: "strong" }, num(study.value(trial))),
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
      .map(([name, value]) => [name.replace(/_/g, " "), String(value)]),
    ["seed", String(head.seed)],
  ];
  return rows.flatMap(([name, value]) => [h("dt", { title: short(name, 200) }, short(name, 30)), h("dd", null, short(value, 160))]);
}
