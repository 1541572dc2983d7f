"use strict";
/* The other parts of the page: recall, memories, mistakes, report; then the start. */

/* ---- recall: hide or disturb, then watch the energy fall ---- */

const recalled = { given: null, known: null, path: null, step: 0, timer: 0, noise: 0, seed: 1 };

function buildRecall() {
  const half = isImage ? [["right", "right half"], ["left", "left half"], ["top", "top half"], ["bottom", "bottom half"], ["middle", "the middle"], ["random", "half of the pixels"], ["none", "nothing"]]
    : [["random", "half of the features"], ["strong", "the strongest quarter"], ["none", "nothing"]];
  const select = (id, label, options, changed) => make("label", {}, label, make("select", { id, onchange: changed }, options.map(([value, text]) => make("option", { value }, text))));
  const given = make("canvas", { id: "recall-given", class: `${isImage ? "pixels " : ""}pad`, role: "img", "aria-label": "the pattern as given; drag to hide more of it", style: isImage ? { aspectRatio: `${width} / ${height}` } : {} });
  if (isImage) hidingPen(given);
  const left = make("div", { class: "card" }, make("h2", {}, "What is given"),
    make("p", { class: "muted", style: { margin: "4px 0 10px" } }, isImage ? "Drag over the picture to hide more of it." : "Hidden features are found; the others are held."), given,
    make("div", { class: "tools" },
      select("recall-hide", "hide", half, () => hide($("recall-hide").value)),
      make("label", { class: "grow" }, "noise", make("input", { id: "recall-noise", type: "range", min: 0, max: 1, step: 0.02, value: 0, "aria-label": "noise added", oninput: (e) => { recalled.noise = Number(e.target.value); disturb(); } }))),
    make("div", { class: "tools" },
      make("button", { type: "button", onclick: () => { takeInput(); } }, "Take the input"),
      rows.n > 0 ? make("button", { type: "button", onclick: () => { recalled.seed++; pickRow(Math.floor(randomNumbers(recalled.seed)() * rows.n)); takeInput(); } }, "Another row") : null));
  const right = make("div", { class: "card" }, make("h2", {}, "What comes back"),
    make("div", { class: "columns", style: { gridTemplateColumns: "repeat(auto-fit, minmax(230px, 1fr))", marginTop: "10px" } },
      make("div", {}, make("canvas", { id: "recall-now", class: `${isImage ? "pixels " : ""}show`, role: "img", "aria-label": "the pattern as it is recalled" }), make("p", { id: "recall-text", class: "muted", style: { marginTop: "8px" } })),
      make("div", { id: "recall-energy" })),
    make("div", { class: "tools" },
      make("button", { type: "button", class: "main", id: "recall-play", onclick: playRecall }, "▶ Play"),
      make("button", { type: "button", onclick: () => showStep(recalled.step + 1) }, "Step"),
      make("button", { type: "button", onclick: () => { stopPlaying(); showStep(0); } }, "Back to the start"),
      select("recall-class", groupWord, [["", "any"], ...data.classes.map((_, y) => [String(y), className(y)])], compute)),
    make("div", { class: "strip", id: "recall-strip", style: { marginTop: "12px" } }),
    isImage ? null : make("div", { id: "recall-features" }));
  $("panel-recall").replaceChildren(make("div", { class: "columns two" }, left, right));
}

function hidingPen(canvas) {
  let down = false;
  const rub = (e) => {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [((e.clientX - box.left) / box.width) * width, ((e.clientY - box.top) / box.height) * height];
    const radius = Math.max(width, height) / 14;
    for (let i = 0; i < height; i++) {
      for (let j = 0; j < width; j++) {
        if (Math.hypot(j + 0.5 - x, i + 0.5 - y) > radius) continue;
        for (let c = 0; c < channels; c++) recalled.known[(i * width + j) * channels + c] = 0;
      }
    }
    soon("recall", compute);
  };
  canvas.addEventListener("pointerdown", (e) => { e.preventDefault(); canvas.setPointerCapture(e.pointerId); down = true; rub(e); });
  canvas.addEventListener("pointermove", (e) => { if (down) rub(e); });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { down = false; });
}

function takeInput() {
  recalled.original = Float64Array.from(seen());
  hide($("recall-hide").value);
}

function hide(what) {
  const n = data.n_features;
  const random = randomNumbers(recalled.seed);
  const known = new Uint8Array(n).fill(1);
  const strong = new Set(data.strong.slice(0, Math.max(1, Math.floor(n / 4))));
  for (let k = 0; k < n; k++) {
    const cell = Math.floor(k / (channels || 1));
    const [i, j] = isImage ? [Math.floor(cell / width), cell % width] : [0, 0];
    const inside = Math.abs(i + 0.5 - height / 2) < height / 5 && Math.abs(j + 0.5 - width / 2) < width / 5;
    const gone = Number.isNaN(recalled.original[k]) || { right: j >= width / 2, left: j < width / 2, top: i < height / 2, bottom: i >= height / 2, middle: inside, random: random() < 0.5, strong: strong.has(k), none: false }[what];
    if (gone) known[k] = 0;
  }
  recalled.known = known;
  disturb();
}

/** Noise of the standard deviation chosen, in units of the range (images) or of each feature. */
function disturb() {
  const random = randomNumbers(1000 + recalled.seed);
  const given = Float64Array.from(recalled.original);
  const [low, high] = data.range;
  for (let j = 0; j < given.length; j++) {
    const normal = Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
    const unitOf = isImage ? high - low : geometry.scale?.[j] ?? rows.deviation(j);
    given[j] += recalled.noise * normal * unitOf;
  }
  recalled.given = given;
  soon("recall", compute);
}

