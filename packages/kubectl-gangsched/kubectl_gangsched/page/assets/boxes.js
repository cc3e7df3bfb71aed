// @ts-check
// The map of up to some hundred nodes: a button for each node, a square for each device.

import { html, useRef } from './vendor.js';
import { at, choose, route, view } from './state.js';
import { rackName } from './racks.js';
import { counted, ownerName, unitOf } from './words.js';

/** @typedef {import('./racks.js').Kind} Kind */
/** @typedef {import('./racks.js').Rack} Rack */
/** @typedef {import('./racks.js').Box} Box */

/** More devices of a node than this are one bar and a number. */
const MOST_SQUARES = 64;
const WIDE = 8;

/** @param {{ kind: Kind, first: boolean }} props */
export function Boxes({ kind, first }) {
  const map = useRef(null);
  const chosen = route.value.node;
  const inTabOrder = kind.racks.some((rack) => rack.nodes.some((box) => box.name === chosen))
    ? chosen : kind.racks[0]?.nodes[0]?.name;

  /** @param {KeyboardEvent} event */
  const moved = (event) => {
    const boxes = [.../** @type {any} */ (map.current).querySelectorAll('.node')];
    const to = nextBox(boxes, /** @type {HTMLElement} */ (event.target), event.key);
    if (!to) return;

    event.preventDefault();
    to.focus();
  };

  return html`<div class="zones" ref=${map} onKeyDown=${moved}
    role="group" aria-label=${`Nodes with ${kind.resource}; arrow keys move between them`}>
    ${kind.zones.map((zone) => html`
      <div class="zone" key=${zone.name} style=${{ flexGrow: zone.racks.length }}
        role="group" aria-label=${zone.name || 'nodes'}>
        ${zone.name && html`<p class="zone-name">${zone.name}</p>`}
        <div class=${`racks ${zone.racks.length === 1 ? 'one' : ''}`}>
          ${zone.racks.map((rack) => html`<${RackBox} key=${rack.key} rack=${rack}
            resource=${kind.resource} inTabOrder=${first || chosen ? inTabOrder : ''} />`)}
        </div>
      </div>`)}
  </div>`;
}

/** @param {{ rack: Rack, resource: string, inTabOrder: string }} props */
function RackBox({ rack, resource, inTabOrder }) {
  return html`<div class="rack" role="group" aria-label=${rackName(rack)}>
    <p class="rack-name">${rackName(rack)}<span>${rack.free} free</span></p>
    <div class="rack-nodes">
      ${rack.nodes.map((box) => html`<${NodeBox} key=${box.name} box=${box} resource=${resource}
        tabIndex=${box.name === inTabOrder ? 0 : -1} />`)}
    </div>
  </div>`;
}

/** What is said of a node, as text. @param {Box} box @param {string} resource */
export function nodeText(box, resource) {
  const { row, devices } = box;
  const parts = Object.entries(devices.users ?? {}).map(
    ([id, units]) => `${units} used by ${ownerName(id)}`);
  parts.push(`${box.free} of ${devices.total} ${unitOf(resource)} free`);
  for (const { gang, startS } of row.reserved ?? []) {
    const from = startS == null ? '' : ` from ${at(startS, { up: true })}`;
    parts.push(`reserved for ${ownerName(gang)}${from}`);
  }

  for (const id of row.held ?? []) parts.push(`held for ${ownerName(id)}`);
  for (const id of row.nominated ?? []) parts.push(`nominated for ${ownerName(id)}`);
  if (row.closed) parts.push(row.closed);
  return parts.join(', ');
}

/** @param {{ box: Box, resource: string, tabIndex: number }} props */
function NodeBox({ box, resource, tabIndex }) {
  const { focus, node } = route.value;
  const { row, name } = box;
  const marks = view.value?.marks;
  const reserved = row.reserved?.[0];
  const mark = reserved && marks?.get(reserved.gang);
  const ids = [...box.users, ...(row.reserved ?? []).map(({ gang }) => gang), ...(row.held ?? [])];
  const classes = ['node'];
  if (reserved) classes.push('reserved', `c${mark?.colour ?? 7}`);
  if (row.closed) classes.push(row.closed === 'cordoned' ? 'closed' : 'bad');
  if (focus && !ids.includes(focus)) classes.push('dim');

  const said = nodeText(box, resource);
  return html`<button type="button" class=${classes.join(' ')} tabIndex=${tabIndex}
    aria-pressed=${node === name} title=${`${name}: ${said}`}
    onClick=${() => choose({ node: node === name ? '' : name })}>
    <span class="node-head">
      <span class="node-name">${name}</span>
      <${Tag} box=${box} />
    </span>
    <${Squares} box=${box} />
    <span class="sr">${said}</span>
  </button>`;
}

