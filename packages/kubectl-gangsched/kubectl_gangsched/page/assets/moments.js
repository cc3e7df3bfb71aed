// @ts-check
// The moments of a document. What changed is applied as `changes.py` does; a moment is never changed.

/** @typedef {import('./types.js').Moment} Moment */
/** @typedef {import('./types.js').Change} Change */
/** @typedef {import('./types.js').Place} Place */
/** @typedef {import('./types.js').QueueChange} QueueChange */

const TABLES = /** @type {const} */ (['nodes', 'gangs', 'bars', 'details']);
const FIELDS = /** @type {const} */ ([
  'sentence', 'remark', 'levels', 'totals', 'order', 'health', 'unknown',
]);
/** A jump in a file applies at most as many changes. */
const CHECKPOINT_EVERY = 32;
/** Rows that live moments may keep beside those of now: what bounds the page's memory. */
const KEPT_ROWS = 40_000;
const KEPT_MOMENTS = 360;
const FIRST_EVERY_S = 5;

/**
 * The moment after the changes. Each table is copied once, however many changes there are.
 * @param {Moment} before
 * @param {Change[]} changes
 * @returns {Moment}
 */
export function applied(before, changes) {
  /** @type {any} */
  const after = { ...before };
  for (const table of TABLES) {
    if (!changes.some((change) => change[table])) continue;

    /** @type {Record<string, any>} */
    const rows = { ...before[table] };
    for (const change of changes) {
      for (const [key, row] of Object.entries(change[table] ?? {})) {
        if (row === null) delete rows[key];
        else rows[key] = row;
      }
    }

    after[table] = rows;
  }

  for (const change of changes) {
    after.atS = change.atS;
    // What was not there before has no value again.
    for (const field of FIELDS) if (field in change && change[field] !== null) after[field] = change[field];
    for (const one of [change.queue ?? []].flat()) after.queue = changedQueue(after.queue ?? [], one);
  }

  return after;
}

/**
 * @param {Place[]} before
 * @param {QueueChange} change
 */
function changedQueue(before, change) {
  const left = new Set(change.left ?? []);
  const rest = left.size ? before.filter(([gang]) => !left.has(gang)) : before;
  /** @type {Place[]} */
  const queue = [];
  let taken = 0;
  for (const { at = 0, dropped = 0, joined = [] } of change.parts ?? []) {
    for (const one of rest.slice(taken, at).concat(joined)) queue.push(one);
    taken = at + dropped;
  }

  return queue.concat(rest.slice(taken));
}

/** The moments of a file. */
export class FileMoments {
  /** @param {Moment} first @param {Change[]} changes */
  constructor(first, changes) {
    this.changes = changes;
    this.times = [first.atS, ...changes.map((change) => change.atS)];
    /** @type {Map<number, Moment>} */
    this.checkpoints = new Map([[0, first]]);
    this.last = { place: 0, moment: first };
  }

  /** @param {number} place */
  at(place) {
    let from = place;
    while (!this.checkpoints.has(from) && from !== this.last.place) from -= 1;

    let moment = /** @type {Moment} */ (this.checkpoints.get(from) ?? this.last.moment);
    while (from < place) {
      const to = Math.min(place, (Math.floor(from / CHECKPOINT_EVERY) + 1) * CHECKPOINT_EVERY);
      moment = applied(moment, this.changes.slice(from, to));
      from = to;
      if (from % CHECKPOINT_EVERY === 0) this.checkpoints.set(from, moment);
    }

    this.last = { place, moment };
    return moment;
  }
}

/**
 * What makes `after` of `before`, as `changes.py` has it; a row is the same where it is the same object.
 * @param {Moment} before
 * @param {Moment} after
 * @returns {Change}
 */
function between(before, after) {
  /** @type {any} */
  const change = { atS: after.atS };
  for (const table of TABLES) if (after[table] !== before[table]) change[table] = changedRows(before[table], after[table]);
  for (const field of FIELDS) if (after[field] !== before[field]) change[field] = after[field];
  if (before.queue !== after.queue) change.queue = queueBetween(before.queue ?? [], after.queue ?? []);
  return change;
}

/**
 * @param {Record<string, any>} [before]
 * @param {Record<string, any>} [after]
 */
function changedRows(before = {}, after = {}) {
  /** @type {Record<string, any>} */
  const rows = {};
  for (const key in after) if (after[key] !== before[key]) rows[key] = after[key];
  for (const key in before) if (!(key in after)) rows[key] = null;
  return rows;
}

