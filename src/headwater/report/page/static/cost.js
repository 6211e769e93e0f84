// What nodes cost: beside the plan, over time, and what other deadlines would have cost.
import { h, short, panel, empty } from "./dom.js";
import { num, seconds, count, dollars, percent } from "./numbers.js";
import { Chart, labelled } from "./chart.js";

const STROKES = { planned: [7, 4], actual: [], limit: [2, 4] };

export function costView({ study }) {
  const box = h("div", { class: "stack" });
  if (!study.spending) {
    box.append(panel("Cost", null, empty("This study trains on nothing that is paid for.", "A run with --cluster, or with an ElasticExecutor, shows here what its nodes cost.")));
    return { element: box, refresh: () => {}, restyle: () => {}, close: () => {} };
  }
  const said = h("p", { class: "muted" });
  const facts = h("div", { class: "tiles" });
  const stages = h("div");
  const charts = {
    costs: overTime("dollars over time", study, { lines: ["planned_costs", "costs"], limit: "budget_dollars", show: dollars }),
    sizes: overTime("nodes over time", study, { lines: ["planned_sizes", "sizes"], marks: "lost", show: (value) => num(value, 3) }),
    prices: priceChart(study),
  };
  const figures = { costs: labelled(charts.costs, "", "dollars"), sizes: labelled(charts.sizes, "", "nodes"), prices: labelled(charts.prices, "", "dollars") };
  const keys = { costs: h("div"), sizes: h("div") };
  const priced = panel("Price over deadline", "the least that the whole would cost if it had to be done by then, as planned before the run", strokeLegend("least price", "deadline"), figures.prices);
  box.append(
    panel("Cost", null, facts, said),
    h(
      "div",
      { class: "grid wide" },
      panel("Spent", null, keys.costs, figures.costs),
      panel("Nodes", null, keys.sizes, figures.sizes),
      priced,
      panel("Stages", "each as it went, and beside it as it was planned", stages),
    ),
  );

  function refresh() {
    const { spending } = study;
    said.textContent = costNotes(spending).join("; ");
    facts.replaceChildren(...costTiles(spending));
    stages.replaceChildren(stagesTable(spending));
    const [unit, longest] = [unitOf(lastOf(spending)), unitOf(spending.prices.at(-1)?.[0] ?? 0)];
    for (const key of ["costs", "sizes"]) figures[key].querySelector(".axis-x").textContent = `time since the run began, ${unit.name}`;
    figures.prices.querySelector(".axis-x").textContent = `deadline, ${longest.name}`;
    const isDue = isNear(spending.deadline_s, lastOf(spending));
    const isTight = isNear(spending.budget_dollars, Math.max(spending.cost_dollars, spending.planned_dollars ?? 0));
    keys.costs.replaceChildren(strokeLegend("actual", "planned", ...(isDue || isTight ? ["limit"] : [])));
    keys.sizes.replaceChildren(strokeLegend("actual", "planned", ...(isDue ? ["deadline"] : []), ...(spending.lost.length ? ["lost"] : [])));
    charts.costs.update(rangesOf(spending, "costs", "planned_costs", spending.budget_dollars));
    charts.sizes.update(rangesOf(spending, "sizes", "planned_sizes", null));
    priced.hidden = spending.prices.length < 2;
    if (!priced.hidden) charts.prices.update(rangesOfPrices(spending));
  }

  refresh();
  const all = Object.values(charts);
  return { element: box, refresh, restyle: () => all.forEach((one) => one.rebuild()), close: () => all.forEach((one) => one.destroy()) };
}

function costTiles(spending) {
  const tile = (name, value, more) => h("div", { class: "tile" }, h("span", { class: "tile-name" }, name), h("span", { class: "tile-value" }, value), more ? h("span", { class: "tile-more" }, more) : null);
  const share = (part, whole) => (whole ? `${percent(part / whole)} of it` : "");
  const shown = [tile("spent", dollars(spending.cost_dollars), `in ${seconds(spending.seconds)}`)];
  if (spending.planned_dollars !== null) shown.push(tile("planned", dollars(spending.planned_dollars), `in ${seconds(spending.planned_s)}`));
  if (spending.num_nodes && spending.forecast_dollars !== null) shown.push(tile("foreseen", dollars(spending.forecast_dollars), `in ${seconds(spending.forecast_s)}`));
  if (spending.deadline_s !== null) shown.push(tile("deadline", seconds(spending.deadline_s), `${share(spending.seconds, spending.deadline_s)} gone`));
  if (spending.budget_dollars !== null) shown.push(tile("budget", dollars(spending.budget_dollars), `${share(spending.earlier_dollars + spending.cost_dollars, spending.budget_dollars)} spent`));
  shown.push(tile("nodes", String(spending.num_nodes), spending.num_lost ? `${count(spending.num_lost, "node")} lost` : "held now"));
  return shown;
}

