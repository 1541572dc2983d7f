"use strict";
/* The other parts of the page: map, columns, recall, report; then the start. */

/* ---- the map: rows and memories, and one memory looked at closely ---- */

const view = { zoom: 1, x: 0, y: 0, shows: "both", by: "class", hover: null, points: [] };
let mapCanvas;

function buildMap() {
  mapCanvas = make("canvas", { class: "map", id: "map", tabindex: 0, role: "application", "aria-label": "map of rows and memories; arrows go from one to the next, Enter opens it, plus and minus zoom" });
  const zoom = (factor) => { zoomAt(factor, view.w / 2, view.h / 2); };
  const shows = rows.n > 0 ? select("map-shows", "show", [["both", "rows and memories"], ["rows", "rows"], ["memories", "memories"]], (e) => { view.shows = e.target.value; soon("map", drawMap); }) : "";
  const by = model.calibration !== null && rows.n > 0 ? select("map-by", "color", [["class", groupWord], ["rejected", "rejected or not"]], (e) => { view.by = e.target.value; showMap(); }) : "";
  const head = make("div", { class: "tools between", style: { marginTop: 0, marginBottom: "12px" } }, make("h2", {}, "Rows and memories"),
    make("div", { class: "tools", style: { marginTop: 0 } }, shows, by, button("+", () => zoom(1.5), { "aria-label": "zoom in" }), button("−", () => zoom(1 / 1.5), { "aria-label": "zoom out" }), button("Fit", () => { Object.assign(view, { zoom: 1, x: 0, y: 0 }); soon("map", drawMap); })));
  const left = make("div", { class: "card" }, head, make("div", { class: "map-box", id: "map-box" }, mapCanvas, make("div", { id: "hover", class: "hover", hidden: true })), make("div", { class: "legend", id: "legend" }),
    muted(rows.n > 0 ? "Dots are rows, squares memories; near means similar. Point at one to read it, click to open it. The ring is the current input." : "Squares are memories; near means similar. The ring is the current input."));
  $("panel-map").replaceChildren(make("div", { class: "columns map-and-more" }, left, make("div", { class: "card", id: "memory" })));
  mapControls();
}

/** Where a unit row lies along the two axes of the map. */
const placeOf = (x) => [0, 1].map((k) => dot(x, data.axes.subarray(k * x.length, (k + 1) * x.length)));

/** A place on the canvas; points fill each axis from −1 to 1. */
function onCanvas(at) {
  const [x, y] = at.map((v, k) => (v - view.middle[k]) / view.half[k]);
  return [view.w / 2 + (x + view.x) * view.zoom * view.w * 0.45, view.h / 2 - (y + view.y) * view.zoom * view.h * 0.45];
}

function mapPoints() {
  const found = [];
  for (let m = 0; m < model.nMemories; m++) found.push({ kind: "memory", k: m, at: placeOf(model.memory(m)) });
  for (let r = 0; r < rows.n; r++) if (rows.unit(r) !== null) found.push({ kind: "row", k: r, at: placeOf(rows.unit(r)) });
  const ends = [0, 1].map((k) => found.map(({ at }) => at[k]).sort((a, b) => a - b));
  Object.assign(view, { points: found, middle: ends.map((v) => (v[0] + v.at(-1)) / 2), half: ends.map((v) => Math.max(v.at(-1) - v[0], 1e-12) / 2) });
}

const isShown = ({ kind }) => view.shows === "both" || view.shows === (kind === "row" ? "rows" : "memories");
const rowColor = (r) => (view.by === "class" ? classColor(rows.said[r].predicted) : cssValue(rows.said[r].rejected ? "--bad" : "--soft"));

