// A study in memory, made of packed columns and kept up to date by more of them.

const STATUSES = { r: "running", p: "paused", c: "completed", s: "stopped", f: "failed" };
export const STATUS_ORDER = ["running", "paused", "completed", "stopped", "failed"];
export const GLYPHS = { running: "▶", paused: "‖", completed: "✓", stopped: "■", failed: "✕" };

export function statusWord(status, head) {
  // A trial that a search left paused when it came to its end is never continued.
  return status === "paused" && head.is_over ? "stopped early" : status;
}

const TYPES = { f4: Float32Array, f8: Float64Array, i4: Int32Array, u2: Uint16Array, u1: Uint8Array };

export function unpack(text) {
  const colon = text.indexOf(":");
  const kind = text.slice(0, colon);
  if (kind === "to") return Int32Array.from({ length: Number(text.slice(3)) }, (_, place) => place);
  const raw = atob(text.slice(colon + 1));
  const memory = new Uint8Array(raw.length);
  for (let place = 0; place < raw.length; place += 1) memory[place] = raw.charCodeAt(place);
  return new TYPES[kind](memory.buffer);
}

export class Study {
  constructor() {
    this.head = {};
    this.trials = [];
    this.byNumber = new Map();
    this.keys = []; // hyperparameters: {key, isNumber, isLog, domain, varies}
    this.steps = []; // of the best
    this.notes = [];
    this.errors = [];
    this.attributes = new Map(); // by trial; of a report, where nobody can be asked for a trial
    this.profiles = [];
    this.start = [];
    this.timeline = null;
    this.surrogate = null;
    this.spending = null;
    this.importance = null;
    this.version = -1;
    this.loaded = new Set(); // metrics whose curves are here
  }

  absorb(pack) {
    this.version = pack.version;
    if (pack.head) this.head = pack.head;
    if (pack.trials) this.takeTrials(pack.trials);
    if (pack.best) this.takeBest(pack.best);
    if (pack.timeline) this.timeline = takeTimeline(pack.timeline);
    if (pack.notes) this.notes = pack.notes.map((note) => ({ ...note, trials: unpack(note.trials) }));
    if (pack.errors) this.errors = pack.errors.map((one) => ({ ...one, trials: unpack(one.trials) }));
    if (pack.attributes) this.attributes = new Map(pack.attributes.map((one) => [one.number, one.values]));
    for (const name of ["profiles", "start", "surrogate", "spending", "importance"]) if (pack[name]) this[name] = pack[name];
    this.ranked = null;
  }

  takeTrials(pack) {
    const chosen = Array.from(unpack(pack.number), (number) => this.find(number));
    if (pack.config) this.takeConfigs(pack.config);
    if (pack.status) {
      const [spent, created] = [unpack(pack.seconds), unpack(pack.created)];
      const last = Object.entries(pack.last).map(([name, text]) => [name, unpack(text)]);
      const [judged, broken] = [pack.value, pack.violation].map((text) => text && unpack(text));
      chosen.forEach((trial, place) => {
        trial.status = STATUSES[pack.status[place]];
        trial.seconds = spent[place];
        trial.created = created[place];
        for (const [name, values] of last) trial.last[name] = values[place];
        if (judged) trial.judged = judged[place];
        if (broken) trial.broken = broken[place];
      });
      takeMoves(chosen, pack.moves);
    }
    this.takePoints(chosen, pack);
    this.describeKeys();
  }

  find(number) {
    let trial = this.byNumber.get(number);
    if (!trial) {
      trial = { number, status: "running", seconds: 0, created: 0, config: {}, last: {}, moves: [], curves: {}, epochs: [] };
      this.byNumber.set(number, trial);
      this.trials.push(trial);
      if (this.trials.length > 1 && this.trials[this.trials.length - 2].number > number)
        this.trials.sort((one, other) => one.number - other.number);
    }
    return trial;
  }

  takeConfigs(pack) {
    const chosen = Array.from(unpack(pack.of), (number) => this.find(number));
    for (const column of pack.keys) {
      const lacking = new Set(column.lacking);
      if (column.numbers) {
        const values = unpack(column.numbers);
        chosen.forEach((trial, place) => {
          if (!lacking.has(place)) trial.config[column.key] = values[place];
        });
        if (column.whole) (this.whole ||= new Set()).add(column.key);
      } else {
        const index = unpack(column.index);
        chosen.forEach((trial, place) => {
          if (!lacking.has(place)) trial.config[column.key] = column.words[index[place]];
        });
      }
    }
  }

  takePoints(chosen, pack) {
    const [starts, points] = [unpack(pack.start), unpack(pack.points)];
    const epochs = pack.epochs ? unpack(pack.epochs) : null;
    const curves = Object.entries(pack.curves).map(([name, text]) => [name, unpack(text)]);
    let offset = 0;
    chosen.forEach((trial, place) => {
      const [start, size] = [starts[place], points[place]];
      if (start === 0) {
        trial.epochs = epochs ? epochs.subarray(offset, offset + size) : { length: size };
      } else if (epochs || !isPlain(trial.epochs)) {
        const before = Array.from({ length: start }, (_, at) => epochAt(trial, at));
        const more = epochs ? epochs.subarray(offset, offset + size) : Array.from({ length: size }, (_, at) => start + at + 1);
        trial.epochs = Int32Array.from([...before, ...more]);
      } else {
        trial.epochs = { length: start + size };
      }
      for (const [name, values] of curves) {
        const fresh = values.subarray(offset, offset + size);
        if (start === 0) trial.curves[name] = fresh;
        else if (trial.curves[name]) {
          const joined = new Float32Array(start + size);
          joined.set(trial.curves[name].subarray(0, start));
          joined.set(fresh, start);
          trial.curves[name] = joined;
        }
      }
      offset += size;
    });
    for (const [name] of curves) if (starts.every((start) => start === 0) && chosen.length === this.trials.length) this.loaded.add(name);
  }

