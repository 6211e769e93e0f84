// Which trials sat on which device, from when to when.
import { h, short, panel, empty } from "./dom.js";
import { seconds, percent, numbers, count } from "./numbers.js";
import { Chart, labelled } from "./chart.js";
import { ramp, shareOfRank } from "./colours.js";

const PURPOSES = {
  lanes: "trained as one group",
  pack: "groups that take turns",
  ranks: "one trial on several devices",
  measurement: "a few steps, to measure",
  absence: "the device was not there",
};

export function timelineView(context) {
  const { study, go } = context;
  const box = h("div", { class: "stack" });
  const figure = h("div");
  const summary = h("p", { class: "muted lead" });
  const devices = h("div");
  const why = h("div");
  let chart = null;
  const now = h("div");
  const keys = h("div", { class: "legend" });
  box.append(now, panel("Timeline", null, summary, keys, figure), devices, why);

  function build(timeline) {
    const names = timeline.devices.map((one) => one.device);
    const rows = names.length;
    chart = new Chart({
      title: "what each device did",
      height: Math.min(Math.max(rows * 64 + 60, 150), 900),
      x: { range: [0, timeline.end_s || 1], isTime: true, space: 90 },
      y: {
        range: [-0.5, rows - 0.5],
        names,
        grid: false,
        splits: () => names.map((_, place) => rows - 1 - place),
        ticks: (_, splits) => splits.map((value) => short(names[rows - 1 - value] ?? "", 24)),
      },
      marks: true,
      draw,
      find,
      open: (found) => found.span?.trials.length && found.span.study === study.head.study && go(`trial/${found.trial ?? found.span.trials[0]}`),
    });
    figure.replaceChildren(labelled(chart, "time since the run began", "device"));
  }

  function place(one, span) {
    const [x, y] = [one.scaler("x"), one.scaler("y")];
    const row = study.timeline.devices.length - 1 - span.device;
    const [top, bottom] = [y(row + 0.38), y(row - 0.38)];
    return { left: x(span.begin), right: x(span.end), top, bottom };
  }

  function draw(one, pen, look, ratio) {
    const shares = shareOfRank(study);
    const patterns = makePatterns(pen, look, ratio);
    study.timeline.devices.forEach((_, device) => {
      const { top, bottom } = place(one, { device, begin: 0, end: 0 });
      pen.fillStyle = look.isDark ? "rgba(255,255,255,.03)" : "rgba(0,0,0,.025)";
      pen.fillRect(one.plot.bbox.left, top, one.plot.bbox.width, bottom - top);
    });
    for (const span of study.timeline.spans) {
      const { left, right, top, bottom } = place(one, span);
      const width = Math.max(right - left, ratio);
      if (span.purpose === "absence") {
        pen.fillStyle = patterns.absence;
        pen.fillRect(left, top, width, bottom - top);
        continue;
      }
      drawLanes(pen, look, ratio, span, shares, { left, top, width, height: bottom - top });
      if (span.purpose !== "lanes") {
        pen.fillStyle = patterns[span.purpose];
        pen.fillRect(left, top, width, bottom - top);
      }
      pen.strokeStyle = one.found?.span === span ? look.text : look.surface;
      pen.lineWidth = (one.found?.span === span ? 2 : 1) * ratio;
      pen.strokeRect(left, top, width, bottom - top);
      writeLabel(pen, look, ratio, span, { left, top, width, height: bottom - top });
    }
  }

  function drawLanes(pen, look, ratio, span, shares, at) {
    const own = span.study === study.head.study;
    const each = at.height / Math.max(span.trials.length, 1);
    if (!own || each < 1) {
      pen.fillStyle = ramp(own ? 0.55 : 0.3, look.isDark);
      pen.fillRect(at.left, at.top, at.width, at.height);
      return;
    }
    span.trials.forEach((number, lane) => {
      const share = shares({ number });
      pen.fillStyle = share === undefined ? look.faint : ramp(0.15 + 0.75 * share, look.isDark);
      pen.fillRect(at.left, at.top + lane * each, at.width, Math.max(each - (each > 3 * ratio ? ratio * 0.6 : 0), 0.5));
    });
  }

  function find(one, pixel, level) {
    for (const span of study.timeline.spans) {
      const { left, right, top, bottom } = place(one, span);
      if (pixel < left - 1 || pixel > right + 1 || level < top || level > bottom) continue;
      const lane = Math.min(Math.floor(((level - top) / (bottom - top)) * span.trials.length), span.trials.length - 1);
      const trial = span.trials[lane];
      const lines = [
        `${study.timeline.devices[span.device].device}: ${describe(span)}`,
        `${seconds(span.begin)} to ${seconds(span.end)}, ${seconds(span.end - span.begin)}`,
      ];
      if (span.study !== study.head.study) lines.push(`study ${short(span.study, 40)}`);
      if (span.trials.length) lines.push(`trials ${numbers(Array.from(span.trials), 6)}`);
      if (span.trials.length > 1 && span.purpose !== "measurement") lines.push(`here: trial ${trial}`);
      return { key: `${span.device}/${span.begin}/${trial}`, span, trial, lines };
    }
    const gap = findGap(one, pixel, level);
    return gap && { key: `gap ${gap.begin}`, lines: [`${gap.name}: idle`, `${seconds(gap.begin)} to ${seconds(gap.end)}, ${seconds(gap.end - gap.begin)}`] };
  }

  function findGap(one, pixel, level) {
    const { min, max } = one.plot.scales.x;
    const at = min + ((pixel - one.plot.bbox.left) / one.plot.bbox.width) * (max - min);
    for (const [device, { device: name }] of study.timeline.devices.entries()) {
      const { top, bottom } = place(one, { device, begin: 0, end: 0 });
      if (level < top || level > bottom) continue;
      const own = study.timeline.spans.filter((span) => span.device === device);
      const begin = Math.max(0, ...own.filter((span) => span.end <= at).map((span) => span.end));
      const end = Math.min(study.timeline.end_s, ...own.filter((span) => span.begin >= at).map((span) => span.begin));
      return end > begin ? { name, begin, end } : null;
    }
    return null;
  }

  function refresh() {
    const { timeline } = study;
    now.replaceChildren(...(study.head.devices?.length ? [nowPanel(study.head.devices)] : []));
    if (!timeline || !timeline.devices.length) {
      figure.replaceChildren(empty("No device has been left yet.", "A stretch is drawn when its trials leave their device."));
      devices.replaceChildren();
      summary.textContent = "";
      return;
    }
    if (chart && chart.options.y.names.length !== timeline.devices.length) chart.destroy(), (chart = null);
    if (!chart) build(timeline);
    else chart.update({ x: { ...chart.options.x, range: [0, timeline.end_s || 1] }, y: chart.options.y });
    summary.textContent = `${count(timeline.devices.length, "device")} for ${seconds(timeline.end_s)}, ${percent(timeline.busy_share)} busy`;
    keys.replaceChildren(...legend(timeline));
    devices.replaceChildren(deviceTable(timeline));
    why.replaceChildren(...(timeline.changes.length ? [changesPanel(timeline.changes)] : []));
  }

  refresh();
  return { element: box, refresh, restyle: () => chart && chart.rebuild(), close: () => chart && chart.destroy() };
}

