// One trial: what it was given, what it reported, where it sat, and what became of it.
import { h, short, panel, empty, copy, visible } from "./dom.js";
import { num, seconds, cell, numbers, count } from "./numbers.js";
import { Chart, labelled, bounds } from "./chart.js";
import { epochAt, lastEpoch, statusWord, wordOf, GLYPHS } from "./data.js";

export function trialView(context, number) {
  const { study, source, step } = context;
  const box = h("div", { class: "stack" });
  const state = { exact: null, epochs: -1 };
  const charts = new Map();
  const grid = h("div", { class: "grid" });
  const [top, config, moves, seats, said] = [h("div"), h("div"), h("div"), h("div"), h("div")];
  const history = panel("History", `the best trials in grey, for ${short(study.metric, 40)}`, grid);
  box.append(top, h("div", { class: "columns" }, config, moves), history, seats, said);

  const find = () => study.byNumber.get(number);

  async function fetchExact(trial) {
    // Exact numbers and long texts come from the server; a file has what it has.
    if (!source.isLive || state.epochs === trial.epochs.length + trial.moves.length * 1e6) return;
    state.epochs = trial.epochs.length + trial.moves.length * 1e6;
    try {
      state.exact = await source.trial(study.head.id, number);
      paint();
    } catch {
      state.exact = null;
    }
  }

  function paint() {
    const trial = find();
    if (!trial) {
      box.replaceChildren(panel(`Trial ${number}`, null, empty("There is no such trial.", `The study has ${study.trials.length}.`)));
      return;
    }
    top.replaceChildren(header(trial));
    config.replaceChildren(configPanel(trial));
    moves.replaceChildren(movesPanel(trial));
    seats.replaceChildren(seatsPanel(trial));
    said.replaceChildren(...saidPanels(trial));
    paintCharts(trial);
  }

  function header(trial) {
    study.ranking();
    const at = study.trials.indexOf(trial);
    const turn = (by, text, label) => h("button", { class: "quiet", disabled: !study.trials[at + by], "aria-label": label, onclick: () => step(by) }, text);
    const tile = (name, value, more) => h("div", { class: "tile" }, h("span", { class: "tile-name" }, name), h("span", { class: "tile-value" }, value), more ? h("span", { class: "tile-more" }, more) : null);
    return h(
      "section",
      { class: "panel" },
      h("header", { class: "panel-head spread" }, h("h1", null, `Trial ${number}`), h("span", null, turn(-1, "← before", "the trial before"), turn(1, "next →", "the next trial"))),
      h(
        "div",
        { class: "tiles" },
        tile(short(study.metric, 30), num(study.value(trial)), trial.rank ? `rank ${trial.rank} of ${study.ranking().length}` : "not ranked"),
        tile("status", `${GLYPHS[trial.status]} ${statusWord(trial.status, study.head)}`),
        tile("epochs", String(lastEpoch(trial)), study.head.max_epochs ? `of ${study.head.max_epochs}` : null),
        tile("time in training", seconds(trial.seconds)),
      ),
    );
  }

  function configPanel(trial) {
    const exact = state.exact?.config ?? nest(trial.config);
    const button = (name, make) => {
      const one = h("button", { class: "quiet", onclick: () => copy(make(exact, study), one) }, name);
      return one;
    };
    const rows = study.keys.filter((key) => key.key in trial.config).map((key) => [
      h("dt", { title: short(key.domain, 300) }, short(key.key, 40)),
      h("dd", { class: "mono" }, short(typeof trial.config[key.key] === "number" ? String(trial.config[key.key]) : cell(trial.config[key.key]), 300)),
    ]);
    return panel(
      "Configuration",
      null,
      h("div", { class: "bar" }, h("span", { class: "muted" }, "copy as"), button("Python", asPython), button("JSON", (one) => JSON.stringify(one, null, 2)), button("command line", asCommandLine)),
      h("dl", { class: "facts" }, rows.flat()),
    );
  }

  function movesPanel(trial) {
    const items = [[seconds(Math.max(trial.created, 0)), "entered the record"]];
    for (const move of trial.moves.slice(-60))
      items.push([seconds(Math.max(move.time, 0)), h("span", { class: `status-${move.status}` }, `${GLYPHS[move.status]} ${move.status}`), move.epoch ? ` after ${count(move.epoch, "epoch")}` : ""]);
    return panel("States", "time since the study began", timed(items));
  }

  function seatsPanel(trial) {
    const spans = (study.timeline?.spans || []).filter((span) => span.study === study.head.study && span.trials.includes(trial.number));
    const items = joinStays(spans).slice(-60).map((stay) => {
      const others = Array.from(stay.mates).filter((one) => one !== number).sort((one, other) => one - other);
      const mates = others.length ? ` with ${others.length > 1 ? "trials" : "trial"} ${numbers(others, 5)}` : "";
      const parts = stay.size > 1 ? `, in ${stay.size} stretches` : "";
      return [`${seconds(stay.begin)} – ${seconds(stay.end)}`, `${short(study.timeline.devices[stay.device].device, 30)}: ${others.length ? stay.purpose : stay.purpose === "lanes" ? "alone" : `${stay.purpose}, alone`}${mates}${parts}`];
    });
    return panel("Devices", "time since the run began", items.length ? timed(items) : empty("It has not left a device yet."));
  }

  function saidPanels(trial) {
    const error = state.exact?.error ?? study.errors.find((one) => one.trials.includes(trial.number))?.text;
    const own = state.exact?.notes ?? study.notes.filter((note) => note.trials.includes(trial.number)).map((note) => note.text);
    const attributes = Object.entries(state.exact?.attributes ?? study.attributes.get(trial.number) ?? {});
    const parts = [];
    if (attributes.length) parts.push(panel("Attributes", "set by trial.note", h("dl", { class: "facts" }, attributes.flatMap(([name, value]) => [h("dt", { title: short(name, 300) }, short(name, 40)), h("dd", { class: "mono" }, short(wordOf(value), 4000))]))));
    if (error) parts.push(panel("Error", null, h("pre", { class: "error-text" }, visible(error))));
    if (own.length) parts.push(panel("Notes", null, h("ul", { class: "lines" }, own.map((text) => h("li", null, short(text, 4000))))));
    return parts;
  }

  function curveOf(trial, metric) {
    const exact = state.exact?.history;
    if (exact) return exact.filter((report) => metric in report.metrics).map((report) => [report.epoch, report.metrics[metric]]);
    return Array.from(trial.curves[metric] || [], (value, place) => [epochAt(trial, place), value]);
  }

  function paintCharts(trial) {
    const metrics = (study.head.metrics || [study.metric]).filter((name) => curveOf(trial, name).length).slice(0, 12);
    for (const metric of metrics) if (!charts.has(metric)) charts.set(metric, makeChart(metric));
    if (!metrics.length) {
      grid.replaceChildren(empty("It has reported nothing yet."));
      return;
    }
    if (grid.children.length !== metrics.length || grid.querySelector(".empty"))
      grid.replaceChildren(...metrics.map((name) => h("figure", { class: "small" }, h("figcaption", null, short(name, 60)), charts.get(name).place)));
    for (const metric of metrics) {
      const points = curveOf(trial, metric);
      const last = Math.max(points[points.length - 1][0], 2);
      charts.get(metric).update({
        x: { range: [Math.min(1, points[0][0]) - last * 0.02, last * 1.03], isWhole: true, space: 40 },
        y: { range: bounds(points.map(([, value]) => value ?? NaN)) },
      });
    }
  }

  function makeChart(metric) {
    return new Chart({
      title: `${metric} of trial ${number}`,
      height: 240,
      x: { range: [0, 1] },
      y: { range: [0, 1] },
      draw: (one, pen, look, ratio) => {
        const [x, y] = [one.scaler("x"), one.scaler("y")];
        pen.strokeStyle = look.faint;
        pen.globalAlpha = 0.5;
        pen.lineWidth = ratio;
        pen.beginPath();
        for (const other of study.ranking().slice(0, 150)) line(pen, Array.from(other.curves[metric] || [], (value, place) => [epochAt(other, place), value]), x, y);
        pen.stroke();
        pen.globalAlpha = 1;
        pen.strokeStyle = look.accent;
        pen.lineWidth = 2.2 * ratio;
        const points = curveOf(find(), metric);
        pen.beginPath();
        line(pen, points, x, y);
        pen.stroke();
        pen.fillStyle = look.accent;
        for (const [epoch, value] of points.length <= 60 ? points : points.slice(-1)) {
          if (!Number.isFinite(value ?? NaN)) continue;
          pen.beginPath();
          pen.arc(x(epoch), y(value), 2.8 * ratio, 0, 2 * Math.PI);
          pen.fill();
        }
      },
      find: (one, pixel) => {
        const x = one.scaler("x");
        let [found, least] = [null, Infinity];
        for (const point of curveOf(find(), metric)) if (Math.abs(x(point[0]) - pixel) < least) [found, least] = [point, Math.abs(x(point[0]) - pixel)];
        return found ? { key: found[0], lines: [`epoch ${found[0]}`, `${short(metric, 30)} ${num(found[1], 6)}`] } : null;
      },
    });
  }

  function refresh() {
    paint();
    const trial = find();
    if (trial) fetchExact(trial);
  }

  refresh();
  return { element: box, refresh, restyle: () => charts.forEach((chart) => chart.rebuild()), close: () => charts.forEach((chart) => chart.destroy()) };
}

