"use strict";
/* The page: what is shown, and what pens, sliders and keys do. All text of the user's (names of
   classes, features and files) goes in as text nodes; nothing is ever parsed as HTML. */

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("payload").textContent);
const nClasses = data.classes.length;
const isImage = data.image !== null;
const isText = data.encoder !== null;
const [height, width, channels] = isImage ? [data.image[0], data.image[1], data.image[2] ?? 1] : [0, 0, 0];
const groupWord = data.kind === "classifier" ? "class" : "cluster";
const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
const state = {
  values: null, row: null, drawn: false, memory: null, tab: "play",
  odds: null, temperature: null,
};
let geometry, model, rows; // filled by `start`

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
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

function drawing(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

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

const className = (y, limit = 28) => (y === nClasses ? "none of them" : data.kind === "clusterer" ? `cluster ${data.classes[y]}` : short(data.classes[y], limit));
const featureName = (j, limit = 30) => (data.features ? short(data.features[j], limit) : j >= data.n_features ? "length" : `feature ${j}`);
const memoryName = (m) => `#${m}`;

/** 59%, 99.6%, 0.4%: what is not all or nothing is not called so, as in base/text.py. */
function percent(v) {
  if (v > 0 && v < 0.001) return "<0.1%";
  if (v < 1 && v > 0.999) return ">99.9%";
  return `${(100 * v).toFixed(v < 0.01 || v > 0.99 ? 1 : 0)}%`.replace(".0%", "%");
}

/** A measured share. */
const tenth = (v) => `${(100 * v).toFixed(1)}%`;

function number(v, digits = 3) {
  if (v === null || v === undefined || Number.isNaN(v)) return "–";
  if (!Number.isFinite(v)) return v > 0 ? "∞" : "−∞";
  const size = Math.abs(v);
  if (size < 1e-9) return "0"; // rounding of sums
  const text = size !== 0 && (size >= 1e5 || size < 1e-3) ? v.toExponential(2) : String(Number(v.toPrecision(digits)));
  return text.replace("-", "−");
}

/** Colors of classes: hues by the golden angle, which differ in lightness as well. */
function classColor(y) {
  if (y === nClasses) return cssValue("--soft");
  const light = Number(cssValue("--class-light")) + 0.075 * ((y % 3) - 1);
  return `oklch(${light.toFixed(3)} ${cssValue("--class-chroma")} ${((25 + 137.508 * y) % 360).toFixed(1)})`;
}

let cssCache = {};
function cssValue(name) {
  cssCache[name] ??= getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return cssCache[name];
}

function colorNumbers(name) {
  const text = cssValue(name);
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
}

function swatch(y) {
  return make("i", { class: "swatch", style: { background: classColor(y) }, "aria-hidden": "true" });
}

const written = (v) => (Number.isNaN(v) ? "missing" : number(v));
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

/* ---- pictures of rows and memories ---- */

/** Raw values as a picture; `own`: on the scale of the picture itself (points of the sphere),
    from `floor` up where that is given. */
function paint(canvas, values, own, floor = null) {
  if (!isImage) return sketch(canvas, own ? values : geometry.toSphere(values));
  canvas.width = width;
  canvas.height = height;
  let [low, high] = data.range;
  if (own) {
    [low, high] = [Infinity, -Infinity];
    for (let j = 0; j < values.length; j++) {
      low = Math.min(low, values[j]);
      high = Math.max(high, values[j]);
    }
    if (floor !== null && floor < (low + high) / 2) low = floor;
  }
  const span = high > low ? high - low : 1;
  const paper = colorNumbers("--card");
  const ink = colorNumbers("--ink");
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    for (let c = 0; c < 3; c++) {
      const given = values[channels === 3 ? 3 * i + c : i];
      const value = Number.isNaN(given) ? rows.background : given;
      let t = Math.min(Math.max((value - low) / span, 0), 1);
      if (rows.background > rows.pen) t = 1 - t;
      image.data[4 * i + c] = channels === 3 ? 255 * t : paper[c] + t * (ink[c] - paper[c]);
    }
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** A table's row as bars: the strongest features, by how far they are from the mean memory. */
function sketch(canvas, point) {
  const unitRow = geometry.shown(point);
  const shown = data.strong.slice(0, 16);
  const [w, h] = [320, 200];
  canvas.width = w;
  canvas.height = h;
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, w, h);
  context.fillStyle = cssValue("--line");
  context.fillRect(0, h / 2 - 1, w, 2);
  const step = w / shown.length;
  shown.forEach((j, k) => {
    const away = unitRow === null ? 0 : (unitRow[j] - rows.meanMemory[j]) / rows.largestAway;
    const size = Math.min(Math.abs(away), 1) * (h / 2 - 4);
    context.fillStyle = cssValue(away > 0 ? "--accent" : "--bad");
    context.fillRect(k * step + 3, away > 0 ? h / 2 - size : h / 2, Math.max(step - 6, 2), size);
  });
  return canvas;
}

/** A small picture: `what` says it to a screen reader. */
function thumb(values, own, what, floor = null) {
  const canvas = make("canvas", { class: isImage ? "pixels" : "", role: "img", "aria-label": what });
  return paint(canvas, values, own, floor);
}

/** A text on its own, cut; `none` where there is none. */
const quote = (text, limit = 160, none = "no text") => make("q", { class: "text", title: text }, text ? short(text, limit) : none);
/** Texts of the training rows most typical of a memory. */
const textsOf = (m) => data.typical?.[m] ?? [];

const memoryPicture = (m) => isText ? quote(textsOf(m)[0], 60, `memory ${memoryName(m)}`) : thumb(isImage ? geometry.restore(model.memory(m)) : model.memory(m), true, `memory ${memoryName(m)}`);
const rowPicture = (r) => isText ? quote(rows.text[r], 60) : thumb(rows.values(r), false, `row ${rows.number[r]}`);

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
function classBars(proba, chosen = null) {
  const many = chosen !== null || proba.length > 12;
  const order = chosen ?? (many ? largest(proba, 10) : Array.from(proba.keys()));
  const best = largest(proba, 1)[0];
  const items = order.map((y) => ({
    name: className(y), title: className(y, 300), value: proba[y], text: percent(proba[y]),
    color: classColor(y), best: y === best,
  }));
  const left = proba.length - order.length;
  const rest = Math.max(0, 1 - order.reduce((sum, y) => sum + proba[y], 0));
  if (left > 0 && (chosen === null || rest > 0.005)) {
    items.push({ name: `${left} others`, value: rest, text: percent(rest), color: cssValue("--soft") });
  }
  return bars(items, { named: many || data.classes.some((c) => c.length > 3) || data.kind === "clusterer" });
}

/** The strongest features of a point of the sphere, with their values in the features' units. */
function featureBars(point, count = 12) {
  const unitRow = geometry.shown(point);
  const away = Array.from(unitRow.slice(0, data.n_features), (v, j) => (v - rows.meanMemory[j]) / rows.largestAway);
  const restored = geometry.restore(point);
  const order = largest(away.map(Math.abs), count);
  return bars(order.map((j) => ({
    name: featureName(j), title: featureName(j, 300), value: away[j], text: number(restored[j]),
    color: cssValue(away[j] > 0 ? "--accent" : "--bad"),
  })), { named: true, both: true });
}

/* ---- knobs: the temperature, the class prior ---- */

function buildKnobs() {
  const own = model.own;
  const body = $("knobs-body");
  const slider = (id, label, low, high, value, step, changed) => {
    const input = make("input", { type: "range", id, min: low, max: high, step, value, oninput: (e) => { changed(Number(e.target.value)); turned(); } });
    return make("div", { class: "knob" }, make("label", { for: id }, label, make("output", { id: `${id}-out`, for: id })), input);
  };
  body.replaceChildren(
    slider("knob-temperature", "temperature, how many memories decide", Math.log(own.temperature / 8), Math.log(own.temperature * 8), Math.log(own.temperature), 0.001, (v) => { state.temperature = Math.exp(v); }),
  );
  body.append(make("div", { class: "knob" }, make("div", { class: "top" }, "as it was trained"),
    make("button", { type: "button", onclick: resetKnobs }, "Reset the settings")));
  if (nClasses > 1) body.append(priorKnobs());
}

function priorKnobs() {
  const slide = (y, id) => make("input", {
    type: "range", id, min: -4, max: 4, step: 0.05, value: state.odds ? Math.log2(state.odds[y]) : 0,
    "aria-label": `weight of ${className(y, 60)}`,
    oninput: (e) => {
      state.odds ??= new Float64Array(nClasses).fill(1);
      state.odds[y] = 2 ** Number(e.target.value);
      turned();
    },
  });
  const box = make("div", { class: "knob wide" }, make("div", { class: "top" }, `how frequent each ${groupWord} is`, make("small", {}, "1/16 to 16 times as in training")));
  if (nClasses <= 12) {
    box.append(make("div", { class: "knob-grid" }, data.classes.map((_, y) =>
      make("div", { class: "slider-row" }, make("label", { for: `prior-${y}`, title: className(y, 300) }, swatch(y), className(y)), slide(y, `prior-${y}`), make("output", { id: `prior-out-${y}` })))));
    return box;
  }
  const place = make("div", { class: "slider-row" });
  const choose = make("select", { "aria-label": `${groupWord} whose weight to change`, onchange: () => show() },
    data.classes.map((_, y) => make("option", { value: y }, className(y, 60))));
  const show = () => {
    const y = Number(choose.value);
    place.replaceChildren(choose, slide(y, `prior-${y}`), make("output", { id: `prior-out-${y}` }));
    showKnobs();
  };
  box.append(place);
  queueMicrotask(show);
  return box;
}

function resetKnobs() {
  Object.assign(state, { temperature: null, odds: null });
  buildKnobs();
  turned();
}

function turned() {
  model.turn({ temperature: state.temperature, odds: state.odds });
  showKnobs();
  soon("answer", showAnswer);
  soon("tally", tally);
}

function showKnobs(text) {
  const set = (id, value) => { const out = $(id); if (out) out.textContent = value; };
  set("knob-temperature-out", number(model.temperature));
  for (let y = 0; y < nClasses; y++) set(`prior-out-${y}`, percent(model.prior[y]));
  const chips = [["temperature", number(model.temperature)]];
  chips.push(["prior", state.odds ? "changed" : "as trained"]);
  const spans = chips.map(([name, value]) => make("span", {}, `${name} `, make("b", {}, value)));
  if (rows.n > 0) spans.push(make("span", { id: "tally" }, ...(text ?? rows.tallyText())));
  $("knobs-summary").replaceChildren(make("b", {}, "Settings"), ...spans);
}

/** Predictions on the packed rows with the knobs as they are. */
function tally() {
  if (!rows.said()) return;
  rows.evaluate();
  showKnobs();
  if (state.tab === "mistakes") showMistakes();
  if (state.tab === "memories") showMemory();
}

/* ---- the packed rows ---- */

/** Rows, their overlaps with the memories, and what the model says of them. */
function packedRows(x, { number = [], y = null, text = null, rejected = null, why = null, misled = null } = {}) {
  const n = number.length;
  const N = data.n_features;
  const unitRows = [];
  const overlaps = [];
  let said = null;
  const values = (r) => Float64Array.from(x.subarray(r * N, (r + 1) * N));
  for (let r = 0; r < n; r++) unitRows.push(geometry.toSphere(values(r)));
  const found = {
    n, number, y, text, rejected, why, misled, values, unit: (r) => unitRows[r], overlaps: (r) => overlaps[r], said: () => said,
    /** All overlaps, a slice of time at a time, so that the page stays live. */
    prepare() {
      if (n === 0) return Promise.resolve();
      return new Promise((resolve) => {
        const work = () => {
          const until = performance.now() + 25;
          while (overlaps.length < n && performance.now() < until) {
            const u = unitRows[overlaps.length];
            overlaps.push(u === null ? null : model.overlaps(u));
          }
          if (overlaps.length < n) { setTimeout(work, 0); return; }
          found.evaluate();
          afterTally();
          resolve();
        };
        work();
      });
    },
    evaluate() {
      const mass = new Float64Array(model.nMemories);
      said = overlaps.map((o) => {
        const answer = model.read(o);
        for (let m = 0; m < mass.length; m++) mass[m] += answer.share[m];
        const top = largest(answer.share, 3);
        return { predicted: answer.predicted, sure: answer.proba[answer.predicted], score: answer.score, top, share: top.map((m) => answer.share[m]) };
      });
      said.mass = mass;
      found.first ??= said.map((s) => s.predicted);
    },
    /** How many of the rows each memory answers for; without rows, its weight in the model. */
    use: () => said?.mass ?? model.weight.slice(1),
    /** The ends of the novelty gauge: what is usual among the rows, with room for what is not. */
    scores() {
      const known = (said ?? []).map((s) => s.score).filter(Number.isFinite).sort((a, b) => a - b);
      if (known.length < 2) return [model.density.offset - model.density.slope, model.density.offset + 8];
      const at = (share) => known[Math.min(Math.floor(share * known.length), known.length - 1)];
      const span = at(0.99) - at(0.01) || 1;
      return [at(0.01) - 0.15 * span, Math.max(at(0.99) + 0.6 * span, (data.threshold ?? -Infinity) + 0.3 * span)];
    },
    /** Least and largest value of a feature, of the memories where there are no rows. */
    span(j) {
      let [low, high] = [Infinity, -Infinity];
      const take = (v) => { if (!Number.isNaN(v)) { low = Math.min(low, v); high = Math.max(high, v); } };
      for (let r = 0; r < n; r++) take(x[r * N + j]);
      for (let m = 0; n === 0 && m < model.nMemories; m++) take(geometry.restore(model.memory(m))[j]);
      return low <= high ? [low, high] : [0, 1];
    },
    right() {
      return said.reduce((sum, s, r) => sum + (s.predicted === y[r] ? 1 : 0), 0);
    },
    tallyText() {
      if (!said) return ["evaluating rows …"];
      if (data.kind === "classifier" && y) {
        const labeled = y.filter((v) => v >= 0).length;
        const measured = data.measured; // on all rows, of which the page holds some
        if (measured && asSaved()) return ["accuracy ", make("b", {}, tenth(measured.accuracy)), ` on ${measured.n} rows`];
        return ["accuracy ", make("b", {}, tenth(found.right() / labeled)), ` on ${labeled} rows here, with these knobs`];
      }
      if (isText && !y) return [make("b", {}, String(n)), ` rows here${rejected ? `, ${rejected.filter(Boolean).length} rejected` : ""}`];
      const same = said.filter((s, r) => s.predicted === found.first[r]).length;
      return ["same answer as before for ", make("b", {}, tenth(same / n)), ` of ${n} rows`];
    },
  };
  // Mean memory: what bars of features are measured from.
  const memories = Array.from({ length: model.nMemories }, (_, m) => geometry.shown(model.memory(m)));
  found.meanMemory = new Float64Array(memories[0].length);
  for (const w of memories) w.forEach((v, j) => { found.meanMemory[j] += v / memories.length; });
  found.largestAway = 1e-12;
  for (const w of memories) w.forEach((v, j) => { found.largestAway = Math.max(found.largestAway, Math.abs(v - found.meanMemory[j])); });
  // Most pixels are background; the pen writes the other end of the range.
  const [low, high] = data.range;
  let bright = 0;
  for (let i = 0; i < x.length; i++) bright += x[i] > (low + high) / 2 ? 1 : 0;
  const onDark = bright <= x.length / 2;
  [found.background, found.pen] = onDark ? [low, high] : [high, low];
  return found;
}

function afterTally() {
  showKnobs();
  rows.fillTexts?.();
  if (state.tab === "mistakes") showMistakes();
  if (state.tab === "memories") showMemories();
  soon("answer", showAnswer);
}

/* ---- play: an input, the answer, the memories that decide ---- */

const FEW = 20; // sliders that are shown without a search
let pad; // the canvas to draw on
const pen = { erase: false, size: 1, center: true, cursor: null };

function buildPlay() {
  const input = make("div", { class: "card" }, make("h2", {}, isText ? "Pick a text" : isImage ? "Draw, or pick a row" : "Move a feature, or pick a row"));
  if (isImage) input.append(drawingPad());
  if (isText) input.append(rows.text ? textPicker() : make("p", { class: "muted" }, "No texts are packed here: pass X. The answer is that of memory #0."));
  else if (rows.n > 0) input.append(rowPicker());
  if (!isImage && !isText) input.append(data.n_features > FEW ? make("input", { type: "search", id: "feature-search", placeholder: "search the columns", "aria-label": "search the columns", oninput: () => buildSliders() }) : "", make("div", { id: "features", class: "bars" }));
  $("panel-play").replaceChildren(make("div", { class: "columns three" }, input,
    make("div", { class: "card", id: "answer" }), make("div", { class: "card", id: "deciders" })),
  make("p", { id: "quick", "aria-hidden": "true" }));
}

function drawingPad() {
  pad = make("canvas", {
    class: "pixels pad", id: "pad", width, height, tabindex: 0, role: "application",
    style: { aspectRatio: `${width} / ${height}` },
    "aria-label": "drawing pad: drag to draw; with keys, arrows move the pen and space draws",
  });
  pen.size = Math.max(0.62, Math.min(width, height) / 24);
  let last = null;
  const at = (e) => {
    const box = pad.getBoundingClientRect();
    return [((e.clientX - box.left) / box.width) * width, ((e.clientY - box.top) / box.height) * height];
  };
  pad.addEventListener("pointerdown", (e) => {
    e.preventDefault();
    pad.focus({ preventScroll: true });
    pad.setPointerCapture(e.pointerId);
    last = at(e);
    stroke(last, last, pen.erase || e.button === 2);
  });
  pad.addEventListener("pointermove", (e) => {
    if (last === null) return;
    const next = at(e);
    stroke(last, next, pen.erase || e.buttons === 2);
    last = next;
  });
  for (const name of ["pointerup", "pointercancel"]) pad.addEventListener(name, () => { last = null; });
  pad.addEventListener("contextmenu", (e) => e.preventDefault());
  pad.addEventListener("keydown", padKey);
  const toggle = (label, on, set) => {
    const button = make("button", { type: "button", "aria-pressed": String(on), onclick: () => { on = !on; button.setAttribute("aria-pressed", String(on)); set(on); } }, label);
    return button;
  };
  return [pad, make("div", { class: "tools" },
    make("button", { type: "button", id: "clear", onclick: clearPad }, "Clear"),
    toggle("Erase", false, (on) => { pen.erase = on; }),
    toggle("Center it", pen.center, (on) => { pen.center = on; soon("answer", showAnswer); }),
    make("label", { class: "grow" }, "pen", make("input", { type: "range", "aria-label": "size of the pen", min: 0.5, max: 3, step: 0.05, value: 1, oninput: (e) => { pen.size = Math.max(0.62, Math.min(width, height) / 24) * Number(e.target.value); } }))),
  ].reduce((box, part) => (box.append(part), box), make("div", { style: { marginTop: "12px" } }));
}

/** Ink, or none, along a line from a to b; soft at the edge. */
function stroke(a, b, erase = false) {
  if (state.row !== null) {
    // The pen starts afresh where a row was picked; the eraser works on the row itself.
    if (!erase) Object.assign(state, { values: freshValues(), drawn: true });
    state.row = null;
  }
  const radius = pen.size;
  const [dx, dy] = [b[0] - a[0], b[1] - a[1]];
  const length2 = dx * dx + dy * dy;
  for (let i = 0; i < height; i++) {
    for (let j = 0; j < width; j++) {
      const [px, py] = [j + 0.5 - a[0], i + 0.5 - a[1]];
      const t = length2 > 0 ? Math.min(Math.max((px * dx + py * dy) / length2, 0), 1) : 0;
      const far = Math.hypot(px - t * dx, py - t * dy);
      const cover = Math.min(Math.max(1.5 * (1.25 - far / radius), 0), 1);
      if (cover === 0) continue;
      for (let c = 0; c < channels; c++) {
        const place = (i * width + j) * channels + c;
        const now = state.values[place];
        if (erase) state.values[place] = now + cover * (rows.background - now);
        else state.values[place] = deepest(now, rows.background + cover * (rows.pen - rows.background));
      }
    }
  }
  soon("answer", showAnswer);
}

const deepest = (a, b) => (Math.abs(a - rows.background) > Math.abs(b - rows.background) ? a : b);
const freshValues = () => new Float64Array(data.n_features).fill(rows.background);

function clearPad() {
  Object.assign(state, { values: freshValues(), row: null, drawn: true });
  soon("answer", showAnswer);
}

function padKey(e) {
  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  pen.cursor ??= [width / 2, height / 2];
  if (moves[e.key]) {
    e.preventDefault();
    const before = pen.cursor;
    pen.cursor = [Math.min(Math.max(before[0] + moves[e.key][0], 0.5), width - 0.5), Math.min(Math.max(before[1] + moves[e.key][1], 0.5), height - 0.5)];
    if (pen.down) stroke(before, pen.cursor, pen.erase);
    else soon("answer", showAnswer);
  } else if (e.key === " ") {
    e.preventDefault();
    pen.down = !pen.down;
    if (pen.down) stroke(pen.cursor, pen.cursor, pen.erase);
    say(pen.down ? "pen down" : "pen up");
  } else if (e.key === "Delete" || e.key === "Backspace") clearPad();
}

/** What the model sees: a drawing moved so that its ink is in the middle, a row as it is. */
function seen() {
  if (!isImage || !state.drawn || !pen.center) return state.values;
  let [mass, x, y] = [0, 0, 0];
  for (let i = 0; i < width * height; i++) {
    const ink = Math.abs(state.values[i * channels] - rows.background);
    mass += ink;
    x += ink * ((i % width) + 0.5);
    y += ink * (Math.floor(i / width) + 0.5);
  }
  if (mass === 0) return state.values;
  const [dx, dy] = [Math.round(width / 2 - x / mass), Math.round(height / 2 - y / mass)];
  const out = freshValues();
  for (let i = 0; i < height; i++) {
    for (let j = 0; j < width; j++) {
      const [a, b] = [i - dy, j - dx];
      if (a < 0 || b < 0 || a >= height || b >= width) continue;
      for (let c = 0; c < channels; c++) out[(i * width + j) * channels + c] = state.values[(a * width + b) * channels + c];
    }
  }
  return out;
}

function rowPicker() {
  const go = (r) => pickRow((r + rows.n) % rows.n);
  const random = randomNumbers(7);
  const find = (name) => rows.number.indexOf(name.trim());
  const choose = make("input", { type: "search", id: "row-number", list: "row-names", style: { width: "130px" }, "aria-label": "name of a row", onchange: (e) => (find(e.target.value) < 0 ? pickRow(state.row ?? 0) : go(find(e.target.value))) });
  const names = make("datalist", { id: "row-names" }, rows.number.map((name) => make("option", { value: name })));
  const strip = make("div", { class: "strip", id: "strip", "aria-label": "some of the rows" });
  const fill = () => {
    strip.replaceChildren(...Array.from({ length: Math.min(12, rows.n) }, () => {
      const r = Math.floor(random() * rows.n);
      return make("button", { type: "button", class: "tile", onclick: () => pickRow(r), "aria-label": `row ${rows.number[r]}${truth(r)}` }, rowPicture(r), make("span", {}, truth(r).slice(2) || `row ${rows.number[r]}`));
    }));
  };
  fill();
  return make("div", {}, make("div", { class: "tools" },
    make("button", { type: "button", "aria-label": "row before", onclick: () => go((state.row ?? 0) - 1) }, "‹"), choose, names,
    make("button", { type: "button", "aria-label": "next row", onclick: () => go((state.row ?? -1) + 1) }, "›"),
    make("button", { type: "button", onclick: () => { fill(); go(Math.floor(random() * rows.n)); } }, "Shuffle")),
  make("div", { style: { marginTop: "10px" } }, strip));
}

/** Rows of text behind a search box: words of the text, of its label, or of what it is taken for. */
function textPicker() {
  const kinds = [["all", "all rows"], ...(data.kind === "classifier" && rows.y ? [["wrong", "wrong"]] : []), ...(rows.rejected ? [["rejected", "rejected"]] : [])];
  const list = make("div", { class: "texts", id: "texts", role: "list" });
  const count = make("p", { class: "muted", id: "texts-count" });
  const words = make("input", { type: "search", id: "search", class: "grow", placeholder: "search", "aria-label": "search the texts", oninput: () => soon("texts", fill) });
  const kind = make("select", { id: "texts-kind", "aria-label": "which rows", onchange: () => fill() }, kinds.map(([value, name]) => make("option", { value }, name)));
  const fill = rows.fillTexts = () => {
    const said = rows.said();
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (r) => {
      if (kind.value === "wrong" && !(said && rows.y[r] >= 0 && said[r].predicted !== rows.y[r])) return false;
      if (kind.value === "rejected" && !rows.rejected[r]) return false;
      const all = `${rows.text[r]}${truth(r)} ${said ? className(said[r].predicted, 300) : ""}`.toLowerCase();
      return wanted.every((word) => all.includes(word));
    };
    const found = Array.from({ length: rows.n }, (_, r) => r).filter(fits);
    count.textContent = `${found.length} of ${rows.n} rows${found.length > 60 ? ", the first 60 are shown" : ""}`;
    list.replaceChildren(...found.slice(0, 60).map((r) => textRow(r, said)));
  };
  return make("div", {}, make("div", { class: "tools" }, words, kind), count, list);
}

/** One text with what the model says of it; pick it by a click. */
function textRow(r, said = rows.said()) {
  const y = said?.[r].predicted;
  const wrong = said && rows.y && data.kind === "classifier" && rows.y[r] >= 0 && rows.y[r] !== y;
  return make("div", { role: "listitem" }, make("button", { type: "button", class: "text-row", "data-row": r, "aria-current": String(state.row === r), onclick: () => { pickRow(r); openTab("play"); } },
    quote(rows.text[r]),
    said ? make("span", { class: "muted" }, swatch(y), className(y), wrong ? make("span", { class: "to" }, ` · truly ${className(rows.y[r])}`) : "", rows.rejected?.[r] ? make("span", { class: "badge", title: rows.rejected[r] }, "rejected") : "") : ""));
}

/** ", truly 3": the label of a packed row, where there is one. */
function truth(r) {
  if (!rows.y) return "";
  const label = rows.y[r];
  if (data.kind === "clusterer") return `, ${short(label)}`;
  return label < 0 ? "" : `, ${className(label)}`;
}

function pickRow(r) {
  Object.assign(state, { row: r, values: rows.values(r), drawn: false });
  const box = $("row-number");
  if (box) box.value = rows.number[r];
  for (const button of document.querySelectorAll("#texts .text-row")) button.setAttribute("aria-current", String(Number(button.dataset.row) === r));
  if (!isImage && !isText) buildSliders();
  soon("answer", showAnswer);
}

function buildSliders() {
  const box = $("features");
  const wanted = ($("feature-search")?.value ?? "").toLowerCase();
  const fitting = data.strong.filter((j) => j < data.n_features && featureName(j, 300).toLowerCase().includes(wanted));
  box.replaceChildren(...fitting.slice(0, FEW).map((j) => {
    const [low, high] = rows.span(j);
    const out = make("output", {}, written(state.values[j]));
    const input = make("input", { type: "range", id: `feature-${j}`, min: low, max: high, step: "any", value: Number.isNaN(state.values[j]) ? (low + high) / 2 : state.values[j], oninput: (e) => {
      state.values[j] = Number(e.target.value);
      Object.assign(state, { drawn: true, row: null });
      out.textContent = number(state.values[j]);
      soon("answer", showAnswer);
    } });
    return make("div", { class: "slider-row" }, make("label", { for: `feature-${j}`, title: featureName(j, 300) }, featureName(j)), input, out);
  }));
  if (fitting.length > FEW) box.append(make("p", { class: "muted" }, `${FEW} of ${fitting.length} columns, those that matter most first; search for others.`));
}

function answerFor(values) {
  const x = geometry.toSphere(values);
  return { x, ...model.read(x === null ? null : model.overlaps(x)) };
}

function showAnswer() {
  const given = seen();
  if (isImage) {
    paint(pad, state.values, false);
    if (pen.cursor && document.activeElement === pad) {
      const context = pad.getContext("2d");
      context.fillStyle = cssValue("--bad");
      context.fillRect(Math.floor(pen.cursor[0]), Math.floor(pen.cursor[1]), 1, 1);
    }
  }
  const answer = answerFor(given);
  state.answer = answer;
  const y = answer.predicted;
  const empty = answer.x === null;
  const name = className(y, 60);
  const source = state.row !== null ? `row ${rows.number[state.row]}${truth(state.row)}` : isImage ? "your drawing" : isText ? "memory #0" : "your row";
  const familiar = empty ? "" : familiarity(answer);
  const right = state.row !== null && rows.y && data.kind === "classifier" && rows.y[state.row] >= 0 ? rows.y[state.row] === y : null;
  $("answer").replaceChildren(
    make("div", { class: "tools between", style: { marginTop: 0 } }, make("h2", {}, "What the model says"), make("small", {}, source)),
    ...(isText && state.row !== null ? [quote(rows.text[state.row], 400)] : []),
    familiar === "" ? "" : make("p", { id: "familiar", class: "muted", style: { margin: "6px 0" } }, familiar),
    make("p", { class: "predicted" },
      make("strong", { id: "predicted", class: isText || name.length > 12 ? "long" : "", style: { color: empty ? cssValue("--soft") : classColor(y) } }, empty ? "nothing yet" : name),
      make("span", { class: "muted" }, empty ? "every answer is that of the prior" : `${percent(answer.proba[y])} sure`, right === null ? "" : right ? " · right" : " · wrong")),
    classBars(answer.proba), make("h3", {}, "Familiar?"), gauge(answer));
  $("quick").replaceChildren(swatch(y), make("b", {}, empty ? "nothing yet" : className(y)), empty ? "" : ` ${percent(answer.proba[y])}`);
  showDeciders(answer);
  if (state.tab === "memories") soon("map", drawMap);
  say(empty ? "nothing drawn" : `${name}, ${percent(answer.proba[y])}`);
}

/** Whether the knobs are as the model was saved. */
function asSaved() {
  return state.temperature === null && state.odds === null;
}

/** How familiar an input is among the known rows, as `explain` says it; what is rejected has no answer. */
function familiarity(answer) {
  const why = state.row !== null && asSaved() ? rows.rejected?.[state.row] : null;
  if (why) return why.startsWith("undecided") ? `No answer, too close: ${why}.` : `No answer: ${why}. The nearest guess:`;
  if (!data.known?.length) return "";
  const share = data.known.filter((v) => v > answer.score).length / data.known.length;
  if (share === 0) return "More unusual than all known rows.";
  return share >= 0.1 ? `Familiar: ${(10 * share).toFixed(0)} of 10 known rows are more unusual.` : `Unusual: ${Math.max(1, Math.round(100 * share))} of 100 known rows are more unusual.`;
}

/** What the columns of a row pull to, as `explain` says it, for the model as it was saved. */
function whyTable() {
  const lines = state.row !== null && asSaved() ? rows.why?.[state.row] : null;
  if (!lines?.length) return [];
  const head = ["column", "this row", "typical of the class", "of the runner-up", "pull"];
  return [make("h3", {}, "Why"), make("div", { class: "sideways" }, make("table", { class: "why" }, make("thead", {}, make("tr", {}, head.map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, lines.map((line) => make("tr", { class: line[4] === "" ? "heading" : "" }, line[4] === "" ? make("td", { colspan: 5 }, line[0]) : line.map((cell) => make("td", {}, cell.trim())))))))];
}

/** Of the held-out rows in which a memory had the largest share, how many were right. */
const recordOf = (m) => (data.kind === "classifier" && data.record?.[m]?.[0] ? `${data.record[m][1]} of ${data.record[m][0]} right` : "");

function gauge(answer) {
  const [low, high] = rows.scores();
  const place = (v) => `${(100 * Math.min(Math.max((v - low) / (high - low || 1), 0), 1)).toFixed(1)}%`;
  const novel = data.threshold !== null && answer.score > data.threshold;
  const scale = make("div", { class: "scale", role: "meter", "aria-label": "novelty score", "aria-valuenow": Number.isFinite(answer.score) ? answer.score.toFixed(2) : "", "aria-valuemin": low.toFixed(2), "aria-valuemax": high.toFixed(2), "aria-valuetext": novel ? "novel" : "known" },
    make("div", { class: "needle", style: { left: place(answer.score) } }));
  if (data.threshold !== null) scale.append(make("div", { class: "limit", style: { left: place(data.threshold) }, title: "threshold of novelty" }));
  return make("div", { class: "gauge" }, scale, make("div", { class: "ends" }, make("span", {}, "like a memory"), make("span", {}, "like none")),
    make("p", { class: "muted" }, `novelty score ${number(answer.score)}`));
}

function showDeciders(answer) {
  const share = new Float64Array(answer.share.length); // memories that nobody could distinguish are shown as one
  model.standing.forEach((leader, m) => { share[leader] += answer.share[m]; });
  const top = largest(share, Math.min(6, model.nMemories)).filter((m) => share[m] > 5e-4);
  const box = $("deciders");
  box.replaceChildren(make("h2", {}, "The memories that decide"));
  if (top.length === 0) box.append(make("p", { class: "muted" }, "No memory answers for this."));
  else if (answer.uniform > 0.5 && model.frequenciesDecide(answer)) box.append(make("p", {}, `No memory resembles this: ${groupWord} frequencies decide.`));
  const tile = isText ? "100%" : "108px";
  box.append(make("div", { class: "tiles", style: { marginTop: "12px", gridTemplateColumns: `repeat(auto-fill, minmax(${tile}, 1fr))` } }, top.map((m) => {
    const y = labels()[m];
    return make("button", { type: "button", class: "tile", onclick: () => openMemory(m), "aria-label": `memory ${memoryName(m)}, ${percent(share[m])} of the decision, labeled ${className(y)}` },
      ...(isText ? [] : [memoryPicture(m)]), make("div", { class: "share" }, make("i", { style: { width: `${(100 * share[m]).toFixed(2)}%`, background: classColor(y) } })),
      make("span", {}, make("b", {}, percent(share[m])), ` ${memoryName(m)}`), make("span", {}, swatch(y), className(y)),
      make("span", { class: "muted" }, recordOf(m)), ...(isText ? textsOf(m).slice(0, 3).map((text) => quote(text)) : []));
  })));
  const rest = 1 - top.reduce((sum, m) => sum + share[m], 0) - answer.uniform;
  if (top.length > 0) box.append(make("p", { class: "muted", style: { marginTop: "10px" } }, `${rest > 5e-4 ? `Other memories: ${percent(rest)}. ` : ""}${answer.uniform > 5e-4 ? `No memory: ${percent(answer.uniform)}. ` : ""}A share counts for each ${groupWord} by the memory's soft label.`));
  box.append(...whyTable());
}

/** Soft label of a memory (C+1), net of the smoothing of labels in training. */
function softLabel(m) {
  const C = nClasses + 1;
  return model.p.slice((m + 1) * C, (m + 2) * C).map((v) => v / model.weight[m + 1]);
}

let labelCache = { p: null, labels: [] };
/** The most likely class of each memory, with the knobs as they are. */
function labels() {
  if (labelCache.p !== model.p) {
    const found = Array.from({ length: model.nMemories }, (_, m) => softLabel(m).reduce((best, v, y, all) => (v > all[best] ? y : best), 0));
    labelCache = { p: model.p, labels: found };
  }
  return labelCache.labels;
}
