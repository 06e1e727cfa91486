// Line charts over time, as SVG, drawn again with each frame.
//
// Texts are set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 46;
const RIGHT = 8;
const TOP = 10;
const BOTTOM = 18;

function svg(tag, attributes = {}) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// Three digits: 0.123, 1.23, 12.3, 123, 1230.
export function digits(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  if (size >= 1) return value.toFixed(2);
  return String(Number(value.toPrecision(2)));
}

export function seconds(value) {
  const all = Math.max(0, Math.round(value));
  const [hours, minutes, rest] = [Math.floor(all / 3600), Math.floor(all / 60) % 60, all % 60];
  if (hours > 0) return `${hours} h ${minutes} min`;
  if (minutes > 0) return `${minutes} min ${rest} s`;
  return `${rest} s`;
}

// The least of 1, 2, 5, 10, 20 ... that is not below.
function roundUp(value) {
  if (!(value > 0)) return 1;
  const scale = 10 ** Math.floor(Math.log10(value));
  const step = [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * scale >= value * 0.999);
  return (step ?? 10) * scale;
}

// A chart in `place`. Options: height, unit, label (what it is, for readers of screens), and for
// each series of the data its class (read, write, p50, p99) and whether its area is filled.
export class Chart {
  constructor(place, { height = 150, unit, label, classes, ago = false }) {
    Object.assign(this, { place, height, unit, label, classes, ago });
    place.classList.add("chart");
    this.svg = svg("svg", { role: "img", height });
    place.append(this.svg);
    this.last = null;
    new ResizeObserver(() => this.last && this.draw(...this.last)).observe(place);
  }

  // `curve`: times and series of the server; `bound`: a value or null.
  draw(curve, bound = null) {
    this.last = [curve, bound];
    const width = this.place.clientWidth;
    if (width === 0) return;
    const { times } = curve;
    const series = curve.series.filter(({ name }) => this.classes[name]);
    const inner = { width: width - LEFT - RIGHT, height: this.height - TOP - BOTTOM };
    let most = bound ?? 0;
    for (const { values } of series) for (const value of values) if (value > most) most = value;
    most = roundUp(most * 1.04);
    const [first, last] = [times[0] ?? 0, times.at(-1) ?? 1];
    const span = Math.max(last - first, 1);
    // What ends now ends at the right, also while it is short.
    const from = this.ago ? last - span : first;
    const x = (time) => LEFT + ((time - from) / span) * inner.width;
    const y = (value) => TOP + inner.height - (value / most) * inner.height;
    const parts = [];
    for (const share of [0, 0.5, 1]) {
      const at = Math.round(y(most * share)) + 0.5;
      parts.push(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }));
      const text = svg("text", { x: LEFT - 7, y: at + 4, "text-anchor": "end" });
      text.textContent = String(Number((most * share).toPrecision(3)));
      parts.push(text);
    }
    const begin = svg("text", { x: LEFT, y: this.height - 3 });
    const end = svg("text", { x: width - RIGHT, y: this.height - 3, "text-anchor": "end" });
    begin.textContent = this.ago ? `${seconds(span)} ago` : seconds(first);
    end.textContent = this.ago ? "now" : seconds(last);
    parts.push(begin, end);
    for (const { name, values } of series) parts.push(...this.series(name, times, values, x, y));
    if (bound !== null) {
      const at = y(bound);
      parts.push(svg("line", { class: "bound", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }));
      const text = svg("text", { class: "bound", x: LEFT + 6, y: at < TOP + 14 ? at + 13 : at - 5 });
      text.textContent = `bound ${digits(bound)} ${this.unit}`;
      parts.push(text);
    }
    this.svg.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    this.svg.dataset.points = times.length;
    const now = series.map(({ name, values }) => `${name} ${digits(values.at(-1) ?? NaN)} ${this.unit}`);
    this.svg.setAttribute("aria-label", `${this.label}: ${now.join(", ") || "no values yet"}`);
    this.svg.replaceChildren(...parts);
  }

  series(name, times, values, x, y) {
    const { css, area } = this.classes[name];
    // Where there is no value, the line has a gap.
    const runs = [];
    let open = null;
    values.forEach((value, at) => {
      if (value === null) {
        open = null;
        return;
      }
      if (!open) runs.push((open = []));
      open.push([x(times[at]), y(value)]);
    });
    const point = ([left, top]) => `${left.toFixed(1)} ${top.toFixed(1)}`;
    const parts = [];
    for (const run of runs) {
      // A point alone is a dot: a line to itself.
      const line = `M${(run.length > 1 ? run : [run[0], run[0]]).map(point).join("L")}`;
      if (area) {
        const shape = `${line}L${run.at(-1)[0].toFixed(1)} ${y(0)}L${run[0][0].toFixed(1)} ${y(0)}Z`;
        parts.push(svg("path", { class: `area ${css}`, d: shape }));
      }
      parts.push(svg("path", { class: `line ${css}`, d: line }));
    }
    const newest = runs.at(-1)?.at(-1);
    if (newest && values.at(-1) !== null) {
      parts.push(svg("circle", { class: `end ${css}`, cx: newest[0], cy: newest[1], r: 3.5 }));
    }
    return parts;
  }
}
