"use strict";
/* The model in the page: the same formulas as model/one_pass.py, model/retrieval.py and
   model/recall.py, on plain arrays. Nothing here touches the document. */

/** Seeded random numbers in [0, 1), so that a page shows the same thing twice. */
function randomNumbers(seed) {
  let state = seed;
  return () => (state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x6d2b79f5) >>> 0) / 4294967296;
}

const KINDS = { u1: Uint8Array, i1: Int8Array, i4: Int32Array, i2: Int16Array, f4: Float32Array, f8: Float64Array, i8: BigInt64Array };

/** An array as `export/pack.py` stored it, with its shape: base64 of deflated bytes, low bytes first. */
async function unpack({ kind, shape, data: stored }) {
  const text = atob(stored);
  const deflated = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) deflated[i] = text.charCodeAt(i);
  const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const out = new KINDS[kind](bytes.length / KINDS[kind].BYTES_PER_ELEMENT);
  const joined = new Uint8Array(out.buffer);
  // First all lowest bytes, then all second ones: planes of alike bytes deflate better.
  const [n, size] = [out.length, KINDS[kind].BYTES_PER_ELEMENT];
  for (let plane = 0; plane < size; plane++) for (let i = 0; i < n; i++) joined[i * size + plane] = bytes[plane * n + i];
  return Object.assign(out, { shape });
}

/** A value with all arrays in it unpacked. */
async function unpackAll(value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
  if (value.data !== undefined && value.shape) return unpack(value);
  return Object.fromEntries(await Promise.all(Object.entries(value).map(async ([name, own]) => [name, await unpackAll(own)])));
}

/** Columns on circles, as geometry/circles.py has them. */
class Circles {
  /** knots, ranks: (N·K), ascending in each column; harmonics, shares of a column's squared length (N);
      categories: [first, end] each. */
  constructor({ knots, ranks, harmonics, shares, categories }) {
    Object.assign(this, { knots, ranks, categories });
    this.size = knots.length / harmonics.length;
    const whole = Array.from(harmonics, (h) => { let sum = 0; for (let k = 1; k <= h; k++) sum += 1 / (k * k); return sum; });
    const most = Math.max(...whole);
    this.column = []; // of each pair (cos, sin)
    this.pairs = Array.from(harmonics, (h, j) => Array.from({ length: h }, (_, i) => {
      this.column.push(j);
      return { at: 2 * (this.column.length - 1), k: i + 1, amplitude: Math.sqrt((shares[j] * most) / whole[j]) / (i + 1) };
    }));
  }

  /** The rank of a value of column j: linear between knots, and further beyond them. */
  rank(j, value) {
    const [first, last] = [j * this.size, (j + 1) * this.size - 1];
    let right = first + 1;
    while (right < last && this.knots[right] < value) right++;
    right = Math.min(right, last);
    const left = Math.max(right - 1, first);
    const [a, b] = [this.knots[left], this.knots[right]];
    const share = b > a ? Math.min(Math.max((value / 2 - a / 2) / (b / 2 - a / 2), 0), 1) : 1;
    const [low, high] = [this.knots[first] / 2, this.knots[last] / 2];
    const [over, under] = [value / 2 - high, low - value / 2].map((t) => (high > low ? Math.max(t, 0) / (high - low) : 0));
    return this.ranks[left] + share * (this.ranks[right] - this.ranks[left]) + (1 / (1 + under) - 1 / (1 + over)) / 2;
  }

  width() {
    return 2 * this.column.length;
  }

  /** `Geometry.toSphere`: each column has its share of the squared length, known or not. */
  toSphere(row) {
    const x = new Float64Array(this.width());
    let whole = 0;
    this.pairs.forEach((pairs, j) => {
      const angle = Math.PI * this.rank(j, row[j]);
      for (const { at, k, amplitude } of pairs) {
        whole += amplitude * amplitude;
        if (Number.isNaN(row[j])) continue;
        x[at] = amplitude * Math.cos(k * angle);
        x[at + 1] = amplitude * Math.sin(k * angle);
      }
    });
    if (!(norm(x) > 0)) return null;
    const known = isKnown(row);
    return withGaps(x.map((v) => v / Math.sqrt(whole)), Uint8Array.from(x, (_, m) => 1 - known[this.column[m >> 1]]));
  }

