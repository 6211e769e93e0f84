// What was said on the way, and what went wrong.
import { h, short, panel, empty } from "./dom.js";
import { numbers, count } from "./numbers.js";

export function notesView(context) {
  const { study, go } = context;
  const box = h("div", { class: "stack" });

  function trialLinks(trials) {
    return h(
      "span",
      { class: "trials" },
      Array.from(trials.slice(0, 12), (number) => h("button", { class: "chip", onclick: () => go(`trial/${number}`) }, String(number))),
      trials.length > 12 ? h("span", { class: "muted" }, ` and ${trials.length - 12} more`) : null,
    );
  }

  let seen = "";

  function refresh() {
    // Nothing is drawn anew without need: somebody may be reading a traceback that they have opened.
    const signs = JSON.stringify([study.errors.map((one) => [one.line, one.trials.length]), study.notes.length, study.head.num_damaged]);
    if (signs === seen) return;
    seen = signs;
    const errors = study.errors.map((one) =>
      h(
        "details",
        { class: "error" },
        h("summary", null, h("span", { class: "status-failed" }, "✕ "), h("span", { class: "mono" }, short(one.line, 200)), h("span", { class: "muted" }, `  ${count(one.trials.length, "trial")}`)),
        trialLinks(one.trials),
        h("pre", null, one.text),
      ),
    );
    const kinds = new Map();
    for (const note of study.notes) kinds.set(note.kind, [...(kinds.get(note.kind) || []), note]);
    const notes = Array.from(kinds, ([kind, list]) =>
      panel(
        `Notes on ${short(kind, 40)}`,
        null,
        h(
          "ul",
          { class: "lines" },
          list.slice(0, 100).map((note) => h("li", null, short(note.text, 2000), note.trials.length ? h("span", { class: "muted" }, ` (trial${note.trials.length > 1 ? "s" : ""} ${numbers(Array.from(note.trials), 8)})`) : null)),
          list.length > 100 ? h("li", { class: "muted" }, `and ${list.length - 100} more`) : null,
        ),
      ),
    );
    const damaged = study.head.num_damaged
      ? [panel("Damage", null, h("p", { class: "lead" }, `${count(study.head.num_damaged, "row")} of the record cannot be read and ${study.head.num_damaged === 1 ? "is" : "are"} left out.`))]
      : [];
    box.replaceChildren(
      panel("Errors", errors.length ? "trials that raised, the most frequent first; errors that differ in numbers alone are one" : null, errors.length ? errors : empty("No trial has failed.")),
      ...damaged,
      ...(notes.length ? notes : [panel("Notes", null, empty("Nothing was noted."))]),
    );
  }

  refresh();
  return { element: box, refresh, restyle: () => {}, close: () => {} };
}