/** The path down the energy: what is not hidden is held, unless nothing is hidden. */
function recallPath(values, known, options) {
  const whole = known === null || known.every(Boolean);
  const filled = whole ? values : geometry.fill(values, known);
  let x = geometry.toSphere(filled);
  if (x === null) return null;
  if (x.gaps) x = unit(x); // on circles: from what is known alone
  let freePart = null;
  if (!whole) {
    const held = new Uint8Array(known.length + 1).fill(1); // what the geometry appends is known
    held.set(known);
    freePart = geometry.freePart(held);
  }
  return model.recall(x, { ...options, freePart });
}

function compute() {
  if (recalled.given === null) return;
  stopPlaying();
  const column = $("recall-class").value;
  recalled.path = recallPath(recalled.given, recalled.known, { column: column === "" ? null : Number(column) });
  showGiven();
  showStep(0);
  const strip = $("recall-strip");
  const path = recalled.path;
  if (path === null) { strip.replaceChildren(); return; }
  const last = path.rows.length - 1;
  const count = Math.min(last + 1, 9);
  const steps = Array.from({ length: count }, (_, k) => Math.round((k * last) / Math.max(count - 1, 1)));
  strip.replaceChildren(...steps.map((step) => make("button", { type: "button", class: "tile", onclick: () => { stopPlaying(); showStep(step); }, "aria-label": `step ${step}` },
    thumb(isImage ? geometry.restore(path.rows[step]) : path.rows[step], true, `step ${step}`, backgroundOf(path.rows[step])), make("span", {}, `step ${step}`))));
}

function showGiven() {
  const canvas = $("recall-given");
  if (!isImage) { sketch(canvas, geometry.toSphere(geometry.fill(recalled.given, recalled.known))); return; }
  paint(canvas, recalled.given, false);
  const context = canvas.getContext("2d");
  context.fillStyle = cssValue("--accent-soft");
  for (let i = 0; i < width * height; i++) if (!recalled.known[i * channels]) context.fillRect(i % width, Math.floor(i / width), 1, 1);
}

/** The background of a picture that is partly held: known and found parts have one each. */
function backgroundOf(x) {
  if (!isImage || recalled.known.every(Boolean)) return null;
  const values = geometry.restore(x);
  const sign = rows.background > rows.pen ? -1 : 1;
  const quarter = (wanted) => {
    const part = values.filter((_, j) => recalled.known[j] === wanted).sort();
    return part[Math.floor(part.length * (sign > 0 ? 0.25 : 0))];
  };
  return Math.max(quarter(0), quarter(1));
}

function showStep(step) {
  const path = recalled.path;
  if (path === null) { $("recall-text").textContent = "Nothing is known of the pattern: hide less."; return; }
  const last = path.rows.length - 1;
  recalled.step = Math.min(Math.max(step, 0), last);
  const x = path.rows[recalled.step];
  paint($("recall-now"), isImage ? geometry.restore(x) : x, true, backgroundOf(x));
  const answer = model.read(model.overlaps(x));
  $("recall-text").replaceChildren(`Step ${recalled.step} of ${last}: energy ${number(path.energies[recalled.step], 4)}, `, swatch(answer.predicted), make("b", {}, className(answer.predicted)), ` ${percent(answer.proba[answer.predicted])}`);
  drawEnergy();
  if (!isImage) $("recall-features").replaceChildren(make("h3", {}, "Where the pattern stands out now"), featureBars(x, 10));
}

function drawEnergy() {
  const { energies } = recalled.path;
  const [w, h, pad] = [300, 190, 30];
  const [low, high] = [Math.min(...energies), Math.max(...energies)];
  const x = (k) => pad + 14 + ((w - pad - 24) * k) / Math.max(energies.length - 1, 1);
  const y = (e) => 14 + (h - pad - 18) * (1 - (e - low) / (high - low || 1));
  const shown = energies.slice(0, recalled.step + 1);
  const text = (at, top, value, anchor = "middle") => drawing("text", { x: at, y: top, "text-anchor": anchor }, value);
  $("recall-energy").replaceChildren(drawing("svg", { viewBox: `0 0 ${w} ${h}`, width: "100%", role: "img", "aria-label": `energy by step, from ${number(high, 4)} down to ${number(low, 4)}` },
    drawing("line", { x1: pad + 14, y1: h - pad, x2: w - 6, y2: h - pad, class: "axis" }), drawing("line", { x1: pad + 14, y1: 8, x2: pad + 14, y2: h - pad, class: "axis" }),
    text(pad + 8, y(high) + 4, number(high, 4), "end"), text(pad + 8, y(low) + 4, high > low ? number(low, 4) : "", "end"), text((w + pad) / 2, h - 8, "step"), text(w - 8, 18, "energy", "end"),
    drawing("polyline", { points: energies.map((e, k) => `${x(k)},${y(e)}`).join(" "), class: "trace", opacity: 0.25 }),
    drawing("polyline", { points: shown.map((e, k) => `${x(k)},${y(e)}`).join(" "), class: "trace" }),
    drawing("circle", { cx: x(recalled.step), cy: y(energies[recalled.step]), r: 5, class: "now" })));
}

function stopPlaying() {
  clearTimeout(recalled.timer);
  recalled.timer = 0;
  const button = $("recall-play");
  if (button) button.textContent = "▶ Play";
}

function playRecall() {
  if (recalled.timer) { stopPlaying(); return; }
  if (recalled.path === null) return;
  const last = recalled.path.rows.length - 1;
  if (recalled.step >= last) showStep(0);
  $("recall-play").textContent = "⏸ Pause";
  const next = () => {
    showStep(recalled.step + 1);
    if (recalled.step >= last) { stopPlaying(); say("recall has come to rest"); return; }
    recalled.timer = setTimeout(next, still ? 0 : Math.max(40, Math.min(500, 4000 / last)));
  };
  recalled.timer = setTimeout(next, still ? 0 : 350);
}

