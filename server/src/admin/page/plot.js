// Plots of the last hour as inline SVG: axes with units, lines that also differ by their dashes, a text for screen readers.
// Only attributes are set, since the page's policy forbids inline styles.

import { time } from "./format.js";
import { element, setText } from "./dom.js";

const HEIGHT = 190;
const MARGIN = { left: 58, right: 12, top: 26, bottom: 34 };
/** The span of a plot in minutes, and the minutes between its ticks: the shortest one that has all samples. */
const SPANS = [
  [10, 2],
  [20, 5],
  [30, 5],
  [60, 10],
];

function svg(name, attributes = {}, text = "") {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) {
    node.setAttribute(key, value);
  }
  node.textContent = text;
  return node;
}

/** The smallest of 1, 2, 5 and their decimal multiples that is at least `value`. */
function roundStep(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= value * 0.999999);
}

export class Plot {
  /** `series`: `{ name, value(sample) }`; `show` writes a value with its unit; `whole` if values are whole numbers. */
  constructor(root, { title, unit, series, show, whole = false }) {
    Object.assign(this, { title, unit, series, show, whole, samples: [] });
    this.heading = element("h3", {}, title);
    this.drawing = svg("svg", { role: "img", class: "plot", height: HEIGHT });
    this.readout = element("p", { class: "readout" });
    this.figure = element("figure", {}, this.heading, this.drawing, element("figcaption", {}, this.readout));
    root.append(this.figure);
    new ResizeObserver(() => this.draw()).observe(this.figure);
    this.drawing.addEventListener("pointermove", (event) => this.point(event));
    this.drawing.addEventListener("pointerleave", () => this.point(null));
  }

  /** Shows these samples, the last of which ended at `now`. */
  update(samples, now) {
    this.samples = samples.map((sample) => ({ sample, at: new Date(sample.time).getTime() }));
    this.now = now;
    this.draw();
  }

  draw() {
    const width = Math.max(240, Math.floor(this.figure.clientWidth));
    if (!this.now || this.figure.clientWidth === 0) {
      return;
    }
    this.width = width;
    const age = (this.now - (this.samples[0]?.at ?? this.now)) / 60_000;
    [this.minutes, this.every] = SPANS.find(([span]) => span >= age) ?? SPANS.at(-1);
    const values = this.samples.flatMap(({ sample }) => this.series.map(({ value }) => value(sample)));
    const highest = Math.max(0, ...values);
    const step = this.whole ? Math.max(1, roundStep(Math.max(highest, 1) / 4)) : roundStep(Math.max(highest, 1e-9) / 4 || 1);
    const top = Math.max(step, Math.ceil(highest / step - 1e-9) * step);
    const place = {
      x: (at) => MARGIN.left + (1 - (this.now - at) / (this.minutes * 60_000)) * (width - MARGIN.left - MARGIN.right),
      y: (value) => HEIGHT - MARGIN.bottom - (value / top) * (HEIGHT - MARGIN.top - MARGIN.bottom),
    };
    this.place = place;
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.drawing.setAttribute("width", width);
    this.drawing.replaceChildren(
      ...this.axes(place, width, top, step),
      ...this.series.map((series, index) => this.line(place, series, index)),
      ...this.legend(width),
    );
    this.cursor = svg("line", { class: "cursor", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, visibility: "hidden" });
    this.drawing.append(this.cursor);
    const summary = this.summary();
    this.drawing.setAttribute("aria-label", `${this.title}. ${summary}`);
    if (!this.isPointed) {
      setText(this.readout, summary);
    }
  }

  axes(place, width, top, step) {
    const made = [svg("text", { class: "unit", x: 0, y: 12 }, this.unit)];
    const right = width - MARGIN.right;
    for (let value = 0; value <= top + step / 2; value += step) {
      const y = place.y(value);
      made.push(svg("line", { class: value === 0 ? "axis" : "grid", x1: MARGIN.left, x2: right, y1: y, y2: y }));
      made.push(svg("text", { class: "tick", x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" }, this.show(value, true)));
    }
    const every = width < 420 ? this.every * 2 : this.every;
    for (let minutes = this.minutes; minutes >= 0; minutes -= every) {
      const x = place.x(this.now - minutes * 60_000);
      const y = HEIGHT - MARGIN.bottom;
      made.push(svg("line", { class: "axis", x1: x, x2: x, y1: y, y2: y + 4 }));
      const anchor = minutes === 0 ? "end" : "middle";
      const text = minutes === 0 ? "now" : `−${minutes} min`;
      made.push(svg("text", { class: "tick", x: minutes === 0 ? x + 6 : x, y: y + 18, "text-anchor": anchor }, text));
    }
    return made;
  }

  /** The line has gaps where samples are missing. */
  line(place, { value }, index) {
    const gap = 35_000;
    let path = "";
    let before = null;
    for (const { sample, at } of this.samples) {
      if (at >= this.now - this.minutes * 60_000) {
        const command = before === null || at - before > gap ? "M" : "L";
        path += `${command}${place.x(at).toFixed(1)} ${place.y(value(sample)).toFixed(1)}`;
        before = at;
      }
    }
    return svg("path", { class: `series s${index}`, d: path || "M0 0" });
  }

  legend(width) {
    let x = width - MARGIN.right;
    const made = [];
    for (const [index, { name }] of [...this.series.entries()].reverse()) {
      x -= name.length * 7.2;
      made.push(svg("text", { class: "legend", x, y: 12 }, name));
      made.push(svg("path", { class: `series s${index}`, d: `M${x - 28} 8L${x - 6} 8` }));
      x -= 42;
    }
    return made;
  }

  summary() {
    if (this.samples.length === 0) {
      return "No samples yet: the first one is there ten seconds after the start.";
    }
    const texts = this.series.map(({ name, value }) => {
      const last = value(this.samples.at(-1).sample);
      const highest = this.samples.reduce((most, entry) => (value(entry.sample) > value(most.sample) ? entry : most));
      const most = value(highest.sample);
      return most === 0 ? `${name}: none` : `${name}: ${this.show(last)} now, at most ${this.show(most)} at ${time(highest.sample.time)}`;
    });
    return `${texts.join("; ")}.`;
  }

  /** Reads out the values under the pointer. */
  point(event) {
    this.isPointed = Boolean(event) && this.samples.length > 0;
    if (!this.isPointed) {
      this.cursor?.setAttribute("visibility", "hidden");
      setText(this.readout, this.summary());
      return;
    }
    const box = this.drawing.getBoundingClientRect();
    const x = ((event.clientX - box.left) * this.width) / box.width;
    const distance = (entry) => Math.abs(this.place.x(entry.at) - x);
    const nearest = this.samples.reduce((best, entry) => (distance(entry) < distance(best) ? entry : best));
    const at = this.place.x(nearest.at);
    this.cursor.setAttribute("x1", at);
    this.cursor.setAttribute("x2", at);
    this.cursor.setAttribute("visibility", "visible");
    const texts = this.series.map(({ name, value }) => `${name} ${this.show(value(nearest.sample))}`);
    setText(this.readout, `${time(nearest.sample.time)}: ${texts.join(", ")}`);
  }
}