function drawMap() {
  if (state.tab !== "map" || (rows.n > 0 && !rows.said)) return;
  const ratio = window.devicePixelRatio || 1;
  view.w = mapCanvas.getBoundingClientRect().width;
  view.h = Math.max(320, Math.min(view.w * 0.8, window.innerHeight * 0.72));
  mapCanvas.style.height = `${view.h}px`;
  mapCanvas.width = view.w * ratio;
  mapCanvas.height = view.h * ratio;
  const context = mapCanvas.getContext("2d");
  context.scale(ratio, ratio);
  context.imageSmoothingEnabled = false;
  const grown = Math.sqrt(view.zoom);
  const size = { memory: Math.min(Math.max(0.2 * Math.sqrt((view.w * view.h) / model.nMemories), 4), isImage ? 14 : 7) * grown, row: 3.2 * Math.min(grown, 2.5) };
  for (const point of view.points) {
    if (!isShown(point)) continue;
    const { kind, k, at } = point;
    const [x, y] = onCanvas(at);
    Object.assign(point, { x, y, radius: size[kind] });
    if (x < -40 || y < -40 || x > view.w + 40 || y > view.h + 40) continue;
    const r = size[kind];
    context.globalAlpha = kind === "row" ? 0.85 : 1;
    context.fillStyle = kind === "row" ? rowColor(k) : classColor(labels()[k]);
    context.beginPath();
    if (kind === "row") context.arc(x, y, r, 0, 7);
    else context.rect(x - r, y - r, 2 * r, 2 * r);
    context.fill();
    if (kind === "memory" && isImage) context.drawImage(view.image[k], x - r + 1.5, y - r + 1.5, 2 * r - 3, 2 * r - 3);
    context.globalAlpha = 1;
    context.lineWidth = kind === "memory" && k === state.memory ? 2.5 : 0.7;
    context.strokeStyle = cssValue(kind === "memory" ? "--ink" : "--well");
    context.stroke();
  }
  context.font = "12px system-ui, sans-serif";
  const taken = [];
  const name = (text, x, y) => {
    const wide = context.measureText(text).width;
    const left = x + 10 + wide > view.w ? x - 10 - wide : x + 10;
    if (taken.some(([a, b, w]) => Math.abs(b - y) < 14 && a < left + wide && left < a + w)) return;
    taken.push([left, y, wide]);
    context.lineWidth = 3;
    context.strokeStyle = cssValue("--well");
    context.strokeText(text, left, y + 4);
    context.fillStyle = cssValue("--ink");
    context.fillText(text, left, y + 4);
  };
  const ring = (x, y, color, r) => { context.lineWidth = 2.5; context.strokeStyle = cssValue(color); context.beginPath(); context.arc(x, y, r, 0, 7); context.stroke(); };
  if (rows.said && view.shows !== "memories") {
    for (const [what, r] of rows.starters()) {
      if (rows.unit(r) === null) continue;
      const [x, y] = onCanvas(placeOf(rows.unit(r)));
      ring(x, y, "--ink", 6);
      name(what, x, y);
    }
  }
  if (model.nMemories <= 60 && view.shows !== "rows") for (const { kind, k, x, y } of view.points) if (kind === "memory") name(className(labels()[k], 22), x, y);
  if (state.answer?.x) {
    const [x, y] = onCanvas(placeOf(state.answer.x));
    ring(x, y, "--card", 12);
    ring(x, y, "--accent", 10);
  }
}

/** The point that is nearest to a place of the canvas, if it is near. */
function pointAt(x, y) {
  let [best, least] = [null, 12];
  for (const point of view.points) {
    if (!isShown(point)) continue;
    const far = Math.max(Math.hypot(point.x - x, point.y - y) - point.radius, 0) + (point.kind === "memory" ? 0.5 : 0);
    if (far < least) [best, least] = [point, far];
  }
  return best;
}

function hover(point) {
  if (point === view.hover) return;
  view.hover = point;
  const box = $("hover");
  box.hidden = point === null;
  mapCanvas.style.cursor = point ? "pointer" : "grab";
  if (point === null) return;
  const { kind, k } = point;
  const said = kind === "row" ? rows.said[k] : null;
  const told = said ? `row ${short(rows.number[k], 24)}: ${reasonOf(said) ?? `${className(said.predicted)} ${percent(said.sure)}`}${truth(k)}` : `memory ${memoryName(k)}: ${className(labels()[k])}`;
  box.replaceChildren(told, ...(said && rows.text ? [quote(rows.text[k], 90)] : []));
  box.style.left = `${Math.min(Math.max(point.x - 90, 4), Math.max(view.w - 230, 4))}px`;
  box.style.top = `${point.y + 14}px`;
  say(told);
}

function openPoint({ kind, k }) {
  if (kind === "memory") chooseMemory(k);
  else { pickRow(k); openTab("play"); }
}

/** Zoom, and keep what lies at a place of the canvas there. */
function zoomAt(factor, x, y) {
  const before = view.zoom;
  view.zoom = Math.min(Math.max(view.zoom * factor, 0.6), 60);
  const moved = 1 / view.zoom - 1 / before;
  view.x += ((x - view.w / 2) / (view.w * 0.45)) * moved;
  view.y -= ((y - view.h / 2) / (view.h * 0.45)) * moved;
  hover(null);
  soon("map", drawMap);
}

