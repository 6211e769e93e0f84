// All trials: sorted, filtered, and drawn only where they are seen.
import { h, short, panel, empty } from "./dom.js";
import { aligned, seconds, cell, count } from "./numbers.js";
import { lastEpoch, statusWord, GLYPHS, STATUS_ORDER } from "./data.js";

const ROW = 30;
const SPARE = 8;

export function tableView(context) {
  const { study, filter, go } = context;
  const state = { by: "rank", isDown: false };
  const search = h("input", {
    type: "search",
    class: "search",
    placeholder: "filter: lr<0.1 status=failed adam",
    "aria-label": "filter trials",
    value: filter.text,
    oninput: () => filter.setText(search.value),
  });
  const note = h("span", { class: "muted", "aria-live": "polite" });
  const head = h("thead");
  const body = h("tbody");
  const [before, after] = [h("tr", { "aria-hidden": "true" }), h("tr", { "aria-hidden": "true" })];
  const table = h("table", { class: "plain all-trials" }, head, body);
  const scroll = h("div", { class: "scroll tall", tabIndex: 0, onscroll: () => paint() }, table);
  const rest = h("div");
  const box = panel("Trials", null, h("div", { class: "bar" }, search, note), scroll, rest);
  let rows = [];
  let columns = [];
  let drawn = "";

  function makeColumns() {
    const metrics = (study.head.metrics || [study.metric]).slice(0, 5);
    return [
      { key: "rank", name: "rank", value: (trial) => trial.rank ?? Infinity, show: (trial) => (trial.rank ? String(trial.rank) : "–"), dim: true },
      { key: "number", name: "trial", value: (trial) => trial.number, show: (trial) => String(trial.number) },
      { key: "status", name: "status", words: true, value: (trial) => STATUS_ORDER.indexOf(trial.status), show: (trial) => `${GLYPHS[trial.status]} ${statusWord(trial.status, study.head)}`, status: true },
      ...metrics.map((name, place) => ({ key: `m:${name}`, name, strong: !place, value: (trial) => trial.last[name] ?? NaN, show: (trial) => aligned(trial.last[name]) })),
      ...(study.head.settings?.judge === "best" ? [{ key: "judged", name: `best ${study.metric}`, strong: true, value: (trial) => study.value(trial), show: (trial) => aligned(study.value(trial)) }] : []),
      ...(study.head.settings?.constraints ? [{ key: "feasible", name: "feasible", words: true, value: (trial) => trial.broken ?? Infinity, show: (trial) => (trial.broken === 0 ? "yes" : "no") }] : []),
      ...study.keys.filter((key) => key.varies || study.trials.length === 1).map((key) => ({
        key: `c:${key.key}`,
        name: key.key,
        words: !key.isNumber,
        value: (trial) => trial.config[key.key] ?? (key.isNumber ? NaN : ""),
        show: (trial) => short(cell(trial.config[key.key]), 28),
      })),
      { key: "epochs", name: "epochs", value: lastEpoch, show: (trial) => String(lastEpoch(trial)) },
      { key: "seconds", name: "time", value: (trial) => trial.seconds, show: (trial) => seconds(trial.seconds) },
    ];
  }

  function sort() {
    const column = columns.find((one) => one.key === state.by) || columns[0];
    const turn = state.isDown ? -1 : 1;
    rows = study.trials.filter((trial) => filter.has(trial, study));
    const keyed = rows.map((trial) => [column.value(trial), trial]);
    keyed.sort(([one, first], [other, second]) => {
      const [lacks, misses] = [typeof one === "number" && Number.isNaN(one), typeof other === "number" && Number.isNaN(other)];
      if (lacks || misses) return lacks - misses || first.number - second.number;
      if (typeof one !== typeof other) return turn * (typeof one < typeof other ? -1 : 1);
      return turn * (one < other ? -1 : one > other ? 1 : 0) || first.number - second.number;
    });
    rows = keyed.map(([, trial]) => trial);
  }

  function paintHead() {
    const press = (column) => {
      state.isDown = state.by === column.key ? !state.isDown : false;
      state.by = column.key;
      refresh();
    };
    head.replaceChildren(
      h(
        "tr",
        null,
        columns.map((column) =>
          h(
            "th",
            { class: column.words ? "words" : "", title: short(column.name, 300), "aria-sort": state.by === column.key ? (state.isDown ? "descending" : "ascending") : "none" },
            h("button", { class: "sort", onclick: () => press(column) }, ...heading(column)),
          ),
        ),
      ),
    );
  }

  function heading(column) {
    // The arrow stands where it does not move the name away from its column.
    const arrow = h("span", { class: "arrow" }, state.by === column.key ? (state.isDown ? "▼" : "▲") : "");
    return column.words ? [short(column.name, 18), arrow] : [arrow, short(column.name, 18)];
  }

  function paint(force) {
    const first = Math.max(0, Math.floor(scroll.scrollTop / ROW) - SPARE);
    const last = Math.min(rows.length, Math.ceil((scroll.scrollTop + (scroll.clientHeight || 600)) / ROW) + SPARE);
    if (force !== true && drawn === `${first}/${last}`) return;
    drawn = `${first}/${last}`;
    before.style.height = `${first * ROW}px`;
    after.style.height = `${(rows.length - last) * ROW}px`;
    body.replaceChildren(before, ...rows.slice(first, last).map(paintRow), after);
  }

  function paintRow(trial) {
    const open = () => go(`trial/${trial.number}`);
    return h(
      "tr",
      { class: "link", tabIndex: 0, "data-trial": trial.number, onclick: open, onkeydown: (event) => event.key === "Enter" && open() },
      columns.map((column) =>
        h("td", { class: [column.words && "words", column.strong && "strong", column.dim && "muted", column.status && `status-${trial.status}`].filter(Boolean).join(" ") }, column.show(trial)),
      ),
    );
  }

  function refresh() {
    study.ranking();
    for (const trial of study.trials) if (trial.status === "failed" || !Number.isFinite(study.value(trial))) trial.rank = undefined;
    columns = makeColumns();
    sort();
    paintHead();
    paint(true);
    if (search.value !== filter.text) search.value = filter.text;
    note.textContent = filter.isOn ? `${rows.length.toLocaleString("en")} of ${count(study.trials.length, "trial")}` : count(rows.length, "trial");
    rest.replaceChildren(...(rows.length ? [] : [empty(study.trials.length ? "The filter leaves no trial." : "There are no trials yet.")]));
  }

  const watcher = new ResizeObserver(() => paint());
  watcher.observe(scroll);
  refresh();
  return { element: box, refresh, restyle: () => {}, close: () => watcher.disconnect(), focus: () => search.focus() };
}
