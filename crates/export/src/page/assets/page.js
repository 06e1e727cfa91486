// The page: draws each frame that the server sends.
//
// A frame has everything that is shown, so one that is lost changes nothing. Names come from disks
// and files: they are set as text, never as markup, and characters that would change the order or
// the place of others are shown as such.

import { Chart, digits, seconds } from "./charts.js";

const byId = (id) => document.getElementById(id);

// Without control characters and those that change the direction of text.
const clean = (text) =>
  String(text ?? "").replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, "\ufffd");

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

// Only what differs is written: a text that is selected or read aloud stays.
function setText(node, text) {
  const next = clean(text);
  if (node.textContent !== next) node.textContent = next;
}

function setData(node, name, value) {
  if (node.dataset[name] !== value) node.dataset[name] = value;
}

function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

const setHidden = (node, hidden) => {
  if (node.hidden !== hidden) node.hidden = hidden;
};

const percent = (share, places = 0) => `${(share * 100).toFixed(places)} %`;
const setWidth = (node, share) => {
  node.style.width = `${(Math.min(Math.max(share ?? 0, 0), 1) * 100).toFixed(2)}%`;
};

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let [value, unit] = [bytes, 0];
  while (value >= 1024 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${Number.isInteger(value) ? value : digits(value)} ${units[unit]}`;
}

const milliseconds = (ms) => (ms < 1 ? `${digits(ms * 1000)} µs` : `${digits(ms)} ms`);
const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour12: false });

// Words and signs of states: never the colour alone.
const STATES = {
  in_sync: ["✓", "in sync"],
  rebuilding: ["↻", "rebuilding"],
  spare: ["○", "spare"],
  faulty: ["✕", "faulty"],
  missing: ["–", "missing"],
  gone: ["✕", "gone"],
  unknown: ["?", "unknown"],
};

// --- What this client may do.

const session = { hasOrders: false, token: null };

function canOrder() {
  return session.hasOrders && session.token !== null;
}

// --- Members.

class Member {
  constructor(onSelect) {
    this.slot = el("span", { class: "slot" });
    this.name = el("bdi", { class: "name" });
    this.glyph = el("span", { class: "glyph", "aria-hidden": "true" });
    this.words = el("span", { class: "words" });
    this.state = el("span", { class: "state" }, this.glyph, this.words);
    this.figures = el("span", { class: "figures" });
    this.synced = el("span", { class: "synced" });
    this.heat = el("i");
    this.root = el(
      onSelect ? "button" : "div",
      { class: "member", type: onSelect ? "button" : null, "aria-pressed": onSelect ? "false" : null },
      this.synced,
      el("span", { class: "top" }, this.slot, this.name),
      this.state,
      this.figures,
      el("span", { class: "heat", "aria-hidden": "true" }, this.heat),
    );
    if (onSelect) {
      this.root.addEventListener("click", () => onSelect(this));
      this.root.addEventListener("focus", () => onSelect(this));
    }
    this.item = el("li", {}, this.root);
  }

  update(member, heatIs, dense) {
    this.member = member;
    const [glyph, words] = STATES[member.state] ?? ["", member.state ?? ""];
    setData(this.root, "state", member.state ?? "");
    setData(this.root, "severity", member.severity);
    setText(this.slot, member.slot ?? (member.state === "spare" ? "spare" : "out"));
    setHidden(this.slot, member.slot === null && !member.state);
    setText(this.name, member.name === null ? "no device" : shortName(member.name));
    setAttribute(this.root, "title", clean(member.name ?? ""));
    setText(this.glyph, dense && member.state === "in_sync" ? "" : glyph);
    const replaces = member.replaces ? ", replaces the member" : "";
    const synced = member.synced === null ? "" : ` ${percent(member.synced, 1)}`;
    setText(this.words, words + synced + replaces);
    setHidden(this.state, !member.state);
    setWidth(this.synced, member.synced);
    setWidth(this.heat, member.heat);
    this.figuresOf(member, dense);
    const label = describe(member, heatIs);
    setAttribute(this.root, "aria-label", label);
    if (this.root.tagName === "DIV") setAttribute(this.root, "role", "group");
  }

  figuresOf(member, dense) {
    const rates = member.rates;
    let parts = [];
    if (rates && dense) {
      parts = [rates.busy !== null ? percent(rates.busy) : `${digits(rates.read_mb + rates.write_mb)} MB`];
    } else if (rates) {
      parts = [`↓ ${digits(rates.read_mb)}`, `↑ ${digits(rates.write_mb)} MB/s`];
      if (rates.latency_ms !== null) parts.push(milliseconds(rates.latency_ms));
      if (rates.busy !== null) parts.push(`${percent(rates.busy)} busy`);
    }
    while (this.figures.childElementCount > parts.length) this.figures.lastChild.remove();
    while (this.figures.childElementCount < parts.length) this.figures.append(el("span"));
    parts.forEach((text, at) => setText(this.figures.children[at], text));
  }
}

// The last part of a path says most; the whole is its title, and in the line of the selected one.
function shortName(name) {
  const parts = name.split("/").filter((part) => part !== "");
  return parts.length > 0 && name.startsWith("/") ? parts.at(-1) : name;
}

// What the full width of a heat is.
function scaleOf({ heat, members }) {
  if (heat === "busy") return "share of the time busy, 0 to 100 %";
  const most = Math.max(0, ...members.map(({ rates }) => (rates ? rates.read_mb + rates.write_mb : 0)));
  return `bar: MB/s of each member, 0 to ${digits(most)}`;
}

function describe(member, heatIs) {
  const words = [];
  if (member.slot !== null) words.push(`slot ${member.slot}`);
  words.push(member.name ?? "no device");
  if (member.state) words.push(STATES[member.state]?.[1] ?? member.state);
  if (member.synced !== null) words.push(`${percent(member.synced, 1)} in sync`);
  if (member.rates) words.push(...inWords(member.rates));
  if (heatIs === "relative" && member.heat !== null) {
    words.push(`${percent(member.heat)} of the busiest member's rate`);
  }
  return clean(words.join(", "));
}