function describe(span) {
  const size = span.trials.length;
  if (span.purpose === "lanes") return size === 1 ? "one trial alone" : `${size} trials as lanes`;
  if (span.purpose === "pack") return `a pack of ${count(size, "trial")}`;
  if (span.purpose === "ranks") return `a rank of trial ${span.trials[0]}`;
  return span.purpose === "measurement" ? `measured ${count(size, "trial")}` : "not there";
}

function writeLabel(pen, look, ratio, span, at) {
  const size = span.trials.length;
  const text = span.purpose === "lanes" ? (size === 1 ? `trial ${span.trials[0]}` : `${size} lanes`) : span.purpose === "measurement" ? "measures" : `${span.purpose} ${size}`;
  pen.font = `${11 * ratio}px system-ui`;
  const width = pen.measureText(text).width;
  if (width + 12 * ratio > at.width || at.height < 16 * ratio) return;
  const [left, middle] = [at.left + at.width / 2 - width / 2, at.top + at.height / 2];
  pen.fillStyle = look.surface;
  pen.globalAlpha = 0.88;
  pen.beginPath();
  pen.roundRect(left - 5 * ratio, middle - 9 * ratio, width + 10 * ratio, 18 * ratio, 4 * ratio);
  pen.fill();
  pen.globalAlpha = 1;
  pen.fillStyle = look.text;
  pen.textAlign = "left";
  pen.fillText(text, left, middle + 4 * ratio);
}

