// @ts-check
// Where each rack and node of a large map is. One unit is a pixel where names can be read; a whole
// cluster is drawn at about a tenth of that.

import { sum } from './racks.js';

/** @typedef {import('./racks.js').Kind} Kind */
/** @typedef {import('./racks.js').Rack} Rack */
/** @typedef {import('./racks.js').Box} Box */
/** @typedef {{ x: number, y: number, w: number, h: number }} Area */
/** @typedef {Area & { box: Box, resource: string }} NodeArea */
/** @typedef {Area & { rack: Rack, resource: string, nodes: NodeArea[] }} RackArea */
/** @typedef {Area & { text: string, size: number }} Label */
/** @typedef {{ width: number, height: number, racks: RackArea[], labels: Label[] }} Layout */

export const NODE_W = 150;
export const NODE_H = 44;
export const RACK_HEAD = 26;
const NODE_GAP = 5;
const RACK_PAD = 8;
const RACK_GAP = 22;
/** Kinds are named above their racks, zones beside them, in letters that can be read when all is shown. */
const HEAD_PX = 20;
const LETTER_PX = 6.6;
const LONGEST = 16;
const TRIES = 9;

/**
 * @param {Kind[]} kinds
 * @param {number} widthPx of the window
 * @param {number} heightPx
 * @returns {Layout}
 */
export function layoutOf(kinds, widthPx, heightPx) {
  let narrow = NODE_W * 2;
  let wide = Math.max(narrow, sum(kinds, (kind) => kind.nodes) * NODE_W);
  for (let tries = 0; tries < TRIES; tries++) {
    const width = Math.sqrt(narrow * wide);
    const { height } = placed(kinds, width, widthPx, false);
    if (width / height < widthPx / heightPx) narrow = width;
    else wide = width;
  }

  return placed(kinds, wide, widthPx, true);
}

/**
 * @param {Kind[]} kinds
 * @param {number} width
 * @param {number} widthPx
 * @param {boolean} all with the place of each node
 * @returns {Layout}
 */
function placed(kinds, width, widthPx, all) {
  const perPx = width / widthPx;
  const head = Math.max(30, HEAD_PX * perPx);
  const longest = Math.max(0, ...kinds.flatMap(({ zones }) => zones.map(({ name }) => name.length)));
  const gutter = longest ? Math.max(60, (Math.min(longest, LONGEST) * LETTER_PX + 10) * perPx) : 0;
  /** @type {RackArea[]} */
  const racks = [];
  /** @type {Label[]} */
  const labels = [];
  let y = 0;
  let right = 0;

  for (const kind of kinds) {
    if (kinds.length > 1) {
      labels.push({ x: 0, y, w: width, h: head, text: kind.resource, size: 1 });
      y += head;
    }

    for (const zone of kind.zones) {
      if (zone.name) {
        labels.push({ x: 0, y, w: gutter, h: head, text: zone.name, size: 0 });
      }

      // Rows of the same length look like a room; one rack alone in the last one does not.
      const sizes = zone.racks.map(sizeOf);
      const rows = Math.ceil(sum(sizes, ({ w }) => w + RACK_GAP) / (width - gutter));
      const perRow = Math.ceil(zone.racks.length / rows);
      let x = gutter;
      let row = 0;
      for (const [place, rack] of zone.racks.entries()) {
        const { w, h, columns } = sizes[place];
        if (x > gutter && (x + w > width || place % perRow === 0)) {
          x = gutter;
          y += row + RACK_GAP;
          row = 0;
        }

        const nodes = all ? nodesOf(rack, kind.resource, x, y, columns) : [];
        racks.push({ x, y, w, h, rack, resource: kind.resource, nodes });
        x += w + RACK_GAP;
        row = Math.max(row, h);
        right = Math.max(right, x - RACK_GAP);
      }

      y += row + RACK_GAP * 2;
    }
  }

  return { width: right, height: y - RACK_GAP * 2, racks, labels };
}

/** As near to a square as its nodes allow. @param {Rack} rack */
function sizeOf(rack) {
  const count = rack.nodes.length;
  const columns = Math.max(1, Math.round(Math.sqrt((count * NODE_H) / NODE_W)));
  const rows = Math.ceil(count / columns);
  return {
    columns,
    w: columns * (NODE_W + NODE_GAP) - NODE_GAP + 2 * RACK_PAD,
    h: rows * (NODE_H + NODE_GAP) - NODE_GAP + RACK_PAD + RACK_HEAD,
  };
}

/**
 * @param {Rack} rack
 * @param {string} resource
 * @param {number} x
 * @param {number} y
 * @param {number} columns
 * @returns {NodeArea[]}
 */
function nodesOf(rack, resource, x, y, columns) {
  return rack.nodes.map((box, place) => ({
    box,
    resource,
    x: x + RACK_PAD + (place % columns) * (NODE_W + NODE_GAP),
    y: y + RACK_HEAD + Math.floor(place / columns) * (NODE_H + NODE_GAP),
    w: NODE_W,
    h: NODE_H,
  }));
}

/** @param {Area} area @param {number} x @param {number} y */
export const holds = (area, x, y) =>
  x >= area.x && y >= area.y && x <= area.x + area.w && y <= area.y + area.h;