/* ---- memories: a map, a gallery, and one memory looked at closely ---- */

const view = { zoom: 1, x: 0, y: 0, grid: false, pictures: isImage };
let mapCanvas;

function buildMemories() {
  mapCanvas = make("canvas", { class: "map", id: "map", tabindex: 0, role: "application", "aria-label": "map of the memories; arrows go from one to the next, plus and minus zoom" });
  const button = (label, action, id) => make("button", { type: "button", id, onclick: action }, label);
  const zoom = (factor) => { view.zoom = Math.min(Math.max(view.zoom * factor, 0.6), 40); soon("map", drawMap); };
  const swap = () => { view.grid = !view.grid; showMemories(); };
  const head = make("div", { class: "tools between", style: { marginTop: 0, marginBottom: "12px" } }, make("h2", { id: "memories-title" }, "Memories"),
    make("div", { class: "tools", style: { marginTop: 0 } }, button("Grid", swap, "swap"), isImage ? button("Dots", () => { view.pictures = !view.pictures; $("dots").setAttribute("aria-pressed", String(!view.pictures)); soon("map", drawMap); }, "dots") : null,
      make("button", { type: "button", "aria-label": "zoom in", onclick: () => zoom(1.4) }, "+"), make("button", { type: "button", "aria-label": "zoom out", onclick: () => zoom(1 / 1.4) }, "−"), button("Fit", () => { Object.assign(view, { zoom: 1, x: 0, y: 0 }); soon("map", drawMap); })));
  const left = make("div", { class: "card" }, head, make("div", { class: "map-box", id: "map-box" }, mapCanvas), make("div", { class: `gallery${isText ? " of-texts" : ""}`, id: "gallery", hidden: true }), make("div", { class: "legend", id: "legend" }),
    make("p", { class: "muted", id: "map-note", style: { marginTop: "8px" } }));
  $("panel-memories").replaceChildren(make("div", { class: "columns map-and-more" }, left, make("div", { class: "card", id: "memory" })));
  mapControls(zoom);
}

/** Where a memory lies on the canvas. */
function placeOf(m) {
  const [x, y] = data.xy[m];
  const { w, h } = view;
  return [w / 2 + (x + view.x) * view.zoom * w * 0.44, h / 2 - (y + view.y) * view.zoom * h * 0.44];
}

function drawMap() {
  if (state.tab !== "memories" || view.grid) return;
  const box = mapCanvas.getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1;
  view.w = box.width;
  view.h = Math.max(320, Math.min(box.width * 0.8, window.innerHeight * 0.72));
  mapCanvas.style.height = `${view.h}px`;
  mapCanvas.width = view.w * ratio;
  mapCanvas.height = view.h * ratio;
  const context = mapCanvas.getContext("2d");
  context.scale(ratio, ratio);
  const use = rows.use();
  const most = Math.max(...use, 1e-12);
  const crowd = Math.sqrt((view.w * view.h) / model.nMemories);
  const base = Math.min(Math.max(crowd * 0.34, 4.5), 30) * Math.sqrt(view.zoom);
  context.imageSmoothingEnabled = false;
  view.radius = [];
  const order = largest(use, model.nMemories).reverse();
  for (const m of [...order.filter((k) => k !== state.memory), state.memory]) {
    const [x, y] = placeOf(m);
    const size = base * (0.45 + 0.75 * Math.sqrt(use[m] / most));
    view.radius[m] = size;
    if (x < -size || y < -size || x > view.w + size || y > view.h + size) continue;
    const color = classColor(labels()[m]);
    const chosen = m === state.memory;
    if (view.pictures) {
      context.fillStyle = color;
      const edge = Math.max(1.5, size * 0.09) + (chosen ? 2 : 0);
      context.fillRect(x - size - edge, y - size - edge, 2 * (size + edge), 2 * (size + edge));
      context.drawImage(view.image[m], x - size, y - size, 2 * size, 2 * size);
    } else {
      context.globalAlpha = chosen ? 1 : 0.85;
      context.fillStyle = color;
      context.beginPath(); context.arc(x, y, size * 0.6, 0, 7); context.fill();
      context.globalAlpha = 1;
    }
    if (chosen) {
      context.strokeStyle = cssValue("--ink");
      context.lineWidth = 2.5;
      const r = view.pictures ? size + 5 : size * 0.6 + 3;
      context.beginPath();
      if (view.pictures) context.rect(x - r, y - r, 2 * r, 2 * r); else context.arc(x, y, r, 0, 7);
      context.stroke();
    }
  }
  if (isText && model.nMemories <= 60) nameOnMap(context);
  drawInputOnMap(context);
}

/** Classes beside the dots, where there is room. */
function nameOnMap(context) {
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = cssValue("--soft");
  const taken = [];
  for (let m = 0; m < model.nMemories; m++) {
    const [x, y] = placeOf(m);
    const text = className(labels()[m], 22);
    const side = 0.6 * view.radius[m] + 6;
    const wide = context.measureText(text).width;
    const left = x + side + wide > view.w ? x - side - wide : x + side;
    if (taken.some(([a, b, w]) => Math.abs(b - y) < 14 && a < left + wide && left < a + w)) continue;
    taken.push([left, y, wide]);
    context.fillText(text, left, y + 4);
  }
}