function mapControls() {
  const points = new Map();
  let [dragged, gap] = [0, 0];
  const at = (e) => { const box = mapCanvas.getBoundingClientRect(); return [e.clientX - box.left, e.clientY - box.top]; };
  const spread = () => { const [a, b] = [...points.values()]; return Math.hypot(a[0] - b[0], a[1] - b[1]); };
  mapCanvas.addEventListener("pointerdown", (e) => {
    mapCanvas.setPointerCapture(e.pointerId);
    points.set(e.pointerId, at(e));
    dragged = 0;
    if (points.size === 2) gap = spread();
  });
  mapCanvas.addEventListener("pointermove", (e) => {
    const next = at(e);
    if (!points.has(e.pointerId)) { hover(pointAt(...next)); return; }
    const [x, y] = points.get(e.pointerId);
    points.set(e.pointerId, next);
    if (points.size === 2) { const wider = spread(); zoomAt(wider / (gap || wider), ...next); gap = wider; dragged = 99; return; }
    dragged += Math.hypot(next[0] - x, next[1] - y);
    view.x += (next[0] - x) / (view.zoom * view.w * 0.45);
    view.y -= (next[1] - y) / (view.zoom * view.h * 0.45);
    hover(null);
    soon("map", drawMap);
  });
  for (const name of ["pointerup", "pointercancel"]) mapCanvas.addEventListener(name, (e) => {
    const there = points.get(e.pointerId);
    points.delete(e.pointerId);
    const point = e.type === "pointerup" && there && dragged < 5 ? pointAt(...there) : null;
    if (point) openPoint(point);
  });
  mapCanvas.addEventListener("pointerleave", () => hover(null));
  mapCanvas.addEventListener("wheel", (e) => { e.preventDefault(); zoomAt(Math.exp(-e.deltaY / 400), ...at(e)); }, { passive: false });
  mapCanvas.addEventListener("keydown", (e) => {
    const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (e.key === "+" || e.key === "=") zoomAt(1.5, view.w / 2, view.h / 2);
    else if (e.key === "-") zoomAt(1 / 1.5, view.w / 2, view.h / 2);
    else if (e.key === "Enter" && view.hover) openPoint(view.hover);
    else if (ways[e.key]) {
      e.preventDefault();
      const [dx, dy] = ways[e.key];
      const from = view.hover ?? view.points[state.memory];
      const far = (p) => { const along = (p.x - from.x) * dx + (p.y - from.y) * dy; return along > 0.5 ? along + 2 * Math.abs((p.x - from.x) * dy + (p.y - from.y) * dx) : Infinity; };
      const next = view.points.filter(isShown).reduce((best, p) => (p !== from && far(p) < far(best) ? p : best), from);
      hover(next);
    }
  });
}

function showMap() {
  const look = document.documentElement.dataset.theme;
  if (isImage && view.look !== look) view.image = Array.from({ length: model.nMemories }, (_, m) => paint(document.createElement("canvas"), geometry.restore(model.memory(m)), true));
  view.look = look;
  if (view.points.length === 0) mapPoints();
  const count = new Map();
  for (const y of labels()) count.set(y, (count.get(y) ?? 0) + 1);
  const order = [...count.keys()].sort((a, b) => a - b);
  const rejected = (color, text) => make("span", {}, make("i", { class: "swatch", style: { background: cssValue(color) } }), text);
  $("legend").replaceChildren(...(view.by === "rejected" ? [rejected("--bad", "rejected"), rejected("--soft", "answered")] : []), ...order.slice(0, 60).map((y) => make("span", { title: className(y, 300) }, swatch(y), `${className(y)} `, make("small", {}, count.get(y)))));
  showMemory();
  soon("map", drawMap);
}

function chooseMemory(m) {
  state.memory = m;
  showMap();
}

function openMemory(m) {
  Object.assign(state, { memory: m, opened: true });
  openTab("map");
  if (window.innerWidth < 761) $("memory").scrollIntoView({ behavior: still ? "auto" : "smooth" });
}

function showMemory() {
  const m = state.memory;
  const label = softLabel(m);
  const y = labels()[m];
  const parts = [make("div", { class: "tools between", style: { marginTop: 0 } }, make("h2", {}, `Memory ${memoryName(m)}`), make("span", {}, swatch(y), className(y)))];
  if (isImage) parts.push(make("div", { class: "portrait" }, memoryPicture(m)));
  parts.push(make("h3", {}, `Its ${groupWord} probabilities`), classBars(label, { chosen: largest(label, 6).filter((k) => label[k] > 0.005) }));
  if (recordOf(m)) parts.push(muted(`Where it decided: ${recordOf(m)}.`));
  if (typicalOf(m).length) parts.push(make("h3", {}, "Training rows most like it"), textColumn ? make("div", { class: "texts" }, typicalOf(m).map((text) => quote(text, 400))) : muted(typicalOf(m).join(", ")));
  if (!isImage && !isText) {
    const values = geometry.restore(model.memory(m));
    parts.push(make("h3", {}, "Its values"), make("table", {}, make("tbody", {}, rows.strong.slice(0, 10).map((k) => make("tr", {}, make("th", { scope: "row" }, short(data.columns[k].name)), make("td", { class: "number" }, written(data.columns[k], values)))))));
  }
  if (rows.said) {
    const own = rows.said.map((s, r) => r).filter((r) => rows.said[r].leader === m);
    const wrong = own.filter(rows.isWrong);
    const told = !rows.y || !isClassifier ? "" : wrong.length === 0 ? ", all right" : `, ${wrong.length} wrong`;
    parts.push(make("h3", {}, "Rows that it decides"), muted(`${own.length} of ${rows.n} rows${own.length ? told : ""}; in all it has the votes of ≈ ${number(rows.mass[m])} rows.`));
    const shown = [...wrong, ...own.filter((r) => !rows.isWrong(r)).sort((a, b) => rows.said[b].sure - rows.said[a].sure)].slice(0, 6);
    parts.push(make("div", { class: isImage ? "tiles" : "texts" }, shown.map((r) => rowTile(r))));
  }
  const overlap = model.overlaps(model.memory(m));
  overlap[m] = -2;
  parts.push(make("h3", {}, "Most similar memories"), make("div", { class: `tiles${isImage ? "" : " wide-tiles"}` }, largest(overlap, Math.min(4, overlap.length - 1)).map((k) => make("button", { type: "button", class: "tile", "data-similar": k, onclick: () => chooseMemory(k), "aria-label": `memory ${memoryName(k)}, cosine ${overlap[k].toFixed(2)}` }, memoryPicture(k), make("span", {}, swatch(labels()[k]), memoryName(k), make("small", {}, ` cosine ${overlap[k].toFixed(2)}`))))));
  $("memory").replaceChildren(...parts);
}