function timed(items) {
  // When, and what: two columns.
  return h("dl", { class: "facts times" }, items.flatMap(([time, ...what]) => [h("dt", null, time), h("dd", null, ...what)]));
}

function line(pen, points, x, y) {
  let isDown = false;
  for (const [epoch, value] of points) {
    if (!Number.isFinite(value ?? NaN)) {
      isDown = false;
      continue;
    }
    isDown ? pen.lineTo(x(epoch), y(value)) : pen.moveTo(x(epoch), y(value));
    isDown = true;
  }
}

function joinStays(spans) {
  // What follows one another on the same device for the same purpose is one stay there.
  const stays = [];
  for (const span of spans.slice().sort((one, other) => one.begin - other.begin)) {
    const last = stays[stays.length - 1];
    if (last && last.device === span.device && last.purpose === span.purpose) {
      last.end = Math.max(last.end, span.end);
      last.size += 1;
      for (const one of span.trials) last.mates.add(one);
    } else stays.push({ ...span, size: 1, mates: new Set(span.trials) });
  }
  return stays;
}

export function nest(flat) {
  const nested = Object.create(null);
  for (const [key, value] of Object.entries(flat)) {
    const parts = key.split(".");
    let place = nested;
    for (const part of parts.slice(0, -1)) place = place[part] ??= Object.create(null);
    place[parts[parts.length - 1]] = value;
  }
  return nested;
}

