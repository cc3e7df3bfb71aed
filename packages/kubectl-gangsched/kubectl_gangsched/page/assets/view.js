// @ts-check
// What the views share, derived once for each moment.

import { Marks } from './owners.js';
import { kindsOf } from './racks.js';

/** @typedef {import('./types.js').Moment} Moment */
/** @typedef {import('./types.js').PageGang} PageGang */
/** @typedef {import('./owners.js').Mark} Mark */

/** @typedef {{ id: string, units: Map<string, number>, nodes: Set<string> }} Use */
/** @typedef {{ id: string, position: number, gang: PageGang }} Waiting */
/** @typedef {{ id: string, gang: PageGang | null, use: Use | null, sinceS: number | null, endS: number | null }} Run */

/**
 * @typedef {object} View
 * @property {Moment} moment
 * @property {import('./racks.js').Kind[]} kinds
 * @property {number} nodes
 * @property {Map<string, Use>} uses
 * @property {Map<string, Mark>} marks
 * @property {Waiting[]} waiting
 * @property {Run[]} runs
 * @property {Set<string>} scarce
 * @property {Map<string, string[]>} reservedNodes
 */

const marks = new Marks();

/** @param {Moment} moment @returns {View} */
export function viewOf(moment) {
  const kinds = kindsOf(moment);
  const { uses, reservedNodes } = usesOf(moment);
  const racks = kinds.flatMap((kind) => kind.racks);
  const waiting = waitingOf(moment);
  const users = [...uses.values()].sort((a, b) => total(b) - total(a) || (a.id < b.id ? -1 : 1));
  const ids = users.map((use) => use.id);
  for (const { id, gang } of waiting) {
    const comes = reservedNodes.has(id) || gang.promisedS != null;
    if (comes && !uses.has(id)) ids.push(id);
  }

  return {
    moment,
    kinds,
    nodes: Object.keys(moment.nodes ?? {}).length,
    uses,
    marks: marks.of(ids, racks),
    waiting,
    runs: runsOf(moment, users),
    scarce: new Set((moment.totals ?? []).map(({ resource }) => resource)),
    reservedNodes,
  };
}

/** All units of a user. @param {Use} use */
export const total = (use) => [...use.units.values()].reduce((sum, units) => sum + units, 0);

/** @param {Moment} moment */
function usesOf(moment) {
  /** @type {Map<string, Use>} */
  const uses = new Map();
  /** @type {Map<string, string[]>} */
  const reservedNodes = new Map();
  for (const [name, row] of Object.entries(moment.nodes ?? {})) {
    for (const { resource, users = {} } of row.devices ?? []) {
      for (const [id, units] of Object.entries(users)) {
        let use = uses.get(id);
        if (!use) uses.set(id, (use = { id, units: new Map(), nodes: new Set() }));
        use.units.set(resource, (use.units.get(resource) ?? 0) + units);
        use.nodes.add(name);
      }
    }

    for (const { gang } of row.reserved ?? []) {
      const nodes = reservedNodes.get(gang);
      if (nodes) nodes.push(name);
      else reservedNodes.set(gang, [name]);
    }
  }

  return { uses, reservedNodes };
}

/** @param {Moment} moment @returns {Waiting[]} */
function waitingOf(moment) {
  const waiting = [];
  let position = 0;
  for (const [id, behind] of moment.queue ?? []) {
    position += behind;
    const gang = moment.gangs?.[id];
    if (gang) waiting.push({ id, position, gang });
  }

  return waiting;
}

/**
 * What runs, the first to end first; what has no known end comes last.
 * @param {Moment} moment
 * @param {Use[]} users
 * @returns {Run[]}
 */
function runsOf(moment, users) {
  /** @type {Run[]} */
  const runs = users.map((use) => runOf(moment, use.id, use));
  const seen = new Set(users.map((use) => use.id));
  // Most of thousands wait: no array of all of them is made.
  const gangs = moment.gangs ?? {};
  for (const id in gangs) {
    const { bound, startedS } = gangs[id];
    if (bound && startedS != null && !seen.has(id)) runs.push(runOf(moment, id, null));
  }

  const late = Number.MAX_SAFE_INTEGER;
  return runs.sort((a, b) => (a.endS ?? late) - (b.endS ?? late) || (a.id < b.id ? -1 : 1));
}

/**
 * @param {Moment} moment
 * @param {string} id
 * @param {Use | null} use
 * @returns {Run}
 */
function runOf(moment, id, use) {
  const gang = moment.gangs?.[id] ?? null;
  const bars = moment.bars?.[id] ?? [];
  const happened = bars.filter((bar) => bar.kind === 'happened').at(-1);
  const expected = bars.find((bar) => bar.kind === 'expected');
  const sinceS = gang?.startedS ?? happened?.fromS ?? null;
  return { id, gang, use, sinceS, endS: gang?.expectedEndS ?? expected?.toS ?? null };
}
