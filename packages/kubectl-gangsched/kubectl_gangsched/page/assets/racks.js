// @ts-check
// The nodes that have a kind of device, by zone and rack.

import { levelName } from './words.js';

/** @typedef {import('./types.js').Moment} Moment */
/** @typedef {import('./types.js').PageNode} PageNode */
/** @typedef {import('./types.js').Devices} Devices */

/**
 * @typedef {object} Box
 * @property {string} name
 * @property {PageNode} row
 * @property {Devices} devices
 * @property {number} free
 * @property {string[]} users
 */

/** @typedef {{ key: string, name: string, level: string, nodes: Box[], free: number, total: number }} Rack */
/** @typedef {{ name: string, racks: Rack[] }} Zone */
/** @typedef {{ resource: string, zones: Zone[], racks: Rack[], nodes: number, free: number, total: number }} Kind */

/** The path of nodes without one: always the same, so that it is known again.
 * @type {string[]} */
const NOWHERE = [];
const NATURAL = new Intl.Collator('en', { numeric: true });
/** @param {string} a @param {string} b */
const inOrder = (a, b) => NATURAL.compare(a, b);

/** @typedef {{ place: number, name: string }} Level */

/** The levels that some node has a label of, the largest first. @param {Moment} moment @returns {Level[]} */
export function levelsOf(moment) {
  const rows = Object.values(moment.nodes ?? {});
  return (moment.levels ?? [])
    .map((label, place) => ({ place, name: levelName(label) }))
    .filter(({ place }) => rows.some((row) => row.path?.[place]));
}

/** @type {{ keys: string[], sorted: string[] }} */
let known = { keys: [], sorted: [] };

/** The names of the nodes in order, sorted again only if others are there. @param {Moment} moment */
function namesOf(moment) {
  const keys = Object.keys(moment.nodes ?? {});
  const isKnown = keys.length === known.keys.length && keys.every((key, n) => key === known.keys[n]);
  if (!isKnown) known = { keys, sorted: [...keys].sort(inOrder) };
  return known.sorted;
}

/**
 * @param {Moment} moment
 * @returns {Kind[]}
 */
export function kindsOf(moment) {
  const levels = levelsOf(moment);
  /** @type {Map<string, Map<string, Map<string, Rack>>>} */
  const kinds = new Map((moment.totals ?? []).map(({ resource }) => [resource, new Map()]));

  const key = levels.map(({ place, name }) => `${place} ${name}`).join();
  for (const name of namesOf(moment)) {
    const row = /** @type {Record<string, PageNode>} */ (moment.nodes)[name];
    const [zone, rack] = placeOf(row.path ?? NOWHERE, levels, key);
    for (const devices of row.devices ?? []) {
      const zones = slot(kinds, devices.resource, () => new Map());
      const racks = slot(zones, zone, () => new Map());
      const into = slot(racks, rack, () => emptyRack(`${devices.resource}|${zone}|${rack}`, rack, levels));
      const users = Object.keys(devices.users ?? {});
      into.nodes.push({ name, row, devices, free: devices.free ?? 0, users });
      into.free += devices.free ?? 0;
      into.total += devices.total;
    }
  }

  return [...kinds].filter(([, zones]) => zones.size).map(([resource, zones]) => kindOf(resource, zones));
}

/**
 * @param {string} resource
 * @param {Map<string, Map<string, Rack>>} byName
 * @returns {Kind}
 */
function kindOf(resource, byName) {
  const zones = [];
  for (const [name, racks] of byName) {
    zones.push({ name, racks: [...racks.values()].sort((a, b) => inOrder(a.name, b.name)) });
  }

  zones.sort((a, b) => inOrder(a.name, b.name));
  const racks = zones.flatMap((zone) => zone.racks);
  return {
    resource,
    zones,
    racks,
    nodes: sum(racks, (rack) => rack.nodes.length),
    free: sum(racks, (rack) => rack.free),
    total: sum(racks, (rack) => rack.total),
  };
}

/** Of each path, which most nodes keep from moment to moment. */
const places = /** @type {WeakMap<string[], { levels: string, place: string[] }>} */ (new WeakMap());

/**
 * The smallest level is the rack, those above it together are the zone.
 * @param {string[]} path
 * @param {Level[]} levels
 * @param {string} key of the levels
 */
function placeOf(path, levels, key) {
  const last = levels.length - 1;
  if (last < 0) return ['', ''];

  const before = places.get(path);
  if (before?.levels === key) return before.place;

  const above = [];
  for (const { place, name } of levels.slice(0, last)) above.push(levelText(name, path[place] ?? ''));
  const place = [above.join(' · '), path[levels[last].place] ?? ''];
  places.set(path, { levels: key, place });
  return place;
}

/** @param {string} key @param {string} name @param {Level[]} levels @returns {Rack} */
function emptyRack(key, name, levels) {
  const level = levels[levels.length - 1]?.name ?? '';
  return { key, name, level, nodes: [], free: 0, total: 0 };
}

/** A domain with the name of its level, once. @param {string} level @param {string} name */
export function levelText(level, name) {
  if (!name) return `no ${level}`;
  return name.toLowerCase().startsWith(level.toLowerCase()) ? name : `${level} ${name}`;
}

/** What the map calls a rack. @param {Rack} rack */
export const rackName = (rack) => (rack.level ? levelText(rack.level, rack.name) : 'all nodes');

/** The racks with the most room, the largest first. @param {Kind} kind @param {number} most */
export function emptiest(kind, most) {
  const free = kind.racks.filter((rack) => rack.free > 0);
  return free.sort((a, b) => b.free - a.free || inOrder(a.key, b.key)).slice(0, most);
}

/**
 * @template T
 * @param {T[]} items
 * @param {(item: T) => number} of
 */
export const sum = (items, of) => items.reduce((total, item) => total + of(item), 0);

/**
 * @template V
 * @param {Map<string, V>} map
 * @param {string} key
 * @param {() => V} make
 * @returns {V}
 */
function slot(map, key, make) {
  let value = map.get(key);
  if (value === undefined) {
    value = make();
    map.set(key, value);
  }

  return value;
}
