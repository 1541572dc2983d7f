"use strict";
/* The page: an input, the answer, and why. All text of the user's (names of classes, columns and files)
   goes in as text nodes; nothing is ever parsed as HTML. */

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("payload").textContent);
const nClasses = data.classes.length;
const isImage = data.image !== null;
const textColumn = data.columns.find(({ kind }) => kind === "text") ?? null;
const isText = textColumn !== null && data.columns.length === 1;
const isClassifier = data.kind === "classifier";
const [height, width, channels] = isImage ? [data.image[0], data.image[1], data.image[2] ?? 1] : [0, 0, 0];
const groupWord = isClassifier ? "class" : "cluster";
const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
const state = {
  values: null, base: null, row: null, drawn: false, text: "", // the input; base: the row before it was changed
  answer: null, memory: 0, tab: "play", odds: null, rate: null,
};
let geometry, model, encoder, rows; // filled by `start`

/* ---- small helpers ---- */

/** An element with attributes and children; strings become text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

function drawing(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const button = (label, action, more = {}) => make("button", { type: "button", onclick: action, ...more }, label);
const muted = (...children) => make("p", { class: "muted" }, ...children);
const select = (id, label, options, changed) => make("label", {}, label, make("select", { id, onchange: changed }, options.map(([value, text]) => make("option", { value }, text))));

/** A name of any length on one line; names often differ at their ends. */
function short(name, limit = 28) {
  const whole = String(name);
  let text = Array.from(whole.slice(0, 2 * limit + 2)).join("");
  if (Array.from(text).length > limit || text.length < whole.length) {
    const tail = Math.floor(limit / 3);
    text = `${Array.from(text).slice(0, limit - 1 - tail).join("")}…${Array.from(whole.slice(-2 * tail)).slice(-tail).join("")}`;
  }
  // Signs that turn the direction of writing must not reach beyond the name.
  return /[\u0590-\u08ff]/.test(text) ? `\u2068${text}\u2069` : text;
}

const className = (y, limit = 28) => (y === nClasses ? "none of them" : isClassifier ? short(data.classes[y], limit) : `cluster ${data.classes[y]}`);
const memoryName = (m) => `#${m}`;

/** 59%, 99.6%, 0.4%: what is not all or nothing is not called so, as in base/text.py. */
function percent(v) {
  if (v > 0 && v < 0.001) return "<0.1%";
  if (v < 1 && v > 0.999) return ">99.9%";
  return `${(100 * v).toFixed(v < 0.01 || v > 0.99 ? 1 : 0)}%`;
}

/** A measured share. */
const tenth = (v) => `${(100 * v).toFixed(1)}%`;

function number(v, digits = 3) {
  if (v === null || v === undefined || Number.isNaN(v)) return "–";
  if (!Number.isFinite(v)) return v > 0 ? "∞" : "−∞";
  const size = Math.abs(v);
  if (size < 1e-9) return "0"; // rounding of sums
  const text = size >= 1e4 && size < 1e15 ? v.toFixed(0) : size >= 1e15 || size < 1e-3 ? v.toExponential(2) : String(Number(v.toPrecision(digits)));
  return text.replace("-", "−");
}

/** What a row has in a column, for people. */
function written({ kind, first, end, levels, table }, values) {
  const own = Array.from(values.slice(first, end));
  if (own.some(Number.isNaN)) return "missing";
  if (levels?.length) return levels[nearest(table, own)] ?? "another one";
  if (kind === "date") return new Date(own[0] * 864e5).toISOString().slice(0, 10);
  return own.length > 1 ? (kind === "text" ? "a text" : `${own.length} numbers`) : number(own[0], 4);
}

/** The place of the list of numbers that is nearest to some. */
function nearest(table, own) {
  const far = table.map((line) => line.reduce((sum, v, k) => sum + (v - own[k]) ** 2, 0));
  return far.indexOf(Math.min(...far));
}

let cssCache = {};
function cssValue(name) {
  cssCache[name] ??= getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return cssCache[name];
}

const rgbOf = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));

/** The color of a class, the same as in plots; a dark one is lighter on a dark page. */
function classColor(y) {
  if (y === nClasses) return cssValue("--soft");
  const rgb = rgbOf(data.colors[y]);
  const light = (0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]) / 255;
  const white = Math.max(Number(cssValue("--least-light")) - light, 0) / (1 - light);
  return `rgb(${rgb.map((v) => Math.round(v + white * (255 - v))).join(" ")})`;
}

const swatch = (y) => make("i", { class: "swatch", style: { background: classColor(y) }, "aria-hidden": "true" });

const later = {};
/** Do something once in the next frame, however often it is asked for. */
function soon(name, action) {
  if (later[name]) return;
  later[name] = true;
  requestAnimationFrame(() => { later[name] = false; action(); });
}

let saying = 0;
function say(text) {
  clearTimeout(saying);
  saying = setTimeout(() => { $("live").textContent = text; }, 400);
}

/* ---- pictures ---- */

