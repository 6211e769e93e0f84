// Which trials are looked at: one filter for all views of a study.
import { statusWord } from "./data.js";

export class Filter {
  constructor() {
    this.ranges = new Map(); // by key: [low, high], on the axis of the parallel view
    this.text = "";
    this.tests = [];
    this.listeners = new Set();
  }

  get isOn() {
    return this.ranges.size > 0 || this.tests.length > 0;
  }

  setRange(axis, range) {
    if (range) this.ranges.set(axis.key, { axis, range });
    else this.ranges.delete(axis.key);
    this.tell();
  }

  setText(text) {
    this.text = text;
    this.tests = parse(text);
    this.tell();
  }

  reset() {
    this.ranges.clear();
    this.text = "";
    this.tests = [];
    this.tell();
  }

  tell() {
    for (const listener of this.listeners) listener();
  }

  has(trial, study) {
    for (const { axis, range } of this.ranges.values()) {
      const at = axis.at(trial);
      if (!(at >= range[0] && at <= range[1])) return false;
    }
    return this.tests.every((test) => test(trial, study));
  }
}

const OPERATORS = {
  "<": (one, other) => one < other,
  "<=": (one, other) => one <= other,
  ">": (one, other) => one > other,
  ">=": (one, other) => one >= other,
  "=": (one, other) => one === other,
  "!=": (one, other) => one !== other,
};

function parse(text) {
  // Words: lr<0.1 status=failed hidden>=32 adam
  return text
    .trim()
    .split(/\s+/)
    .filter(Boolean)
    .map((word) => {
      const found = word.match(/^([^<>=!]+)(<=|>=|!=|<|>|=)(.*)$/);
      if (!found) return (trial, study) => matches(trial, word.toLowerCase(), study);
      const [, key, operator, given] = found;
      const number = given === "" ? NaN : Number(given);
      return (trial, study) => {
        const value = lookUp(trial, key, study);
        if (value === undefined || given === "") return given === "";
        if (typeof value === "number" && !Number.isNaN(number)) return OPERATORS[operator](value, number);
        return OPERATORS[operator](String(value).toLowerCase(), given.toLowerCase());
      };
    });
}

function lookUp(trial, key, study) {
  if (key in trial.config) return trial.config[key];
  if (key in trial.last) return trial.last[key];
  const own = { trial: trial.number, number: trial.number, status: trial.status, seconds: trial.seconds, epochs: trial.epochs.length };
  if (key === "value") return study.value(trial);
  return own[key];
}

function matches(trial, word, study) {
  if (statusWord(trial.status, study.head).includes(word) || String(trial.number) === word) return true;
  return Object.values(trial.config).some((value) => typeof value === "string" && value.toLowerCase().includes(word));
}