/** A ring where the current input lies: the mean place of the memories that answer for it. */
function drawInputOnMap(context) {
  const answer = state.answer;
  if (!answer || answer.x === null || answer.novelty > 0.999 || answer.share.length !== model.nMemories) return;
  let [x, y, total] = [0, 0, 0];
  answer.share.forEach((share, m) => {
    const [a, b] = placeOf(m);
    x += share * a; y += share * b; total += share;
  });
  context.lineWidth = 3;
  for (const [color, r] of [["--card", 12], ["--bad", 9]]) {
    context.strokeStyle = cssValue(color);
    context.beginPath(); context.arc(x / total, y / total, r, 0, 7); context.stroke();
  }
}

function mapControls(zoom) {
  const points = new Map();
  let dragged = 0;
  let gap = 0;
  const at = (e) => { const box = mapCanvas.getBoundingClientRect(); return [e.clientX - box.left, e.clientY - box.top]; };
  const spread = () => { const [a, b] = [...points.values()]; return Math.hypot(a[0] - b[0], a[1] - b[1]); };
  mapCanvas.addEventListener("pointerdown", (e) => {
    mapCanvas.setPointerCapture(e.pointerId);
    points.set(e.pointerId, at(e));
    dragged = 0;
    if (points.size === 2) gap = spread();
  });
  mapCanvas.addEventListener("pointermove", (e) => {
    if (!points.has(e.pointerId)) return;
    const [x, y] = points.get(e.pointerId);
    const next = at(e);
    points.set(e.pointerId, next);
    if (points.size === 2) { const wider = spread(); zoom(wider / (gap || wider)); gap = wider; dragged = 99; return; }
    dragged += Math.hypot(next[0] - x, next[1] - y);
    view.x += (next[0] - x) / (view.zoom * view.w * 0.44);
    view.y -= (next[1] - y) / (view.zoom * view.h * 0.44);
    soon("map", drawMap);
  });
  const up = (e) => {
    const there = points.get(e.pointerId);
    points.delete(e.pointerId);
    if (e.type === "pointerup" && there && dragged < 5) {
      let [best, least] = [null, 1.4];
      for (let m = 0; m < model.nMemories; m++) {
        const [x, y] = placeOf(m);
        const far = Math.max(Math.abs(x - there[0]), Math.abs(y - there[1])) / Math.max(view.radius[m], 8);
        if (far < least) [best, least] = [m, far];
      }
      if (best !== null) chooseMemory(best);
    }
  };
  for (const name of ["pointerup", "pointercancel"]) mapCanvas.addEventListener(name, up);
  mapCanvas.addEventListener("wheel", (e) => { e.preventDefault(); zoom(Math.exp(-e.deltaY / 400)); }, { passive: false });
  mapCanvas.addEventListener("keydown", (e) => {
    const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (e.key === "+" || e.key === "=") zoom(1.4);
    else if (e.key === "-") zoom(1 / 1.4);
    else if (ways[e.key]) {
      e.preventDefault();
      const [dx, dy] = ways[e.key];
      const [x, y] = placeOf(state.memory);
      let [best, least] = [state.memory, Infinity];
      for (let m = 0; m < model.nMemories; m++) {
        const [a, b] = placeOf(m);
        const along = (a - x) * dx + (b - y) * dy;
        const across = Math.abs((a - x) * dy) + Math.abs((b - y) * dx);
        if (m !== state.memory && along > 0.5 && along + 2 * across < least) [best, least] = [m, along + 2 * across];
      }
      chooseMemory(best);
    }
  });
}

function showMemories() {
  const look = document.documentElement.dataset.theme;
  if (isImage && view.look !== look) view.image = Array.from({ length: model.nMemories }, (_, m) => paint(document.createElement("canvas"), geometry.restore(model.memory(m)), true));
  view.look = look;
  $("memories-title").textContent = `${model.nMemories} memories`;
  $("swap").textContent = view.grid ? "Map" : "Grid";
  $("map-box").hidden = view.grid;
  $("gallery").hidden = !view.grid;
  const count = new Map();
  for (const y of labels()) count.set(y, (count.get(y) ?? 0) + 1);
  const order = [...count.keys()].sort((a, b) => (nClasses > 24 ? count.get(b) - count.get(a) || a - b : a - b));
  $("legend").replaceChildren(...order.slice(0, 60).map((y) => make("span", { title: className(y, 300) }, swatch(y), `${className(y)} `, make("small", {}, count.get(y)))), order.length > 60 ? make("span", { class: "muted" }, `and ${order.length - 60} more`) : "");
  $("map-note").textContent = `Near on the map: alike. Size: how many rows it answers for. Color: its ${groupWord}. The ring is the current input.`;
  if (view.grid) showGallery(order);
  showMemory();
  soon("map", drawMap);
}

function showGallery(order) {
  const sure = (m) => softLabel(m)[labels()[m]];
  const parts = [];
  for (const y of order) {
    const own = labels().map((label, m) => [label, m]).filter(([label]) => label === y).map(([, m]) => m);
    own.sort((a, b) => sure(b) - sure(a));
    parts.push(make("h3", { title: className(y, 300) }, swatch(y), className(y, 60)));
    for (const m of own) parts.push(make("button", { type: "button", id: `tile-${m}`, style: { borderColor: m === state.memory ? cssValue("--ink") : classColor(y) }, onclick: () => { chooseMemory(m); }, "aria-label": `memory ${memoryName(m)}, ${className(y)} ${percent(sure(m))}` }, memoryPicture(m), isText ? "" : make("span", {}, memoryName(m))));
  }
  $("gallery").replaceChildren(...parts);
}

function chooseMemory(m) {
  const before = $(`tile-${state.memory}`);
  if (before) before.style.borderColor = classColor(labels()[state.memory]);
  state.memory = m;
  if ($(`tile-${m}`)) $(`tile-${m}`).style.borderColor = cssValue("--ink");
  showMemory();
  soon("map", drawMap);
}

