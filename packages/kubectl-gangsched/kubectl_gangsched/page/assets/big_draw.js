// @ts-check
// Draws a part of a large map. From far away a node is one stripe for each of its users; nearer it
// is its squares; nearest it has its name and their letters.

import { RACK_HEAD } from './big_layout.js';
import { at } from './state.js';
import { MARK_COLOURS, MARK_INKS, inks } from './inks.js';
import { rackName } from './racks.js';
import { number } from './words.js';

/** @typedef {import('./big_layout.js').Layout} Layout */
/** @typedef {import('./big_layout.js').NodeArea} NodeArea */
/** @typedef {import('./big_layout.js').RackArea} RackArea */
/** @typedef {import('./view.js').View} View */
/** @typedef {{ x: number, y: number, scale: number }} Camera */

/** Scales from which on there are squares, and names. */
const SQUARES_FROM = 0.3;
const NAMES_FROM = 0.62;
/** Pixels that a rack needs for its name. */
const HEAD_FROM = 84;
const FAINT = 0.16;
const FONT = 'Inter, system-ui, "DejaVu Sans", sans-serif';

/**
 * @param {CanvasRenderingContext2D} to
 * @param {Layout} layout
 * @param {View} view
 * @param {Camera} camera
 * @param {number} width
 * @param {number} height
 * @param {string} focus
 */
export function drawMap(to, layout, view, camera, width, height, focus) {
  const ink = inks();
  const { scale } = camera;
  to.fillStyle = ink.card;
  to.fillRect(0, 0, width, height);

  for (const label of layout.labels) drawLabel(to, label, camera, ink);

  for (const rack of layout.racks) {
    const x = (rack.x - camera.x) * scale;
    const y = (rack.y - camera.y) * scale;
    const w = rack.w * scale;
    const h = rack.h * scale;
    if (x > width || y > height || x + w < 0 || y + h < 0) continue;

    to.globalAlpha = 1;
    to.fillStyle = ink.soft;
    to.beginPath();
    to.roundRect(x, y, w, h, Math.min(8, 10 * scale));
    to.fill();
    if (w >= HEAD_FROM) drawHead(to, rack, x, y, w, scale, ink);
    for (const node of rack.nodes) drawNode(to, node, view, camera, width, height, focus, ink);
  }

  to.globalAlpha = 1;
}

/**
 * @param {CanvasRenderingContext2D} to
 * @param {import('./big_layout.js').Label} label
 * @param {Camera} camera
 * @param {import('./inks.js').Inks} ink
 */
function drawLabel(to, label, camera, ink) {
  const bottom = (label.y + label.h * 0.74 - camera.y) * camera.scale;
  const x = (label.x - camera.x) * camera.scale;
  const size = Math.min(22, label.h * 0.62 * camera.scale);
  to.fillStyle = label.size ? ink.ink : ink.dim;
  to.font = `${label.size ? 600 : 500} ${size}px ${FONT}`;
  to.textBaseline = 'alphabetic';
  to.textAlign = 'left';
  to.fillText(label.text, x, bottom, Math.max(10, label.w * camera.scale - 6));
}

/**
 * @param {CanvasRenderingContext2D} to
 * @param {RackArea} area
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} scale
 * @param {import('./inks.js').Inks} ink
 */
function drawHead(to, area, x, y, w, scale, ink) {
  const size = Math.min(14, Math.max(10, RACK_HEAD * 0.56 * scale));
  const middle = y + (RACK_HEAD * scale) / 2 + 1;
  to.textBaseline = 'middle';
  to.font = `600 ${size}px ${FONT}`;
  to.fillStyle = ink.ink;
  to.textAlign = 'left';
  if (RACK_HEAD * scale < size - 1) return;

  to.fillText(rackName(area.rack), x + 7 * scale, middle, w * 0.6);
  to.font = `400 ${size}px ${FONT}`;
  to.fillStyle = ink.dim;
  to.textAlign = 'right';
  to.fillText(`${number(area.rack.free)} free`, x + w - 8 * scale, middle, w * 0.38);
}

/**
 * @param {CanvasRenderingContext2D} to
 * @param {NodeArea} area
 * @param {View} view
 * @param {Camera} camera
 * @param {number} width
 * @param {number} height
 * @param {string} focus
 * @param {import('./inks.js').Inks} ink
 */
function drawNode(to, area, view, camera, width, height, focus, ink) {
  const { scale } = camera;
  const x = (area.x - camera.x) * scale;
  const y = (area.y - camera.y) * scale;
  const w = area.w * scale;
  const h = area.h * scale;
  if (x > width || y > height || x + w < 0 || y + h < 0) return;

  const { row } = area.box;
  const reserved = row.reserved?.[0];
  const isFocus = !focus || area.box.users.includes(focus) || row.reserved?.some(({ gang }) => gang === focus);
  to.globalAlpha = isFocus ? 1 : FAINT;
  to.fillStyle = row.closed ? ink.hatch : ink.free;
  to.fillRect(x, y, w, h);

  if (scale < SQUARES_FROM) {
    drawStripes(to, area, view, x, y, w, h, focus);
  } else {
    drawSquares(to, area, view, x, y, scale, focus, ink);
  }

  if (row.closed && row.closed !== 'cordoned') {
    to.strokeStyle = ink.bad;
    to.lineWidth = Math.max(1, 2 * scale);
    to.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
  } else if (reserved) {
    to.strokeStyle = MARK_COLOURS[view.marks.get(reserved.gang)?.colour ?? 7];
    to.lineWidth = Math.max(1, 2.5 * scale);
    to.setLineDash([6 * scale, 4 * scale]);
    to.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
    to.setLineDash([]);
  } else if (scale >= SQUARES_FROM) {
    to.strokeStyle = ink.line;
    to.lineWidth = 1;
    to.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
  }
}