  fill(row, known) {
    return Float64Array.from(row, (v, j) => (known[j] ? v : NaN));
  }

  freePart(known) {
    return (g) => g.map((v, m) => (known[this.column[m >> 1]] ? 0 : v));
  }

  /** What column j contributes to the product with w at its i-th knot. */
  part(w, j, i) {
    const angle = Math.PI * this.ranks[j * this.size + i];
    let sum = 0;
    for (const { at, k, amplitude } of this.pairs[j]) sum += amplitude * (w[at] * Math.cos(k * angle) + w[at + 1] * Math.sin(k * angle));
    return sum;
  }

  /** The knot of column j that resembles w most. */
  best(w, j) {
    let [best, most] = [0, -Infinity];
    for (let i = 0; i < this.size; i++) {
      const value = this.part(w, j, i);
      if (value > most) [best, most] = [i, value];
    }
    return j * this.size + best;
  }

  /** The value of each column that resembles w most; one of a category is 1. */
  restore(w) {
    const out = Float64Array.from(this.pairs, (_, j) => this.knots[this.best(w, j)]);
    for (const [first, end] of this.categories) {
      const gain = [];
      for (let j = first; j < end; j++) gain.push(this.part(w, j, this.size - 1) - this.part(w, j, 0));
      const chosen = first + largest(gain, 1)[0];
      for (let j = first; j < end; j++) out[j] = this.knots[j === chosen ? (j + 1) * this.size - 1 : j * this.size];
    }
    return out;
  }
}

const isKnown = (row) => Uint8Array.from(row, (v) => (Number.isNaN(v) ? 0 : 1));

/** Puts rows on the sphere and back, as the geometry of the package does. */
class Geometry {
  /** metric: { rows: D, values: A (D·M), inverse: A⁺ (M·D), common: L (R·N) }, or null; energy: each feature's
      share of a squared norm, or null. */
  constructor(kind, mean, scale, metric, energy) {
    Object.assign(this, { kind, mean, scale, metric, energy, standard: mean !== null });
  }

  /** Coordinates for so many features. */
  width(n) {
    return n + (this.standard ? 1 : 0);
  }

  /** Unit row (N' numbers), or null for a row without direction. NaN is not known: 0 here, with
      `gaps` = { unknown, count, room: the squared norm left to it }; a metric needs it filled in. */
  toSphere(row) {
    const known = isKnown(row);
    const n = row.length;
    const count = n - known.reduce((sum, is) => sum + is, 0);
    if (count === n) return null;
    const x = this.direction(count > 0 ? this.fill(row, known) : Float64Array.from(row));
    if (x === null || count === 0 || this.metric !== null) return x;
    const share = this.standard ? 1 / (1 + (count * x[n] * x[n]) / n) : known.reduce((sum, is, j) => sum + is * (this.energy?.[j] ?? 1 / n), 0);
    const size = Math.sqrt(Math.min(share, 1));
    return withGaps(x.map((v, j) => (known[j] === 0 ? 0 : v * size)), known.map((is) => 1 - is));
  }

  /** The same of a row without NaN. */
  direction(row) {
    const n = row.length;
    let x = this.standard ? Float64Array.from([...row, 0], (v, j) => (j === n ? Math.sqrt(n) : (v - this.mean[j]) / this.scale[j])) : row;
    if (this.kind === "center") {
      const mean = x.reduce((sum, v) => sum + v / n, 0);
      const centered = x.map((v) => v - mean);
      if (norm(centered) <= 1e-9 * norm(x)) return null;
      x = centered;
    }
    if (this.metric !== null) x = times(this.metric.values, this.metric.rows, x);
    return unit(x);
  }