  takeBest(pack) {
    const [time, epochs, number, value] = ["time", "epochs", "number", "value"].map((name) => unpack(pack[name]));
    this.steps.length = pack.start;
    for (let place = 0; place < time.length; place += 1)
      this.steps.push({ time: time[place], epochs: epochs[place], number: number[place], value: value[place] });
  }

  describeKeys() {
    const rows = new Map((Array.isArray(this.head.space) ? this.head.space : []).map((row) => [row.key, row]));
    const keys = new Map();
    for (const trial of this.trials)
      for (const [key, value] of Object.entries(trial.config)) {
        let found = keys.get(key);
        if (!found) keys.set(key, (found = { key, isNumber: true, low: Infinity, high: -Infinity, values: new Set() }));
        if (typeof value !== "number") found.isNumber = false;
        else if (Number.isFinite(value)) {
          found.low = Math.min(found.low, value);
          found.high = Math.max(found.high, value);
        }
        if (found.values.size < 50) found.values.add(typeof value === "number" ? value : wordOf(value));
      }
    this.keys = Array.from(keys.values(), (one) => {
      const domain = String((rows.get(one.key) || {}).text || "");
      // Where the space does not say how values are spread, their spread does.
      const isEven = /^q?(uniform|rand|normal)/.test(domain);
      const isLog = one.isNumber && one.low > 0 && (/^q?log/.test(domain) || (!isEven && one.high / one.low > 1000));
      const words = one.isNumber ? [] : Array.from(one.values, String).sort();
      return { ...one, domain, isLog, words, varies: one.values.size > 1, isWhole: this.whole?.has(one.key) || false };
    });
    // What varies comes first, as the space has it.
    const place = new Map(Array.from(rows.keys(), (key, at) => [key, at]));
    this.keys.sort((one, other) => other.varies - one.varies || (place.get(one.key) ?? 999) - (place.get(other.key) ?? 999));
  }

  get metric() {
    return this.head.metric;
  }

  get front() {
    // The trials that no other beats in all metrics; null where there is one metric.
    return this.head.front;
  }

  get sign() {
    return this.head.mode === "max" ? -1 : 1;
  }

  get varying() {
    return this.keys.filter((key) => key.varies);
  }

  value(trial) {
    // What counts of a trial: its last value, or its best where the study judges by that.
    return trial.judged ?? trial.last[this.metric] ?? NaN;
  }

  ranking() {
    // As `headwater best` has it: finite and not failed, those that keep to constraints first, equals by number.
    if (!this.ranked) {
      const counted = this.trials.filter((trial) => trial.status !== "failed" && Number.isFinite(this.value(trial)));
      const broken = (trial) => trial.broken || 0;
      counted.sort((one, other) => (broken(one) - broken(other) || 0) || this.sign * (this.value(one) - this.value(other)) || one.number - other.number);
      this.ranked = counted;
      counted.forEach((trial, place) => (trial.rank = place + 1));
    }
    return this.ranked;
  }

  get done() {
    const counts = this.head.statuses || {};
    return (counts.completed || 0) + (counts.stopped || 0) + (counts.failed || 0);
  }

  rungs() {
    // Epochs where trials paused or were stopped, and how many of those that came there went on.
    const ends = new Map();
    for (const trial of this.trials)
      for (const move of trial.moves)
        if (move.status === "paused" || move.status === "stopped") ends.set(move.epoch, (ends.get(move.epoch) || 0) + 1);
    const found = Array.from(ends, ([epoch, size]) => ({ epoch, size })).filter((one) => one.epoch > 0 && one.size >= 3);
    found.sort((one, other) => one.epoch - other.epoch);
    return found.slice(0, 12).map(({ epoch }) => {
      const reached = this.trials.filter((trial) => lastEpoch(trial) >= epoch).length;
      return { epoch, reached, promoted: this.trials.filter((trial) => lastEpoch(trial) > epoch).length };
    });
  }
}

export function wordOf(value) {
  // As Python writes it, so that None and True are told from text.
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function isPlain(epochs) {
  return !(epochs instanceof Int32Array || epochs instanceof Uint16Array || epochs instanceof Uint8Array);
}

export function epochAt(trial, place) {
  return isPlain(trial.epochs) ? place + 1 : trial.epochs[place];
}

export function lastEpoch(trial) {
  return trial.epochs.length ? epochAt(trial, trial.epochs.length - 1) : 0;
}

function takeMoves(chosen, pack) {
  const [counts, epoch, time] = [unpack(pack.count), unpack(pack.epoch), unpack(pack.time)];
  let at = 0;
  chosen.forEach((trial, place) => {
    trial.moves = [];
    for (let end = at + counts[place]; at < end; at += 1)
      trial.moves.push({ status: STATUSES[pack.status[at]], epoch: epoch[at], time: time[at] });
  });
}

function takeTimeline(pack) {
  const [device, study, purpose, begin, end, counts, trials] = ["device", "study", "purpose", "begin", "end", "count", "trials"].map(
    (name) => unpack(pack[name]),
  );
  const spans = [];
  let at = 0;
  for (let place = 0; place < device.length; place += 1) {
    spans.push({
      device: device[place],
      study: pack.studies[study[place]],
      purpose: pack.purposes[purpose[place]],
      begin: begin[place],
      end: end[place],
      trials: trials.subarray(at, at + counts[place]),
    });
    at += counts[place];
  }
  return { ...pack, spans };
}
