// @ts-check
// One node: who holds its devices and until when, and for whom it is reserved.

import { html } from './vendor.js';
import { Card, Key, Name } from './pieces.js';
import { levelText } from './racks.js';
import { at, choose, moment, route, view } from './state.js';
import { amountOf, levelName, unitOf } from './words.js';

export function Inspector() {
  const { node } = route.value;
  const row = node ? moment.value?.nodes?.[node] : undefined;
  if (!node) return null;

  const close = html`<button type="button" class="plain" onClick=${() => choose({ node: '' })}>Close</button>`;
  if (!row) {
    return html`<${Card} id="node" title=${node} tools=${close} class="inspector">
      <p class="empty">This node is not there at this moment.</p>
    </${Card}>`;
  }

  const levels = moment.value?.levels ?? [];
  const path = (row.path ?? []).map((value, place) => value && levelText(levelName(levels[place] ?? ''), value));
  const about = [...path, row.product].filter(Boolean).join(' · ');
  return html`<${Card} id="node" title=${node} note=${about} tools=${close} class="inspector">
    ${row.closed && html`<p class=${`state ${row.closed === 'cordoned' ? 'warn' : 'bad'}`}>
      It is ${row.closed} and takes no new pods.</p>`}
    ${(row.devices ?? []).map((devices) => html`<${Holders} key=${devices.resource} devices=${devices} />`)}
    <dl class="pairs">
      ${(row.reserved ?? []).map(({ gang, startS, kind }) => html`<div>
        <dt>Reserved for</dt>
        <dd><${Key} id=${gang} /> <${Name} id=${gang} />
          ${startS != null ? `, from ${at(startS, { up: true })} at the latest` : kind === 'fence' ? ', until it is empty' : ''}</dd>
      </div>`)}
      ${people('Held for', row.held)}
      ${people('Nominated for', row.nominated)}
      ${row.taints?.length ? html`<div><dt>Taints</dt><dd>${row.taints.join(', ')}</dd></div>` : null}
    </dl>
  </${Card}>`;
}

/** @param {string} title @param {string[] | undefined} ids */
function people(title, ids) {
  if (!ids?.length) return null;
  return html`<div><dt>${title}</dt>
    <dd>${ids.map((id) => html`<span key=${id}><${Key} id=${id} /> <${Name} id=${id} /> </span>`)}</dd></div>`;
}

/** @param {{ devices: import('./types.js').Devices }} props */
function Holders({ devices }) {
  const users = Object.entries(devices.users ?? {}).sort(([, a], [, b]) => b - a);
  const unit = unitOf(devices.resource);
  return html`<table>
    <caption>${devices.free ?? 0} of ${amountOf(devices.total, devices.resource)} free</caption>
    <thead><tr><th>Held by</th><th class="num">${unit}</th><th class="num">Until</th></tr></thead>
    <tbody>
      ${users.map(([id, units]) => html`<tr key=${id}>
        <td><${Key} id=${id} /> <${Name} id=${id} /></td>
        <td class="num">${units}</td>
        <td class="num">${endText(id)}</td>
      </tr>`)}
      ${!users.length && html`<tr><td colSpan="3" class="dim">nobody</td></tr>`}
    </tbody>
  </table>`;
}

/** When a user's room is expected to be free. @param {string} id */
export function endText(id) {
  if (id === 'others') return 'not known';
  const run = view.value?.runs.find((candidate) => candidate.id === id);
  if (run?.endS == null) return 'not declared';
  const now = moment.value?.atS ?? 0;
  return run.endS < now ? `overdue since ${at(run.endS)}` : at(run.endS);
}