/* ---- columns: how much each pulls, and what its values say ---- */

function showColumns() {
  const { curves } = data;
  const most = Math.max(...curves.map((c) => c.size), 1e-12);
  const shown = nClasses === 2 ? [1] : data.classes.map((_, y) => y).slice(0, 8);
  const factor = nClasses === 2 ? 2 : 1; // log-odds
  const all = curves.flatMap((c) => c.said.flatMap((line) => shown.map((y) => factor * line[y])));
  const range = [Math.min(...all, 0), Math.max(...all, 0)];
  const name = (c) => data.columns[c.column].name;
  const told = state.row === null ? "your row" : `row ${short(rows.number[state.row], 20)}`;
  $("panel-columns").replaceChildren(
    make("div", { class: "card" }, make("h2", {}, "How much each column pulls"), muted("Mean absolute pull on the log-odds, over the rows here."),
      bars(curves.map((c) => ({ name: short(name(c), 30), title: name(c), value: c.size / most, text: number(c.size), color: cssValue("--soft") })), { named: true })),
    make("div", { class: "card", style: { marginTop: "16px" } }, make("h2", {}, "What each value says"), muted(`Log-odds of a class as one column changes, relative to its average value. Below each curve: how many rows have the value. The line marks ${told}.`),
      make("div", { class: "legend" }, shown.map((y) => make("span", {}, swatch(y), className(y)))),
      make("div", { class: "curves" }, curves.map((c) => make("figure", { class: "curve" }, make("figcaption", { title: name(c) }, short(name(c), 30)), curve(c, shown, factor, range))))));
}

function curve({ column, at, names, said, counts }, shown, factor, [low, high]) {
  const [w, h, left, below] = [240, 176, 34, 54];
  const own = data.columns[column];
  const [first, last] = [Math.min(...at), Math.max(...at)];
  const x = (v) => left + 8 + ((w - left - 20) * (Math.min(Math.max(v, first), last) - first)) / (last - first || 1);
  const y = (v) => 8 + (h - below - 16) * (1 - (v - low) / (high - low || 1));
  const text = (px, py, value, anchor) => drawing("text", { x: px, y: py, "text-anchor": anchor }, value);
  const numbers = Array.from(state.values.slice(own.first, own.end));
  const here = numbers.some(Number.isNaN) ? null : names ? at[own.levels?.length ? names.findIndex((name) => `${name} (`.startsWith(`${written(own, state.values)} (`)) : nearest(names.map((name) => [Number(name)]), numbers)] ?? null : numbers[0];
  const ends = names ? [names[0], names[names.length - 1]] : [first, last].map((v) => written(own, Object.assign(new Float64Array(own.end), { [own.first]: v })));
  const wide = (w - left - 20) / (names ? Math.max(at.length * 2, 6) : counts.length);
  const most = Math.max(...counts, 1);
  const bins = counts.map((n, k) => drawing("rect", { x: names ? x(at[k]) - wide / 2 : left + 8 + k * wide, y: h - 18 - (30 * n) / most, width: Math.max(wide - 1, 1), height: (30 * n) / most, class: "known" }, drawing("title", {}, `${names ? `${names[k]}: ` : ""}${n} rows`)));
  const parts = shown.flatMap((c) => (names ? at.map((v, k) => drawing("circle", { cx: x(v), cy: y(factor * said[k][c]), r: 3.5, fill: classColor(c) }, drawing("title", {}, `${names[k]}: ${className(c)} ${number(factor * said[k][c])}`)))
    : [drawing("polyline", { points: at.map((v, k) => `${x(v)},${y(factor * said[k][c])}`).join(" "), fill: "none", stroke: classColor(c), "stroke-width": 2 })]));
  return drawing("svg", { viewBox: `0 0 ${w} ${h}`, width: "100%", role: "img", "aria-label": `what the values of ${own.name} say for each class` },
    drawing("line", { x1: left, y1: y(0), x2: w - 6, y2: y(0), class: "axis" }), text(left - 4, y(high) + 4, number(high, 2), "end"), text(left - 4, y(low) + 4, number(low, 2), "end"), ...bins,
    ...(here === null ? [] : [drawing("line", { x1: x(here), y1: 4, x2: x(here), y2: h - 18, class: "here" })]),
    ...(at.length > 1 ? [text(left + 8, h - 4, short(ends[0], 12), "start"), text(w - 8, h - 4, short(ends[1], 12), "end")] : [text((w + left) / 2, h - 4, short(ends[0], 20), "middle")]), ...parts);
}