function openMemory(m) {
  state.memory = m;
  openTab("memories");
  if (window.innerWidth < 761) $("memory").scrollIntoView({ behavior: still ? "auto" : "smooth" });
}

function showMemory() {
  const m = state.memory;
  const label = softLabel(m);
  const y = largest(label, 1)[0];
  const parts = [make("div", { class: "tools between", style: { marginTop: 0 } }, make("h2", {}, `Memory ${memoryName(m)}`), make("span", {}, swatch(y), className(y)))];
  if (isImage) parts.push(make("div", { style: { maxWidth: "190px", margin: "12px 0" } }, Object.assign(memoryPicture(m), { style: "width:100%" })));
  if (recordOf(m)) parts.push(make("p", { class: "muted" }, `Of the held-out rows in which it had the largest share: ${recordOf(m)}`));
  parts.push(make("h3", {}, "Its soft label"), classBars(label, largest(label, 6).filter((k) => label[k] > 0.005)));
  if (isText && textsOf(m).length) parts.push(make("h3", {}, "Training rows most like it"), make("div", { class: "texts" }, textsOf(m).map((text) => quote(text, 400))));
  if (!isImage && !isText) parts.push(make("h3", {}, "Its strongest features"), featureBars(model.memory(m), 10));
  const readings = rows.said() ? answersOf(m) : null;
  if (readings) {
    parts.push(make("h3", {}, "Rows it answers for"), make("p", { class: "muted" }, `${number(readings.mass)} of the ${rows.n} rows here`),
      isText ? make("div", { class: "texts", role: "list" }, readings.typical.map((r) => textRow(r))) : make("div", { class: "strip" }, readings.typical.map((r) => make("button", { type: "button", class: "tile", onclick: () => { pickRow(r); openTab("play"); }, "aria-label": `row ${rows.number[r]}${truth(r)}` }, rowPicture(r), make("span", {}, truth(r).slice(2) || `row ${rows.number[r]}`)))));
    if (readings.decided > 0 && rows.y && data.kind === "classifier") {
      const wrong = readings.wrong.map(([c, n]) => `${className(c)} (${n})`).join(", ");
      parts.push(make("p", { class: "muted" }, `It weighs most for ${readings.decided} of them; ${readings.missed === 0 ? "all are right." : `${readings.missed} wrong, truly ${wrong}.`}`));
    }
  }
  if (!isText && textsOf(m).length) parts.push(make("p", { class: "muted" }, `Most typical rows of the training data: ${textsOf(m).join(", ")}`));
  parts.push(make("h3", {}, "Nearest relatives"), make("div", { class: isText ? "texts" : "strip" }, relatives(m).map(([k, overlap]) => make("button", { type: "button", class: "tile", onclick: () => chooseMemory(k), "aria-label": `memory ${memoryName(k)}` }, memoryPicture(k), make("span", {}, swatch(labels()[k]), memoryName(k)), make("span", { class: "muted" }, overlap.toFixed(2))))));
  $("memory").replaceChildren(...parts);
}

/** Packed rows of a memory: how many it answers for, the most typical, those it got wrong. */
function answersOf(m) {
  const share = new Float64Array(rows.n);
  let mass = 0;
  for (let r = 0; r < rows.n; r++) {
    const o = rows.overlaps(r);
    if (o === null) continue;
    share[r] = model.read(o).share[m];
    mass += share[r];
  }
  const said = rows.said();
  const led = said.map((s, r) => r).filter((r) => said[r].top[0] === m);
  const wrong = new Map();
  let missed = 0;
  if (rows.y && data.kind === "classifier") for (const r of led) if (rows.y[r] >= 0 && said[r].predicted !== rows.y[r]) { missed++; wrong.set(rows.y[r], (wrong.get(rows.y[r]) ?? 0) + 1); }
  return { mass, typical: largest(share, 6).filter((r) => share[r] > 0.05), decided: led.length, missed, wrong: [...wrong].sort((a, b) => b[1] - a[1]) };
}

function relatives(m) {
  const overlap = model.overlaps(model.memory(m));
  overlap[m] = -2;
  return largest(overlap, Math.min(6, overlap.length - 1)).map((k) => [k, overlap[k]]);
}

/* ---- columns: how much each pulls, and what its values say ---- */

function showColumns() {
  const columns = data.rows.columns;
  const most = Math.max(...columns.map((c) => c.size), 1e-12);
  const shown = nClasses === 2 ? [1] : data.classes.map((_, y) => y).slice(0, 8);
  const factor = nClasses === 2 ? 2 : 1; // log-odds
  const all = columns.flatMap((c) => c.said.flatMap((line) => shown.map((y) => factor * line[y])));
  const range = [Math.min(...all, 0), Math.max(...all, 0)];
  $("panel-columns").replaceChildren(
    make("div", { class: "card" }, make("h2", {}, "How much each column pulls"), make("p", { class: "muted" }, "Mean change of the log-odds if a row were typical of the other class there."),
      bars(columns.map((c) => ({ name: short(c.name, 30), title: c.name, value: c.size / most, text: number(c.size), color: cssValue("--accent") })), { named: true })),
    make("div", { class: "card", style: { marginTop: "16px" } }, make("h2", {}, "What its values say"), make("p", { class: "muted" }, "Log-odds of a class, all other columns as they are; 0 is the average value."),
      make("div", { class: "legend" }, shown.map((y) => make("span", {}, swatch(y), className(y)))),
      make("div", { class: "columns", style: { gridTemplateColumns: "repeat(auto-fill, minmax(160px, 1fr))" } }, columns.map((c) => make("figure", { class: "curve" }, make("figcaption", { title: c.name }, short(c.name, 30)), curve(c, shown, factor, range))))));
}

