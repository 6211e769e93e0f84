// How much each hyperparameter matters.
import { h, short, panel, empty } from "./dom.js";
import { percent, count } from "./numbers.js";

export function importanceView(context) {
  const { study, source } = context;
  const body = h("div");
  const caption = h("p", { class: "muted lead" });
  const box = panel("Importance", "how much of the spread of the metric each hyperparameter explains by itself", caption, body);
  let asked = -1;

  async function refresh() {
    const epochs = study.head.num_epochs;
    if (asked >= 0 && epochs < asked * 1.25 && study.head.state === "running") return;
    if (asked === epochs) return;
    asked = epochs;
    if (!body.children.length) body.replaceChildren(empty("Computing…", "A forest is grown over all trials."));
    try {
      show(await source.importance(study.head.id));
    } catch (error) {
      body.replaceChildren(empty("It could not be computed.", error.message));
    }
  }

  function show(found) {
    if (!found || !found.shares.length) {
      caption.textContent = "";
      body.replaceChildren(empty("Nothing can be said yet.", found ? found.reason : ""));
      return;
    }
    caption.textContent = `${found.method} over ${count(found.num_trials, "trial")}, compared at epoch ${found.epoch}, the latest that three quarters of them have reached`;
    const rest = 1 - found.shares.reduce((sum, [, share]) => sum + share, 0);
    const others = found.method === "fANOVA" && rest > 0.005 ? h("p", { class: "muted caption" }, `The other ${percent(rest)} lies in how they act together, and in chance.`) : null;
    body.replaceChildren(
      h(
        "div",
        { class: "bars", role: "list" },
        found.shares.map(([key, share]) => {
          const bar = h("i", { class: "bar-fill" });
          bar.style.width = `${100 * share}%`;
          return h("div", { class: "bar-row", role: "listitem" }, h("span", { class: "bar-name", title: short(key, 300) }, short(key, 28)), h("span", { class: "bar-track" }, bar), h("span", { class: "bar-value" }, percent(share)));
        }),
      ),
      ...(others ? [others] : []),
    );
  }

  refresh();
  return { element: box, refresh, restyle: () => {}, close: () => {} };
}