/** @param {{ box: Box }} props */
function Tag({ box }) {
  const { row } = box;
  const marks = view.value?.marks;
  const letter = (/** @type {string} */ id) => marks?.get(id)?.letter ?? '';
  if (row.closed) return html`<span class="word">${row.closed}</span>`;

  const reserved = row.reserved?.[0];
  if (reserved) {
    const time = reserved.startS == null ? '' : ` ${at(reserved.startS, { up: true })}`;
    return html`<span class="tag">→ ${letter(reserved.gang)}${time}</span>`;
  }

  const held = row.held?.[0];
  if (held) return html`<span class="word">held ${letter(held)}</span>`;
  const nominated = row.nominated?.[0];
  return nominated ? html`<span class="word">for ${letter(nominated)}</span>` : null;
}

/** @param {{ box: Box }} props */
function Squares({ box }) {
  const { devices, row } = box;
  const marks = view.value?.marks;
  const focus = route.value.focus;
  const users = Object.entries(devices.users ?? {}).sort(
    ([a], [b]) => (marks?.get(a)?.slot ?? 0) - (marks?.get(b)?.slot ?? 0));
  const used = users.reduce((sum, [, units]) => sum + units, 0);
  if (devices.total > MOST_SQUARES) {
    return html`<span class="wide" aria-hidden="true">
      ${users.map(([id, units]) => html`<i key=${id} class=${`c${marks?.get(id)?.colour ?? 7}`}
        style=${{ flexGrow: units }}></i>`)}
      <i class="free" style=${{ flexGrow: Math.max(0, devices.total - used) }}></i>
      <b>${counted(box.free, 'unit')} of ${devices.total} free</b>
    </span>`;
  }

  const squares = [];
  for (const [id, units] of users) {
    const mark = marks?.get(id);
    const dim = focus && focus !== id ? 'dim' : '';
    for (let n = 0; n < units; n++) {
      squares.push(html`<i class=${`c${mark?.colour ?? 7} ${dim}`}>${mark?.letter}</i>`);
    }
  }

  const [kind, sign] = !row.closed ? ['free', ''] : row.closed === 'cordoned' ? ['off', '×'] : ['off', '!'];
  for (let n = used; n < devices.total; n++) squares.push(html`<i class=${kind}>${sign}</i>`);
  const columns = Math.min(WIDE, devices.total);
  return html`<span class="squares" aria-hidden="true"
    style=${{ gridTemplateColumns: `repeat(${Math.max(columns, 4)}, 1fr)` }}>${squares}</span>`;
}

/**
 * The node that an arrow key leads to: the nearest in its direction, as the boxes are on the screen.
 * @param {HTMLElement[]} boxes
 * @param {HTMLElement} from
 * @param {string} key
 */
function nextBox(boxes, from, key) {
  const place = boxes.indexOf(from);
  if (place < 0) return null;
  if (key === 'Home') return boxes[0];
  if (key === 'End') return boxes[boxes.length - 1];
  if (key === 'ArrowDown') return boxes[place + 1];
  if (key === 'ArrowUp') return boxes[place - 1];
  if (key !== 'ArrowRight' && key !== 'ArrowLeft') return null;

  const here = from.getBoundingClientRect();
  const sign = key === 'ArrowRight' ? 1 : -1;
  let best = null;
  let least = Infinity;
  for (const box of boxes) {
    const there = box.getBoundingClientRect();
    const across = (there.left - here.left) * sign;
    const far = across + 3 * Math.abs(there.top - here.top);
    if (across > 1 && far < least) [best, least] = [box, far];
  }

  return best;
}