function curve({ name, at, names, said }, shown, factor, [low, high]) {
  const [w, h, left, below] = [240, 150, 34, 24];
  const [first, last] = [Math.min(...at), Math.max(...at)];
  const x = (v) => left + 8 + ((w - left - 20) * (v - first)) / (last - first || 1);
  const y = (v) => 8 + (h - below - 16) * (1 - (v - low) / (high - low || 1));
  const text = (px, py, value, anchor) => drawing("text", { x: px, y: py, "text-anchor": anchor }, value);
  const ends = names ? [names[0], names[names.length - 1]] : [number(first), number(last)];
  const parts = shown.flatMap((c) => names ? at.map((v, k) => drawing("circle", { cx: x(v), cy: y(factor * said[k][c]), r: 3.5, fill: classColor(c) }, drawing("title", {}, `${names[k]}: ${className(c)} ${number(factor * said[k][c])}`)))
    : [drawing("polyline", { points: at.map((v, k) => `${x(v)},${y(factor * said[k][c])}`).join(" "), fill: "none", stroke: classColor(c), "stroke-width": 2 })]);
  return drawing("svg", { viewBox: `0 0 ${w} ${h}`, width: "100%", role: "img", "aria-label": `what the values of ${name} say for each class` },
    drawing("line", { x1: left, y1: y(0), x2: w - 6, y2: y(0), class: "axis" }), text(left - 4, y(high) + 4, number(high, 2), "end"), text(left - 4, y(low) + 4, number(low, 2), "end"),
    ...(at.length > 1 ? [text(left + 8, h - 6, short(ends[0], 12), "start"), text(w - 8, h - 6, short(ends[1], 12), "end")] : [text((w + left) / 2, h - 6, short(ends[0], 20), "middle")]), ...parts);
}

/* ---- mistakes: rows the model gets wrong, and why ---- */

function showMistakes() {
  const panel = $("panel-mistakes");
  if (!rows.y || rows.n === 0) {
    panel.replaceChildren(make("p", { class: "card" }, "No labeled rows are packed here: pass X and y to see what the model gets wrong."));
    return;
  }
  if (!rows.said()) { panel.replaceChildren(make("p", { class: "card" }, "Evaluating the rows …")); return; }
  const said = rows.said();
  const wrong = said.map((s, r) => r).filter((r) => rows.y[r] >= 0 && said[r].predicted !== rows.y[r]).sort((a, b) => said[b].sure - said[a].sure);
  const shown = wrong.slice(0, 60);
  panel.replaceChildren(make("p", { style: { margin: "4px 0 14px" } }, wrong.length === 0 ? `All of the ${rows.n} rows here are right.` : `${wrong.length} of ${rows.n} rows here are wrong, the surest first. Click one to play with it.`),
    make("div", { class: "mistakes" }, shown.map((r) => mistake(r, said[r]))), wrong.length > shown.length ? make("p", { class: "muted" }, `and ${wrong.length - shown.length} more`) : "");
}

function mistake(r, said) {
  const truly = rows.y[r];
  const o = rows.overlaps(r);
  const soft = said.top.map((k, at) => said.share[at] * softLabel(k)[said.predicted]);
  const m = said.top[largest(soft, 1)[0]]; // of what speaks for the wrong class, the most
  const columns = rows.misled?.[r] ?? [];
  const reasons = [];
  if (columns.length) reasons.push(make("p", {}, `Not typical of ${className(truly)}: ${columns.join("; ")}.`));
  else if (o === null) reasons.push(make("p", { class: "muted" }, "The row has no direction, so the prior decides."));
  else reasons.push(make("p", {}, `Memory ${memoryName(m)} has ${percent(said.share[said.top.indexOf(m)])} of the vote and says ${className(labels()[m])}${recordOf(m) ? `; of the held-out rows that it decided, ${recordOf(m)}` : ""}.`));
  return make("button", { type: "button", class: `card mistake${isText ? " texts-pair" : ""}`, onclick: () => { pickRow(r); openTab("play"); }, "aria-label": `row ${rows.number[r]}: ${className(truly)}, taken for ${className(said.predicted)}` },
    isText ? quote(rows.text[r]) : make("div", { class: "pair" }, rowPicture(r), o === null ? null : memoryPicture(m)),
    make("div", {}, make("p", { class: "said" }, className(truly), make("span", { class: "to" }, " → "), className(said.predicted)),
      make("p", { class: "muted" }, `row ${rows.number[r]}, ${percent(said.sure)} sure`), reasons, isText && o !== null && textsOf(m).length ? make("p", { class: "muted" }, "Training rows like that memory:", textsOf(m).map((text) => quote(text, 100))) : null));
}

/* ---- report ---- */

function buildReport() {
  const measured = data.measured;
  const stat = (value, name) => make("div", { class: "card stat" }, make("b", {}, value), make("span", {}, name));
  const stats = [];
  if (measured) stats.push(stat(tenth(measured.accuracy), `accuracy on ${measured.n.toLocaleString("en")} rows`), stat(number(measured.log_loss), "log-loss"), stat(tenth(measured.calibration_error), "calibration error"));
  stats.push(stat(String(model.nMemories), "memories"), stat(String(nClasses), data.kind === "classifier" ? "classes" : "clusters"), stat(String(data.n_columns), "features"));
  const table = (entries) => make("table", { class: "facts" }, make("tbody", {}, entries.map(([name, value]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, short(value ?? "–", 200))))));
  const cards = [];
  if (measured) cards.push(make("div", { class: "card" }, make("h2", {}, "Confusion"), confusion(measured)), make("div", { class: "card" }, make("h2", {}, "Calibration"), make("p", { class: "muted" }, "How often the model is right, by how sure it is; on the diagonal it means what it says."), calibration(measured.calibration)));
  cards.push(make("div", { class: "card" }, make("h2", {}, "The model"), table(Object.entries(data.choices))), make("div", { class: "card" }, make("h2", {}, "Settings of training"), table(Object.entries(data.settings))));
  $("panel-report").replaceChildren(make("div", { class: "stats" }, stats), make("div", { class: "columns", style: { gridTemplateColumns: "repeat(auto-fit, minmax(min(100%, 420px), 1fr))" } }, cards));
}

