// How numbers read: as the command writes them.
import { wordOf } from "./data.js";

export function aligned(value) {
  // In a column: four digits each, the last ones too where they are zeros.
  const text = num(value);
  return typeof value === "number" && Number.isFinite(value) && text.includes(".") && !text.includes("e") ? value.toPrecision(4) : text;
}

export function num(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === Infinity) return "inf";
  if (value === -Infinity) return "-inf";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 10 ** Math.max(digits, 6))) {
    const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
    return `${mantissa.includes(".") ? mantissa.replace(/\.?0+$/, "") : mantissa}e${Number(exponent)}`;
  }
  const text = value.toPrecision(digits);
  return text.includes("e") ? String(Number(text)) : text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

export function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0 s";
  if (value < 1e-3) return `${num(value * 1e6, 3)} µs`;
  if (value < 1) return `${num(value * 1e3, 3)} ms`;
  if (value < 60) return `${value.toFixed(1)} s`;
  const whole = Math.round(value);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

export function dollars(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return `$${value.toFixed(value !== 0 && Math.abs(value) < 0.1 ? 3 : 2)}`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const unit of ["B", "KiB", "MiB"]) {
    if (value < 1000) return `${num(value, 3)} ${unit}`;
    value /= 1024;
  }
  return `${num(value, 3)} GiB`;
}

export function count(value, noun) {
  return `${value.toLocaleString("en")} ${noun}${value === 1 ? "" : "s"}`;
}

export function percent(value) {
  return `${(100 * value).toFixed(value > 0.995 || value < 0.1 ? 1 : 0).replace(/\.0$/, "")}\u00a0%`;
}

export function when(iso) {
  return typeof iso === "string" ? iso.slice(0, 16).replace("T", " ") : "–";
}

export function cell(value) {
  if (typeof value === "number") return aligned(value);
  return value === undefined ? "–" : wordOf(value);
}

export function numbers(list, most = 12) {
  // 0–3, 7, 9
  const parts = [];
  let at = 0;
  while (at < list.length && parts.length < most) {
    let end = at;
    while (end + 1 < list.length && list[end + 1] === list[end] + 1) end += 1;
    parts.push(end > at + 1 ? `${list[at]}–${list[end]}` : end > at ? `${list[at]}, ${list[end]}` : String(list[at]));
    at = end + 1;
  }
  return parts.join(", ") + (at < list.length ? " …" : "");
}
