// @ts-check
// `/` finds a gang, a node or a rack, wherever one is on the page.

import { html, signal } from './vendor.js';
import { Key } from './pieces.js';
import { rackName } from './racks.js';
import { choose, go, moment, route, view } from './state.js';
import { number, ownerName } from './words.js';

/** @typedef {{ kind: string, text: string, note: string, id: string, run: () => void }} Hit */

const MOST_OF_EACH = 8;
const isFinding = signal(false);
const text = signal('');
const place = signal(0);

/** @param {string} wanted @returns {Hit[]} */
function hits(wanted) {
  const now = view.value;
  const name = wanted.trim().toLowerCase();
  if (!now || !name) return [];

  const gangs = [...new Set([...Object.keys(moment.value?.gangs ?? {}), ...now.marks.keys()])];
  const nodes = Object.keys(moment.value?.nodes ?? {});
  const racks = now.kinds.flatMap((kind) => kind.racks);
  const named = best(gangs, name, ownerName).map((id) => gangHit(id));
  const some = best(nodes, name, (node) => node).map((node) => ({
    kind: 'node', text: node, note: moment.value?.nodes?.[node].closed ?? '', id: '',
    run: () => toMap({ node }),
  }));
  const areas = best(racks, name, rackName).map((rack) => ({
    kind: 'rack', text: rackName(rack), note: `${number(rack.free)} free`, id: '',
    run: () => toMap({ node: rack.nodes[0]?.name ?? '' }),
  }));
  return [...named, ...some, ...areas];
}

/** @param {string} id @returns {Hit} */
function gangHit(id) {
  const gang = moment.value?.gangs?.[id];
  return {
    kind: gang ? 'gang' : 'pod', text: ownerName(id), note: gang?.waits ? 'waits' : '', id,
    run: () => (gang ? go({ view: 'gang', gang: id }) : toMap({ focus: id })),
  };
}

/** @param {{ node?: string, focus?: string }} to */
function toMap(to) {
  if (route.value.view === 'overview') choose(to);
  else go({ view: 'overview', ...to });
}

/**
 * Those that begin with the text come first.
 * @template T
 * @param {T[]} all
 * @param {string} text
 * @param {(one: T) => string} name
 */
function best(all, text, name) {
  const starts = [];
  const holds = [];
  for (const one of all) {
    const place = name(one).toLowerCase().indexOf(text);
    if (place === 0) starts.push(one);
    else if (place > 0 && holds.length < MOST_OF_EACH) holds.push(one);
    if (starts.length === MOST_OF_EACH) break;
  }

  return [...starts, ...holds].slice(0, MOST_OF_EACH);
}

/** @returns {HTMLDialogElement | null} */
const dialog = () => document.querySelector('dialog.find');

/**
 * Open the field. At once and not with the next frame, so that what is typed right behind `/`
 * goes into it.
 */
export function find() {
  const element = dialog();
  if (!element || element.open) return;

  isFinding.value = true;
  element.showModal();
}

/** The text goes when the field is closed: what is typed when it opens is never wiped. */
function closed() {
  if (dialog()?.open) return;

  isFinding.value = false;
  text.value = '';
  place.value = 0;
}

/** @param {Hit | undefined} hit */
function take(hit) {
  if (!hit) return;

  dialog()?.close();
  closed();
  hit.run();
}

/** @param {string} now */
function typed(now) {
  text.value = now;
  place.value = 0;
}

export function Find() {
  const found = isFinding.value ? hits(text.value) : [];

  /** @param {KeyboardEvent} event */
  const onKey = (event) => {
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (step && found.length) place.value = (place.value + step + found.length) % found.length;
    else if (event.key === 'Enter') take(found[place.value]);
    else return;
    event.preventDefault();
  };

  return html`<dialog class="find" aria-label="Find a gang, node or rack" onClose=${closed}
    onClick=${(/** @type {Event} */ event) => event.target === dialog() && dialog()?.close()}>
    <div class="find-box">
      <input type="search" role="combobox" aria-expanded=${found.length > 0} aria-controls="hits"
        aria-autocomplete="list" aria-activedescendant=${found.length ? `hit-${place.value}` : undefined}
        aria-label="Name of a gang, node or rack" placeholder="Find a gang, node or rack" value=${text.value}
        onKeyDown=${onKey}
        onInput=${(/** @type {any} */ event) => typed(event.currentTarget.value)} />
      <ul id="hits" role="listbox" aria-label="Found">
        ${found.map((hit, n) => html`<li key=${hit.kind + hit.text} id=${`hit-${n}`} role="option"
          aria-selected=${n === place.value} onClick=${() => take(hit)}>
          ${hit.id ? html`<${Key} id=${hit.id} />` : null}
          <b>${hit.text}</b> <span>${hit.kind}${hit.note && `, ${hit.note}`}</span></li>`)}
      </ul>
      ${text.value.trim() && !found.length && html`<p class="empty">Nothing has that name.</p>`}
    </div>
  </dialog>`;
}

addEventListener('keydown', (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  const isTyped = target.closest?.('input, textarea, select');
  if (event.key === '/' && !isTyped && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    find();
  } else if (event.key === 'Escape' && !isFinding.value && !isTyped) {
    if (route.value.node || route.value.focus) choose({ node: '', focus: '' });
  }
});