/**
 * @param {CanvasRenderingContext2D} to
 * @param {NodeArea} area
 * @param {View} view
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 * @param {string} focus
 */
function drawStripes(to, area, view, x, y, w, h, focus) {
  const { total, users = {} } = area.box.devices;
  let from = x;
  for (const id of area.box.users) {
    const part = (w * users[id]) / total;
    to.globalAlpha = focus && id !== focus ? FAINT : 1;
    to.fillStyle = MARK_COLOURS[view.marks.get(id)?.colour ?? 7];
    to.fillRect(from, y, part, h);
    from += part;
  }
}

/**
 * @param {CanvasRenderingContext2D} to
 * @param {NodeArea} area
 * @param {View} view
 * @param {number} x
 * @param {number} y
 * @param {number} scale
 * @param {string} focus
 * @param {import('./inks.js').Inks} ink
 */
function drawSquares(to, area, view, x, y, scale, focus, ink) {
  const named = scale >= NAMES_FROM;
  const { row, devices, users, name } = area.box;
  const alpha = to.globalAlpha;
  if (named) drawName(to, area, view, x, y, scale, ink, name, row);

  const top = y + (named ? 20 : 4) * scale;
  const high = area.h * scale - (named ? 24 : 8) * scale;
  const rows = devices.total > 32 ? 4 : devices.total > 16 ? 2 : 1;
  const columns = Math.max(4, Math.ceil(devices.total / rows));
  const wide = (area.w - 8) * scale / columns;
  const tall = high / rows;
  const gap = Math.min(2, wide * 0.14);
  let n = 0;

  to.textAlign = 'center';
  to.textBaseline = 'middle';
  to.font = `600 ${Math.min(tall * 0.8, wide * 0.72)}px ${FONT}`;
  const place = () => [x + 4 * scale + (n % columns) * wide, top + Math.floor(n / columns) * tall];
  for (const id of users) {
    const mark = view.marks.get(id);
    const colour = mark?.colour ?? 7;
    to.globalAlpha = focus && id !== focus ? FAINT : 1;
    for (let unit = 0; unit < (devices.users?.[id] ?? 0); unit++, n++) {
      const [left, high_] = place();
      to.fillStyle = MARK_COLOURS[colour];
      to.fillRect(left, high_, wide - gap, tall - gap);
      if (!named || wide < 9) continue;
      to.fillStyle = MARK_INKS[colour];
      to.fillText(mark?.letter ?? '', left + (wide - gap) / 2, high_ + (tall - gap) / 2 + 0.5, wide - gap);
    }
  }

  to.globalAlpha = alpha;
  to.strokeStyle = ink['free-line'];
  to.fillStyle = ink.dim;
  to.lineWidth = 1;
  for (; n < devices.total; n++) {
    const [left, high_] = place();
    to.strokeRect(left + 0.5, high_ + 0.5, wide - gap - 1, tall - gap - 1);
    if (row.closed && named) {
      const sign = row.closed === 'cordoned' ? '×' : '!';
      to.fillText(sign, left + (wide - gap) / 2, high_ + (tall - gap) / 2);
    }
  }
}

/**
 * @param {CanvasRenderingContext2D} to
 * @param {NodeArea} area
 * @param {View} view
 * @param {number} x
 * @param {number} y
 * @param {number} scale
 * @param {import('./inks.js').Inks} ink
 * @param {string} name
 * @param {import('./types.js').PageNode} row
 */
function drawName(to, area, view, x, y, scale, ink, name, row) {
  const size = 11 * scale;
  const reserved = row.reserved?.[0];
  const mark = reserved && view.marks.get(reserved.gang);
  const time = reserved?.startS != null ? at(reserved.startS, { up: true }) : '';
  const right = row.closed || (mark ? `→ ${mark.letter} ${time}` : '');

  to.textBaseline = 'middle';
  to.textAlign = 'left';
  to.font = `600 ${size}px ${FONT}`;
  to.fillStyle = ink.ink;
  to.fillText(name, x + 5 * scale, y + 11 * scale, (area.w - (right ? 70 : 10)) * scale);
  if (!right) return;

  to.textAlign = 'right';
  to.fillStyle = row.closed ? (row.closed === 'cordoned' ? ink.warn : ink.bad) : ink.ink;
  to.fillText(right, x + (area.w - 5) * scale, y + 11 * scale, 62 * scale);
}