function inWords(rates) {
  const words = [
    `reads ${digits(rates.read_mb)} MB/s (${digits(rates.reads)}/s)`,
    `writes ${digits(rates.write_mb)} MB/s (${digits(rates.writes)}/s)`,
  ];
  if (rates.latency_ms !== null) words.push(`latency ${milliseconds(rates.latency_ms)}`);
  if (rates.busy !== null) words.push(`${percent(rates.busy)} busy`);
  if (rates.queue !== null) words.push(`queue ${digits(rates.queue)}`);
  return words;
}

// A list of members: one stop of the Tab key, arrows within.
class Members {
  constructor(list, onSelect) {
    Object.assign(this, { list, onSelect, tiles: [], chosen: null });
    list.addEventListener("keydown", (event) => this.key(event));
  }

  update(members, heatIs) {
    const dense = members.length > 12;
    this.list.classList.toggle("dense", dense);
    while (this.tiles.length > members.length) {
      const last = this.tiles.pop();
      if (last === this.chosen) this.choose(null);
      last.item.remove();
    }
    while (this.tiles.length < members.length) {
      const tile = new Member(this.onSelect ? (one) => this.choose(one) : null);
      if (this.onSelect) tile.root.tabIndex = this.tiles.length === 0 ? 0 : -1;
      this.tiles.push(tile);
      this.list.append(tile.item);
    }
    members.forEach((member, at) => this.tiles[at].update(member, heatIs, dense));
    if (this.chosen) this.onSelect(this.chosen.member);
  }

  choose(tile) {
    if (this.chosen === tile) return;
    this.chosen?.root.setAttribute("aria-pressed", "false");
    this.chosen = tile;
    if (tile) {
      tile.root.setAttribute("aria-pressed", "true");
      for (const { root } of this.tiles) root.tabIndex = -1;
      tile.root.tabIndex = 0;
    } else if (this.tiles[0]) {
      this.tiles[0].root.tabIndex = 0;
    }
    this.onSelect(tile?.member ?? null);
  }

