// Asking a service as the user whose token this tab keeps, and what that token allows to change.
import { h, short } from "./dom.js";

const TOKEN = "headwater-token";

export function keepToken(token) {
  token ? sessionStorage.setItem(TOKEN, token) : sessionStorage.removeItem(TOKEN);
}

export function findToken() {
  return sessionStorage.getItem(TOKEN);
}

export async function askService(path, method = "GET", body = undefined) {
  const answer = await fetch(`/v1/${path}`, { method, headers: { Authorization: `Bearer ${findToken()}`, "Content-Type": "application/json" }, body: body && JSON.stringify(body) });
  const value = await answer.json();
  if (answer.status === 401) throw Object.assign(new Error("The service does not know this token."), { isUnknown: true });
  if (!answer.ok) throw new Error(value.error || answer.statusText);
  return value;
}

export const isOver = (study) => ["stopped", "done", "failed"].includes(study.state);

export async function changeStudy(study, what, body) {
  // Returns what there is to say of it.
  const after = await askService(`studies/${encodeURIComponent(study.id)}/${what}`, "POST", body);
  return what === "priority" ? `${after.id} has priority ${after.priority}` : `${after.id}: ${after.wish ? `will ${after.wish} after its next report` : after.state}`;
}

export function changeButtons(study, change) {
  // Pause, resume, stop, as the command line has them; change(what, body) does it.
  const parts = [];
  if (["queued", "running"].includes(study.state)) parts.push(h("button", { class: "quiet", onclick: () => change("pause") }, "Pause"));
  if (["paused", "stopped"].includes(study.state)) parts.push(h("button", { class: "quiet", onclick: () => change("resume") }, "Resume"));
  if (!isOver(study)) parts.push(stopButton(() => change("stop", {})));
  return parts;
}

export function stopButton(stop) {
  // Asks once more, and forgets that it was pressed if nobody answers.
  const button = h("button", { class: "stop", onclick: () => {
    const isSure = button.dataset.asked === "yes";
    button.dataset.asked = isSure ? "" : "yes";
    if (isSure) return stop();
    button.textContent = "Stop it? Everything is saved";
    setTimeout(() => ((button.dataset.asked = ""), (button.textContent = "Stop")), 4000);
  } }, "Stop");
  return button;
}

export function priorityBox(study, change) {
  const box = h("input", { class: "search priority", type: "number", step: "1", value: String(study.priority), "aria-label": `priority of ${short(study.id, 60)}` });
  box.addEventListener("change", () => {
    box.blur();
    change("priority", { priority: Number(box.value) });
  });
  return box;
}

export function isBusy(place) {
  // What somebody is about to press or to type is left alone.
  return place.querySelector("[data-asked=yes]") !== null || (document.activeElement?.classList.contains("priority") && place.contains(document.activeElement));
}