/* ---- recall: hide or disturb, then follow the energy down ---- */

const recalled = { original: null, given: null, known: null, path: null, step: 0, noise: 0, seed: 1 };

function buildRecall() {
  const ways = isImage ? [["right", "right half"], ["left", "left half"], ["top", "top half"], ["bottom", "bottom half"], ["middle", "the middle"], ["random", "half of the pixels"], ["none", "nothing"]]
    : [["random", "half of the columns"], ["strong", "the strongest quarter"], ["none", "nothing"]];
  const canvas = (id, kind, what) => make("canvas", { id, class: `pixels ${kind}`, role: "img", "aria-label": what, style: { aspectRatio: `${width} / ${height}` } });
  const given = isImage ? canvas("recall-given", "pad", "the picture as given; drag to hide more of it") : make("div", { id: "recall-given" });
  if (isImage) dragging(given, ([x, y]) => {
    for (let k = 0; k < width * height; k++) if (Math.hypot((k % width) + 0.5 - x, Math.floor(k / width) + 0.5 - y) <= Math.max(width, height) / 14) recalled.known.fill(0, k * channels, (k + 1) * channels);
    soon("recall", compute);
  });
  const left = make("div", { class: "card" }, make("h2", {}, "Given"), muted(isImage ? "Drag over the picture to hide more of it." : "Hidden values are found by the memories; the others are held."), given,
    make("div", { class: "tools" }, select("recall-hide", "hide", ways, () => hide($("recall-hide").value)),
      isImage ? make("label", { class: "grow" }, "noise", make("input", { id: "recall-noise", type: "range", min: 0, max: 1, step: 0.02, value: 0, oninput: (e) => { recalled.noise = Number(e.target.value); disturb(); } })) : ""),
    make("div", { class: "tools" }, button("Take the input", takeInput), rows.n > 0 ? button("Another row", () => { recalled.seed++; pickRow(Math.floor(randomNumbers(recalled.seed)() * rows.n)); takeInput(); }) : ""));
  const right = make("div", { class: "card" }, make("h2", {}, "Recalled"),
    make("div", { class: "columns halves" }, make("div", {}, isImage ? canvas("recall-now", "show", "the picture as it is recalled") : make("div", { id: "recall-now" }), make("p", { id: "recall-text", class: "muted" })), make("div", { id: "recall-energy" })),
    make("div", { class: "tools" }, make("label", { class: "grow" }, "step", make("input", { type: "range", id: "recall-step", min: 0, max: 1, value: 0, oninput: (e) => showStep(Number(e.target.value)) })),
      select("recall-class", groupWord, [["", "any"], ...data.classes.map((_, y) => [String(y), className(y)])], compute)));
  $("panel-recall").replaceChildren(make("div", { class: "columns two" }, left, right));
}

function takeInput() {
  recalled.original = Float64Array.from(seen());
  hide($("recall-hide").value);
}

function hide(what) {
  const random = randomNumbers(recalled.seed);
  recalled.known = new Uint8Array(data.n_features).fill(1);
  const hideIf = (gone, first, end) => { if (gone) recalled.known.fill(0, first, end); };
  if (isImage) {
    for (let k = 0; k < width * height; k++) {
      const [i, j] = [Math.floor(k / width), k % width];
      const inside = Math.abs(i + 0.5 - height / 2) < height / 5 && Math.abs(j + 0.5 - width / 2) < width / 5;
      hideIf({ right: j >= width / 2, left: j < width / 2, top: i < height / 2, bottom: i >= height / 2, middle: inside, random: random() < 0.5, none: false }[what], k * channels, (k + 1) * channels);
    }
  } else {
    const strong = rows.strong.slice(0, Math.max(1, Math.floor(data.columns.length / 4)));
    const half = largest(data.columns.map(random), Math.floor(data.columns.length / 2));
    data.columns.forEach(({ first, end }, k) => hideIf({ random: half.includes(k), strong: strong.includes(k), none: false }[what], first, end));
  }
  recalled.original.forEach((v, j) => { if (Number.isNaN(v)) recalled.known[j] = 0; });
  disturb();
}