  key(event) {
    const at = this.tiles.findIndex(({ root }) => root === document.activeElement);
    if (at < 0 || event.ctrlKey || event.altKey || event.metaKey) return;
    const columns = getComputedStyle(this.list).gridTemplateColumns.split(" ").length;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
    let to = steps[event.key] === undefined ? undefined : at + steps[event.key];
    if (event.key === "Home") to = 0;
    if (event.key === "End") to = this.tiles.length - 1;
    if (to === undefined || !this.tiles[to]) return;
    event.preventDefault();
    this.tiles[to].root.focus();
  }
}

// --- Background work.

class Work {
  constructor(root) {
    Object.assign(this, { root, jobs: [] });
  }

  update(work, arrayName) {
    while (this.jobs.length > work.length) this.jobs.pop().root.remove();
    while (this.jobs.length < work.length) this.jobs.push(this.add());
    work.forEach((job, at) => this.show(this.jobs[at], job, arrayName));
  }

  add() {
    const job = { percent: el("span", { class: "percent" }), text: el("span"), rest: el("span", { class: "soft" }), bar: el("i") };
    job.meter = el("div", { class: "meter", role: "progressbar", "aria-valuemin": "0", "aria-valuemax": "100" }, job.bar);
    job.root = el("div", { class: "job" }, el("div", { class: "line" }, job.percent, job.text, job.rest), job.meter);
    this.root.append(job.root);
    return job;
  }

  show(job, work, arrayName) {
    setData(job.root, "state", work.state);
    setText(job.percent, work.done === null ? "" : percent(work.done, 1));
    setText(job.text, work.state === "running" ? work.action : `${work.action}: ${work.state}`);
    const rest = [];
    if (work.bytes_per_s !== null) rest.push(`${digits(work.bytes_per_s / 1e6)} MB/s`);
    if (work.eta_s !== null) rest.push(`${seconds(work.eta_s)} left`);
    if (work.error) rest.push(work.error);
    setText(job.rest, rest.join(" · "));
    setWidth(job.bar, work.done);
    setAttribute(job.meter, "aria-label", clean(`${work.action} of ${arrayName}`));
    if (work.done === null) job.meter.removeAttribute("aria-valuenow");
    else setAttribute(job.meter, "aria-valuenow", (work.done * 100).toFixed(1));
  }
}

// --- Figures above charts.

class Figures {
  constructor(root) {
    Object.assign(this, { root, shown: new Map() });
    root.classList.add("figures-big");
  }

  // Pairs of a name and a text: `12.3 MB/s`.
  update(pairs) {
    for (const [name, text] of pairs) {
      let value = this.shown.get(name);
      if (!value) {
        const [number, unit] = [el("span"), el("small")];
        this.root.append(el("div", {}, el("dt", {}, name), el("dd", {}, number, " ", unit)));
        this.shown.set(name, (value = { number, unit }));
      }
      const [number, ...unit] = text.split(" ");
      setText(value.number, number);
      setText(value.unit, unit.join(" "));
    }
  }
}

const IO = { read: { css: "read", area: true }, write: { css: "write", area: true } };

function legend(...entries) {
  const one = ([css, text]) => el("span", {}, el("span", { class: `swatch ${css}`, "aria-hidden": "true" }), text);
  return el("p", { class: "legend" }, ...entries.map(one));
}

// --- An array.