/** Raw values as a picture; `own`: on the scale of the picture itself (points of the sphere), from `floor` up. */
function paint(canvas, values, own = false, floor = null) {
  canvas.width = width;
  canvas.height = height;
  let [low, high] = rows.range;
  if (own) {
    [low, high] = [Infinity, -Infinity];
    for (const v of values) [low, high] = [Math.min(low, v), Math.max(high, v)];
    if (floor !== null && floor < (low + high) / 2) low = floor;
  }
  const span = high > low ? high - low : 1;
  const [paper, ink] = [rgbOf(cssValue("--card")), rgbOf(cssValue("--ink"))];
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    for (let c = 0; c < 3; c++) {
      const given = values[channels === 3 ? 3 * i + c : i];
      let t = Math.min(Math.max(((Number.isNaN(given) ? rows.background : given) - low) / span, 0), 1);
      if (channels !== 3 && rows.background > rows.pen) t = 1 - t; // ink on paper; colors stay as they are
      image.data[4 * i + c] = channels === 3 ? 255 * t : paper[c] + t * (ink[c] - paper[c]);
    }
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** A small picture: `what` says it to a screen reader. */
const thumb = (values, own, what, floor = null) => paint(make("canvas", { class: "pixels", role: "img", "aria-label": what }), values, own, floor);

/** A text on its own, cut; `none` where there is none. */
const quote = (text, limit = 160, none = "no text") => make("q", { class: "text", title: text }, text ? short(text, limit) : none);
/** Names of the training rows most typical of a memory. */
const typicalOf = (m) => data.typical?.[m] ?? [];
/** A memory as people can see it: a picture, or the texts of training rows. */
const memoryPicture = (m) => (isImage ? thumb(geometry.restore(model.memory(m)), true, `memory ${memoryName(m)}`) : textColumn ? quote(typicalOf(m)[0], 80, memoryName(m)) : null);

/** A row as people can see it: a picture, its text, or the columns that matter most. */
function rowPicture(r) {
  if (isImage) return thumb(rows.values(r), false, `row ${rows.number[r]}`);
  if (textColumn && rows.text) return quote(rows.text[r]);
  const values = rows.values(r);
  return make("span", { class: "text" }, rows.strong.slice(0, 4).map((k) => `${short(data.columns[k].name, 20)} ${short(written(data.columns[k], values), 14)}`).join(" · "));
}

/** Horizontal bars with names: [{name, title, value, text, color, best}], largest value 1. */
function bars(items, { named = false, both = false } = {}) {
  return make("div", { class: `bars${named ? " named" : ""}`, role: "list" }, items.map((item) => {
    const size = Math.min(Math.abs(item.value), 1) * (both ? 50 : 100);
    const style = { width: `${size.toFixed(2)}%`, background: item.color };
    if (both) style.left = item.value < 0 ? `${50 - size}%` : "50%";
    return make("div", { class: `bar${item.best ? " best" : ""}`, role: "listitem" },
      make("span", { class: "name", title: item.title ?? item.name }, item.name),
      make("div", { class: `track${both ? " both" : ""}`, "aria-hidden": "true" }, make("div", { class: "fill", style })),
      make("span", { class: "value" }, item.text));
  }));
}

/** Probabilities of classes: all of a few in their order, the largest of many, or those chosen. */
function classBars(proba, { chosen = null, grey = false } = {}) {
  const many = chosen !== null || proba.length > 10;
  const order = chosen ?? (many ? largest(proba, 6) : Array.from(proba.keys()));
  const best = largest(proba, 1)[0];
  const items = order.map((y) => ({
    name: className(y), title: className(y, 300), value: proba[y], text: percent(proba[y]),
    color: grey ? cssValue("--soft") : classColor(y), best: y === best && !grey,
  }));
  const left = proba.length - order.length;
  const rest = Math.max(0, 1 - order.reduce((sum, y) => sum + proba[y], 0));
  if (left > 0 && (chosen === null || rest > 0.005)) items.push({ name: `${left} others`, value: rest, text: percent(rest), color: cssValue("--soft") });
  return bars(items, { named: many || !isClassifier || data.classes.some((c) => c.length > 3) });
}

/* ---- settings: how many rows to reject, how frequent classes are ---- */

function buildKnobs() {
  const parts = [];
  if (model.calibration !== null) {
    const least = 1 / (model.calibration.scores.length + 1);
    parts.push(make("div", { class: "knob" }, make("label", { for: "knob-rate" }, "rejected rows among those like the known ones", make("output", { id: "knob-rate-out", for: "knob-rate" })),
      make("input", { type: "range", id: "knob-rate", min: Math.log(least), max: Math.log(0.6), step: 0.001, value: Math.log(state.rate), oninput: (e) => { state.rate = Math.min(Math.max(Math.exp(Number(e.target.value)), least), 0.6); turned(); } })));
  }
  if (nClasses > 1) parts.push(priorKnobs());
  parts.push(make("div", { class: "knob" }, button("Reset the settings", () => { Object.assign(state, { odds: null, rate: model.calibration?.rate ?? null }); buildKnobs(); turned(); })));
  $("knobs-body").replaceChildren(...parts);
}

function priorKnobs() {
  const slide = (y) => [make("input", {
    type: "range", id: `prior-${y}`, min: -4, max: 4, step: 0.05, value: state.odds ? Math.log2(state.odds[y]) : 0, "aria-label": `weight of ${className(y, 60)}`,
    oninput: (e) => {
      state.odds ??= new Float64Array(nClasses).fill(1);
      state.odds[y] = 2 ** Number(e.target.value);
      turned();
    },
  }), make("output", { id: `prior-out-${y}` })];
  return make("div", { class: "knob wide" }, make("div", { class: "top" }, `how frequent each ${groupWord} is`, make("small", {}, "1/16 to 16 times as in training")),
    make("div", { class: "knob-grid scroll" }, data.classes.map((_, y) => make("div", { class: "slider-row" }, make("label", { for: `prior-${y}`, title: className(y, 300) }, swatch(y), className(y)), slide(y)))));
}

function turned() {
  model.votes = state.odds === null ? model.saved : model.votesAt(model.own.temperature, state.odds);
  rows.evaluate();
  showKnobs();
  soon("answer", showAnswer);
  soon("rows", () => { rows.fill?.(); showTab(); });
}

function showKnobs() {
  const set = (id, value) => { const out = $(id); if (out) out.textContent = value; };
  if (model.calibration !== null) set("knob-rate-out", tenth(state.rate));
  for (let y = 0; y < nClasses; y++) set(`prior-out-${y}`, percent(model.votes.prior[y]));
  const chips = rows.tally().map(([name, value]) => make("span", {}, `${name} `, make("b", {}, value)));
  $("knobs-summary").replaceChildren(make("b", {}, "Settings"), make("span", { id: "tally" }, ...chips));
}

/* ---- the packed rows ---- */

/** Rows, their overlaps with the memories, and what the model says of them. */
function packedRows({ x = new Float64Array(0), number = [], y = null, text = null }) {
  const [n, N] = [number.length, data.n_features];
  const [points, overlaps] = [[], []];
  const values = (r) => Float64Array.from(x.subarray(r * N, (r + 1) * N));
  for (let r = 0; r < n; r++) points.push(geometry.toSphere(values(r)));
  const found = {
    n, number, y, text, values, unit: (r) => points[r], overlaps: (r) => overlaps[r], said: null,
    strong: [...new Set(data.strong.map((j) => data.columns.findIndex(({ first, end }) => first <= j && j < end)))].filter((k) => k >= 0 && data.columns[k] !== textColumn),
    /** All overlaps, a slice of time at a time, so that the page stays live. */
    async prepare() {
      while (overlaps.length < n) {
        const until = performance.now() + 25;
        while (overlaps.length < n && performance.now() < until) overlaps.push(model.overlaps(points[overlaps.length]));
        await new Promise((go) => { setTimeout(go, 0); });
      }
      found.evaluate();
    },
    evaluate() {
      if (overlaps.length < n || n === 0) return;
      const mass = new Float64Array(model.nMemories);
      const said = overlaps.map((o) => {
        const { share, ...answer } = model.read(o, state.rate);
        share.forEach((part, m) => { mass[m] += part; });
        return { ...answer, sure: answer.proba[answer.predicted], leader: largest(share, 1)[0] };
      });
      Object.assign(found, { said, mass });
      found.first ??= said.map((s) => s.predicted);
    },
    isWrong: (r) => isClassifier && y !== null && y[r] >= 0 && y[r] !== found.said[r].predicted,
    isLabeled: (r) => isClassifier && y !== null && y[r] >= 0,
    /** [name, value] of what the rows say of the settings. */
    tally() {
      if (n === 0) return [];
      if (!found.said) return [["evaluating rows", "…"]];
      const all = Array.from({ length: n }, (_, r) => r);
      const answered = all.filter((r) => !found.said[r].rejected);
      const right = (some) => some.filter((r) => found.isLabeled(r) && !found.isWrong(r)).length / Math.max(some.filter(found.isLabeled).length, 1);
      const chips = [];
      if (all.some(found.isLabeled)) {
        const whole = data.measured && state.odds === null; // on all rows, of which the page holds some
        chips.push([`accuracy on ${whole ? data.measured.n : all.filter(found.isLabeled).length} rows`, tenth(whole ? data.measured.accuracy : right(all))]);
      } else chips.push(["same answer as before", tenth(all.filter((r) => found.said[r].predicted === found.first[r]).length / n)]);
      if (model.calibration !== null) {
        chips.push([`answered of ${n} rows here`, tenth(answered.length / n)]);
        if (answered.some(found.isLabeled)) chips.push(["right among answers", tenth(right(answered))]);
      }
      return chips;
    },
    /** Least and largest value of a feature, of the memories where there are no rows. */
    span(j) {
      const all = n > 0 ? Array.from({ length: n }, (_, r) => x[r * N + j]) : Array.from({ length: model.nMemories }, (_, m) => geometry.restore(model.memory(m))[j]);
      const known = all.filter((v) => !Number.isNaN(v));
      return known.length ? [Math.min(...known), Math.max(...known)] : [0, 1];
    },
    /** Four rows to start with: [what it is, which]. */
    starters() {
      const { said } = found;
      const best = (fits, key) => Array.from({ length: n }, (_, r) => r).filter(fits).sort((a, b) => key(b) - key(a));
      const answered = (r) => !said[r].rejected;
      const labeled = isClassifier && y !== null;
      const wanted = [
        [labeled ? "right" : "clear", best((r) => answered(r) && !found.isWrong(r), (r) => said[r].sure)],
        ["doubtful", best(answered, (r) => -said[r].sure)],
        ["wrong", best((r) => found.isWrong(r) && answered(r), (r) => said[r].sure).concat(best(found.isWrong, (r) => said[r].sure))],
        ["rejected", best((r) => said[r].rejected, (r) => said[r].rejection ?? 0)],
      ];
      const taken = new Set();
      return wanted.map(([what, order]) => [what, order.find((r) => !taken.has(r) && taken.add(r))]).filter(([, r]) => r !== undefined);
    },
  };
  // Most pixels are background; the pen writes the other end of the range.
  let [low, high, sum] = n > 0 ? [Infinity, -Infinity, 0] : [0, 1, 0];
  for (const v of x) if (!Number.isNaN(v)) [low, high] = [Math.min(low, v), Math.max(high, v)];
  for (const v of x) sum += v > (low + high) / 2 ? 1 : -1;
  [found.background, found.pen] = sum <= 0 ? [low, high] : [high, low];
  found.range = [low, high];
  return found;
}

/** ", truly 3": the label of a packed row, where there is one. */
function truth(r) {
  if (!rows.y) return "";
  if (!isClassifier) return `, ${short(rows.y[r])}`;
  return rows.y[r] < 0 ? "" : `, truly ${className(rows.y[r])}`;
}

/** A row to pick: what it is, and what the model says of it. */
function rowTile(r, what = "") {
  const said = rows.said?.[r];
  return make("button", { type: "button", class: isImage ? "tile" : "text-row", "data-row": r, "aria-current": String(state.row === r), "aria-label": `row ${rows.number[r]}${truth(r)}`, onclick: () => { pickRow(r); openTab("play"); } },
    make("small", {}, what ? make("b", {}, what) : "", isImage && what ? "" : `${what ? ": " : ""}row ${short(rows.number[r], 16)}`), rowPicture(r),
    said ? make("span", { class: "said" }, said.rejected ? make("b", {}, "No answer") : [swatch(said.predicted), className(said.predicted, 20)], rows.isWrong(r) ? make("span", { class: "to" }, ` ${truth(r).slice(2)}`) : "") : "");
}

/** The rows behind a search box and a list of kinds. */
function rowPicker() {
  const few = 60;
  const count = make("span", { class: "muted", id: "rows-count" });
  const list = make("div", { class: isImage ? "tiles" : "texts", id: "rows" });
  const words = make("input", { type: "search", id: "search", class: "grow", placeholder: "search rows", "aria-label": "search the rows", oninput: () => soon("fill", rows.fill) });
  const kinds = { start: "four to start with", all: "all rows", wrong: "wrong", doubtful: "doubtful", rejected: "rejected" };
  if (!rows.y || !isClassifier) delete kinds.wrong;
  if (model.calibration === null) delete kinds.rejected;
  const kind = make("select", { id: "rows-kind", "aria-label": "which rows", onchange: () => rows.fill() }, Object.entries(kinds).map(([value, name]) => make("option", { value }, name)));
  rows.fill = () => {
    const { said } = rows;
    if (!said) return;
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (wanted.length && kind.value === "start") kind.value = "all";
    let shown = Array.from({ length: rows.n }, (_, r) => [r, ""]);
    if (kind.value === "start") shown = rows.starters().map(([what, r]) => [r, what]);
    if (kind.value === "wrong") shown = shown.filter(([r]) => rows.isWrong(r)).sort(([a], [b]) => said[b].sure - said[a].sure);
    if (kind.value === "doubtful") shown.sort(([a], [b]) => said[a].sure - said[b].sure);
    if (kind.value === "rejected") shown = shown.filter(([r]) => said[r].rejected).sort(([a], [b]) => said[b].rejection - said[a].rejection);
    const fits = (r) => { const all = `${rows.number[r]} ${rows.text?.[r] ?? ""}${truth(r)} ${className(said[r].predicted, 300)}`.toLowerCase(); return wanted.every((word) => all.includes(word)); };
    shown = shown.filter(([r]) => fits(r));
    count.textContent = kind.value === "start" ? "" : `${shown.length} of ${rows.n}${shown.length > few ? `, the first ${few} are shown` : ""}`;
    list.replaceChildren(...shown.slice(0, few).map(([r, what]) => rowTile(r, what)));
  };
  return make("div", { class: "card" }, make("div", { class: "tools between", style: { marginTop: 0, marginBottom: "10px" } }, make("h2", {}, "Pick a row"), make("div", { class: "tools", style: { marginTop: 0 } }, count, kind, words)), list);
}

function pickRow(r) {
  Object.assign(state, { row: r, values: rows.values(r), base: rows.values(r), drawn: false, text: rows.text?.[r] ?? "" });
  for (const tile of document.querySelectorAll("[data-row]")) tile.setAttribute("aria-current", String(Number(tile.dataset.row) === r));
  if (!isImage) buildControls();
  soon("answer", showAnswer);
}

/* ---- the input: a drawing, a text, or columns ---- */

let pad; // the canvas to draw on
const pen = { erase: false, size: 1, center: true, cursor: null, down: false };

function buildPlay() {
  const title = isText ? "Type a text" : isImage ? "Draw" : "Change a column";
  const input = make("div", { class: "card", id: "input" }, make("h2", {}, title), isImage ? drawingPad() : make("div", { id: "controls" }));
  $("panel-play").replaceChildren(rows.n > 0 ? rowPicker() : "", make("div", { class: "columns three" }, input, make("div", { class: "card", id: "answer" }), make("div", { class: "card", id: "why" })));
}

function drawingPad() {
  pad = make("canvas", {
    class: "pixels pad", id: "pad", width, height, tabindex: 0, role: "application", style: { aspectRatio: `${width} / ${height}` },
    "aria-label": "drawing pad: drag to draw; with keys, arrows move the pen and space draws",
  });
  const least = Math.max(0.62, Math.min(width, height) / 24);
  pen.size = least;
  dragging(pad, (at, last, e) => stroke(last, at, pen.erase || e.buttons === 2));
  pad.addEventListener("keydown", padKey);
  const toggle = (label, name) => {
    const own = button(label, () => { pen[name] = !pen[name]; own.setAttribute("aria-pressed", String(pen[name])); soon("answer", showAnswer); }, { "aria-pressed": String(pen[name]) });
    return own;
  };
  return make("div", { style: { marginTop: "12px" } }, pad, make("div", { class: "tools" }, button("Clear", clearPad, { id: "clear" }), toggle("Erase", "erase"), toggle("Center it", "center"),
    make("label", { class: "grow" }, "pen", make("input", { type: "range", "aria-label": "size of the pen", min: 0.5, max: 3, step: 0.05, value: 1, oninput: (e) => { pen.size = least * Number(e.target.value); } }))));
}

/** Call `action` with pixel, pixel before and event while a pointer is down on a picture. */
function dragging(canvas, action) {
  let last = null;
  const move = (e) => {
    const box = canvas.getBoundingClientRect();
    const at = [((e.clientX - box.left) / box.width) * width, ((e.clientY - box.top) / box.height) * height];
    action(at, last ?? at, e);
    last = at;
  };
  canvas.addEventListener("pointerdown", (e) => { e.preventDefault(); canvas.focus({ preventScroll: true }); canvas.setPointerCapture(e.pointerId); last = null; move(e); });
  canvas.addEventListener("pointermove", (e) => { if (last !== null) move(e); });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { last = null; });
  canvas.addEventListener("contextmenu", (e) => e.preventDefault());
}