  /** The row with a neutral value where it is not known: one that is 0 on the sphere. */
  fill(row, known) {
    const count = known.reduce((sum, is) => sum + is, 0);
    const mean = this.kind === "center" ? row.reduce((sum, v, j) => (known[j] ? sum + v : sum), 0) / Math.max(count, 1) : 0;
    const out = Float64Array.from(row, (v, j) => (known[j] ? v : this.standard ? this.mean[j] : mean));
    if (this.metric === null) return out;
    const guess = this.likely(out.map((v, j) => (v - this.mean[j]) / this.scale[j]), known);
    return out.map((v, j) => (known[j] ? v : this.mean[j] + this.scale[j] * guess[j]));
  }

  /** The mean of what is not known of a row in standard units, as geometry/whitened.py has it. */
  likely(z, known) {
    const { common } = this.metric;
    const n = z.length;
    const own = z.map((_, j) => Math.max(common.reduce((left, v, i) => (i % n === j ? left - v * v : left), 1), 0.05));
    const spread = (p) => {
      const mixed = times(common, common.length / n, p);
      return p.map((v, j) => mixed.reduce((sum, m, i) => sum + m * common[i * n + j], own[j] * v));
    };
    let [found, rest, step] = [new Float64Array(n), z, z];
    let size = Math.max(dot(rest, rest), 1e-200);
    for (let k = 0; k < 32; k++) {
      const to = spread(step).map((v, j) => (known[j] ? v : 0));
      const share = size / Math.max(dot(step, to), 1e-200);
      [found, rest] = [found.map((v, j) => v + share * step[j]), rest.map((v, j) => v - share * to[j])];
      const before = size;
      size = Math.max(dot(rest, rest), 1e-200);
      step = rest.map((v, j) => v + (size / before) * step[j]);
    }
    return spread(found);
  }

  /** A point of the sphere as a user would read it: in the features' units if possible. */
  restore(w) {
    if (this.metric !== null) w = unit(times(this.metric.inverse, this.metric.values.length / this.metric.rows, w)) ?? w;
    if (!this.standard) return w;
    const n = w.length - 1;
    const last = w[n] > 1e-6 ? w[n] / Math.sqrt(n) : 1;
    return Float64Array.from(this.mean, (v, j) => v + this.scale[j] * (w[j] / last));
  }

  /** What recall may change: a function from a vector to the part of it that is free. */
  freePart(known) {
    if (this.metric === null) return (g) => g.map((v, j) => (known[j] ? 0 : v));
    // An orthonormal basis of the images of the free coordinates, each made orthogonal twice.
    const { rows, values } = this.metric;
    const basis = [];
    for (let j = 0; j < values.length / rows; j++) {
      if (known[j]) continue;
      let b = Float64Array.from({ length: rows }, (_, i) => values[(i * values.length) / rows + j]);
      const whole = norm(b);
      for (let again = 0; again < 2; again++) for (const a of basis) b = plus(b, -dot(a, b), a);
      if (norm(b) > 1e-9 * whole) basis.push(unit(b));
    }
    return (g) => basis.reduce((out, a) => plus(out, dot(a, g), a), new Float64Array(rows));
  }
}

/** Texts and columns side by side, as geometry/product.py has them. */
class Product {
  /** parts: { geometry, features (their places in a row), length, width (coordinates) } each. */
  constructor(parts) {
    this.parts = parts;
    this.width = parts.reduce((sum, { width }) => sum + width, 0);
  }

  /** What `tell` says of the features of each part, put at their places. */
  joined(tell) {
    const out = new Float64Array(this.parts.reduce((sum, { features }) => sum + features.length, 0));
    this.parts.forEach((part, k) => {
      const found = tell(part.geometry, (row) => part.features.map((j) => row[j]), k);
      part.features.forEach((j, i) => { out[j] = found[i]; });
    });
    return out;
  }

  /** The coordinates of each part. */
  cut(w) {
    let first = 0;
    return this.parts.map(({ width }) => w.subarray(first, (first += width)));
  }