function confusion(measured) {
  const total = new Array(nClasses).fill(0);
  for (const [a, , n] of measured.confusion) total[a] += n;
  const box = make("div", {});
  if (nClasses <= 12) {
    const count = Array.from({ length: nClasses }, () => new Array(nClasses).fill(0));
    for (const [a, b, n] of measured.confusion) count[a][b] = n;
    const head = make("tr", {}, make("td", {}, ""), data.classes.map((_, b) => make("th", { scope: "col", title: className(b, 300) }, className(b, 12))));
    const body = count.map((line, a) => make("tr", {}, make("th", { scope: "row", title: className(a, 300) }, className(a, 12)), line.map((n, b) => {
      const share = n / Math.max(total[a], 1);
      const color = a === b ? "--accent" : "--bad";
      return make("td", { style: { background: n === 0 ? "none" : `color-mix(in srgb, var(${color}) ${(a === b ? 8 + 30 * share : 14 + 60 * Math.sqrt(share)).toFixed(0)}%, transparent)` } }, n === 0 ? "" : String(n));
    })));
    box.append(make("p", { class: "muted" }, "Rows: the truth. Columns: what the model says."), make("table", { class: "matrix" }, make("thead", {}, head), make("tbody", {}, body)));
  } else {
    const side = Math.max(2, Math.floor(600 / nClasses));
    const canvas = make("canvas", { width: side * nClasses, height: side * nClasses, role: "img", "aria-label": "confusion matrix, truth down, answers across; the most confused pairs are listed below", style: { width: "100%", maxWidth: "560px", background: cssValue("--well"), borderRadius: "8px", margin: "8px 0" } });
    const context = canvas.getContext("2d");
    for (const [a, b, n] of measured.confusion) {
      context.globalAlpha = Math.min(1, 0.25 + n / Math.max(total[a], 1));
      context.fillStyle = cssValue(a === b ? "--accent" : "--bad");
      context.fillRect(b * side, a * side, Math.max(side - (side > 4 ? 1 : 0), 1), Math.max(side - (side > 4 ? 1 : 0), 1));
    }
    const note = make("p", { class: "muted" }, "Truth down, answers across; point at a cell to read it.");
    const cells = new Map(measured.confusion.map(([a, b, n]) => [`${a} ${b}`, n]));
    canvas.addEventListener("pointermove", (e) => {
      const r = canvas.getBoundingClientRect();
      const [b, a] = [Math.floor(((e.clientX - r.left) / r.width) * nClasses), Math.floor(((e.clientY - r.top) / r.height) * nClasses)];
      if (a >= 0 && b >= 0 && a < nClasses && b < nClasses) note.textContent = `${className(a, 60)} taken for ${className(b, 60)}: ${cells.get(`${a} ${b}`) ?? 0} of ${total[a]}`;
    });
    box.append(canvas, note);
  }
  const confused = measured.confusion.filter(([a, b]) => a !== b).sort((a, b) => b[2] - a[2]).slice(0, 10);
  if (confused.length) box.append(make("h3", {}, "Most confused"), make("table", {}, make("tbody", {}, confused.map(([a, b, n]) => make("tr", {}, make("td", {}, className(a, 60), make("span", { class: "to" }, " → "), className(b, 60)), make("td", { class: "number" }, `${n} of ${total[a]}`))))));
  return box;
}