const freshValues = () => new Float64Array(data.n_features).fill(rows.background);
const deepest = (a, b) => (Math.abs(a - rows.background) > Math.abs(b - rows.background) ? a : b);

/** Ink, or none, along a line from a to b; soft at the edge. */
function stroke(a, b, erase = false) {
  // The pen starts afresh where a row was picked; the eraser works on the row itself.
  if (!state.drawn && !erase) state.values = freshValues();
  Object.assign(state, { drawn: true, row: null, base: null });
  const [dx, dy] = [b[0] - a[0], b[1] - a[1]];
  const length2 = dx * dx + dy * dy;
  for (let k = 0; k < width * height; k++) {
    const [px, py] = [(k % width) + 0.5 - a[0], Math.floor(k / width) + 0.5 - a[1]];
    const t = length2 > 0 ? Math.min(Math.max((px * dx + py * dy) / length2, 0), 1) : 0;
    const cover = Math.min(Math.max(1.5 * (1.25 - Math.hypot(px - t * dx, py - t * dy) / pen.size), 0), 1);
    if (cover === 0) continue;
    for (let place = k * channels; place < (k + 1) * channels; place++) {
      const now = state.values[place];
      state.values[place] = erase ? now + cover * (rows.background - now) : deepest(now, rows.background + cover * (rows.pen - rows.background));
    }
  }
  soon("answer", showAnswer);
}

