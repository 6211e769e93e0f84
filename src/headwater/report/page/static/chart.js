// Frames of plots: uPlot draws axes and lets people zoom; what is inside is drawn by us.
import { h, short } from "./dom.js";
import { num, seconds } from "./numbers.js";

const WHOLE = Array.from({ length: 9 }, (_, power) => [1, 2, 5].map((one) => one * 10 ** power)).flat();
const PARTS_OF_A_MINUTE = Array.from({ length: 7 }, (_, power) => [1, 2, 5].map((one) => one * 10 ** (power - 6))).flat();
const TIMES = [...PARTS_OF_A_MINUTE.filter((one) => one < 15), ...[15, 30, 60, 120, 300, 600, 900, 1800], ...[1, 2, 3, 6, 12, 24, 48, 120, 240].map((hours) => 3600 * hours)];

export function theme() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  return {
    text: read("--text"),
    muted: read("--muted"),
    line: read("--line"),
    surface: read("--surface"),
    accent: read("--accent"),
    bad: read("--bad"),
    faint: read("--faint"),
    isDark: read("--is-dark") === "1",
    font: `12px ${style.fontFamily || "system-ui"}`,
  };
}

export function bounds(values, isLog = false) {
  // The least and the largest that can be drawn, with some air; [0, 1] where there is nothing.
  let [low, high] = [Infinity, -Infinity];
  for (const value of values)
    if (Number.isFinite(value) && (!isLog || value > 0)) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  if (low > high) return isLog ? [0.1, 1] : [0, 1];
  if (isLog) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.04, high * (high / low) ** 0.04];
  const air = high > low ? (high - low) * 0.05 : Math.abs(high) * 0.1 || 1;
  return [low - air, high + air];
}

export function robust(values) {
  // Without what lies far out, such as the losses of trials that diverge: a quarter of the trials would be one line.
  const finite = Float64Array.from(values).filter(Number.isFinite).sort();
  if (finite.length < 8) return [finite[0], finite[finite.length - 1]];
  const at = (share) => finite[Math.round(share * (finite.length - 1))];
  const [low, middle, high] = [at(0.02), at(0.5), at(0.98)];
  const reach = Math.max(middle - at(0.1), at(0.9) - middle) * 3 || Infinity;
  const [least, most] = [finite[0], finite[finite.length - 1]];
  return [least < middle - reach ? low : least, most > middle + reach ? high : most];
}

const every = (_, splits) => splits;

function marksOf(one) {
  // Where an axis may have its marks, and how they are written.
  if (one.isWhole) return { incrs: WHOLE, values: (_, splits) => splits.map((value) => (value === null ? "" : String(value))) };
  if (one.isTime) return { incrs: TIMES, values: (_, splits) => splits.map((value) => (value < 60 ? `${num(value, 3)} s` : seconds(value).replace(/ 0 (s|min)$/, ""))) };
  return { values: (_, splits) => splits.map((value) => (value === null ? "" : num(value, 3))) };
}

function decades(plot, splits) {
  // Of a logarithmic axis, powers of ten; all of its marks where there is no more than one of them.
  const powers = splits.filter((value) => value !== null && Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-9);
  return powers.length < 2 ? splits : splits.map((value) => (powers.includes(value) ? value : null));
}

export class Chart {
  // options: x, y: {range: [low, high], isLog, isWhole, isTime, ticks(values)}, draw(chart, context), find(chart, x, y), open(found)
  constructor(options) {
    this.options = options;
    this.tip = h("div", { class: "tip", hidden: true });
    this.place = h("div", { class: "chart", role: "img", "aria-label": options.title || "" }, this.tip);
    if (options.height) this.place.style.height = typeof options.height === "number" ? `${options.height}px` : options.height;
    this.found = null;
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(this.place);
  }

  resize() {
    const box = this.place.getBoundingClientRect();
    if (box.width < 40 || box.height < 40) return;
    if (this.plot) this.plot.setSize({ width: box.width, height: box.height });
    else this.build(box.width, box.height);
  }