class ArrayCard {
  constructor() {
    this.name = el("bdi");
    this.chips = el("span", { class: "chip" });
    this.shape = el("span", { class: "soft" });
    this.actions = el("div", { class: "actions" });
    this.list = el("ul", { class: "members" });
    this.detail = el("div", { class: "inspector", hidden: "" });
    this.detailText = el("bdi");
    this.failButton = el("button", { type: "button", hidden: "" }, "Fail…");
    this.failButton.addEventListener("click", () => this.fail());
    this.detail.append(this.detailText, this.failButton);
    this.heatText = el("span");
    const signs = ["missing", "faulty", "rebuilding", "spare"].map((state) => el("span", { class: "sign" }, STATES[state].join(" ")));
    this.heatLegend = el("p", { class: "legend" }, el("span", {}, el("span", { class: "swatch", "aria-hidden": "true" }), this.heatText), ...signs);
    this.members = new Members(this.list, (member) => this.select(member));
    this.workList = el("div", { class: "work" });
    this.work = new Work(this.workList);
    this.figuresList = el("dl");
    this.figures = new Figures(this.figuresList);
    const chart = el("div");
    this.io = el("div", {}, this.figuresList, chart, legend(["read", "read, MB/s"], ["write", "written, MB/s"]));
    this.facts = el("p", { class: "facts" });
    this.notes = el("ul", { class: "notes" });
    this.root = el(
      "section",
      { class: "card array" },
      el("div", { class: "head" }, el("h2", {}, this.name), this.chips, this.shape, this.actions),
      this.workList,
      el("div", { class: "body" }, el("div", {}, this.list, this.detail, this.heatLegend), this.io),
      this.facts,
      this.notes,
    );
    this.chart = new Chart(chart, { height: 132, unit: "MB/s", label: "Throughput", classes: IO, ago: true });
    this.buttons = null;
  }

  update(array) {
    this.array = array;
    setText(this.name, array.name);
    setAttribute(this.root, "aria-label", clean(`Array ${array.name}`));
    setData(this.root, "name", array.name);
    setData(this.root, "severity", array.severity);
    setText(this.chips, array.state ?? "");
    setHidden(this.chips, !array.state);
    setData(this.chips, "severity", array.severity);
    setText(this.shape, shapeOf(array));
    this.members.update(array.members, array.heat);
    setText(this.heatText, scaleOf(array));
    setHidden(this.heatLegend, !array.members.some((member) => member.heat !== null));
    this.root.classList.toggle("many", array.members.length > 12);
    this.work.update(array.work, array.name);
    const hasIo = array.rates !== null;
    this.root.classList.toggle("has-io", hasIo);
    setHidden(this.io, !hasIo);
    if (hasIo) this.showIo(array);
    setHidden(this.facts, array.facts.length === 0);
    const facts = JSON.stringify(array.facts);
    if (facts !== this.factsShown) {
      this.factsShown = facts;
      this.facts.replaceChildren(...array.facts.map(([name, value]) => el("span", {}, `${clean(name)} `, el("b", {}, clean(value)))));
    }
    setHidden(this.notes, array.notes.length === 0);
    const notes = JSON.stringify(array.notes);
    if (notes !== this.notesShown) {
      this.notesShown = notes;
      this.notes.replaceChildren(...array.notes.map((note) => el("li", {}, clean(note))));
    }
    this.showActions(array);
  }

  showIo({ rates, curve }) {
    const figures = [
      ["read", `${digits(rates.read_mb)} MB/s`],
      ["written", `${digits(rates.write_mb)} MB/s`],
      ["operations", `${digits(rates.reads + rates.writes)} /s`],
      ["mean latency", rates.latency_ms === null ? "–" : milliseconds(rates.latency_ms)],
    ];
    this.figures.update(figures);
    if (curve) this.chart.draw(curve);
  }

  select(member) {
    setHidden(this.detail, member === null);
    if (member === null) return;
    setText(this.detailText, describe(member, this.array?.heat));
    const fails = canOrder() && ["in_sync", "rebuilding", "spare"].includes(member.state);
    setHidden(this.failButton, !fails);
  }

  showActions(array) {
    const runs = array.work.find((work) => ["check", "repair"].includes(work.action));
    const held = array.work.some((work) => work.state === "paused");
    const key = `${canOrder()} ${session.hasOrders} ${Boolean(runs)} ${held} ${array.work.length > 0}`;
    if (key === this.actionsShown) return;
    this.actionsShown = key;
    const focused = this.actions.contains(document.activeElement);
    const button = (text, work) => el("button", { type: "button", onclick: work }, text);
    const list = [];
    if (canOrder()) {
      if (runs) list.push(button("Stop the scrub…", () => this.scrub("stop")));
      else list.push(button("Check…", () => this.scrub("check")), button("Repair…", () => this.scrub("repair")));
      if (array.work.length > 0) {
        list.push(held ? button("Resume…", () => this.scrub("resume")) : button("Pause…", () => this.scrub("pause")));
      }
      list.push(button("Add a device…", () => this.add()));
    } else if (session.hasOrders) {
      list.push(button("Enter the token to control", () => showSignIn()));
    }
    this.actions.replaceChildren(...list);
    if (focused) list[0]?.focus();
  }