/** Noise of the standard deviation chosen, in units of the range of pixels. */
function disturb() {
  const random = randomNumbers(1000 + recalled.seed);
  const [low, high] = rows.range;
  recalled.given = recalled.original.map((v) => v + recalled.noise * Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random()) * (high - low));
  soon("recall", compute);
}

/** The path down the energy: what is not hidden is held, unless nothing is hidden. */
function recallPath(values, known, options) {
  const whole = known === null || known.every(Boolean);
  let x = geometry.toSphere(whole ? values : geometry.fill(values, known));
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
  const column = $("recall-class").value;
  recalled.path = recallPath(recalled.given, recalled.known, { column: column === "" ? null : Number(column) });
  if (isImage) {
    const canvas = paint($("recall-given"), recalled.given);
    const context = canvas.getContext("2d");
    context.fillStyle = cssValue("--accent-soft");
    for (let k = 0; k < width * height; k++) if (!recalled.known[k * channels]) context.fillRect(k % width, Math.floor(k / width), 1, 1);
  }
  showStep(Infinity);
}

/** The background of a picture that is partly held: known and found parts have one each. */
function backgroundOf(x) {
  const [values, share] = [geometry.restore(x), rows.background > rows.pen ? 0 : 0.25];
  const low = [0, 1].map((wanted) => values.filter((_, j) => recalled.known[j] === wanted).sort()).map((part) => part[Math.floor(part.length * share)]);
  return recalled.known.every(Boolean) ? null : Math.max(...low);
}

function showStep(step) {
  const { path } = recalled;
  if (path === null) { $("recall-text").textContent = "Nothing is known of the row: hide less."; return; }
  const last = path.rows.length - 1;
  recalled.step = Math.min(Math.max(step, 0), last);
  Object.assign($("recall-step"), { max: last, value: recalled.step });
  const x = path.rows[recalled.step];
  if (isImage) paint($("recall-now"), geometry.restore(x), true, backgroundOf(x));
  else showFound(geometry.restore(x));
  const answer = model.read(model.overlaps(x));
  $("recall-text").replaceChildren(`Step ${recalled.step} of ${last}: energy ${number(path.energies[recalled.step], 4)}, `, swatch(answer.predicted), make("b", {}, className(answer.predicted)), ` ${percent(answer.proba[answer.predicted])}`);
  drawEnergy();
}

/** A table of what was given, hidden and found, the columns that matter most first. */
function showFound(values) {
  const line = (k) => {
    const column = data.columns[k];
    const held = recalled.known[column.first] === 1;
    const own = written(column, recalled.original);
    return make("tr", { class: held ? "muted" : "" }, make("th", { scope: "row" }, short(column.name)), make("td", {}, held ? own : "hidden"), make("td", {}, held ? "" : make("b", {}, column.kind === "text" ? "–" : written(column, values))), make("td", {}, held ? "" : own));
  };
  const head = make("thead", {}, make("tr", {}, ["column", "given", "found", "was"].map((name) => make("th", { scope: "col" }, name))));
  const order = [...rows.strong].sort((a, b) => recalled.known[data.columns[a].first] - recalled.known[data.columns[b].first]);
  $("recall-now").replaceChildren(make("div", { class: "sideways" }, make("table", {}, head, make("tbody", {}, order.slice(0, 24).map(line)))));
}

function drawEnergy() {
  const { energies } = recalled.path;
  const [w, h, pad] = [300, 190, 44];
  const [low, high] = [Math.min(...energies), Math.max(...energies)];
  const x = (k) => pad + ((w - pad - 10) * k) / Math.max(energies.length - 1, 1);
  const y = (e) => 14 + (h - 48) * (1 - (e - low) / (high - low || 1));
  const text = (at, top, value, anchor = "middle") => drawing("text", { x: at, y: top, "text-anchor": anchor }, value);
  const line = (some, more) => drawing("polyline", { points: some.map((e, k) => `${x(k)},${y(e)}`).join(" "), class: "trace", ...more });
  $("recall-energy").replaceChildren(drawing("svg", { viewBox: `0 0 ${w} ${h}`, width: "100%", role: "img", "aria-label": `energy by step, from ${number(high, 4)} down to ${number(low, 4)}` },
    drawing("line", { x1: pad, y1: h - 30, x2: w - 6, y2: h - 30, class: "axis" }), text(pad - 6, y(high) + 4, number(high, 4), "end"), text(pad - 6, y(low) + 4, high > low ? number(low, 4) : "", "end"), text((w + pad) / 2, h - 8, "step"), text(w - 8, 18, "energy", "end"),
    line(energies, { opacity: 0.25 }), line(energies.slice(0, recalled.step + 1), {}), drawing("circle", { cx: x(recalled.step), cy: y(energies[recalled.step]), r: 5, class: "now" })));
}

