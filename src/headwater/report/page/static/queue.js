// The queue of a service: what runs and waits, and what a token allows to change. The token stays in this tab.
import { h, short, clear, panel, empty } from "./dom.js";
import { num, seconds, count } from "./numbers.js";
import { askService, changeButtons, changeStudy, findToken, isBusy, isOver, keepToken, priorityBox } from "./service.js";

const GLYPH_OF = { queued: "◷", running: "▶", paused: "‖", stopped: "■", done: "✓", failed: "✕" };
const CLASS_OF = { queued: "paused", running: "running", paused: "paused", stopped: "stopped", done: "completed", failed: "failed" };
const MOST_ENDED = 50;
const LOOK_MS = 2000;

const page = document.getElementById("page");
const told = h("span", { class: "live", "aria-live": "polite" });
const main = h("main", { id: "main" });
page.append(h("header", { class: "top" }, h("div", { class: "top-left" }, h("span", { class: "mark" }, "Headwater"), h("nav", { class: "crumbs" }, h("span", null, "queue"))), h("div", { class: "top-right" }, told)), main);

const queue = { timer: null, log: null, user: null, seen: "" };

function takeToken() {
  // A fragment is sent to nobody; it goes from the address as soon as it is read.
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return;
  keepToken(given);
  history.replaceState(null, "", location.pathname);
}

function askForToken(message) {
  clearTimeout(queue.timer);
  keepToken(null);
  const box = h("input", { class: "search", type: "password", autocomplete: "off", placeholder: "hw_…", "aria-label": "token" });
  const enter = (event) => {
    event.preventDefault();
    keepToken(box.value.trim());
    refresh();
  };
  clear(main, panel("Queue", "the token that headwater serve or headwater token create has printed; it stays in this tab", h("form", { class: "bar", onsubmit: enter }, box, h("button", { class: "quiet", type: "submit" }, "Look")), message ? h("p", { class: "status-failed" }, message) : null));
  box.focus();
}

async function refresh() {
  clearTimeout(queue.timer);
  if (!findToken()) return askForToken();
  try {
    const [list, pool] = await Promise.all([askService("studies"), askService("devices")]);
    queue.user = list.user;
    paint(list.studies, pool);
  } catch (error) {
    if (error.isUnknown) return askForToken(error.message);
    say(error.message, false);
  }
  queue.timer = setTimeout(refresh, document.hidden ? 5 * LOOK_MS : LOOK_MS);
}

function say(text, isGood = true) {
  told.textContent = short(text, 200);
  told.className = isGood ? "live on" : "live off";
}

function paint(studies, pool) {
  if (isBusy(main)) return;
  const seen = JSON.stringify([studies, pool]);
  if (seen === queue.seen && main.querySelector(".queue")) return;
  queue.seen = seen;
  const live = studies.filter((study) => !isOver(study)).sort((one, other) => other.priority - one.priority || one.created - other.created);
  const ended = studies.filter(isOver).reverse();
  const { name, role } = queue.user;
  const who = name === role ? name : `${name} (${role})`;
  clear(
    main,
    h(
      "div",
      { class: "stack queue" },
      panel("Queue", `${pool.num_taken} of ${count(pool.devices.length, "device")} in use; you are ${short(who, 60)}`, live.length ? table(live) : empty("No study runs or waits.", "headwater submit train.py puts one here.")),
      ended.length ? panel("Ended", ended.length > MOST_ENDED ? `the last ${MOST_ENDED} of ${ended.length}` : null, table(ended.slice(0, MOST_ENDED))) : null,
      queue.log ? queue.log.element : null,
    ),
  );
}

function table(studies) {
  const columns = [["study", "words"], ["user", "words"], ["state", "words"], ["", "words"], ["priority", ""], ["devices", ""], ["trials", ""], ["best", "words"], ["device time", ""], ["why", "words"]];
  return h("div", { class: "scroll" }, h("table", { class: "plain roomy studies queued" }, h("thead", null, h("tr", null, columns.map(([name, kind]) => h("th", { class: kind }, name)))), h("tbody", null, studies.map(row))));
}

function row(study) {
  const { progress } = study;
  const counts = progress.statuses || {};
  const all = Object.values(counts).reduce((sum, size) => sum + size, 0);
  const best = progress.best;
  return h(
    "tr",
    { "data-study": short(study.id, 200) },
    h("td", { class: "words strong at-study" }, study.progress.statuses ? h("a", { href: `/study#${encodeURIComponent(study.id)}/overview` }, short(study.id, 44)) : short(study.id, 44)),
    h("td", { class: "words at-user" }, short(study.user, 30)),
    h("td", { class: "words at-state" }, h("span", { class: `state status-${CLASS_OF[study.state] || "paused"}` }, `${GLYPH_OF[study.state] || "?"} ${short(study.state, 20)}${study.wish ? `, to ${short(study.wish, 20)}` : ""}`)),
    h("td", { class: "words at-actions" }, actions(study)),
    h("td", { class: "at-priority" }, mayChange() && !isOver(study) ? priorityBox(study, (what, body) => change(study, what, body)) : String(study.priority)),
    h("td", null, String(study.num_devices)),
    h("td", { class: "at-trials" }, all ? `${all - (counts.running || 0)}/${progress.num_trials || "?"}` : "–"),
    h("td", { class: "words at-best" }, best ? `${short(progress.metric, 24)} ${num(best.value)}` : "–"),
    h("td", null, seconds(study.device_seconds)),
    h("td", { class: "words at-why", title: short(study.reason, 2000) }, short((study.reason || "").trim().split("\n").pop(), 60)),
  );
}

const mayChange = () => queue.user?.role !== "viewer";

function actions(study) {
  const log = h("button", { class: "quiet", onclick: () => openLog(study.id) }, "Log");
  return h("span", { class: "actions" }, log, mayChange() ? changeButtons(study, (what, body) => change(study, what, body)) : null);
}

async function change(study, what, body) {
  try {
    say(await changeStudy(study, what, body));
  } catch (error) {
    say(error.message, false);
  }
  queue.seen = "";
  refresh();
}

async function openLog(id) {
  const [note, text] = [h("p", { class: "muted" }, "It has printed nothing yet."), h("pre", { class: "log" })];
  const mine = { id, element: panel(`Log of ${short(id, 60)}`, null, note, text) };
  main.querySelector(".queue")?.append(mine.element);
  queue.log?.element.remove();
  queue.log = mine;
  for (let [offset, isDone] = [0, false]; !isDone && queue.log === mine; ) {
    try {
      const more = await askService(`studies/${encodeURIComponent(id)}/logs?offset=${offset}&wait=20`);
      [offset, isDone] = [more.offset, more.is_over];
      text.append(h("span", null, more.text));
      note.hidden = offset > 0;
      text.scrollTop = text.scrollHeight;
    } catch (error) {
      text.append(h("span", { class: "status-failed" }, error.message));
      return;
    }
  }
}

takeToken();
refresh();