  async scrub(action) {
    const { name } = this.array;
    const texts = {
      check: ["Check", "The redundancy of the whole array is read and compared with its data. Nothing is written."],
      repair: ["Repair", "The redundancy is compared with the data, and what is proven wrong is written."],
      stop: ["Stop the scrub", "What it has found stays in the list of events."],
      pause: ["Pause", "Resync, rebuild and scrub wait until they are resumed. Redundancy that is missing stays missing."],
      resume: ["Resume", "Resync, rebuild and scrub go on where they were."],
    };
    const [title, text] = texts[action];
    if ((await confirm({ title: `${title}: ${name}`, text, action: title })) === null) return;
    await send({ order: "scrub", array: name, action });
  }

  async fail() {
    const [{ name }, member] = [this.array, this.members.chosen?.member];
    if (!member?.name) return;
    const title = `Fail ${member.name}`;
    const text = `The member leaves service of ${name} at once, and redundancy with it. A spare, or a device that is added, is rebuilt from the others.`;
    if ((await confirm({ title, text, action: "Fail the member", danger: true })) === null) return;
    await send({ order: "fail", array: name, device: member.name });
  }

  async add() {
    const { name } = this.array;
    const text = "A former member gets what it lacks; another device becomes a spare, or is rebuilt. One that holds data is refused.";
    const device = await confirm({ title: `Add a device to ${name}`, text, action: "Add", input: true });
    if (device) await send({ order: "add", array: name, device });
  }
}

function shapeOf(array) {
  const words = [array.level, array.layout];
  if (array.chunk_kib) words.push(`chunk ${size(array.chunk_kib * 1024)}`);
  if (array.bytes !== null) words.push(size(array.bytes));
  if (array.slots) {
    const there = array.degraded === null ? array.slots : array.slots - array.degraded;
    words.push(`${there} of ${array.slots} in sync`);
  }
  return words.filter((word) => word).join(" · ");
}

// --- A sweep.