  /** `Geometry.toSphere`: a part without direction is not known. */
  toSphere(row) {
    const points = this.parts.map(({ geometry, features }) => geometry.toSphere(features.map((j) => row[j])));
    if (points.every((point) => point === null)) return null;
    const [x, unknown] = [new Float64Array(this.width), new Uint8Array(this.width)];
    let first = 0;
    this.parts.forEach(({ width, length }, k) => {
      for (let m = 0; m < width; m++, first++) {
        unknown[first] = points[k] === null ? 1 : points[k].gaps?.unknown[m] ?? 0;
        x[first] = points[k] === null ? 0 : length * points[k][m];
      }
    });
    return withGaps(x, unknown);
  }

  fill(row, known) {
    return this.joined((geometry, own) => geometry.fill(own(row), own(known)));
  }

  restore(w) {
    const cut = this.cut(w);
    return this.joined((geometry, own, k) => geometry.restore(cut[k]));
  }

  freePart(known) {
    const free = this.parts.map(({ geometry, features }) => geometry.freePart(features.map((j) => known[j])));
    return (g) => Float64Array.from(this.cut(g).flatMap((own, k) => [...free[k](own)]));
  }
}

/** A point with what is not known of it: its places, how many, and the squared norm left to them. */
function withGaps(x, unknown) {
  const count = unknown.reduce((sum, is) => sum + is, 0);
  if (count > 0) x.gaps = { unknown, count, room: Math.max(1 - dot(x, x), 0) };
  return x;
}

/** What puts rows on the sphere; learned: tensors by name, inverse: of the metric; "text20+circles" gives texts 20% of
    the squared length. */
function geometryOf({ kind, learned, inverse, categories }) {
  if (!learned.order) {
    const { metric, common, mean = null, scale = null, energy = null } = learned;
    return learned.knots ? new Circles({ ...learned, categories }) : new Geometry(kind, mean, scale, metric ? { rows: metric.shape[0], values: metric, inverse, common } : null, energy);
  }
  const [, percent, columns] = kind.match(/^text(\d+)\+(.*)$/);
  const nText = learned.text_energy.length;
  const order = Array.from(learned.order, Number);
  const moved = categories.map((ends) => ends.map((at) => at - order.slice(0, nText).filter((j) => j < ends[0]).length));
  return new Product(["text", "columns"].map((part, k) => {
    const own = Object.entries(learned).filter(([name]) => name.startsWith(`${part}_`)).map(([name, stored]) => [name.slice(part.length + 1), stored]);
    const geometry = geometryOf({ kind: k === 0 ? "unit" : columns, learned: Object.fromEntries(own), inverse, categories: moved });
    const features = k === 0 ? order.slice(0, nText) : order.slice(nText);
    return { geometry, features, length: Math.sqrt(k === 0 ? percent / 100 : 1 - percent / 100), width: geometry.width(features.length) };
  }));
}

/** A matrix (rows·columns) times a vector. */
function times(matrix, rows, x) {
  const out = new Float64Array(rows);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < x.length; j++) out[i] += matrix[i * x.length + j] * x[j];
  }
  return out;
}

function norm(x) {
  let peak = 0;
  for (let j = 0; j < x.length; j++) peak = Math.max(peak, Math.abs(x[j]));
  if (!(peak > 0)) return 0;
  let sum = 0;
  for (let j = 0; j < x.length; j++) sum += (x[j] / peak) * (x[j] / peak);
  return peak * Math.sqrt(sum);
}

function dot(a, b) {
  let sum = 0;
  for (let j = 0; j < a.length; j++) sum += a[j] * b[j];
  return sum;
}

const plus = (a, times, b) => a.map((v, i) => v + times * b[i]);

/** ⟨w^μ, x⟩ for all memories (P·N); `gaps` = { count, room, length: ‖w_U‖² } if x has some. */
function overlapsWith(w, x, out) {
  const n = x.length;
  for (let m = 0; m < out.length; m++) {
    let [a, b, c, d, j, i] = [0, 0, 0, 0, 0, m * n]; // four sums at a time are quicker
    for (; j + 3 < n; j += 4, i += 4) { a += w[i] * x[j]; b += w[i + 1] * x[j + 1]; c += w[i + 2] * x[j + 2]; d += w[i + 3] * x[j + 3]; }
    for (; j < n; j++, i++) a += w[i] * x[j];
    out[m] = a + b + (c + d);
  }
  if (!x.gaps) return out;
  const { unknown, count, room } = x.gaps;
  const length = Float64Array.from(out, (_, m) => {
    let sum = 0;
    for (let j = 0; j < unknown.length; j++) if (unknown[j]) sum += w[m * n + j] * w[m * n + j];
    return sum;
  });
  return Object.assign(out, { gaps: { count, room, length } });
}

