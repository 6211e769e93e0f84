// The page as a whole: where one is, what is shown there, keys, light and dark.
import { h, short, clear, empty } from "./dom.js";
import { num, seconds, when, count, percent, dollars } from "./numbers.js";
import { Study } from "./data.js";
import { LiveSource, ServiceSource, FileSource } from "./source.js";
import { isBusy, stopButton } from "./service.js";
import { Filter } from "./filter.js";
import { overviewView } from "./overview.js";
import { curvesView } from "./curves.js";
import { timelineView } from "./timeline.js";
import { parallelView } from "./parallel.js";
import { importanceView } from "./importance.js";
import { slicesView } from "./slices.js";
import { contourView } from "./contour.js";
import { tableView } from "./table.js";
import { lanesView } from "./lanes.js";
import { surrogateView } from "./surrogate.js";
import { costView } from "./cost.js";
import { notesView } from "./notes.js";
import { frontView, frontMetrics } from "./front.js";
import { trialView } from "./trial.js";
import { studiesView, stateBadge, progressBar, statusWords } from "./studies.js";

const VIEWS = [
  ["overview", "Overview", overviewView],
  ["curves", "Curves", curvesView],
  ["timeline", "Timeline", timelineView],
  ["parallel", "Parallel axes", parallelView],
  ["importance", "Importance", importanceView],
  ["slices", "Slices", slicesView],
  ["contour", "Contour", contourView],
  ["table", "Trials", tableView],
  ["lanes", "Lanes", lanesView],
  ["surrogate", "Surrogates", surrogateView],
  ["cost", "Cost", costView],
  ["notes", "Notes", notesView],
  ["front", "Front", frontView],
];
const KEYS = "1234567890-=f";
const RARE = ["surrogate", "cost", "front"]; // views of what few studies have

const inlined = document.getElementById("data");
const source = inlined ? new FileSource(JSON.parse(inlined.textContent)) : location.pathname === "/study" ? new ServiceSource() : new LiveSource();
const page = document.getElementById("page");
const crumbs = h("nav", { class: "crumbs", "aria-label": "where you are" });
const live = h("span", { class: "live", "aria-live": "polite" });
const themeButton = h("button", { class: "quiet icon", title: "light or dark (t)", "aria-label": "light or dark", onclick: turnTheme }, "◐");
const helpButton = h("button", { class: "quiet icon", title: "keys (?)", "aria-label": "keys", onclick: () => help.showModal() }, "?");
const main = h("main", { id: "main" });
const help = makeHelp();
let current = { study: null, view: null, filter: new Filter(), unfollow: () => {}, id: null, mayStop: false };
let drawing = 0;

page.append(h("header", { class: "top" }, h("div", { class: "top-left" }, source.list ? h("a", { class: "mark", href: source.list[0], title: `${source.list[1]} (s)` }, "Headwater") : h("span", { class: "mark" }, "Headwater"), crumbs), h("div", { class: "top-right" }, live, themeButton, helpButton)), main, help);

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function readPlace() {
  const [study, view, more] = location.hash.slice(1).split("/").map(decode);
  return { study: source.isLive ? study || null : String(source.data.head.id), view: view || "overview", more };
}

function go(study, view) {
  if (study === null) location.assign(source.list[0]);
  else location.hash = `${encodeURIComponent(study)}/${view}`;
}

function step(by) {
  // By the address, which is ahead of what is drawn where keys come fast.
  const { trials, head } = current.study;
  const next = trials[trials.findIndex((one) => String(one.number) === readPlace().more) + by];
  if (next) go(head.id, `trial/${next.number}`);
}

async function show() {
  const place = readPlace();
  const turn = (drawing += 1);
  if (current.view) current.view.close();
  current.view = null;
  if (place.study === null) return source.hasStages ? showStudies() : location.assign("/");
  if (current.id !== place.study || !current.study) {
    current.unfollow();
    clear(main, empty("Reading…"));
    try {
      await load(place.study);
    } catch (error) {
      current.id = null;
      if (error.isUnknown) return location.assign("/");
      clear(main, h("section", { class: "panel" }, empty("The study cannot be shown.", error.message)));
      if (!source.hasStages && source.isLive) setTimeout(() => turn === drawing && show(), 3000);
      return;
    }
    if (turn !== drawing) return;
  }
  showStudy(place);
}

function showStudies() {
  current.unfollow();
  Object.assign(current, { id: null, study: null, unfollow: () => {} });
  live.textContent = "";
  document.title = "Headwater";
  clear(crumbs);
  current.view = studiesView({ source, open: (id) => go(id, "overview") });
  clear(main, current.view.element);
}

async function load(id) {
  const study = new Study();
  const pack = await source.study(id);
  study.absorb(pack);
  const filter = new Filter();
  filter.listeners.add(() => refresh());
  Object.assign(current, { study, filter, id, mayStop: pack.may_stop === true });
  current.unfollow = follow(id, study);
}