export function asPython(config, study) {
  const write = (value, key, depth) => {
    if (value === null || value === undefined) return "None";
    if (typeof value === "boolean") return value ? "True" : "False";
    if (typeof value === "number") return writeNumber(value, study.keys.find((one) => one.key === key));
    if (typeof value === "string") return JSON.stringify(value);
    if (Array.isArray(value)) return `[${value.map((item) => write(item, null, depth)).join(", ")}]`;
    const pad = "    ".repeat(depth + 1);
    const items = Object.entries(value).map(([name, item]) => `${pad}${JSON.stringify(name)}: ${write(item, key ? `${key}.${name}` : name, depth + 1)},\n`);
    return `{\n${items.join("")}${"    ".repeat(depth)}}`;
  };
  return write(config, "", 0);
}

function writeNumber(value, key) {
  if (Number.isNaN(value)) return 'float("nan")';
  if (!Number.isFinite(value)) return `float("${value > 0 ? "" : "-"}inf")`;
  const text = String(value);
  return key && !key.isWhole && Number.isInteger(value) && !text.includes("e") ? `${text}.0` : text;
}

export function asCommandLine(config, study) {
  const quote = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, `'"'"'`)}'`);
  const words = [];
  const walk = (value, key) => {
    if (value !== null && typeof value === "object" && !Array.isArray(value)) for (const [name, item] of Object.entries(value)) walk(item, key ? `${key}.${name}` : name);
    else words.push(quote(`--${key}`), quote(typeof value === "string" ? value : asPython(value, study)));
  };
  walk(config, "");
  return words.join(" ");
}
