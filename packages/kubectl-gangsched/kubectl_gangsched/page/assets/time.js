// @ts-check
// Time: what ran, runs and is promised, by gang or by rack.

import { html, signal } from './vendor.js';
import { Chart, rowOf, spanOf } from './bars.js';
import { Card, Missing } from './pieces.js';
import { rackName } from './racks.js';
import { link, moment, view } from './state.js';
import { counted } from './words.js';

/** @typedef {import('./bars.js').Row} Row */

const HOUR_S = 3600;
const SPANS = /** @type {const} */ ([['2 h', 1], ['12 h', 6], ['2 d', 24], ['All', 1e6]]);
const STRIP = 6;
/** Beside a large map. */
const SHORT_STRIP = 3;
const MANY_NODES = 200;

const half = signal(6);
const by = signal('gang');
const text = signal('');

const LEGEND = 'solid happened · striped expected · dashed promised · dotted waits';

/** Rows of gangs: those that run, the first to end first; then those that wait, in order. */
function gangRows() {
  const now = view.value;
  const bars = moment.value?.bars ?? {};
  if (!now) return [];

  /** @type {Row[]} */
  const rows = [];
  const seen = new Set();
  const add = (/** @type {string} */ id) => {
    if (seen.has(id) || !bars[id]?.length) return;
    seen.add(id);
    rows.push(rowOf(id, bars[id]));
  };
  for (const { id } of now.runs) add(id);
  for (const { id } of now.waiting) add(id);
  for (const id of Object.keys(bars)) add(id);
  return rows;
}

/** @returns {Row[]} */
function rackRows() {
  const now = view.value;
  const bars = moment.value?.bars ?? {};
  if (!now) return [];

  /** @type {Map<string, Row>} */
  const rackOf = new Map();
  const rows = [];
  for (const kind of now.kinds) {
    for (const rack of kind.racks) {
      const row = { id: rack.key, title: rackName(rack), bars: /** @type {Row['bars']} */ ([]) };
      rows.push(row);
      for (const { name } of rack.nodes) rackOf.set(name, row);
    }
  }

  for (const [id, some] of Object.entries(bars)) {
    for (const bar of some) {
      const into = new Set((bar.nodes ?? []).map((node) => rackOf.get(node)));
      for (const row of into) row?.bars.push({ id, bar });
    }
  }

  return rows.filter((row) => row.bars.length);
}

/** A few bars, for the overview. */
export function TimeStrip() {
  const now = view.value;
  const bars = moment.value?.bars ?? {};
  const most = (now?.nodes ?? 0) > MANY_NODES ? SHORT_STRIP : STRIP;
  const promised = (now?.waiting ?? []).filter(({ gang }) => gang.promisedS != null).slice(0, most / 2);
  const running = (now?.runs ?? []).slice(0, most - promised.length);
  const shown = [...running, ...promised]
    .filter(({ id }) => bars[id]?.length).map(({ id }) => rowOf(id, bars[id]));
  const all = Object.keys(bars).length;
  const tools = all > shown.length
    && html`<a href=${link({ view: 'time' })}>All ${counted(all, 'gang')}</a>`;
  return html`<${Card} id="strip" title="Time" note=${LEGEND} tools=${tools} class="strip">
    ${shown.length ? html`<${Chart} rows=${shown} />` : html`<p class="empty">Nothing runs or is promised.</p>`}
  </${Card}>`;
}

export function Time() {
  const wanted = text.value.trim().toLowerCase();
  const all = by.value === 'gang' ? gangRows() : rackRows();
  const rows = all.filter((row) => row.title.toLowerCase().includes(wanted));
  const nowS = moment.value?.atS ?? 0;
  const { fromS, toS } = spanOf(rows, nowS, half.value * HOUR_S);
  const note = `${counted(rows.length, by.value)} · ${LEGEND}`;

  return html`<${Card} id="time" title="Time" note=${note} class="fill">
    <${Missing} of=${['time', 'history', 'reservations']} />
    <form class="filters" aria-label="What of time is shown"
      onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <label>Contains <input type="search" value=${text.value}
        onInput=${(/** @type {any} */ event) => (text.value = event.currentTarget.value)} /></label>
      <label>Rows <select value=${by.value}
        onChange=${(/** @type {any} */ event) => (by.value = event.currentTarget.value)}>
        <option value="gang">by gang</option><option value="rack">by rack</option>
      </select></label>
      <div class="segments" role="group" aria-label="Length of time">
        ${SPANS.map(([name, hours]) => html`<button type="button" key=${name}
          aria-pressed=${half.value === hours} onClick=${() => (half.value = hours)}>${name}</button>`)}
      </div>
    </form>
    ${rows.length
      ? html`<${Chart} rows=${rows} fromS=${fromS} toS=${toS} label="Bars of time" />`
      : html`<p class="empty">${all.length ? 'Nothing matches.' : 'Nothing runs or is promised.'}</p>`}
  </${Card}>`;
}
