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
/** Rows that live moments may keep alive together: what bounds the page's memory. */
const KEPT_ROWS = 400_000;
const KEPT_MOMENTS = 360;

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
    for (const field of FIELDS) if (change[field] != null) after[field] = change[field];
    if (change.queue) after.queue = changedQueue(after.queue ?? [], change.queue);
  }

  return after;
}

/**
 * @param {Place[]} before
 * @param {QueueChange} change
 */
function changedQueue(before, change) {
  const left = new Set(change.left ?? []);
  const rest = left.size ? before.filter(([gang]) => !left.has(gang)) : [...before];
  rest.splice(change.at ?? 0, change.dropped ?? 0, ...(change.joined ?? []));
  return rest;
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

/** What a live page has seen while it is open: older moments are further apart. */
export class LiveMoments {
  /** @param {Moment} first */
  constructor(first) {
    /** @type {Moment[]} */
    this.kept = [first];
    this.everyS = 5;
  }

  get times() {
    return this.kept.map((moment) => moment.atS);
  }

  /** @param {number} place */
  at(place) {
    return this.kept[place];
  }

  get latest() {
    return this.kept[this.kept.length - 1];
  }

  /** @param {Moment} moment */
  push(moment) {
    const before = this.kept[this.kept.length - 2];
    const tooSoon = before && this.latest.atS - before.atS < this.everyS;
    if (tooSoon) this.kept.pop();
    this.kept.push(moment);

    const rows = Object.keys(moment.nodes ?? {}).length + Object.keys(moment.gangs ?? {}).length;
    const most = Math.max(8, Math.min(KEPT_MOMENTS, Math.floor(KEPT_ROWS / (rows + 1))));
    if (this.kept.length > most) {
      this.kept = this.kept.filter((_, place) => place % 2 === 1 || place === this.kept.length - 1);
      this.everyS *= 2;
    }
  }
}
