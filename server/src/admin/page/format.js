// Text of values. Names and paths come from clients that may be hostile: they only reach the page as text nodes, and
// characters that are invisible or change the direction of text are written as escapes.

const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

export function visible(text) {
  return String(text ?? "").replace(
    INVISIBLE,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** At most `most` characters, with the middle left out: the end of a path says more than its middle. */
export function shortened(text, most = 160) {
  const all = Array.from(visible(text));
  if (all.length <= most) {
    return all.join("");
  }
  const half = Math.floor((most - 1) / 2);
  return `${all.slice(0, half).join("")}…${all.slice(-half).join("")}`;
}

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];

export function bytes(value) {
  if (!Number.isFinite(value)) {
    return "unknown";
  }
  let unit = 0;
  let rest = value;
  while (rest >= 999.5 && unit < UNITS.length - 1) {
    rest /= 1000;
    unit += 1;
  }
  const digits = unit === 0 || rest >= 99.95 ? 0 : rest >= 9.995 ? 1 : 2;
  return `${rest.toFixed(digits)} ${UNITS[unit]}`;
}

export function rate(value) {
  return Number.isFinite(value) ? `${bytes(value)}/s` : "unknown";
}

export function number(value, digits = 0) {
  return Number.isFinite(value)
    ? value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })
    : "unknown";
}

/** `1 transfer`, `2 transfers`. */
export function count(value, noun) {
  return `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) {
    return "unknown";
  }
  const whole = Math.max(0, Math.round(seconds));
  const days = Math.floor(whole / 86400);
  const hours = Math.floor(whole / 3600) % 24;
  const minutes = Math.floor(whole / 60) % 60;
  if (days > 0) {
    return `${days} d ${hours} h`;
  }
  if (hours > 0) {
    return `${hours} h ${minutes} min`;
  }
  return minutes > 0 ? `${minutes} min ${whole % 60} s` : `${whole} s`;
}

/** A time in UTC, with the date unless it is that of `now`. */
export function time(text, now = new Date()) {
  const moment = new Date(text);
  if (Number.isNaN(moment.getTime())) {
    return visible(text);
  }
  const [date, rest] = moment.toISOString().split("T");
  const clock = rest.slice(0, 8);
  return date === now.toISOString().slice(0, 10) ? clock : `${date} ${clock}`;
}