/* ---- report ---- */

function showReport() {
  const { measured } = data;
  const stat = (value, name) => make("div", { class: "card stat" }, make("b", {}, value), make("span", {}, name));
  const stats = measured ? [stat(tenth(measured.accuracy), `accuracy on ${measured.n.toLocaleString("en")} rows`), stat(number(measured.log_loss), "log-loss"), stat(tenth(measured.calibration_error), "calibration error")] : [];
  stats.push(stat(String(model.nMemories), "memories"), stat(String(nClasses), isClassifier ? "classes" : "clusters"), stat(String(data.n_columns), "columns"));
  const table = (entries) => make("table", { class: "facts" }, make("tbody", {}, entries.map(([name, value]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, short(value ?? "–", 200))))));
  const card = (title, ...parts) => make("div", { class: "card" }, make("h2", {}, title), ...parts);
  const cards = measured ? [card("Confusion", confusion(measured)), card("Calibration", muted("How often the model is right, by how sure it is. On the diagonal, 80% sure means right in 80% of cases."), calibrationPlot(measured.calibration))] : [];
  cards.push(card("The model", table(Object.entries(data.choices))), card("Settings of training", table(Object.entries(data.settings))));
  $("panel-report").replaceChildren(make("div", { class: "stats" }, stats), make("div", { class: "columns reports" }, cards));
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
      const tint = a === b ? 8 + 30 * share : 14 + 60 * Math.sqrt(share);
      return make("td", { style: { background: n === 0 ? "none" : `color-mix(in srgb, var(${a === b ? "--accent" : "--bad"}) ${tint.toFixed(0)}%, transparent)` } }, n === 0 ? "" : String(n));
    })));
    box.append(muted("Each line is a true class, each column a prediction."), make("div", { class: "sideways" }, make("table", { class: "matrix" }, make("thead", {}, head), make("tbody", {}, body))));
  }
  const confused = measured.confusion.filter(([a, b]) => a !== b).sort((a, b) => b[2] - a[2]).slice(0, 10);
  if (confused.length) box.append(make("h3", {}, "Most confused: true class → prediction"), make("table", {}, make("tbody", {}, confused.map(([a, b, n]) => make("tr", {}, make("td", {}, className(a, 60), make("span", { class: "to" }, " → "), className(b, 60)), make("td", { class: "number" }, `${n} of ${total[a]}`))))));
  return box;
}

function calibrationPlot(bins) {
  const [w, h, pad] = [380, 300, 52];
  const x = (v) => pad + v * (w - pad - 26);
  const y = (v) => h - pad - v * (h - pad - 14);
  const line = (a, b, more) => drawing("line", { x1: x(a[0]), y1: y(a[1]), x2: x(b[0]), y2: y(b[1]), class: "axis", ...more });
  const text = (px, py, value, anchor = "middle", more = {}) => drawing("text", { x: px, y: py, "text-anchor": anchor, ...more }, value);
  const most = Math.max(...bins.map((b) => b[2]));
  const solid = bins.filter((b) => b[2] >= 8); // fewer rows than that tell next to nothing
  return drawing("svg", { viewBox: `0 0 ${w} ${h}`, width: "100%", style: "max-width:480px", role: "img", "aria-label": `calibration curve: ${bins.map(([s, r]) => `${percent(s)} sure, ${percent(r)} right`).join("; ")}` },
    line([0, 0], [1, 1], { "stroke-dasharray": "5 5" }), line([0, 0], [1, 0]), line([0, 0], [0, 1]), ...[0, 0.5, 1].flatMap((v) => [text(x(v), h - pad + 16, percent(v)), text(pad - 8, y(v) + 4, percent(v), "end")]),
    text((x(0) + x(1)) / 2, h - 4, "how sure"), text(12, (y(0) + y(1)) / 2, "how often right", "middle", { transform: `rotate(-90 12 ${(y(0) + y(1)) / 2})` }),
    drawing("polyline", { points: solid.map(([s, r]) => `${x(s)},${y(r)}`).join(" "), class: "trace" }), ...bins.map(([s, r, n]) => drawing("circle", { cx: x(s), cy: y(r), r: 3 + 7 * Math.sqrt(n / most), class: "mark", opacity: 0.75 }, drawing("title", {}, `${n} rows, ${percent(s)} sure, ${percent(r)} right`))));
}

/* ---- tabs, theme, start ---- */

const TABS = [["play", isText ? "Texts" : "Play"], ["map", "Map"], ["columns", "Columns"], ["recall", "Recall"], ["report", "Report"]]
  .filter(([id]) => id !== "columns" || data.curves.length > 0)
  .filter(([id]) => id !== "recall" || !isText); // a vector is no text

