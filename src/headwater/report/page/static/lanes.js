// How many trials train as one, and the measurements behind it.
import { h, short, panel, empty } from "./dom.js";
import { seconds, bytes, num, count } from "./numbers.js";

export function lanesView(context) {
  const { study } = context;
  const box = h("div", { class: "stack" });

  function refresh() {
    const { profiles } = study;
    const run = study.head.run;
    if (!profiles.length) {
      box.replaceChildren(panel("Lanes", null, empty("No group sizes were measured.", "They are measured where lanes are “auto” and a size is not known from an earlier study.")));
      return;
    }
    box.replaceChildren(...(run ? [runPanel(run)] : []), ...profiles.map(profilePanel));
  }

  refresh();
  return { element: box, refresh, restyle: () => {}, close: () => {} };
}

function runPanel(run) {
  const text = run.seconds_one_by_one
    ? `the last run took ${seconds(run.seconds)} for ${count(run.lane_steps, "lane-step")}; the steps alone take ${seconds(run.seconds_one_by_one)} in groups of one, as measured`
    : `the last run took ${seconds(run.seconds)} for ${count(run.lane_steps, "lane-step")}`;
  return panel("The run", null, h("p", { class: "lead" }, text));
}

function profilePanel(profile) {
  const alone = profile.measurements.find(([size]) => size === 1)?.[1];
  const slowest = Math.max(...profile.measurements.map(([, time]) => time), 1e-12);
  const head = ["", "lanes", "time per lane-step", "", "speed", "memory", "loading"];
  const rows = profile.measurements.map(([size, time, memory, loading]) => {
    const bar = h("i", { class: "bar-fill" });
    bar.style.width = `${(100 * time) / slowest}%`;
    const isChosen = size === profile.num_lanes;
    return h(
      "tr",
      { class: isChosen ? "chosen" : "" },
      h("td", null, isChosen ? "→" : ""),
      h("td", null, String(size)),
      h("td", null, seconds(time)),
      h("td", { class: "wide" }, h("span", { class: "bar-track" }, bar)),
      h("td", null, alone ? `${num(alone / time, 2)}×` : "–"),
      h("td", null, bytes(memory)),
      h("td", null, loading ? seconds(loading) : "–"),
    );
  });
  return panel(
    `${count(profile.num_lanes, "lane")} in a group${profile.label === "all trials" ? "" : ` (${short(profile.label, 60)})`}`,
    short(profile.reason, 400),
    rows.length
      ? h("div", { class: "scroll" }, h("table", { class: "plain" }, h("thead", null, h("tr", null, head.map((name) => h("th", null, name)))), h("tbody", null, rows)))
      : null,
  );
}
