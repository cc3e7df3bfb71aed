// @ts-check
// Health: what keeps gangs from being scheduled, and whether promises were kept.

import { html, useEffect } from './vendor.js';
import { Card, Key, Missing, Name } from './pieces.js';
import { health as asked, wantHealth } from './source.js';
import { at, isLive, link, moment } from './state.js';
import { counted, number } from './words.js';

const MOST = 50;

export function HealthView() {
  useEffect(() => void wantHealth(), [moment.value?.atS]);
  const inMoment = moment.value?.health ?? {};
  const health = { ...inMoment, ...(isLive.value ? asked.value : {}), promises: inMoment.promises };
  const isAwaited = isLive.value && !asked.value;
  return html`<div class="health">
    <${Findings} findings=${health.findings ?? []} notChecked=${health.notChecked ?? {}}
      isAwaited=${isAwaited} />
    <${Closed} />
    <${Broken} />
    <${Promises} promises=${health.promises ?? []} />
    <${Rights} />
    ${Object.keys(health.facts ?? {}).length > 0 && html`<${Card} id="facts" title="Facts">
      <dl class="pairs">${Object.entries(health.facts ?? {}).map(([title, fact]) => html`
        <div key=${title}><dt>${title}</dt><dd>${fact}</dd></div>`)}</dl>
    </${Card}>`}
  </div>`;
}

/** @param {{ findings: import('./types.js').Finding[], notChecked: Record<string, string>, isAwaited: boolean }} props */
function Findings({ findings, notChecked, isAwaited }) {
  const unchecked = Object.entries(notChecked);
  return html`<${Card} id="findings" title="Findings" note=${findings.length ? counted(findings.length, 'problem') : ''}>
    <${Missing} of=${['health']} />
    ${isAwaited && html`<p class="empty">The cluster is being checked…</p>`}
    ${!isAwaited && !findings.length && html`<p class="empty good">No problem was found.</p>`}
    <ul class="findings">${findings.map(({ check, sentence, todo }) => html`<li key=${check + sentence}>
      <p><b>${check}</b> ${sentence}</p>${todo && html`<p class="todo">${todo}</p>`}</li>`)}</ul>
    ${unchecked.length > 0 && html`<p class="facts">Not checked:
      ${' '}${unchecked.map(([check, why]) => `${check} (${why})`).join('; ')}</p>`}
  </${Card}>`;
}

function Closed() {
  const closed = Object.entries(moment.value?.nodes ?? {}).filter(([, { closed: word }]) => word);
  if (!closed.length) return null;

  return html`<${Card} id="closed" title="Nodes that take no pods" note=${counted(closed.length, 'node')}>
    <div class="table"><table>
      <thead><tr><th>Node</th><th>Why</th><th>Taints</th></tr></thead>
      <tbody>${closed.slice(0, MOST).map(([name, row]) => html`<tr key=${name}>
        <td><a href=${link({ view: 'overview', node: name })}>${name}</a></td>
        <td><span class=${`state ${row.closed === 'cordoned' ? 'warn' : 'bad'}`}>${row.closed}</span></td>
        <td>${(row.taints ?? []).join(', ')}</td></tr>`)}</tbody>
    </table></div>
    ${closed.length > MOST && html`<p class="after">${number(closed.length - MOST)} more.</p>`}
  </${Card}>`;
}

function Broken() {
  const broken = Object.entries(moment.value?.gangs ?? {}).filter(([, gang]) => gang.broken);
  return html`<${Card} id="broken" title="Broken gangs" note="started, and now below their minimum">
    ${!broken.length && html`<p class="empty good">None.</p>`}
    <ul class="findings">${broken.slice(0, MOST).map(([id, gang]) => html`<li key=${id}>
      <p><${Key} id=${id} /> <${Name} id=${id} /> ${' '}${gang.sentence}</p></li>`)}</ul>
  </${Card}>`;
}

/** @param {{ promises: import('./types.js').Promised[] }} props */
function Promises({ promises }) {
  const nowS = moment.value?.atS ?? 0;
  const started = promises.filter(({ startedS }) => startedS != null);
  const kept = started.filter(({ startedS, promisedS }) => Number(startedS) <= promisedS);
  const late = promises.filter(({ startedS, promisedS }) => (startedS ?? nowS) > promisedS);
  const open = promises.length - kept.length - late.length;
  const note = promises.length ? `${number(kept.length)} kept, ${number(late.length)} late, ${number(open)} open` : '';

  return html`<${Card} id="promises" title="Promised starts" note=${note}>
    ${!promises.length && html`<p class="empty">None is known.</p>`}
    ${late.length > 0 && html`<div class="table"><table>
      <thead><tr><th>Gang</th><th class="num">Promised</th><th class="num">Started</th></tr></thead>
      <tbody>${late.slice(0, MOST).map(({ gang, promisedS, startedS }) => html`<tr key=${`${gang} ${promisedS}`}>
        <td><${Key} id=${gang} /> <${Name} id=${gang} /></td>
        <td class="num">${at(promisedS, { up: true })}</td>
        <td class="num">${startedS == null ? 'not yet' : at(startedS)}</td></tr>`)}</tbody>
    </table></div>`}
  </${Card}>`;
}

function Rights() {
  const missing = moment.value?.unknown ?? [];
  if (!missing.length) return null;

  return html`<${Card} id="rights" title="What this page cannot show">
    <ul class="findings">${missing.map(({ what, sentence }) => html`<li key=${what + sentence}>
      <p>${sentence}</p></li>`)}</ul>
  </${Card}>`;
}