function clearPad() {
  Object.assign(state, { values: freshValues(), row: null, base: null, drawn: true });
  soon("answer", showAnswer);
}

function padKey(e) {
  const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], " ": [0, 0] }[e.key];
  if (e.key === "Delete" || e.key === "Backspace") clearPad();
  if (!way) return;
  e.preventDefault();
  const before = pen.cursor ?? [width / 2, height / 2];
  pen.cursor = before.map((v, k) => Math.min(Math.max(v + way[k], 0.5), [width, height][k] - 0.5));
  if (e.key === " ") { pen.down = !pen.down; say(pen.down ? "pen down" : "pen up"); }
  if (pen.down) stroke(before, pen.cursor, pen.erase);
  else soon("answer", showAnswer);
}

/** What the model sees: a drawing moved so that its ink is in the middle, a row as it is. */
function seen() {
  if (!isImage || !state.drawn || !pen.center) return state.values;
  let [mass, x, y] = [0, 0, 0];
  const each = (action) => { for (let k = 0; k < width * height; k++) action(k, k % width, Math.floor(k / width)); };
  each((k, j, i) => {
    const ink = Math.abs(state.values[k * channels] - rows.background);
    [mass, x, y] = [mass + ink, x + ink * (j + 0.5), y + ink * (i + 0.5)];
  });
  if (mass === 0) return state.values;
  const [dx, dy] = [Math.round(width / 2 - x / mass), Math.round(height / 2 - y / mass)];
  const out = freshValues();
  each((k, j, i) => {
    const [a, b] = [i - dy, j - dx];
    if (a >= 0 && b >= 0 && a < height && b < width) for (let c = 0; c < channels; c++) out[k * channels + c] = state.values[(a * width + b) * channels + c];
  });
  return out;
}