function follow(id, study) {
  if (!source.isLive) {
    live.textContent = `report of ${when(source.data.written)}`;
    return () => {};
  }
  let waits = false;
  const refreshSoon = () => {
    if (waits) return;
    waits = true;
    setTimeout(() => ((waits = false), refresh()), 60);
  };
  return source.follow(id, study.version, {
    state: (isOn) => {
      live.textContent = isOn ? "● live" : "○ not connected";
      live.className = isOn ? "live on" : "live off";
    },
    patch: (patch) => {
      study.absorb(patch);
      refreshSoon();
    },
    head: (part) => {
      Object.assign(study.head, part);
      refreshSoon();
    },
    reload: async () => {
      const fresh = new Study();
      fresh.absorb(await source.study(id));
      Object.assign(study, fresh);
      refresh();
    },
  });
}

const tiles = h("div", { class: "tiles" });
const filterBar = h("div", { class: "filter-bar", hidden: true });
const body = h("div", { class: "view" });
const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "views" });

function showStudy(place) {
  const { study } = current;
  const name = study.head.study;
  document.title = `${short(name, 40)} – Headwater`;
  const { id, whole, part_of } = study.head;
  clear(
    crumbs,
    source.list ? h("a", { href: source.list[0] }, source.list[1]) : null,
    source.hasStages && whole ? h("a", { href: `#${whole}/overview` }, short(part_of, 30)) : null,
    h("a", { href: `#${encodeURIComponent(id)}/overview`, title: short(name, 300) }, short(name, 40)),
    place.view === "trial" ? h("span", null, `trial ${short(place.more ?? "", 20)}`) : null,
  );
  if (place.view !== "trial") current.before = place.view;
  paintTabs(place.view);
  paintTiles();
  clear(main, h("div", { class: place.view === "overview" ? "head" : "head compact" }, tiles, tabs, filterBar), body);
  const context = {
    study,
    source,
    filter: current.filter,
    go: (view) => go(id, view),
    step,
    open: (other) => source.hasStages && go(other, "overview"),
  };
  const found = VIEWS.find(([key]) => key === place.view);
  current.view = place.view === "trial" ? trialView(context, Number(place.more)) : (found || VIEWS[0])[2](context);
  clear(body, current.view.element);
  tabs.querySelector(".on")?.scrollIntoView({ block: "nearest", inline: "center" });
  paintFilter();
}

function paintTabs(view) {
  const { study } = current;
  const shown = VIEWS.filter(([key]) => !RARE.includes(key) || study[key === "cost" ? "spending" : key] || view === key);
  clear(
    tabs,
    shown.map(([key, title]) => {
      const isOn = key === view;
      const size = key === "notes" && study.head.statuses?.failed ? ` ${study.head.statuses.failed}✕` : "";
      return h(
        "button",
        { role: "tab", class: isOn ? "tab on" : "tab", "aria-selected": String(isOn), tabIndex: isOn || (view === "trial" && key === "overview") ? 0 : -1, "data-view": key, title: `${title} (${KEYS[VIEWS.findIndex(([one]) => one === key)]})`, onclick: () => go(study.head.id, key) },
        title + size,
      );
    }),
  );
}

function paintTiles() {
  const { study } = current;
  const { head } = study;
  const tile = (name, value, more, kind = "") => h("div", { class: `tile ${kind}` }, h("span", { class: "tile-name" }, name), h("span", { class: "tile-value" }, value), more ? h("span", { class: "tile-more" }, more) : null);
  const wanted = head.settings?.num_trials;
  const isRunning = head.state === "running"; // what trials and devices spend is written down when they are left
  clear(
    tiles,
    head.target ? tile(`target ${short(head.metric, 24)}`, num(head.target.value), "the model as it was written") : null,
    tile(head.target ? "best surrogate" : `best ${short(head.metric, 24)}`, head.best ? num(head.best.value) : "–", head.best ? h("a", { href: `#${encodeURIComponent(head.id)}/trial/${head.best.number}` }, `trial ${head.best.number}`) : "none yet"),
    study.front ? tile("front", count(study.front.length, "trial"), h("a", { href: `#${encodeURIComponent(head.id)}/front` }, frontMetrics(study).join(", "))) : null,
    tile("trials", wanted && wanted !== head.num_trials ? `${head.num_trials.toLocaleString("en")} of ${wanted.toLocaleString("en")}` : head.num_trials.toLocaleString("en"), h("span", null, progressBar(head), h("span", { class: "status-words" }, statusWords(head))), "wide-tile"),
    tile("state", stateBadge(head), stopPart(head), source.controls ? "wide-tile" : ""),
    tile("time in training", head.seconds || !isRunning ? seconds(head.seconds) : "–", !isRunning && study.timeline?.end_s ? `${count(study.timeline.devices.length, "device")}, ${percent(study.timeline.busy_share)} busy` : count(head.num_epochs, "epoch"), "aside"),
    head.cost ? tile("cost", dollars(head.cost.dollars), h("a", { href: `#${encodeURIComponent(head.id)}/cost` }, costWords(head.cost))) : null,
    tile("started", when(head.started).slice(11), `${when(head.started).slice(0, 10)}, ` + short(head.settings?.search || "", 30) + (typeof head.settings?.surrogate === "string" ? `, ${short(head.settings.surrogate.replace(/ \(.*/, ""), 40)}` : ""), "aside"),
  );
}

