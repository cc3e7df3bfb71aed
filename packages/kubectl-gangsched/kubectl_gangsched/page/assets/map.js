// @ts-check
// The map: each kind of device, one under the other, with its legend.

import { computed, html } from './vendor.js';
import { Boxes } from './boxes.js';
import { BigMap } from './big_map.js';
import { Card, FocusButton, Key, Missing } from './pieces.js';
import { levelsOf } from './racks.js';
import { choose, link, route, view } from './state.js';
import { total } from './view.js';
import { counted, number, ownerName, unitOf } from './words.js';

/** @typedef {import('./racks.js').Kind} Kind */

/** More nodes than this are drawn on a canvas. */
const MOST_BOXES = 200;
const MOST_KEYS = 12;
/** A large map needs the height more than the legend does. */
const FEW_KEYS = 4;

const isBig = computed(() => (view.value?.kinds ?? []).some((kind) => kind.nodes > MOST_BOXES));

export function MapCard() {
  const now = view.value;
  if (!now) return null;

  const { kinds } = now;
  const unit = kinds.length === 1 ? unitOf(kinds[0].resource) : 'device';
  const big = isBig.value;
  const note = big
    ? `${counted(now.nodes, 'node')} · every cell is one ${unit}; zoom in for names`
    : `by ${levelsText(now.moment)} · one square is one ${unit}`;

  return html`<${Card} id="map" title="Map" note=${note} class="map-card" tools=${html`<${Signs} />`}>
    <${Missing} of=${['map', 'reservations']} />
    ${!kinds.length && html`<p class="empty">No node offers accelerators.</p>`}
    ${big
      ? html`<${BigMap} />`
      : html`<div class="scroll map-scroll" tabIndex="0" role="group" aria-label="Map">
          ${kinds.map((kind, place) => html`<${KindMap} key=${kind.resource} kind=${kind}
            first=${place === 0} alone=${kinds.length === 1} />`)}
        </div>`}
    <${Legend} />
  </${Card}>`;
}

/** @param {import('./types.js').Moment} moment */
function levelsText(moment) {
  const names = levelsOf(moment).map(({ name }) => name);
  return names.length ? names.join(' and ') : 'name';
}

/** @param {{ kind: Kind, first: boolean, alone: boolean }} props */
function KindMap({ kind, first, alone }) {
  return html`<div class="kind">
    ${!alone && html`<h3>${kind.resource}
      <span>${number(kind.free)} of ${number(kind.total)} free on ${counted(kind.nodes, 'node')}</span>
    </h3>`}
    <${Boxes} kind=${kind} first=${first} />
  </div>`;
}

function Legend() {
  const now = view.value;
  if (!now) return null;

  const focus = route.value.focus;
  const marked = [...now.marks.keys()];
  const shown = marked.slice(0, isBig.value ? FEW_KEYS : MOST_KEYS);
  if (focus && !shown.includes(focus) && now.marks.has(focus)) shown.push(focus);
  const more = marked.length - shown.length;

  return html`<div class="legend">
    <div class="legend-keys" role="group" aria-label="Isolate a gang on the map">
      ${shown.map((id) => html`<${FocusButton} key=${id} id=${id}>
        <${Key} id=${id} /> <b>${ownerName(id)}</b> <span>${useText(id)}</span>
      </${FocusButton}>`)}
      ${more > 0 && html`<a class="more" href=${link({ view: 'time' })}>${number(more)} more</a>`}
      ${focus && html`<button type="button" class="plain" onClick=${() => choose({ focus: '' })}>
        Show everything</button>`}
    </div>
  </div>`;
}

function Signs() {
  return html`<p class="signs">
    <span><i class="sample free"></i>free</span>
    <span><i class="sample reserved"></i>reserved</span>
    <span><i class="sample closed"></i>cordoned</span>
    <span><i class="sample bad"></i>not ready</span>
  </p>`;
}

/** @param {string} id */
function useText(id) {
  const now = view.value;
  const use = now?.uses.get(id);
  if (use) return `${number(total(use))} on ${counted(use.nodes.size, 'node')}`;
  const nodes = now?.reservedNodes.get(id);
  return nodes ? `waits; ${counted(nodes.length, 'node')} reserved` : 'waits';
}