/** Other numbers in one column of the row. */
function setColumn({ first }, numbers) {
  numbers.forEach((v, k) => { state.values[first + k] = v; });
  state.drawn = true;
  soon("answer", showAnswer);
}

const FEW = window.innerWidth < 761 ? 6 : 16; // columns that are shown without a search

function buildControls() {
  const box = $("controls");
  const search = $("column-search")?.value ?? "";
  const fitting = [...(textColumn && !isText ? [data.columns.indexOf(textColumn)] : []), ...(isText ? [0] : rows.strong)].filter((k) => data.columns[k].name.toLowerCase().includes(search.toLowerCase()));
  const lines = make("div", { class: "bars", id: "features" }, fitting.slice(0, FEW).map((k) => control(data.columns[k], k)));
  if (fitting.length > FEW) lines.append(muted(`${FEW} of ${fitting.length} columns, those that matter most first; search for others.`));
  if (search || $("column-search")) { $("features").replaceWith(lines); return; }
  box.replaceChildren(rows.strong.length > FEW ? make("input", { type: "search", id: "column-search", style: { width: "100%", marginTop: "8px" }, placeholder: "search the columns", "aria-label": "search the columns", oninput: buildControls }) : "", lines,
    isText ? "" : button("Back to the row", () => { if (state.base) { state.values = state.base.slice(); state.drawn = false; buildControls(); soon("answer", showAnswer); } }, { id: "back" }));
}