/** slope·⟨w^μ, x⟩ − offset, with what gaps add: see model/gaps.py. */
function exponents(overlaps, { slope, offset, varsigma }) {
  const h = Float64Array.from(overlaps, (o) => slope * o - offset);
  if (!overlaps.gaps) return h;
  const { count, room, length } = overlaps.gaps;
  const [a, b, beta] = [Math.max((count - 1) / 2, 0), (count + 1) / 2, slope / varsigma];
  for (let m = 0; m < h.length; m++) {
    const root = Math.sqrt(length[m] * room * beta * beta + b * b);
    h[m] += root - b - a * Math.log((a + root) / (a + b));
  }
  return h;
}

/** Σ_y p[γ,y] of class weights p ((P+1)·C). */
function weights(p, C) {
  const out = new Float64Array(p.length / C);
  for (let i = 0; i < p.length; i++) out[(i / C) | 0] += p[i];
  return out;
}

/** Class weights p ((P+1)·C) when the temperature is divided by `ratio`; share: see model/mixture.py. */
function tempered(p, share, ratio, C) {
  if (ratio === 1) return p;
  const factor = weights(p, C).map((w, m) => (w > 0 ? (w / share[m]) ** (ratio - 1) : 0));
  const out = Float64Array.from(p, (v, i) => v * factor[(i / C) | 0]);
  const total = out.reduce((a, b) => a + b, 0);
  return out.map((v) => v / total);
}

const logit = (p) => Math.log(p) - Math.log1p(-p);

/** Scores of held-out rows, by which rows are rejected: see interpret/rejection.py. */
class Calibration {
  /** values: of each reason (novelty, doubt, lead) those that a share of known rows reaches; level: −log of the last share;
      mean: of the rows beyond; novelty, scores: of the held-out rows, ascending. */
  constructor(stored) {
    Object.assign(this, stored);
  }

  /** How far rounding may move a score, among known ones in order. */
  margin(known, at) {
    this.middle ??= new Map([this.novelty, this.scores].map((own) => {
      const size = Float64Array.from(own, Math.abs).sort();
      return [own, (size[(own.length - 1) >> 1] + size[own.length >> 1]) / 2];
    }));
    return 2e-6 * Math.max(Math.abs(at), 1, this.middle.get(known));
  }

  /** The rate of rejected rows unless another one is asked for. */
  get rate() {
    return Math.max(0.05, 1 / (this.scores.length + 1));
  }

  /** The score above which at most this share of rows like the held-out ones lies. */
  limit(rate) {
    const n = this.scores.length;
    const at = this.scores[n - Math.max(Math.floor(rate * (n + 1) * (1 + 1e-12)), 1)];
    return at + this.margin(this.scores, at);
  }

  /** −log of the share of known rows for which a reason is as large. */
  tail(k, reason) {
    const knots = this.values[k];
    const last = knots.length - 1;
    let filled = 0;
    for (let i = 0; i < last; i++) filled += Math.min(Math.max((reason - knots[i]) / Math.max(knots[i + 1] - knots[i], 2.3e-308), 0), 1);
    return (this.level * filled) / last + Math.max((reason - knots[last]) / this.mean[k], 0);
  }