function costNotes(spending) {
  const words = [];
  if (spending.spot_dollars !== null) words.push(`${dollars(spending.spot_dollars)} at the spot price, ${dollars(spending.cost_dollars - spending.spot_dollars)} on demand`);
  if (spending.earlier_dollars) words.push(`earlier runs took ${dollars(spending.earlier_dollars)} and ${seconds(spending.earlier_s)}`);
  if (spending.num_replanned) words.push(`planned anew ${count(spending.num_replanned, "time")}`);
  return words;
}

// Times of these plots are in a unit that gives round marks.
function unitOf(last) {
  return last < 300 ? { size: 1, name: "s" } : last < 18000 ? { size: 60, name: "min" } : { size: 3600, name: "h" };
}

function lastOf(spending) {
  return Math.max(spending.seconds, ...spending.planned_costs.map(([time]) => time), 1e-9);
}

function scaled(points, unit) {
  return points.map(([time, value]) => [time / unit.size, value]);
}

function stagesTable(spending) {
  if (!spending.stages.length) return empty("There is no plan.", "Stages of this search are not known before, or nothing said what it costs.");
  const head = ["stage", "trials", "epochs", "nodes / planned", "time / planned", "cost / planned"];
  const pair = (value, planned) => h("td", null, value === null ? "–" : value, h("span", { class: "muted" }, ` / ${planned}`));
  const rows = spending.stages.map((stage, place) => {
    const isOver = stage.seconds !== null;
    const isNow = place === spending.stage && spending.num_nodes > 0;
    return h(
      "tr",
      { class: isNow ? "chosen" : "" },
      [`${isNow ? "▶ " : ""}${place + 1}`, stage.num_trials, stage.num_epochs].map((value) => h("td", null, String(value))),
      pair(isOver ? String(stage.num_nodes) : null, stage.planned_nodes),
      pair(isOver ? seconds(stage.seconds) : null, seconds(stage.planned_s)),
      pair(isOver ? dollars(stage.cost_dollars) : null, dollars(stage.planned_dollars)),
    );
  });
  return h("div", { class: "scroll" }, h("table", { class: "plain" }, h("thead", null, h("tr", null, head.map((name) => h("th", null, name)))), h("tbody", null, rows)));
}

function strokeLegend(...names) {
  const words = { actual: "as it went", planned: "planned", limit: "deadline, budget", lost: "a node was lost" };
  return h("div", { class: "legend" }, names.map((name) => h("span", { class: "key" }, h("span", { class: `stroke stroke-${name.replace(/ .*/, "")}` }), words[name] || name)));
}

function overTime(title, study, { lines, limit, marks, show }) {
  const [planned, actual] = lines;
  return new Chart({
    title,
    x: { range: [0, 1] },
    y: { range: [0, 1] },
    draw: (one, pen, look, ratio) => {
      const { spending } = study;
      const unit = unitOf(lastOf(spending));
      drawStroke(one, pen, scaled(spending[planned], unit), look.muted, STROKES.planned, ratio);
      drawStroke(one, pen, scaled(spending[actual], unit), look.accent, STROKES.actual, ratio);
      const [place, y] = [one.scaler("x"), one.scaler("y")];
      const x = (time) => place(time / unit.size);
      if (spending.deadline_s !== null) drawLimit(pen, look, ratio, [x(spending.deadline_s), y(0)], [x(spending.deadline_s), y(one.options.y.range[1])]);
      if (limit && spending[limit] !== null) drawLimit(pen, look, ratio, [place(0), y(spending[limit])], [place(one.options.x.range[1]), y(spending[limit])]);
      for (const [time, size] of marks ? spending[marks] : []) drawCross(pen, look, ratio, x(time), y(size));
    },
    find: (one, pixel) => {
      const { spending } = study;
      const [x, unit] = [one.scaler("x"), unitOf(lastOf(spending))];
      const at = (points) => points.reduce((found, point) => (x(point[0] / unit.size) <= pixel ? point : found), null);
      const [done, wanted] = [at(spending[actual]), at(spending[planned])];
      if (!done && !wanted) return null;
      const time = Math.max(done ? done[0] : 0, wanted ? wanted[0] : 0);
      return { key: `${done} ${wanted}`, lines: [`by ${seconds(time)}`, ...(done ? [`as it went ${show(done[1])}`] : []), ...(wanted ? [`planned ${show(wanted[1])}`] : [])] };
    },
  });
}