/**
 * Those that left, and one stretch for each that came or has another place; where some have changed
 * places, one for all that follows.
 * @param {Place[]} before
 * @param {Place[]} after
 * @returns {QueueChange}
 */
function queueBetween(before, after) {
  const remaining = new Set(after.map(([gang]) => gang));
  const left = before.map(([gang]) => gang).filter((gang) => !remaining.has(gang));
  const rest = before.filter(([gang]) => remaining.has(gang));
  const known = new Set(rest.map(([gang]) => gang));
  const parts = [];

  let at = 0;
  let place = 0;
  while (at < rest.length || place < after.length) {
    const [one, behind] = rest[at] ?? ['', 0];
    const [other, later] = after[place] ?? ['', 0];
    const isNew = !known.has(other) && place < after.length;
    const dropped = isNew ? 0 : one === other ? 1 : rest.length - at;
    const joined = isNew || one === other ? 1 : after.length - place;
    if (one !== other || behind !== later) parts.push({ at, dropped, joined: after.slice(place, place + joined) });
    at += dropped;
    place += joined;
  }

  return { left, parts };
}

/** The rows that a change keeps in memory. @param {Change} change */
function rowsOf(change) {
  let rows = 0;
  for (const table of TABLES) rows += Object.keys(change[table] ?? {}).length;
  for (const { left = [], parts = [] } of [change.queue ?? []].flat()) {
    rows += left.length;
    for (const { joined = [] } of parts) rows += 1 + joined.length;
  }

  return rows;
}

/**
 * One change in place of two, of which `first` is applied first.
 * @param {Change} first
 * @param {Change} then
 * @returns {Change}
 */
function both(first, then) {
  /** @type {any} */
  const change = { ...first, ...then, queue: [first.queue ?? [], then.queue ?? []].flat() };
  for (const table of TABLES) if (first[table] && then[table]) change[table] = { ...first[table], ...then[table] };
  return change;
}

/**
 * What a live page has seen while it is open: older moments are further apart. Only the last two are
 * there as a whole; each one before has what makes it of the next one.
 */
export class LiveMoments {
  /** @param {Moment} first */
  constructor(first) {
    this.latest = first;
    /** The moment before it that stays. @type {Moment | null} */
    this.before = null;
    /** Oldest first. @type {{ atS: number, back: Change, rows: number }[]} */
    this.steps = [];
    this.everyS = FIRST_EVERY_S;
    /** @type {{ step: unknown, moment: Moment }} */
    this.shown = { step: null, moment: first };
  }

  get times() {
    const whole = this.before ? [this.before, this.latest] : [this.latest];
    return [...this.steps, ...whole].map(({ atS }) => atS);
  }

  /** @param {number} place @returns {Moment} */
  at(place) {
    const behind = place - this.steps.length;
    if (behind >= 0) return behind === 0 && this.before ? this.before : this.latest;

    const step = this.steps[place];
    if (this.shown.step !== step) {
      const backs = this.steps.slice(place).reverse().map(({ back }) => back);
      this.shown = { step, moment: applied(/** @type {Moment} */ (this.before), backs) };
    }

    return this.shown.moment;
  }

  /** @param {Moment} moment */
  push(moment) {
    const { before, latest } = this;
    this.latest = moment;
    if (before && latest.atS - before.atS < this.everyS) return;

    this.before = latest;
    if (!before) return;

    this.keep(between(latest, before));
    const rows = this.steps.reduce((sum, step) => sum + step.rows, 0);
    if (this.steps.length > KEPT_MOMENTS || rows > KEPT_ROWS) this.thin();
  }

  /** @param {Change} back */
  keep(back) {
    this.steps.push({ atS: back.atS, back, rows: rowsOf(back) });
  }

  /** Every other moment goes, and the oldest ones if that is not enough. */
  thin() {
    const steps = this.steps;
    this.everyS *= 2;
    this.steps = [];
    for (let place = 0; place < steps.length; place += 2) {
      const next = steps[place + 1];
      this.keep(next ? both(next.back, steps[place].back) : steps[place].back);
    }

    let rows = this.steps.reduce((sum, step) => sum + step.rows, 0);
    while (rows > KEPT_ROWS) rows -= this.steps.shift()?.rows ?? rows;
  }
}
