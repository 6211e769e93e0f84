// All studies of a record.
import { h, s, short, panel, empty } from "./dom.js";
import { num, seconds, when, count, dollars } from "./numbers.js";
import { statusWord } from "./data.js";

export const STATES = {
  running: ["▶", "running"],
  stopping: ["◷", "stopping"],
  killed: ["✕", "killed"],
  ended: ["✓", "ended"],
  queued: ["◷", "queued"], // from here on: of a service
  paused: ["‖", "paused"],
  stopped: ["■", "stopped"],
  done: ["✓", "done"],
  failed: ["✕", "failed"],
};

export function stateBadge(head) {
  const [glyph, word] = STATES[head.state] || STATES.ended;
  return h("span", { class: `state state-${head.state}`, title: short(head.process || "", 100) }, `${glyph} ${word}${head.wish ? `, to ${short(head.wish, 20)}` : ""}`);
}

export function progressBar(head) {
  const wanted = Math.max(head.settings?.num_trials || 0, head.num_trials, 1);
  const counts = head.statuses || {};
  const bar = h("span", { class: "progress", role: "img", "aria-label": `${head.num_trials} of ${wanted} trials` });
  for (const name of ["completed", "stopped", "failed", "paused", "running"]) {
    if (!counts[name]) continue;
    const part = h("i", { class: `part-${name}`, title: `${counts[name]} ${statusWord(name, head)}` });
    part.style.width = `${(100 * counts[name]) / wanted}%`;
    bar.append(part);
  }
  return bar;
}

export function statusWords(head) {
  return Object.entries(head.statuses || {})
    .filter(([, size]) => size)
    .map(([name, size]) => `${size.toLocaleString("en")} ${statusWord(name, head)}`)
    .join(", ");
}

function trendLine(head) {
  // How the best came to be what it is; upwards is better.
  const values = head.trend || [];
  if (values.length < 2) return null;
  const [width, height] = [96, 22];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const up = head.mode === "max" ? 1 : -1;
  const y = (value) => height / 2 - up * ((value - low) / (high - low || 1) - 0.5) * (height - 4);
  const points = values.map((value, place) => `${((place * width) / (values.length - 1)).toFixed(1)},${y(value).toFixed(1)}`);
  return s("svg", { class: "trend", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `best from ${num(values[0])} to ${num(values.at(-1))}` }, s("polyline", { points: points.join(" ") }));
}

export function studiesView({ source, open }) {
  const body = h("div");
  const note = h("p", { class: "muted lead" });
  const box = panel("Studies", null, note, body);
  let timer = null;
  let isClosed = false;

  async function refresh() {
    try {
      const { studies, storage } = await source.studies();
      if (isClosed) return;
      note.textContent = `${count(studies.length, "study").replace("studys", "studies")} in ${short(storage, 120)}`;
      body.replaceChildren(studies.length ? table(studies) : empty("There is no study yet.", "Start one with headwater run; it appears here by itself."));
    } catch (error) {
      body.replaceChildren(empty("The record cannot be read.", error.message));
    }
    if (!isClosed) timer = setTimeout(refresh, document.hidden ? 10000 : 2500);
  }

  function table(studies) {
    const names = new Set(studies.map((head) => head.study));
    const wholes = studies.filter((head) => !names.has(head.part_of)).reverse();
    const ordered = wholes.flatMap((head) => [head, ...studies.filter((stage) => stage.part_of === head.study)]);
    const hasCosts = studies.some((head) => head.cost);
    const columns = [["study", "words"], ["state", "words"], ["best", ""], ["metric", "words"], ["over time", "words"], ["trial", ""], ["progress", "words"], ["trials", ""], ["training", ""], ...(hasCosts ? [["cost", ""]] : []), ["started", ""]];
    return h(
      "div",
      { class: "scroll" },
      h("table", { class: "plain roomy studies" }, h("thead", null, h("tr", null, columns.map(([name, kind]) => h("th", { class: kind }, name)))), h("tbody", null, ordered.map((head) => row(head, hasCosts)))),
    );
  }

  function row(head, hasCosts) {
    const enter = () => open(head.id);
    const wanted = head.settings?.num_trials;
    const failed = head.statuses?.failed;
    return h(
      "tr",
      { class: head.part_of ? "link stage" : "link", tabIndex: 0, "data-study": short(head.study, 200), onclick: enter, onkeydown: (event) => event.key === "Enter" && enter() },
      h("td", { class: "words strong at-study", title: short(head.study, 300) }, head.part_of ? h("span", { class: "muted" }, "└ ") : null, short(head.study, 44)),
      h("td", { class: "words at-state" }, stateBadge(head)),
      h("td", { class: "strong at-best" }, head.target ? num(head.target.value) : head.best ? num(head.best.value) : "–"),
      h("td", { class: "words at-metric" }, `${head.mode === "max" ? "↑" : "↓"} ${short(head.metric, 24)}`),
      h("td", { class: "words at-trend" }, trendLine(head)),
      h("td", { class: "at-trial", title: head.target && head.best ? `best surrogate: ${num(head.best.value)}, trial ${head.best.number}` : "" }, head.target ? "target" : head.best ? String(head.best.number) : "–"),
      h("td", { class: "words at-progress", title: statusWords(head) }, progressBar(head)),
      h("td", { class: "at-trials" }, failed ? h("span", { class: "status-failed", title: `${failed} failed` }, `✕ ${failed.toLocaleString("en")} of `) : null, wanted && wanted !== head.num_trials ? `${head.num_trials.toLocaleString("en")} of ${wanted.toLocaleString("en")}` : head.num_trials.toLocaleString("en")),
      h("td", null, seconds(head.seconds)),
      hasCosts ? h("td", null, head.cost ? dollars(head.cost.dollars) : "–") : null,
      h("td", null, when(head.started)),
    );
  }

  refresh();
  return { element: box, refresh: () => {}, restyle: () => {}, close: () => ((isClosed = true), clearTimeout(timer)) };
}