function priceChart(study) {
  return new Chart({
    title: "price over deadline",
    x: { range: [0, 1] },
    y: { range: [0, 1] },
    draw: (one, pen, look, ratio) => {
      const { spending } = study;
      const unit = unitOf(spending.prices.at(-1)?.[0] ?? 0);
      const steps = spending.prices.flatMap((point, place) => (place ? [[point[0], spending.prices[place - 1][1]], point] : [point]));
      drawStroke(one, pen, scaled(steps, unit), look.accent, STROKES.actual, ratio);
      const [x, y] = [one.scaler("x"), one.scaler("y")];
      const asked = (spending.deadline_s ?? spending.planned_s) / unit.size;
      if (!asked) return;
      drawLimit(pen, look, ratio, [x(asked), y(0)], [x(asked), y(one.options.y.range[1])]);
      drawDot(pen, look.accent, ratio, x(asked), y(spending.planned_dollars));
    },
    find: (one, pixel) => {
      const { prices } = study.spending;
      const [x, unit] = [one.scaler("x"), unitOf(prices.at(-1)?.[0] ?? 0)];
      const found = prices.reduce((last, point) => (x(point[0] / unit.size) <= pixel ? point : last), null);
      return found && { key: found, lines: [`${dollars(found[1])} at the least`, `if it must be done in ${seconds(found[0])}`] };
    },
  });
}

function rangesOf(spending, actual, planned, limit) {
  const [first, second] = [spending[actual], spending[planned]];
  const last = Math.max(...first.map(([time]) => time), ...second.map(([time]) => time), 1e-9);
  const most = Math.max(...first.map(([, value]) => value), ...second.map(([, value]) => value), 1e-9);
  const near = (asked, reach) => (isNear(asked, reach) ? asked : 0);
  return { x: { range: [0, (1.03 * Math.max(last, near(spending.deadline_s, last))) / unitOf(lastOf(spending)).size] }, y: { ...(actual === "sizes" ? { isWhole: true } : ticksOfDollars), range: [0, 1.15 * Math.max(most, near(limit, most))] } };
}

function rangesOfPrices(spending) {
  const { prices } = spending;
  const sorted = prices.map(([, price]) => price).sort((one, other) => one - other);
  // The fastest plans can cost many times what all others do.
  const most = Math.max(Math.min(sorted[sorted.length - 1], 3 * sorted[Math.floor(sorted.length / 2)]), spending.planned_dollars ?? 0);
  const unit = unitOf(prices.at(-1)[0]);
  return { x: { range: [(0.97 * prices[0][0]) / unit.size, (1.01 * prices.at(-1)[0]) / unit.size] }, y: { ...ticksOfDollars, range: [0, 1.15 * most] } };
}

// A limit that is far beyond everything would flatten the rest, and is not drawn.
function isNear(asked, reach) {
  return asked !== null && asked <= 2 * reach;
}

const ticksOfDollars = { ticks: (_, splits) => splits.map((value) => `$${value.toFixed(Math.max(...splits) < 0.1 ? 3 : 2)}`) };

function drawStroke(one, pen, points, colour, dash, ratio) {
  const [x, y] = [one.scaler("x"), one.scaler("y")];
  pen.strokeStyle = colour;
  pen.lineWidth = 2 * ratio;
  pen.setLineDash(dash.map((length) => length * ratio));
  pen.beginPath();
  points.forEach(([left, top], place) => (place ? pen.lineTo(x(left), y(top)) : pen.moveTo(x(left), y(top))));
  pen.stroke();
  pen.setLineDash([]);
}

function drawLimit(pen, look, ratio, from, to) {
  pen.strokeStyle = look.bad;
  pen.lineWidth = 1.5 * ratio;
  pen.setLineDash(STROKES.limit.map((length) => length * ratio));
  pen.beginPath();
  pen.moveTo(...from);
  pen.lineTo(...to);
  pen.stroke();
  pen.setLineDash([]);
}

function drawDot(pen, colour, ratio, x, y) {
  pen.fillStyle = colour;
  pen.beginPath();
  pen.arc(x, y, 5 * ratio, 0, 2 * Math.PI);
  pen.fill();
}

function drawCross(pen, look, ratio, x, y) {
  const reach = 5 * ratio;
  pen.strokeStyle = look.bad;
  pen.lineWidth = 2 * ratio;
  pen.beginPath();
  pen.moveTo(x - reach, y - reach);
  pen.lineTo(x + reach, y + reach);
  pen.moveTo(x + reach, y - reach);
  pen.lineTo(x - reach, y + reach);
  pen.stroke();
}