function costWords({ planned_dollars, forecast_dollars, budget_dollars }) {
  const parts = [];
  if (forecast_dollars !== null) parts.push(`${dollars(forecast_dollars)} foreseen`);
  if (planned_dollars !== null) parts.push(`${dollars(planned_dollars)} planned`);
  if (!parts.length && budget_dollars !== null) parts.push(`of ${dollars(budget_dollars)}`);
  return parts.join(", ") || "no plan";
}

function stopPart(head) {
  if (source.controls) return source.controls((text) => (live.textContent = short(text, 200)));
  if (head.state === "stopping") return `asked by ${short(head.asker || "somebody", 40)}`;
  if (head.state === "killed") return short(head.process || "", 40);
  if (head.state !== "running") return current.study.timeline?.end_s ? `after ${seconds(current.study.timeline.end_s)}` : count(head.num_epochs, "epoch");
  if (!current.mayStop) return short(head.process || "", 40);
  const button = stopButton(async () => {
    button.disabled = true;
    try {
      live.textContent = (await source.stop(head.id)).told;
    } catch (error) {
      live.textContent = error.message;
      button.disabled = false;
    }
  });
  return button;
}

function paintFilter() {
  const { filter, study } = current;
  filterBar.hidden = !filter.isOn;
  if (!filter.isOn) return;
  const kept = study.trials.filter((trial) => filter.has(trial, study)).length;
  const words = [...Array.from(filter.ranges.values(), ({ axis, range }) => `${short(axis.name, 24)} ${axis.show(Math.max(range[0], 0))} to ${axis.show(Math.min(range[1], 1))}`), ...(filter.text ? [short(filter.text, 60)] : [])];
  clear(filterBar, h("span", null, `filter: ${words.join(", ")}`), h("span", { class: "muted" }, `${kept} of ${count(study.trials.length, "trial")}`), h("button", { class: "quiet", onclick: () => filter.reset() }, "Reset"));
}

function refresh() {
  if (!current.study || !current.view) return;
  if (!isBusy(tiles)) paintTiles();
  paintFilter();
  current.view.refresh();
}

function turnTheme() {
  const root = document.documentElement;
  const isDark = getComputedStyle(root).getPropertyValue("--is-dark").trim() === "1";
  root.dataset.theme = isDark ? "light" : "dark";
  try {
    localStorage.setItem("headwater-theme", root.dataset.theme);
  } catch {
    // A file may have no storage; then the choice lasts as long as the page.
  }
  if (current.view) current.view.restyle();
}

function makeHelp() {
  const rows = [["1 – 9, 0, -, =, f", "a view"], ["← →", "the view beside, where the tabs have the focus"], ["s", "all studies"], ["/", "filter trials"], ["r", "reset the filter"], ["← → of a trial", "the one before, the next"], ["Esc", "from a trial back to where it was opened"], ["t", "light or dark"], ["?", "this"]];
  const dialog = h("dialog", { class: "help" }, h("h2", null, "Keys"), h("dl", { class: "facts" }, rows.flatMap(([key, text]) => [h("dt", null, h("kbd", null, key)), h("dd", null, text)])), h("button", { class: "quiet", onclick: () => dialog.close() }, "Close"));
  return dialog;
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target.classList?.contains("search")) return event.target.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || help.open || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const at = KEYS.indexOf(event.key);
  const id = current.study?.head.id;
  const isTab = event.target.getAttribute?.("role") === "tab";
  if (event.key.length === 1 && at >= 0 && VIEWS[at] && current.study) go(id, VIEWS[at][0]);
  else if (event.key === "t") turnTheme();
  else if (event.key === "?") help.showModal();
  else if (event.key === "s" && source.list) go(null);
  else if (event.key === "r" && current.study) current.filter.reset();
  else if (event.key === "/" && current.study) {
    event.preventDefault();
    go(id, "table");
    setTimeout(() => current.view?.focus?.(), 80);
  } else if (event.key === "Escape" && readPlace().view === "trial" && current.study) go(id, current.before || "table");
  else if (/^Arrow(Left|Right)$/.test(event.key) && !isTab && readPlace().view === "trial" && current.study) step(event.key === "ArrowRight" ? 1 : -1);
  else if (/^Arrow(Left|Right)$/.test(event.key) && isTab) {
    const all = Array.from(tabs.children);
    const next = all[(all.indexOf(event.target) + (event.key === "ArrowRight" ? 1 : -1) + all.length) % all.length];
    go(id, next.dataset.view);
    setTimeout(() => tabs.querySelector(".on")?.focus(), 0);
  }
});
window.addEventListener("hashchange", show);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => current.view?.restyle());
try {
  const kept = localStorage.getItem("headwater-theme");
  if (kept) document.documentElement.dataset.theme = kept;
} catch {
  // As above.
}
show();