  /** log: log P(y|x) of all C+1 columns at the temperature of the calibration. */
  read(novelty, log, rate = this.rate) {
    log = log.map((v) => Math.max(v, -700));
    const classes = log.subarray(0, -1);
    const best = largest(classes, 1)[0];
    const against = logSumExp(log.map((v, y) => (y === best ? -700 : v)));
    const reasons = [novelty, against - log[best], classes.reduce((a, b) => a + b, 0) / classes.length - log[best]];
    const tails = reasons.map((v, k) => this.tail(k, v));
    const rejection = Math.hypot(...tails);
    const limit = this.limit(rate);
    const rejected = rejection > limit;
    const beyond = (known, own) => 1 - known.findLastIndex((v) => v < own) / known.length - 1 / known.length;
    const undecided = rejected && tails[0] <= Math.max(limit, -Math.log(0.05));
    return { tails, rejection, limit, rejected, undecided, further: beyond(this.novelty, novelty - this.margin(this.novelty, novelty)), surer: 1 - beyond(this.scores, rejection - this.margin(this.scores, rejection)) };
  }
}

/** One set of memories: votes, which decide, and the density. */
class Model {
  /** stored: votes { w (P·N), p ((P+1)·(C+1)), slope, offset, varsigma, prior (C+1), share (P+1), temperature }; density { w
      (Q·N), or null for those of the votes, p, slope, offset, varsigma }; floor; calibration, or null. */
  constructor(stored, nClasses) {
    this.own = stored.votes;
    this.w = stored.votes.w;
    this.nColumns = nClasses + 1;
    this.nMemories = stored.votes.p.length / this.nColumns - 1;
    this.nFeatures = this.w.length / this.nMemories;
    this.floor = stored.floor;
    this.density = { ...stored.density, w: stored.density.w ?? this.w, weight: weights(stored.density.p, this.nColumns) };
    this.calibration = stored.calibration && new Calibration(stored.calibration);
    this.votes = this.saved = this.votesAt(this.own.temperature);
    this.calibrated = this.calibration === null ? this.saved : this.votesAt(this.calibration.temperature);
  }

  /** Votes at a temperature, with weights of the classes relative to those trained (C numbers). */
  votesAt(temperature, odds = null) {
    const { own, nColumns: C } = this;
    const ratio = own.temperature / temperature;
    const p = reweighted(tempered(own.p, own.share, ratio, C), C, odds);
    return { slope: own.slope * ratio, offset: own.offset * ratio, varsigma: own.varsigma, p, weight: weights(p, C), prior: reweighted(own.prior, C, odds) };
  }

  memory(m) {
    return this.w.subarray(m * this.nFeatures, (m + 1) * this.nFeatures);
  }

  /** ⟨w^μ, x⟩ for all memories; `density`: for those of the density. Null: a row without direction. */
  overlaps(x) {
    if (x === null) return null;
    const out = overlapsWith(this.w, x, new Float64Array(this.nMemories));
    out.density = this.density.w === this.w ? out : this.densityOverlaps(x);
    return out;
  }

  densityOverlaps(x) {
    return overlapsWith(this.density.w, x, new Float64Array(this.density.weight.length - 1));
  }

  /** Minus the log of the memories' part of the density. */
  novelty(overlaps) {
    const { weight, slope, offset } = this.density;
    const memories = weight.subarray(1);
    if (overlaps === null) return slope + offset - Math.log(memories.reduce((a, b) => a + b, 0));
    return -logSumExp(exponents(overlaps.density, this.density).map((v, m) => v + Math.log(memories[m])));
  }

  /** What votes say: log P(y|x) of all C+1 columns, and the share of each memory; `shares` of model/one_pass.py. */
  vote(votes, overlaps) {
    const { nColumns: C, nMemories: P } = this;
    if (overlaps === null) return { log: logSoftmax(votes.prior.map((v) => Math.log(Math.max(v, 2.3e-308)))), share: new Float64Array(P) };
    const score = new Float64Array(P + 1);
    score.set(exponents(overlaps, votes), 1);
    const share = softmax(score.map((h, m) => h + Math.log(votes.weight[m])));
    const classes = new Float64Array(C);
    for (let m = 0; m <= P; m++) {
      const part = share[m] > 0 ? share[m] / votes.weight[m] : 0;
      for (let y = 0; y < C; y++) classes[y] += part * votes.p[m * C + y];
    }
    return { log: logSoftmax(classes.map((v) => Math.log(Math.max(v, this.floor)))), share: share.subarray(1) };
  }