class SweepView {
  constructor(root) {
    const job = { percent: el("span", { class: "percent" }), text: el("span"), rest: el("span", { class: "soft" }), bar: el("i") };
    this.report = el("a", { class: "button main", href: "/report", hidden: "" }, "Open the report");
    job.meter = el("div", { class: "meter", role: "progressbar", "aria-label": "items of the sweep", "aria-valuemin": "0", "aria-valuemax": "100" }, job.bar);
    this.job = job;
    this.doing = el("bdi", { class: "soft" });
    this.cellName = el("bdi");
    this.figuresList = el("dl");
    this.figures = new Figures(this.figuresList);
    const [speed, latency] = [el("div"), el("div")];
    this.note = el("p", { class: "notes" });
    this.cell = el(
      "section",
      { class: "card", "aria-label": "Running cell" },
      el("div", { class: "head" }, el("h2", {}, this.cellName)),
      this.figuresList,
      el("div", { class: "charts" },
        el("div", {}, el("h3", {}, "Throughput, MB/s"), speed, legend(["read", "measured"], ["bound", "bound: what the members could do together"])),
        el("div", {}, el("h3", {}, "Latency, ms"), latency, legend(["p50", "median"], ["p99", "99th percentile"]))),
      this.note,
    );
    this.rows = el("tbody");
    this.count = el("span", { class: "soft" });
    const heads = [["array", ""], ["workload", ""], ["MB/s", "number"], ["IOPS", "number optional"], ["p99", "number optional"], ["of its bound", ""], ["checked", "optional"]];
    this.measured = el(
      "section",
      { class: "card", "aria-label": "Measured cells" },
      el("div", { class: "head plain" }, el("h2", {}, "Measured"), this.count),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of measured cells" },
        el("table", {}, el("thead", {}, el("tr", {}, ...heads.map(([text, css]) => el("th", { class: css, scope: "col" }, text)))), this.rows)),
    );
    root.classList.add("sweep");
    root.append(
      el("div", { class: "card job" },
        el("div", { class: "head" }, job.percent, job.text, job.rest, el("div", { class: "actions" }, this.report)),
        job.meter, this.doing),
      this.cell, this.measured);
    this.speed = new Chart(speed, { height: 200, unit: "MB/s", label: "Throughput", classes: { mb: { css: "read", area: true } } });
    this.latency = new Chart(latency, { height: 200, unit: "ms", label: "Latency", classes: { p50: { css: "p50" }, p99: { css: "p99" } } });
  }

  update(sweep, hasReport) {
    const { job } = this;
    const share = sweep.items > 0 ? Math.min((sweep.done + sweep.failed) / sweep.items, 1) : 1;
    setText(job.percent, percent(share));
    const failed = sweep.failed > 0 ? `, ${sweep.failed} could not be run` : "";
    setText(job.text, `${sweep.done} of ${sweep.items} items${failed}`);
    const rest = sweep.ended ? [sweep.ended] : [`${seconds(sweep.elapsed_s)} so far`];
    if (sweep.left && !sweep.ended) rest.push(`${sweep.left} left`);
    setText(job.rest, rest.join(" · "));
    setWidth(job.bar, share);
    setAttribute(job.meter, "aria-valuenow", (share * 100).toFixed(0));
    setText(this.doing, sweep.doing ?? "");
    setHidden(this.doing, !sweep.doing);
    setHidden(this.report, !hasReport);
    setHidden(this.cell, !sweep.running);
    if (sweep.running) this.showCell(sweep.running);
    setHidden(this.measured, sweep.measured.length === 0);
    const key = `${sweep.cells}`;
    if (key !== this.shown) this.showMeasured(sweep);
    this.shown = key;
  }

  showCell({ number, cell, seconds: since, mb_per_s: speed, iops, p50_ms: p50, p99_ms: p99, curve, bound }) {
    setData(this.cell, "number", String(number));
    setText(this.cellName, `${cell.array}: ${cell.workload}`);
    const limit = bound?.mb_per_s ?? null;
    const of = (value, text) => (value === null ? "–" : text(value));
    this.figures.update([
      ["throughput", of(speed, (value) => `${digits(value)} MB/s`)],
      ["of its bound", limit === null || speed === null ? "–" : percent(speed / limit)],
      ["operations", of(iops, (value) => `${digits(value)} /s`)],
      ["median latency", of(p50, milliseconds)],
      ["p99", of(p99, milliseconds)],
      ["since", seconds(since)],
    ]);
    this.speed.draw(curve, limit);
    this.latency.draw(curve);
    setText(this.note, bound?.note ? `Bound: ${bound.note}` : "");
  }

  showMeasured(sweep) {
    const shown = sweep.measured.length;
    setText(this.count, shown < sweep.cells ? `the last ${shown} of ${sweep.cells} cells` : shown === 1 ? "1 cell" : `${shown} cells`);
    const row = (one) => {
      const cells = [[one.cell.array, ""], [one.cell.workload, ""], [digits(one.mb_per_s), "number"], [digits(one.iops), "number optional"],
        [one.p99_ms === null ? "–" : milliseconds(one.p99_ms), "number optional"]].map(([text, css]) => el("td", { class: css }, el("bdi", {}, clean(text))));
      const bar = el("i");
      setWidth(bar, one.bound_share);
      const share = one.bound_share === null ? ["–"] : [el("div", { class: "share-bar" }, el("div", { class: "meter", "aria-hidden": "true" }, bar), el("span", {}, percent(one.bound_share)))];
      const checked = { true: "yes", false: "WRONG DATA", null: "–" }[String(one.verified)];
      const warned = one.warnings > 0 ? `, ${one.warnings} warning${one.warnings > 1 ? "s" : ""}` : "";
      const check = el("td", { class: one.verified === false ? "bad optional" : "optional" }, checked + warned);
      return el("tr", {}, ...cells, el("td", { class: "share" }, ...share), check);
    };
    this.rows.replaceChildren(...sweep.measured.toReversed().map(row));
  }
}