function makePatterns(pen, look, ratio) {
  const ink = look.isDark ? "rgba(10,14,18,.6)" : "rgba(255,255,255,.65)";
  const hatch = (paint, colour) => {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8 * ratio;
    const brush = tile.getContext("2d");
    brush.strokeStyle = colour;
    brush.lineWidth = 1.6 * ratio;
    paint(brush, 8 * ratio);
    brush.stroke();
    return pen.createPattern(tile, "repeat");
  };
  const slant = (brush, side) => {
    brush.moveTo(-side, side), brush.lineTo(side, -side);
    brush.moveTo(0, side), brush.lineTo(side, 0);
    brush.moveTo(0, 2 * side), brush.lineTo(2 * side, 0);
  };
  return {
    measurement: hatch(slant, ink),
    pack: hatch((brush, side) => (brush.moveTo(0, side / 2), brush.lineTo(side, side / 2)), ink),
    ranks: hatch((brush, side) => (brush.moveTo(side / 2, 0), brush.lineTo(side / 2, side)), ink),
    absence: hatch(slant, look.line),
  };
}

function legend(timeline) {
  const there = new Set(timeline.spans.map((span) => span.purpose));
  return [
    ...Object.entries(PURPOSES).filter(([name]) => there.has(name)).map(([name, text]) => h("span", { class: "key" }, h("i", { class: `swatch ${name}` }), `${name}: ${text}`)),
    h("span", { class: "key" }, h("i", { class: "swatch idle" }), "idle"),
    h("span", { class: "muted" }, "stripes: one trial each, the stronger the better"),
  ];
}

function nowPanel(devices) {
  // Stretches are drawn when they end; until then the run itself says what its devices do.
  const does = (one) => (one.does === null ? "idle" : one.does === "train" ? `trains ${count(one.trials.length, "trial")}` : `measures ${count(one.trials.length, "trial")}`);
  const rows = devices.slice(0, 64).map((one) =>
    h("tr", null, h("td", { class: "words" }, short(one.device, 40)), h("td", { class: "words" }, does(one)), h("td", { class: "words" }, one.trials.length ? numbers(one.trials, 10) : "–")),
  );
  const head = ["device", "does", "trials"].map((name) => h("th", { class: "words" }, name));
  return panel("This moment", "as the run wrote it down in the last seconds", h("div", { class: "scroll" }, h("table", { class: "plain" }, h("thead", null, h("tr", null, head)), h("tbody", null, rows))));
}

function deviceTable(timeline) {
  const rows = timeline.devices.map((one, place) => {
    const spans = timeline.spans.filter((span) => span.device === place && span.purpose !== "absence");
    return h(
      "tr",
      null,
      h("td", { class: "words" }, short(one.device, 40)),
      h("td", null, percent(one.busy_share)),
      h("td", null, seconds(one.busy_s)),
      h("td", null, seconds(one.there_s - one.busy_s)),
      h("td", null, String(spans.length)),
      h("td", null, String(Math.max(0, ...spans.map((span) => span.trials.length)))),
    );
  });
  const head = ["device", "busy", "time busy", "time idle", "stretches", "most trials at once"];
  return panel(
    "Devices",
    null,
    h("div", { class: "scroll" }, h("table", { class: "plain" }, h("thead", null, h("tr", null, head.map((name, place) => h("th", { class: place ? "" : "words" }, name)))), h("tbody", null, rows))),
  );
}

function changesPanel(changes) {
  const items = changes.slice(-50).map((change) => h("li", null, h("span", { class: "muted" }, `trial ${numbers(change.trials, 6)}: `), change.text));
  return panel("Why trials had several devices", null, h("ul", { class: "lines" }, items));
}