  /** All that is read from the overlaps of one row. Votes: proba, predicted, share of each memory and of none.
      Score of novelty. Whether the model as it was saved rejects it at a rate. */
  read(overlaps, rate) {
    const { log, share } = this.vote(this.votes, overlaps);
    const proba = logSoftmax(log.subarray(0, -1)).map(Math.exp);
    const score = this.novelty(overlaps);
    const found = { log, proba, predicted: largest(proba, 1)[0], share, uniform: 1 - share.reduce((a, b) => a + b, 0), score, rejected: false, out: false, undecided: false, further: NaN };
    const asked = this.vote(this.calibrated, overlaps).log;
    if (this.calibration !== null) Object.assign(found, this.calibration.read(score, asked, rate));
    found.out = overlaps !== null && asked.at(-1) > asked.subarray(0, -1).reduce((a, b) => Math.max(a, b));
    if (found.out) Object.assign(found, { rejected: true, undecided: false });
    return found;
  }

  /** Whether the class is the most frequent one, no odds more than 1.5 times off a frequency. */
  frequenciesDecide({ proba, predicted }) {
    const prior = this.votes.prior.subarray(0, proba.length);
    const total = prior.reduce((a, b) => a + b, 0);
    return prior[predicted] >= Math.max(...prior) - 1e-9 && proba.every((v, y) => Math.abs(logit(v) - logit(prior[y] / total)) <= Math.log(1.5));
  }

  /** Energy −log P(x|y) and the scores of the components of the density at x. */
  descentAt(x, logC) {
    const a = logC.slice();
    exponents(this.densityOverlaps(x), this.density).forEach((h, m) => { a[m + 1] += h; });
    return { energy: logSumExp(logC) - logSumExp(a), scores: a };
  }

  /** Σ_μ r_μ w^μ, r the softmax of the scores of the memories alone. */
  meanMemory(scores) {
    const g = new Float64Array(this.nFeatures);
    softmax(scores.subarray(1)).forEach((r, m) => {
      if (r > 1e-18) for (let j = 0; j < g.length; j++) g[j] += r * this.density.w[m * g.length + j];
    });
    return g;
  }

  /** The way of a unit row down the energy. freePart: of what may change alone, null for all. */
  recall(x, { freePart = null, column = null, steps = 50, tol = 1e-6 } = {}) {
    const { p, weight } = this.density;
    const logC = weight.map((v, g) => Math.log(column === null ? v : p[g * this.nColumns + column])); // of a class, or any
    let at = Float64Array.from(x);
    let here = this.descentAt(at, logC);
    const path = { rows: [at], energies: [here.energy] };
    for (let step = 0; step < steps; step++) {
      const next = toTheEnd(this.meanMemory(here.scores), at, x, freePart);
      const moved = norm(next.map((v, j) => v - at[j]));
      at = next;
      here = this.descentAt(at, logC);
      path.rows.push(at);
      path.energies.push(here.energy);
      if (moved <= tol) break;
    }
    return path;
  }
}

/** Class weights ((P+1)·C) with other odds of the classes, by Bayes' rule: each class by the same
    factor in all components, "none of them" (the last column) held. */
function reweighted(stored, C, odds) {
  if (!odds) return Float64Array.from(stored);
  const factor = Array.from({ length: C }, (_, y) => odds[y] ?? 1);
  const total = (p) => p.reduce((sum, v, i) => sum + (i % C < C - 1 ? v : 0), 0);
  const p = Float64Array.from(stored, (v, i) => v * factor[i % C]);
  const scale = total(stored) / total(p);
  return p.map((v, i) => (i % C < C - 1 ? v * scale : v));
}

/** The unit row x' with the largest ⟨g, x'⟩ among those that keep what is known. */
function toTheEnd(g, x, given, freePart) {
  const toward = (v) => unit(v) ?? Float64Array.from(x);
  if (freePart === null) return toward(g);
  const free = freePart(g);
  const loose = freePart(given);
  const part = given.map((v, j) => v - loose[j]);
  if (!(norm(part) > 2e-16)) return toward(free);
  const axis = unit(part); // of what is known
  const along = dot(g, axis);
  if (along > 0) return toward(plus(free, along, axis));
  // The known part points away from all memories: halve it rather than lose it.
  if (free.every((v) => v === 0)) return x;
  const half = dot(x, axis) / 2;
  const direction = toward(free);
  return axis.map((v, j) => half * v + Math.sqrt(Math.max(1 - half * half, 0)) * direction[j]);
}