  build(width, height) {
    const { x, y } = this.options;
    const look = theme();
    const axis = (side, one, size) => ({
      scale: side,
      stroke: look.muted,
      font: look.font,
      grid: { stroke: look.line, width: 1, show: one.grid !== false, filter: one.isLog && !one.splits ? decades : every },
      filter: one.isLog && !one.splits ? decades : every,
      ticks: { show: false },
      gap: 6,
      size,
      space: one.space || (side === "x" ? 60 : 32),
      label: undefined,
      splits: one.splits,
      ...marksOf(one),
      ...(one.ticks ? { values: one.ticks } : {}),
    });
    const scale = (one) => ({ time: false, distr: one.isLog ? 3 : 1, range: (_, low, high) => [low, high] });
    const longest = y.names ? Math.max(...y.names.map((name) => short(name, 24).length)) : 7;
    this.plot = new uPlot(
      {
        width,
        height,
        padding: [10, 14, 0, 4],
        legend: { show: false },
        cursor: {
          points: { show: false },
          x: this.options.cursor !== false,
          y: false,
          drag: { x: this.options.zoom !== false, y: false, setScale: true },
        },
        scales: { x: scale(x), y: scale(y) },
        axes: [axis("x", x, 28), axis("y", y, Math.min(Math.max(longest * 7 + 12, 44), width * 0.35))],
        series: [{}, { scale: "y", stroke: "transparent", points: { show: false } }],
        hooks: { draw: [() => this.draw()], setCursor: [() => this.point()] },
      },
      this.corners(),
      this.place,
    );
    this.plot.over.addEventListener("mouseleave", () => this.leave());
    this.plot.over.addEventListener("click", () => this.found && this.options.open && this.options.open(this.found));
  }

  corners() {
    const { x, y } = this.options;
    return [x.range.slice(), y.range.slice()];
  }

  update(options) {
    const before = { ...this.options };
    Object.assign(this.options, options);
    if (!this.plot) return;
    const same = before.x.isLog === this.options.x.isLog && before.y.isLog === this.options.y.isLog && before.x.sign === this.options.x.sign;
    if (!same) return this.rebuild();
    this.plot.setData(this.corners(), !this.isZoomed());
    if (this.isZoomed()) this.plot.redraw(false, true);
  }

  isZoomed() {
    const [low, high] = this.options.x.range;
    const { min, max } = this.plot.scales.x;
    return min > low + (high - low) * 1e-9 && max < high - (high - low) * 1e-9 ? true : false;
  }

  rebuild() {
    if (!this.plot) return;
    this.plot.destroy();
    this.plot = null;
    this.resize();
  }

  scaler(side) {
    // A function from values to pixels of the canvas.
    const { min, max } = this.plot.scales[side];
    const { left, top, width, height } = this.plot.bbox;
    const isLog = this.options[side].isLog;
    const [low, high] = isLog ? [Math.log(min), Math.log(max)] : [min, max];
    const span = high - low || 1;
    const part = isLog ? (value) => (Math.log(value) - low) / span : (value) => (value - low) / span;
    return side === "x" ? (value) => left + part(value) * width : (value) => top + (1 - part(value)) * height;
  }

  draw() {
    const context = this.plot.ctx;
    const { left, top, width, height } = this.plot.bbox;
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    this.options.draw(this, context, theme(), devicePixelRatio || 1);
    context.restore();
  }

  point() {
    if (!this.options.find) return;
    const { left, top } = this.plot.cursor;
    if (left === undefined || left < 0) return this.leave();
    const ratio = devicePixelRatio || 1;
    const found = this.options.find(this, left * ratio + this.plot.bbox.left, top * ratio + this.plot.bbox.top);
    const changed = found?.key !== this.found?.key;
    this.found = found;
    this.plot.over.style.cursor = found && this.options.open ? "pointer" : "crosshair";
    if (changed && this.options.marks) this.plot.redraw(false, false);
    if (!found) {
      this.tip.hidden = true;
      return;
    }
    this.tip.replaceChildren(...found.lines.map((line, place) => h("div", { class: place ? "" : "tip-head" }, line)));
    this.tip.hidden = false;
    const box = this.place.getBoundingClientRect();
    const x = left + this.plot.bbox.left / ratio;
    const flip = x + this.tip.offsetWidth + 24 > box.width;
    this.tip.style.left = `${Math.max(4, flip ? x - this.tip.offsetWidth - 12 : x + 14)}px`;
    this.tip.style.top = `${Math.max(0, Math.min(top, box.height - this.tip.offsetHeight - 4))}px`;
  }

  leave() {
    const had = this.found;
    this.found = null;
    this.tip.hidden = true;
    if (had && this.options.marks) this.plot.redraw(false, false);
  }

  destroy() {
    this.watcher.disconnect();
    if (this.plot) this.plot.destroy();
  }
}

export function labelled(chart, x, y) {
  // The names of both axes stand outside of the canvas, where they are text.
  return h("figure", { class: "figure" }, h("div", { class: "axis-y" }, short(y, 60)), chart.place, h("div", { class: "axis-x" }, short(x, 60)));
}
