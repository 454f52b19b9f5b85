// Numbers and moments for people; "–" where there is none.

const NONE = "–";
const MINUTE = 60_000;
const UNITS = [
  ["day", 86_400_000],
  ["hour", 3_600_000],
  ["minute", MINUTE],
];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

export function number(value, digits = 0) {
  if (value === null || value === undefined || Number.isNaN(value)) return NONE;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export function score(value) {
  return value === null || value === undefined ? NONE : value.toFixed(3);
}

export function signed(value, digits = 3) {
  if (value === null || value === undefined) return NONE;
  return `${value >= 0 ? "+" : "−"}${Math.abs(value).toFixed(digits)}`;
}

export function percent(value, digits = 0) {
  return value === null || value === undefined ? NONE : `${(100 * value).toFixed(digits)} %`;
}

export function ms(value) {
  if (value === null || value === undefined) return NONE;
  if (value >= 60_000) return `${(value / 60_000).toFixed(1)} min`;
  return value >= 1000 ? `${(value / 1000).toFixed(1)} s` : `${value.toFixed(value < 10 ? 1 : 0)} ms`;
}

export function ago(moment) {
  if (!moment) return NONE;
  const gap = new Date(moment) - Date.now();
  for (const [unit, size] of UNITS) {
    if (Math.abs(gap) >= size) return relative.format(Math.round(gap / size), unit);
  }
  return "just now";
}

export function moment(value) {
  return value ? new Date(value).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" }) : NONE;
}

export function short(id) {
  return id ? id.slice(0, 10) : NONE;
}

export function clip(text, length = 140) {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}

export function words(name) {
  return String(name).replaceAll("_", " ");
}

export function plural(count, one, many) {
  return `${number(count)} ${count === 1 ? one : (many ?? `${one}s`)}`;
}