// --- Events.

let newestEvent = null;

function showEvents(events) {
  setHidden(byId("happened"), events.length === 0);
  const newest = events.at(-1)?.number ?? 0;
  if (newest === newestEvent) return;
  const added = newestEvent === null ? [] : events.filter(({ number }) => number > newestEvent);
  newestEvent = newest;
  const item = ({ at_ms, kind, severity, subject, text }) =>
    el("li", { "data-severity": severity, "data-kind": clean(kind) },
      el("time", { datetime: new Date(at_ms).toISOString() }, clock(at_ms)), el("span", { class: "kind" }, clean(kind)),
      el("bdi", { class: "text" }, clean(subject && !text.includes(subject) ? `${subject}: ${text}` : text)));
  const list = byId("events");
  list.replaceChildren(...events.toReversed().map(item));
  // What scrolls can be reached by the keyboard.
  if (list.scrollHeight > list.clientHeight) list.tabIndex = 0;
  if (added.length > 0) setText(byId("announce"), added.map(({ text }) => text).join(" "));
}

// --- Orders.

function confirm({ title, text, action, danger = false, input = false }) {
  const dialog = byId("confirm");
  const [go, field] = [byId("confirm-do"), byId("device")];
  setText(byId("confirm-title"), title);
  setText(byId("confirm-text"), text);
  setText(go, action);
  go.classList.toggle("danger", danger);
  byId("confirm-input").hidden = !input;
  field.required = input;
  field.value = "";
  dialog.returnValue = "cancel";
  dialog.showModal();
  (input ? field : byId("confirm-cancel")).focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "do" ? (input ? field.value : true) : null), { once: true });
  });
}

// Enter in the field means the action, not the first button, which cancels.
byId("device").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  if (byId("device").value) byId("confirm").close("do");
});

let toastTimer = null;

function toast(text, severity) {
  const place = byId("toast");
  setData(place, "severity", severity);
  place.hidden = false;
  setText(place, text);
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => (place.hidden = true), 8000);
}

async function send(order) {
  try {
    const headers = { "Content-Type": "application/json", Authorization: `Bearer ${session.token}` };
    const response = await fetch("/order", { method: "POST", headers, body: JSON.stringify(order) });
    const answer = await response.json();
    if (response.ok) toast(answer.done, "fine");
    else toast(answer.error, "bad");
  } catch {
    toast("The server does not answer; whether the order was carried out is not known.", "bad");
  }
}

// --- Frames.

const cards = [];
let sweepView = null;
let disks = null;

function show(view) {
  setText(byId("title"), view.title);
  document.title = `${clean(view.title)} – raidlab`;
  setText(byId("source"), view.source);
  const problem = byId("problem");
  setHidden(problem, !view.error);
  setText(problem, view.error ?? "");
  showMachine(view.machine);
  if (view.sweep) {
    byId("sweep").hidden = false;
    sweepView ??= new SweepView(byId("sweep"));
    sweepView.update(view.sweep, view.has_report);
  }
  const place = byId("arrays");
  while (cards.length > view.arrays.length) cards.pop().root.remove();
  while (cards.length < view.arrays.length) {
    const card = new ArrayCard();
    cards.push(card);
    place.append(card.root);
  }
  view.arrays.forEach((array, at) => {
    cards[at].root.classList.toggle("wide", view.arrays.length === 1 || array.members.length > 12);
    cards[at].update(array);
  });
  setHidden(byId("disks"), view.disks.length === 0);
  if (view.disks.length > 0) {
    disks ??= new Members(byId("disk-list"), null);
    disks.update(view.disks, "busy");
  }
  showEvents(view.events);
}