function buildTabs() {
  const bar = $("tabs");
  bar.replaceChildren(...TABS.map(([id, name]) => button(name, () => openTab(id), { role: "tab", id: `tab-${id}`, "aria-controls": `panel-${id}` })));
  bar.addEventListener("keydown", (e) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!step) return;
    openTab(TABS[(TABS.findIndex(([id]) => id === state.tab) + step + TABS.length) % TABS.length][0]);
    $(`tab-${state.tab}`).focus();
  });
}

function openTab(name) {
  if (name === "map" && state.tab !== "map" && state.answer && !state.opened) [state.memory, state.opened] = [largest(state.answer.share, 1)[0], true]; // at first the one that decides
  state.tab = name;
  for (const [id] of TABS) {
    $(`panel-${id}`).hidden = id !== name;
    $(`tab-${id}`).setAttribute("aria-selected", String(id === name));
    $(`tab-${id}`).tabIndex = id === name ? 0 : -1;
  }
  if (name === "recall") takeInput();
  showTab();
}

function showTab() {
  ({ map: showMap, columns: showColumns, report: showReport }[state.tab] ?? (() => {}))();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  cssCache = {};
  $("theme").textContent = theme === "dark" ? "☀" : "☾";
  if (!model) return;
  buildKnobs();
  showKnobs();
  showAnswer();
  rows.fill?.();
  if (state.tab === "recall") compute();
  showTab();
}

async function start() {
  if (!("DecompressionStream" in window)) throw new Error("this browser is too old to unpack the model: use one of 2023 or later");
  Object.assign(data, await unpackAll(data));
  geometry = geometryOf(data.geometry);
  model = new Model(data, nClasses);
  encoder = data.encoder?.table ? new Encoder(data.encoder) : null;
  state.rate = model.calibration?.rate ?? null;
  rows = packedRows(data.rows ?? {});
  document.title = short(data.title, 80);
  $("title").textContent = short(data.title, 80);
  const groups = `${nClasses} ${isClassifier ? (nClasses === 1 ? "class" : "classes") : nClasses === 1 ? "cluster" : "clusters"}`;
  $("subtitle").textContent = `${model.nMemories} memories, ${groups}, ${isText ? `texts through ${short(data.encoder.name)}` : `${data.n_columns} columns`}. The model runs in this page.`;
  buildTabs();
  buildKnobs();
  buildPlay();
  if (!isText) buildRecall();
  buildMap();
  const values = isImage ? freshValues() : Float64Array.from(geometry.restore(model.memory(0)));
  Object.assign(state, { values, base: isImage ? null : values.slice() });
  if (!isImage) buildControls();
  openTab("play");
  showKnobs();
  showAnswer();
  await rows.prepare();
  measureTyping();
  if (rows.n > 0) pickRow(rows.starters()[0][1]);
  rows.fill?.();
  showKnobs();
  showAnswer();
  checkItself();
}

/** The page must say what Python said: a few answers came with it. */
function checkItself() {
  const { x: given, proba, score, rejection } = data.checks;
  let worst = 0;
  proba.forEach((wanted, k) => {
    const answer = answerFor(given.subarray(k * data.n_features, (k + 1) * data.n_features));
    const apart = wanted.map((p, y) => p - answer.proba[y]);
    apart.push((score[k] - answer.score) / (1 + Math.abs(score[k])), ...(rejection ? rejection[k].map((v, i) => (v - answer.tails[i]) / (1 + v)) : []));
    for (const off of apart) worst = Math.abs(off) <= worst ? worst : Number.isNaN(off) ? Infinity : Math.abs(off);
  });
  $("check").hidden = worst <= 1e-5;
  $("check").textContent = worst <= 1e-5 ? "" : `This page does not answer as Python did (off by ${number(worst)}): do not trust it.`;
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
  state: () => state,
  predict: (values) => { const { log, share, x, values: given, tails, ...answer } = answerFor(Float64Array.from(values)); return { ...answer, proba: [...answer.proba], tails: tails && [...tails], reason: reasonOf(answer) }; },
  predictRow: (r) => window.mnemosphere.predict(rows.values(r)),
  type: (text) => { type(text); return [...encoder.encode(text).values]; },
  recall: (values, known, options) => { const path = recallPath(Float64Array.from(values), known ? Uint8Array.from(known) : null, options ?? {}); return { rows: path.rows.map((row) => [...row]), energies: path.energies }; },
  similar: (values) => { const answer = answerFor(Float64Array.from(values)); return similar(answer, distinctShares(answer)); },
  pulls: (values) => { const given = Float64Array.from(values); return [...pullsOf(given, largest(answerFor(given).proba, 2))]; },
  openTab, setTheme, pickRow, turn: (knobs) => { Object.assign(state, knobs); turned(); },
};