function calibration(bins) {
  const [w, h, pad] = [380, 300, 52];
  const x = (v) => pad + v * (w - pad - 26);
  const y = (v) => h - pad - v * (h - pad - 14);
  const most = Math.max(...bins.map((b) => b[2]));
  const solid = bins.filter((b) => b[2] >= 8); // fewer rows than that tell next to nothing
  const parts = [drawing("line", { x1: x(0), y1: y(0), x2: x(1), y2: y(1), class: "axis", "stroke-dasharray": "5 5" }), drawing("line", { x1: x(0), y1: y(0), x2: x(1), y2: y(0), class: "axis" }), drawing("line", { x1: x(0), y1: y(0), x2: x(0), y2: y(1), class: "axis" })];
  for (const v of [0, 0.5, 1]) parts.push(drawing("text", { x: x(v), y: h - pad + 16, "text-anchor": "middle" }, percent(v)), drawing("text", { x: pad - 8, y: y(v) + 4, "text-anchor": "end" }, percent(v)));
  parts.push(drawing("text", { x: (x(0) + x(1)) / 2, y: h - 4, "text-anchor": "middle" }, "how sure"), drawing("text", { x: 12, y: (y(0) + y(1)) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(y(0) + y(1)) / 2})` }, "how often right"),
    drawing("polyline", { points: solid.map(([s, r]) => `${x(s)},${y(r)}`).join(" "), class: "trace" }), ...bins.map(([s, r, n]) => drawing("circle", { cx: x(s), cy: y(r), r: 3 + 7 * Math.sqrt(n / most), class: "mark", opacity: 0.75 }, drawing("title", {}, `${n} rows, ${percent(s)} sure, ${percent(r)} right`))));
  return drawing("svg", { viewBox: `0 0 ${w} ${h}`, width: "100%", style: "max-width:480px", role: "img", "aria-label": `calibration curve: ${bins.map(([s, r]) => `${percent(s)} sure, ${percent(r)} right`).join("; ")}` }, ...parts);
}

/* ---- tabs, theme, start ---- */

const TABS = [["play", isText ? "Texts" : "Play"], ["recall", "Recall"], ["columns", "Columns"], ["memories", "Memories"], ["mistakes", "Mistakes"], ["report", "Report"]]
  .filter(([id]) => id !== "mistakes" || data.kind === "classifier") // clusters have no right or wrong
  .filter(([id]) => id !== "columns" || (data.rows?.columns && !isImage))
  .filter(([id]) => id !== "recall" || !isText); // a vector is no text

function buildTabs() {
  const bar = $("tabs");
  bar.replaceChildren(...TABS.map(([id, name]) => make("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `panel-${id}`, onclick: () => openTab(id) }, name)));
  bar.addEventListener("keydown", (e) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!step) return;
    const at = TABS.findIndex(([id]) => id === state.tab);
    openTab(TABS[(at + step + TABS.length) % TABS.length][0]);
    $(`tab-${state.tab}`).focus();
  });
}

function openTab(name) {
  state.tab = name;
  for (const [id] of TABS) {
    $(`panel-${id}`).hidden = id !== name;
    $(`tab-${id}`).setAttribute("aria-selected", String(id === name));
    $(`tab-${id}`).tabIndex = id === name ? 0 : -1;
  }
  if (name === "recall") takeInput();
  if (name === "memories") {
    state.memory ??= largest(state.answer.share, 1)[0]; // at first the one that decides
    showMemories();
  }
  if (name === "mistakes") showMistakes();
  if (name === "columns") showColumns();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  cssCache = {};
  $("theme").textContent = theme === "dark" ? "☀" : "☾";
  if (!model) return;
  refresh();
}

/** Draw everything anew: after a change of theme. */
function refresh() {
  showKnobs();
  buildReport();
  showAnswer();
  const strip = $("strip");
  if (strip) for (const canvas of strip.querySelectorAll("canvas")) canvas.replaceWith(rowPicture(rows.number.indexOf(canvas.getAttribute("aria-label").slice(4))));
  if (state.tab === "recall" && recalled.given) compute();
  if (state.tab === "memories") showMemories();
  if (state.tab === "mistakes") showMistakes();
  if (state.tab === "columns") showColumns();
}

async function start() {
  if (!("DecompressionStream" in window)) throw new Error("this browser is too old to unpack the model: use one of 2023 or later");
  geometry = await unpackGeometry(data.geometry);
  model = new Model({ ...data, votes: await unpackMixture(data.votes), density: await unpackMixture(data.density) }, nClasses);
  const x = data.rows ? await unpack(data.rows.x) : new Float64Array(0);
  rows = packedRows(x, data.rows ?? {});
  rows.deviation = (j) => { const [low, high] = rows.span(j); return (high - low) / 4; };
  document.title = short(data.title, 80);
  $("title").textContent = short(data.title, 80);
  const groups = `${nClasses} ${data.kind === "classifier" ? (nClasses === 1 ? "class" : "classes") : nClasses === 1 ? "cluster" : "clusters"}`;
  $("subtitle").textContent = `${model.nMemories} memories, ${groups}, ${isText ? `texts through ${short(data.encoder)}` : `${data.n_columns} features`}. All of it runs in this page.`;
  buildTabs();
  buildKnobs();
  buildPlay();
  if (!isText) buildRecall();
  buildMemories();
  if (rows.n > 0) pickRow(0);
  else { Object.assign(state, { values: isImage ? freshValues() : Float64Array.from(geometry.restore(model.memory(0))), drawn: true }); if (!isImage && !isText) buildSliders(); }
  refresh();
  openTab("play");
  await rows.prepare();
  await checkItself();
}

/** The page must say what Python said: a few answers came with it. */
async function checkItself() {
  const { x, proba, score, tolerance } = data.checks;
  const given = await unpack(x);
  let worst = 0;
  proba.forEach((wanted, k) => {
    const answer = answerFor(given.subarray(k * data.n_features, (k + 1) * data.n_features));
    const apart = wanted.map((p, y) => (p - answer.proba[y]) / tolerance[0]);
    apart.push((score[k] - answer.score) / (1 + Math.abs(score[k])) / tolerance[1]);
    for (const off of apart) worst = Math.abs(off) <= worst ? worst : Number.isNaN(off) ? Infinity : Math.abs(off);
  });
  $("check").hidden = worst <= 1;
  $("check").textContent = worst <= 1 ? "" : `This page does not answer as Python did (off by ${number(worst)} times what rounding explains): do not trust it.`;
}

const preferred = matchMedia("(prefers-color-scheme: dark)");
setTheme(preferred.matches ? "dark" : "light");
preferred.addEventListener("change", (e) => setTheme(e.matches ? "dark" : "light"));
$("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
window.addEventListener("resize", () => soon("map", drawMap));

/** What scripts may ask of the page. */
window.mnemosphere = {
  ready: start().then(() => true, (error) => {
    $("main").replaceChildren(make("p", { class: "card", role: "alert" }, `The page could not start: ${error.message}`));
    throw error;
  }),
  rows: () => rows,
  model: () => model,
  state: () => state,
  predict: (values) => { const { proba, predicted, score, novelty } = answerFor(Float64Array.from(values)); return { proba: [...proba], predicted, score, novelty }; },
  predictRow: (r) => window.mnemosphere.predict(rows.values(r)),
  recall: (values, known, options) => { const path = recallPath(Float64Array.from(values), known ? Uint8Array.from(known) : null, options ?? {}); return { rows: path.rows.map((row) => [...row]), energies: path.energies }; },
  openTab, setTheme, pickRow, turn: (knobs) => { Object.assign(state, knobs); turned(); },
};