/** What changes one column: a slider, a choice, or a box for a text. */
function control(column, k) {
  const { name, kind, first, levels } = column;
  const label = make("label", { for: `column-${k}`, title: name, class: isText ? "unseen" : null }, short(name, 30));
  if (column === textColumn) return textBox(label, column, k);
  if (levels?.length) {
    const now = written(column, state.values);
    const options = [...levels, ...(column.table.length > levels.length ? ["another one"] : []), ...(levels.includes("missing") ? [] : ["missing"])];
    const choose = make("select", { id: `column-${k}`, onchange: (e) => setColumn(column, column.table[e.target.selectedIndex] ?? new Array(column.end - first).fill(NaN)) }, options.map((text) => make("option", { selected: text === now }, text)));
    return make("div", { class: "slider-row choice" }, label, choose);
  }
  if (column.end - first > 1) return make("div", { class: "slider-row choice" }, label, make("span", { class: "muted" }, written(column, state.values)));
  const [low, high] = rows.span(first);
  const value = state.values[first];
  const out = make("output", {}, written(column, state.values));
  const input = make("input", { type: "range", id: `column-${k}`, min: Math.min(low, value || low), max: Math.max(high, value || high), step: "any", value: Number.isNaN(value) ? (low + high) / 2 : value, oninput: (e) => {
    setColumn(column, [kind === "date" ? Math.round(Number(e.target.value)) : Number(e.target.value)]);
    out.textContent = written(column, state.values);
  } });
  return make("div", { class: "slider-row" }, label, input, out);
}

function textBox(label, column, k) {
  if (encoder === null) return make("div", {}, label, muted(`Texts cannot be typed here: the model reads them through the encoder “${short(data.encoder.name)}”, which a page cannot hold. The encoder that is installed with the package would fit.`));
  const note = make("p", { class: "muted", id: "typed" });
  const box = make("textarea", { id: `column-${k}`, rows: 4, placeholder: "a text", oninput: () => { type(box.value); note.textContent = typedNote(); } });
  box.value = state.text;
  note.textContent = typedNote();
  return make("div", { class: "typing" }, label, box, note);
}

/** Take a typed text as the input. */
function type(text) {
  const { values } = encoder.encode(text);
  Object.assign(state, { text, row: isText ? null : state.row, base: isText ? null : state.base });
  setColumn(textColumn, values);
}

/** How typed texts are read, and what of this one is read in parts. */
function typedNote() {
  const { parts } = encoder.encode(state.text);
  const { read } = rows;
  return [`Read through ${encoder.place.size.toLocaleString("en")} of ${encoder.tokens.length.toLocaleString("en")} tokens, in 8 bits.`,
    read ? ` Of the ${read.n} texts here, ${percent(read.same / read.n)} get the same answer; probabilities are off by ${(100 * read.off).toFixed(1)} points on average.` : "",
    parts.length ? ` Read in parts here: ${[...new Set(parts)].slice(0, 6).map((part) => `“${part}”`).join(", ")}.` : ""].join("");
}

/** What reading texts through a part of the encoder loses, on the texts of the page. */
function measureTyping() {
  if (encoder === null || !rows.text) return;
  const [some, read] = [rows.text.map((_, r) => r).filter((r) => rows.text[r]).slice(0, 200), { n: 0, same: 0, off: 0 }];
  for (const r of some) {
    const values = rows.values(r);
    values.set(encoder.encode(rows.text[r]).values, textColumn.first);
    const [one, two] = [answerFor(values).proba, model.read(rows.overlaps(r)).proba];
    read.n++;
    read.same += largest(one, 1)[0] === largest(two, 1)[0] ? 1 : 0;
    read.off += one.reduce((most, v, y) => Math.max(most, Math.abs(v - two[y])), 0) / some.length;
  }
  rows.read = read;
}

/* ---- the answer ---- */

function answerFor(values) {
  const x = geometry.toSphere(values);
  return { x, values, ...model.read(model.overlaps(x), state.rate) };
}

/** Why a row gets no class, as `Rejections.reasons` says it; null: it gets one. */
function reasonOf({ rejected, out, undecided, proba }) {
  if (!rejected) return null;
  if (out) return "like rows out of scope";
  const [a, b] = largest(proba, 2);
  return undecided ? `undecided between ${className(a, 60)} and ${className(b ?? a, 60)}` : "unlike all known rows";
}

