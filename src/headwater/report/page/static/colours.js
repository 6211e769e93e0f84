// A ramp that grows in lightness too, so that it can be told without colour: from the surface's own grey to a clear blue.

const LIGHT = [
  [199, 206, 211],
  [142, 178, 193],
  [74, 148, 178],
  [22, 104, 148],
  [10, 52, 92],
];
const DARK = [
  [61, 70, 77],
  [52, 93, 112],
  [46, 132, 163],
  [96, 186, 214],
  [222, 244, 250],
];

export function ramp(share, isDark) {
  const stops = isDark ? DARK : LIGHT;
  const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const first = Math.min(Math.floor(at), stops.length - 2);
  const part = at - first;
  return `rgb(${stops[first].map((one, place) => Math.round(one + (stops[first + 1][place] - one) * part)).join(",")})`;
}

export function shareOfRank(study) {
  // 1 for the best, 0 for the worst; trials without a rank have none.
  const ranked = study.ranking();
  const most = Math.max(ranked.length - 1, 1);
  const shares = new Map(ranked.map((trial, place) => [trial.number, 1 - place / most]));
  return (trial) => shares.get(trial.number);
}
