// @ts-check
// A letter and a colour for each gang and plain pod that uses or will use a device. Both stay with it
// while the page is open: a map whose letters move cannot be read twice.

/** @typedef {import('./racks.js').Rack} Rack */
/** @typedef {{ id: string, slot: number, letter: string, colour: number }} Mark */

/** The seven colours of Okabe and Ito; more would look alike to some eyes. */
export const COLOURS = 7;
/** The colour of everybody whom the user may not see. */
export const GREY = 7;
const LETTERS = 26;
const NEIGHBOUR = 1000;
/** Users that are gone and keep their marks, for when they come back. */
const GONE_KEPT = 1000;

/** A, B … Z, AA, AB … @param {number} slot */
function letterOf(slot) {
  let text = '';
  for (let left = slot; left >= 0; left = Math.floor(left / LETTERS) - 1) {
    text = String.fromCharCode(65 + (left % LETTERS)) + text;
  }

  return text;
}

export class Marks {
  constructor() {
    /** @type {Map<string, Mark>} */
    this.known = new Map([['others', { id: 'others', slot: -1, letter: '–', colour: GREY }]]);
  }

  /**
   * The marks of all `ids`, which are ordered by what they use.
   * @param {string[]} ids
   * @param {Rack[]} racks
   * @returns {Map<string, Mark>}
   */
  of(ids, racks) {
    /** @type {Map<string, Mark>} */
    const marks = new Map();
    const taken = new Set();
    const unmarked = [];
    for (const id of ids) {
      const mark = this.known.get(id);
      if (mark && !taken.has(mark.slot)) {
        taken.add(mark.slot);
        marks.set(id, mark);
      } else {
        unmarked.push(id);
      }
    }

    const beside = unmarked.length ? neighbours(new Set(unmarked), racks) : new Map();
    let slot = 0;
    for (const id of unmarked) {
      while (taken.has(slot)) slot += 1;
      taken.add(slot);
      const colour = leastSeen(beside.get(id) ?? [], marks, slot);
      const mark = { id, slot, letter: letterOf(slot), colour };
      this.known.set(id, mark);
      marks.set(id, mark);
    }

    this.forget(marks);
    return marks;
  }

  /** Forget those that came first and are gone: a page that is open for days must not grow. @param {Map<string, Mark>} marks */
  forget(marks) {
    let more = this.known.size - marks.size - GONE_KEPT;
    for (const id of this.known.keys()) {
      if (more <= 0) return;
      if (marks.has(id) || id === 'others') continue;

      this.known.delete(id);
      more -= 1;
    }
  }
}

/**
 * Who stands beside each of `ids`: on its nodes, and on the nodes before and after in the rack.
 * @param {Set<string>} ids
 * @param {Rack[]} racks
 */
function neighbours(ids, racks) {
  /** @type {Map<string, Set<string>>} */
  const beside = new Map();
  for (const rack of racks) {
    /** @type {string[]} */
    let before = [];
    for (const { users } of rack.nodes) {
      const near = [...before, ...users];
      for (const id of near) {
        if (!ids.has(id)) continue;
        const set = beside.get(id) ?? new Set();
        beside.set(id, set);
        for (const other of near) if (other !== id) set.add(other);
      }

      for (const id of before) for (const other of users) beside.get(id)?.add(other);
      before = users;
    }
  }

  return beside;
}

/**
 * @param {Iterable<string>} beside
 * @param {Map<string, Mark>} marks
 * @param {number} slot
 */
function leastSeen(beside, marks, slot) {
  const seen = new Array(COLOURS).fill(0);
  for (const id of beside) {
    const mark = marks.get(id);
    if (mark && mark.colour < COLOURS) seen[mark.colour] += NEIGHBOUR;
  }

  // Without neighbours the colours follow each other.
  for (let colour = 0; colour < COLOURS; colour++) seen[colour] += (colour - slot % COLOURS + COLOURS) % COLOURS;
  return seen.indexOf(Math.min(...seen));
}