/** How familiar an input is among the known rows, as `Explanation.familiarity` says it. */
function familiarity({ further }) {
  if (Number.isNaN(further)) return "";
  if (further === 0) return "more unusual than all known rows";
  return further >= 0.1 ? `familiar (${(10 * further).toFixed(0)} of 10 known rows are more unusual)` : `unusual (${Math.max(1, Math.round(100 * further))} of 100 known rows are more unusual)`;
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const isChanged = () => !isImage && state.base !== null && state.values.some((v, j) => !Object.is(v, state.base[j]));

function showAnswer() {
  const answer = answerFor(seen());
  state.answer = answer;
  if (isImage) {
    paint(pad, state.values);
    if (pen.cursor && document.activeElement === pad) {
      const context = pad.getContext("2d");
      context.fillStyle = cssValue("--bad");
      context.fillRect(Math.floor(pen.cursor[0]), Math.floor(pen.cursor[1]), 1, 1);
    }
  }
  const changed = isChanged();
  const source = state.row !== null ? `${changed ? "changed " : ""}row ${short(rows.number[state.row], 20)}${truth(state.row)}` : isImage ? "your drawing" : isText ? "your text" : "your row";
  const parts = [make("div", { class: "tools between", style: { marginTop: 0 } }, make("h2", {}, changed ? "What if" : "The answer"), make("small", { id: "source" }, source))];
  if (textColumn && state.text) parts.push(quote(state.text, 400));
  if (changed) {
    const before = answerFor(state.base);
    const moved = data.columns.filter(({ first, end }) => state.values.slice(first, end).some((v, k) => !Object.is(v, state.base[first + k])));
    parts.push(muted(moved.map((column) => `${short(column.name)}: ${written(column, state.base)} → ${written(column, state.values)}`).join("; ")),
      make("div", { class: "what-if" }, verdict(before, "before"), verdict(answer, "now")));
  } else parts.push(verdict(answer));
  if (model.calibration !== null) parts.push(make("h3", {}, "How familiar"), noveltyPicture(answer), make("p", { id: "familiar", class: "muted" }, `${capital(familiarity(answer))}.`));
  $("answer").replaceChildren(...parts);
  showWhy(answer);
  if (state.tab === "map") soon("map", drawMap);
  if (state.tab === "columns") soon("columns", showColumns);
  say(reasonOf(answer) ? `no answer: ${reasonOf(answer)}` : `${className(answer.predicted)}, ${percent(answer.proba[answer.predicted])}`);
}

/** The class of an input, or why it gets none, and the odds. */
function verdict(answer, title = "") {
  const { predicted: y, proba, x } = answer;
  const why = x === null ? "nothing is known of this input; these are the class frequencies" : reasonOf(answer);
  const name = why ? "No answer" : className(y, 60);
  const label = state.row !== null && rows.isLabeled(state.row) && title !== "now" ? rows.y[state.row] : null;
  const [first, second] = largest(proba, 2).map((c) => proba[c]);
  const remarks = [why ? "" : `${percent(first)} sure`, why || !(first < 2 * second) ? "" : "a close call", label === null ? "" : why ? `truly ${className(label)}` : label === y ? "right" : `wrong, truly ${className(label)}`];
  return make("div", { class: "verdict" }, title ? make("h3", {}, title) : "",
    make("p", { class: "predicted" }, why ? "" : swatch(y), make("strong", { class: name.length > 12 || title ? "long" : "", "data-when": title || "now" }, name)),
    why ? make("p", { class: "reason" }, `${capital(why)}.`) : "", why && answer.undecided ? muted(`Less certain than ${Math.round(100 * answer.surer)} of 100 known rows; the limit is ${Math.round(100 * (1 - state.rate))}.`) : "", muted(remarks.filter(Boolean).join(" · ")), classBars(proba, { grey: why !== null }));
}

/** Novelty scores of known rows, and where this one lies. */
function noveltyPicture({ score }) {
  const known = model.calibration.novelty;
  const [w, h, bins] = [300, 56, 40];
  const [low, high] = [known[Math.floor(0.005 * known.length)], known[Math.floor(0.995 * known.length)]];
  const [first, last] = [low - 0.1 * (high - low || 1), high + 0.5 * (high - low || 1)];
  const at = (v) => Math.min(Math.max((v - first) / (last - first), 0), 1);
  const count = new Array(bins).fill(0);
  for (const v of known) count[Math.min(Math.floor(at(v) * bins), bins - 1)]++;
  const most = Math.max(...count);
  const x = 4 + at(score) * (w - 8);
  return drawing("svg", { viewBox: `0 0 ${w} ${h + 14}`, class: "novelty", role: "img", "aria-label": `novelty score ${number(score)}; known rows lie from ${number(low)} to ${number(high)}` },
    ...count.map((n, k) => drawing("rect", { x: 4 + (k * (w - 8)) / bins, y: h - (n / most) * (h - 8), width: (w - 8) / bins - 1, height: (n / most) * (h - 8), class: "known" })),
    drawing("line", { x1: 0, y1: h, x2: w, y2: h, class: "axis" }), drawing("line", { x1: x, y1: 2, x2: x, y2: h, class: "here" }),
    drawing("text", { x: 2, y: h + 12 }, "typical"), drawing("text", { x: w - 2, y: h + 12, "text-anchor": "end" }, at(score) >= 1 ? "unusual: off this scale →" : "unusual"));
}

/* ---- why ---- */

/** Of the held-out rows in which a memory had the largest share, how many were right. */
function recordOf(m) {
  const [n, right] = (isClassifier && data.calibration?.record[m]) || [0, 0];
  return n ? `right on ${right} of ${n} held-out rows` : "";
}

/** Shares of memories; those that nobody could distinguish count as one. */
function distinctShares({ share }) {
  const found = new Float64Array(model.nMemories);
  data.standing.forEach((leader, m) => { found[leader] += share[m]; });
  return found;
}

function showWhy(answer) {
  const share = distinctShares(answer);
  const top = largest(share, Math.min(6, model.nMemories)).filter((m) => share[m] > 5e-3);
  const rest = 1 - top.reduce((sum, m) => sum + share[m], 0) - answer.uniform;
  const tiles = top.map((m) => {
    const y = labels()[m];
    return make("button", { type: "button", class: "tile", "data-memory": m, onclick: () => openMemory(m), "aria-label": `memory ${memoryName(m)}, ${percent(share[m])} of the vote, ${className(y)}` },
      isImage ? memoryPicture(m) : "", make("div", { class: "share" }, make("i", { style: { width: `${(100 * share[m]).toFixed(2)}%`, background: classColor(y) } })),
      make("span", {}, make("b", {}, percent(share[m])), ` ${memoryName(m)} `, swatch(y), className(y)), make("span", { class: "muted" }, recordOf(m)));
  });
  const decided = answer.x !== null && model.frequenciesDecide(answer);
  $("why").replaceChildren(make("h2", {}, "Why"),
    decided ? make("p", {}, answer.uniform > 0.5 ? `No memory resembles this: ${groupWord} frequencies decide.` : `The memories that resemble this hold about the same mix as all training rows: ${groupWord} frequencies decide.`) : "",
    make("div", { id: "pulls" }), ...similarRows(answer, share), make("h3", {}, "The memories that decide"), top.length === 0 ? muted("No memory answers for this.") : make("div", { class: `tiles${isImage ? "" : " wide-tiles"}` }, tiles),
    muted(`${rest > 5e-4 ? `Other memories: ${percent(rest)}. ` : ""}${answer.uniform > 5e-4 ? `No memory: ${percent(answer.uniform)}.` : ""}`));
  showPulls(answer);
}

/** The known rows most like an input, of those that its memories hold: see `Explanation.similar_rows`. */
function similar({ x }, share) {
  const { known } = data;
  if (!known || x === null) return [];
  const cut = Math.min(share.reduce((a, b) => Math.max(a, b)), 0.1);
  const [length, n] = [norm(x), x.length];
  const cosine = known.owner.map((m, k) => (share[m] >= cut ? (known.scale[k] * dot(x, known.x.subarray(k * n, (k + 1) * n))) / length : -2));
  return largest(cosine, Math.min(3, cosine.length)).filter((k) => cosine[k] > -2).map((k) => ({ k, name: known.names[k], label: known.column[k], cosine: cosine[k] }));
}

function similarRows(answer, share) {
  const found = similar(answer, share);
  if (found.length === 0) return [];
  const n = model.nFeatures;
  const tile = ({ k, name, label, cosine }) => make("div", { class: "tile", "data-known": k }, isImage ? thumb(geometry.restore(Float64Array.from(data.known.x.subarray(k * n, (k + 1) * n), (v) => v * data.known.scale[k])), true, `known row ${name}`) : "",
    isText ? quote(name, 100) : make("span", {}, `row ${short(name, 16)}`), make("span", {}, swatch(label), className(label)), make("small", {}, `similarity ${cosine.toFixed(2)}`));
  return [make("h3", {}, "The known rows most like it"), make("div", { class: `tiles${isText ? " wide-tiles" : ""}` }, found.map(tile))];
}

/** [name, pull] of each column, or word of a text: what the log-odds of two classes lose with its average effect,
    or without it, as fitted/pulls.py has it. */
function* pullsOf(values, [a, b]) {
  const odds = (row) => { const { log } = model.vote(model.votes, model.overlaps(geometry.toSphere(row))); return log[a] - log[b]; };
  const own = odds(isText && encoder !== null ? encoder.encode(state.text).values : values);
  if (isText) {
    const words = state.text.split(/\s+/).filter(Boolean);
    if (encoder !== null && words.length > 1 && words.length <= 100) for (const k of words.keys()) yield [words[k], own - odds(encoder.encode(words.toSpliced(k, 1).join(" ")).values)];
    return;
  }
  const [K, N] = data.average?.shape ?? [0, 0];
  for (const column of K > 0 ? data.columns : []) {
    let sum = 0;
    for (let k = 0; k < K; k++) {
      const row = Float64Array.from(values);
      for (let j = column.first; j < column.end; j++) if (!Number.isNaN(data.average[k * N + j])) row[j] = data.average[k * N + j];
      sum += odds(row);
    }
    yield [`${short(column.name, 24)} ${column === textColumn ? "" : short(written(column, values), 14)}`, own - sum / K];
  }
}

let pulling = 0;
/** What pulls most, computed in slices of time while nothing else is asked. */
async function showPulls({ values, proba }) {
  const turn = ++pulling;
  if (nClasses < 2 || isImage) return;
  const [pair, found] = [largest(proba, 2), []];
  let until = performance.now() + 20;
  for (const own of pullsOf(values, pair)) {
    found.push(own);
    if (performance.now() < until) continue;
    await new Promise((go) => { setTimeout(go, 0); });
    if (turn !== pulling) return; // another input
    until = performance.now() + 20;
  }
  const most = Math.max(...found.map(([, pull]) => Math.abs(pull)), 1e-12);
  const shown = found.sort(([, one], [, two]) => Math.abs(two) - Math.abs(one)).slice(0, 10).filter(([, pull]) => Math.abs(pull) >= 0.05 * most);
  if (shown.length) $("pulls").replaceChildren(make("h3", {}, `What each ${isText ? "word" : "column"} pulls to`), make("p", { class: "muted ends" }, make("span", {}, "← ", swatch(pair[1]), className(pair[1])), make("span", {}, swatch(pair[0]), className(pair[0]), " →")),
    bars(shown.map(([name, pull]) => ({ name, value: pull / most, text: `${pull > 0 ? "+" : ""}${number(pull)}`, color: classColor(pair[pull > 0 ? 0 : 1]) })), { named: true, both: true }),
    muted(isText ? "The change of the log-odds, compared with the text without the word." : "The change of the log-odds, compared with the average over values of the column."));
}

/** Soft label of a memory (C+1). */
function softLabel(m) {
  const C = nClasses + 1;
  return model.votes.p.slice((m + 1) * C, (m + 2) * C).map((v) => v / model.votes.weight[m + 1]);
}

let labelCache = { p: null, labels: [] };
/** The most likely class of each memory, with the settings as they are. */
function labels() {
  const { p } = model.votes;
  if (labelCache.p !== p) labelCache = { p, labels: Array.from({ length: model.nMemories }, (_, m) => largest(softLabel(m), 1)[0]) };
  return labelCache.labels;
}