function unit(v) {
  const length = norm(v);
  return length > 0 ? v.map((value) => value / length) : null;
}

function logSumExp(a) {
  let top = -Infinity;
  for (const v of a) top = Math.max(top, v);
  if (top === -Infinity) return top;
  let sum = 0;
  for (const v of a) sum += Math.exp(v - top);
  return top + Math.log(sum);
}

function softmax(a) {
  const total = logSumExp(a);
  return a.map((v) => (total === -Infinity ? 0 : Math.exp(v - total)));
}

function logSoftmax(a) {
  const total = logSumExp(a);
  return a.map((v) => v - total);
}

/** The k indices of the largest values, largest first. */
function largest(values, k) {
  if (k === 1) return [values.indexOf(values.reduce((a, b) => Math.max(a, b)))];
  return Array.from(values.keys()).sort((a, b) => values[b] - values[a] || a - b).slice(0, k);
}

/** Texts as vectors, as the packaged encoder has them: the mean of the vectors of its tokens. */
class Encoder {
  /** tokens: bytes of all of the vocabulary, by number; kept: those with a vector (K·D) of whole numbers, with a scale each. */
  constructor({ tokens, kept, table, scale }) {
    this.tokens = new TextDecoder().decode(tokens).split("\0");
    this.number = new Map(this.tokens.map((token, k) => [token, k]));
    this.place = new Map(Array.from(kept, (number, k) => [number, k]));
    Object.assign(this, { table, scale, size: table.length / scale.length });
  }

  /** Numbers of the tokens of a text: byte pairs are merged, those of the least number first, two spaces last. */
  cut(text) {
    const rank = (a, b) => (a + b === "▁▁" ? Infinity : this.number.get(a + b));
    const parts = Array.from(`▁${text.replaceAll(" ", "▁")}`).flatMap((sign) => (this.number.has(sign) ? [sign]
      : Array.from(new TextEncoder().encode(sign), (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`)));
    const ranks = parts.slice(1).map((part, k) => rank(parts[k], part));
    for (;;) {
      let at = -1;
      ranks.forEach((r, k) => { if (r !== undefined && (at < 0 || r < ranks[at])) at = k; });
      if (at < 0) return parts.map((part) => this.number.get(part));
      parts.splice(at, 2, parts[at] + parts[at + 1]);
      ranks.splice(at, 1);
      if (at > 0) ranks[at - 1] = rank(parts[at - 1], parts[at]);
      if (at < ranks.length) ranks[at] = rank(parts[at], parts[at + 1]);
    }
  }

  /** The tokens with a vector that stand for one: itself, or the parts of which it was merged. */
  known(number) {
    if (this.place.has(number)) return [number];
    const token = this.tokens[number];
    let best = null;
    for (let k = 1; k < token.length; k++) {
      const [a, b] = [this.number.get(token.slice(0, k)), this.number.get(token.slice(k))];
      if (a !== undefined && b !== undefined && (best === null || Math.max(a, b) < Math.max(...best))) best = [a, b];
    }
    return best === null ? [] : best.flatMap((part) => this.known(part));
  }

  /** { values, parts: tokens that are read in parts or not at all }; NaN where nothing is known of the text. */
  encode(text) {
    const cut = text.trim() ? this.cut(text) : [];
    const read = cut.flatMap((number) => this.known(number));
    const values = new Float64Array(this.size).fill(read.length ? 0 : NaN);
    for (const number of read) {
      const k = this.place.get(number);
      for (let j = 0; j < this.size; j++) values[j] += (this.scale[k] * this.table[k * this.size + j]) / read.length;
    }
    return { values, parts: cut.filter((number) => !this.place.has(number)).map((number) => this.tokens[number].replaceAll("▁", "")) };
  }
}