function showMachine(machine) {
  const place = byId("machine");
  setHidden(place, !machine);
  if (!machine) return;
  if (place.childElementCount === 0) {
    place.append(el("span", {}, "CPU"), el("span", { class: "stack", "aria-hidden": "true" }, ...["user", "system", "iowait"].map((css) => el("i", { class: css }))), el("span"));
  }
  const [, stack, text] = place.children;
  ["user", "system", "iowait"].forEach((name, at) => setWidth(stack.children[at], machine[name]));
  const steal = machine.steal ? `, ${percent(machine.steal)} steal` : "";
  setText(text, `${percent(machine.user)} user, ${percent(machine.system)} system, ${percent(machine.iowait)} iowait${steal}`);
}

// --- The connection.

const LATE_MS = 3000;
let source = null;
let lastFrame = 0;

function setLink(state, text) {
  // Read aloud when it changes, and not with every frame's time.
  if (byId("link").dataset.state !== state) setText(byId("link-said"), state === "live" ? "connected: figures are live" : text);
  setData(byId("link"), "state", state);
  setText(byId("link-text"), text);
}

// What is focused is not scrolled below the head, whose height depends on the width.
const head = document.querySelector("header");
new ResizeObserver(() => document.documentElement.style.setProperty("--head", `${head.offsetHeight}px`)).observe(head);

function connect() {
  if (source) return;
  source = new EventSource("/events");
  source.addEventListener("message", ({ data }) => {
    const view = JSON.parse(data);
    lastFrame = performance.now();
    setLink("live", `live, ${clock(view.at_ms)}`);
    // A hidden page draws nothing, and the next frame has it all.
    if (!document.hidden) show(view);
  });
  source.addEventListener("error", () => {
    setLink("lost", "no connection; trying again");
    // It was refused: another session, or too many viewers.
    if (source.readyState === EventSource.CLOSED) {
      source = null;
      setTimeout(start, 3000);
    }
  });
}

setInterval(() => {
  if (source && lastFrame > 0 && performance.now() - lastFrame > LATE_MS) {
    setLink("lost", `no figures for ${seconds((performance.now() - lastFrame) / 1000)}`);
  }
}, 1000);

// A browser has few connections to one host: a page that is not seen gives its own back.
const HIDDEN_MS = 5000;
let hiding = null;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (!document.hidden) return start();
  hiding = setTimeout(() => {
    source?.close();
    source = null;
  }, HIDDEN_MS);
});

// --- The session.

function showSignIn() {
  byId("sign-in").hidden = false;
  byId("token").focus();
}

async function signIn(token) {
  const answer = await fetch("/session", { method: "POST", headers: { Authorization: `Bearer ${token}` } });
  if (!answer.ok) return false;
  session.token = token;
  sessionStorage.setItem("token", token);
  return true;
}

byId("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = byId("token");
  const fits = await signIn(field.value.trim()).catch(() => null);
  field.value = "";
  const texts = { true: "", false: "This is not the token.", null: "The server does not answer." };
  setText(byId("sign-in-problem"), texts[String(fits)]);
  if (fits) {
    byId("sign-in").hidden = true;
    start();
  }
});

// The token is sent once: from the address or the form. When a server does not know the cookie it gave
// for that, it is another one, and on loopback perhaps another user's: it does not get the token
// unless it is entered again.
async function start() {
  if (source || document.hidden) return;
  try {
    const answer = await (await fetch("/session")).json();
    session.hasOrders = answer.has_orders;
    if (answer.needs_token && !(await admitted(answer.may_read))) {
      setLink("waiting", "token needed");
      return showSignIn();
    }
    if (answer.has_place) return connect();
    setLink("lost", "too many viewers; trying again");
  } catch {
    setLink("lost", "no connection; trying again");
  }
  setTimeout(start, 2000);
}

async function admitted(mayRead) {
  // The address may contain it; that is not part of a request, and does not stay in the address.
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) history.replaceState(null, "", location.pathname);
  if (given && (await signIn(given))) return true;
  if (mayRead) session.token ??= sessionStorage.getItem("token");
  else forgetToken();
  return mayRead;
}

function forgetToken() {
  session.token = null;
  sessionStorage.removeItem("token");
  // Their buttons are drawn with frames, and there are none.
  for (const card of cards) card.update(card.array);
}

start();
