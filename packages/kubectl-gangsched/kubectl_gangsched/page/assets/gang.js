// @ts-check
// One gang: its sentence, members, domains, tree, and what happened.

import { html, signal, useEffect } from './vendor.js';
import { Chart, rowOf } from './bars.js';
import { Helps } from './helps.js';
import { ageText, Card, Key, Missing, Name, startText } from './pieces.js';
import { details, wantDetail } from './source.js';
import { at, isLatest, isLive, link, moment, page, route, view } from './state.js';
import { lengthText } from './times.js';
import { counted, needText, number, ownerName } from './words.js';

/** @typedef {import('./types.js').PageGang} PageGang */
/** @typedef {import('./types.js').Detail} Detail */

const MOST_LISTED = 60;
const MOST_MEMBERS = 100;
const wanted = signal('');

export function Gang() {
  const id = route.value.gang;
  const gang = moment.value?.gangs?.[id];
  if (!id) return html`<${Gangs} />`;

  // The key forgets answers about another gang.
  return gang ? html`<${OneGang} key=${id} id=${id} gang=${gang} />` : html`
    <${Card} id="gang" title=${ownerName(id)}>
      <p class="empty">There is no gang ${id} at this moment, or you may not see it.
        ${' '}<a href=${link({ view: 'gang' })}>All gangs</a></p>
    </${Card}>`;
}

/** Where no gang is chosen. */
function Gangs() {
  const gangs = Object.entries(moment.value?.gangs ?? {});
  const text = wanted.value.trim().toLowerCase();
  const some = gangs.filter(([id]) => id.toLowerCase().includes(text));
  const shown = some.slice(0, MOST_LISTED);
  return html`<${Card} id="gangs" title="Gangs" note=${counted(gangs.length, 'gang')}>
    <${Missing} of=${['gang']} />
    <form class="filters" role="search" aria-label="Find a gang"
      onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <label>Contains <input type="search" value=${wanted.value}
        onInput=${(/** @type {any} */ event) => (wanted.value = event.currentTarget.value)} /></label>
    </form>
    <ul class="gang-list">
      ${shown.map(([id, gang]) => html`<li key=${id}>
        <${Key} id=${id} /> <${Name} id=${id} /> <${Phase} gang=${gang} />
      </li>`)}
    </ul>
    ${some.length > shown.length && html`<p class="after">${number(some.length - shown.length)} more:
      type a part of the name.</p>`}
  </${Card}>`;
}

/** @param {{ gang: PageGang }} props */
function Phase({ gang }) {
  const text = gang.broken ? 'broken' : gang.phase || (gang.waits ? 'waits' : 'runs');
  const kind = gang.broken ? 'bad' : gang.waits ? 'warn' : 'good';
  return html`<span class=${`phase ${kind}`}>${text}</span>`;
}

/** @param {{ id: string, gang: PageGang }} props */
function OneGang({ id, gang }) {
  useEffect(() => void wantDetail(id), [id, moment.value?.atS]);
  const detail = moment.value?.details?.[id] ?? details.value.get(id) ?? null;
  const nodes = view.value?.uses.get(id)?.nodes.size;
  const bars = moment.value?.bars?.[id];

  return html`<div class="gang">
    <section class="gang-head" aria-labelledby="gang-h">
      <h2 id="gang-h"><${Key} id=${id} /> ${id} <${Phase} gang=${gang} /></h2>
      <p class="sentence">${gang.sentence}</p>
      ${gang.promise && html`<p>${gang.promise}</p>`}
      ${[detail?.next, detail?.holders, detail?.notCreated].filter(Boolean).map((sentence) => html`
        <p key=${sentence}>${sentence}</p>`)}
      ${(gang.problems ?? []).map((problem) => html`<p class="state bad" key=${problem}>${problem}</p>`)}
      ${gang.waits && isLive.value && isLatest.value && html`<${Helps} id=${id} />`}
      ${gang.waits && ['snapshot', 'replay'].includes(page.value?.source ?? '') && html`<p class="facts">What would let
        it start now is asked of the scheduler: <code>kubectl gangsched why GANG</code> says it.</p>`}
      <p class="links">
        ${(nodes || view.value?.reservedNodes.has(id)) && html`
          <a href=${link({ view: 'overview', focus: id })}>Show it on the map</a>`}
        ${gang.waits && html`<a href=${link({ view: 'queue' })}>Queue</a>`}
      </p>
    </section>
    ${bars?.length ? html`<${Card} id="gang-time" title="Time">
      <${Chart} rows=${[rowOf(id, bars)]} /></${Card}>` : null}
    <div class="gang-column">
      <${About} id=${id} gang=${gang} />
      <${Domains} detail=${detail} />
      <${Tree} id=${id} gang=${gang} />
    </div>
    <div class="gang-column">
      <${Members} gang=${gang} detail=${detail} />
      <${Events} detail=${detail} />
    </div>
  </div>`;
}

/** @param {{ id: string, gang: PageGang }} props */
function About({ id, gang }) {
  const waiting = view.value?.waiting.find((one) => one.id === id);
  const age = moment.value?.order === 'age';
  const pairs = [
    ['Needs', needText(gang, view.value?.scarce ?? new Set())],
    ['Starts with', gang.minMember != null && `at least ${counted(gang.minMember, 'pod')}`],
    ['Pods', `${number(gang.bound ?? 0)} of ${number(gang.pods ?? 0)} have a node`],
    ['Position', !age && waiting && waiting.position > 0 && number(waiting.position)],
    ['Waits since', gang.waits && gang.waitingSinceS != null
      && `${at(gang.waitingSinceS)} (${ageText(gang.waitingSinceS)})`],
    ['Start', gang.waits && startText(gang)],
    ['Runs since', gang.startedS != null && `${at(gang.startedS)} (${ageText(gang.startedS)})`],
    ['Expected end', gang.expectedEndS != null && at(gang.expectedEndS)],
    ['Run time', gang.runTimeS != null && lengthText(gang.runTimeS)],
    ['Lacks', gang.lacks?.amount && `${gang.lacks.amount} ${gang.lacks.resource}`
      + (gang.lacks.freeOnOneNode
        ? `; at most ${gang.lacks.freeOnOneNode} free on one node`
        : '')],
    ['Priority', gang.priority != null && number(gang.priority)],
    ['Reason', gang.reason],
  ];
  return html`<${Card} id="gang-about" title="Facts">
    <dl class="pairs">${pairs.filter(([, value]) => value).map(([title, value]) => html`
      <div key=${title}><dt>${title}</dt><dd>${value}</dd></div>`)}</dl>
  </${Card}>`;
}

/** @param {{ gang: PageGang, detail: Detail | null }} props */
function Members({ gang, detail }) {
  const members = detail?.members ?? [];
  const shown = members.slice(0, MOST_MEMBERS);
  const note = counted(members.length || (gang.pods ?? 0), 'pod');
  return html`<${Card} id="members" title="Members" note=${note}>
    <${Missing} of=${['gang']} />
    ${!detail && html`<p class="empty">${isLive.value ? 'Is being read…' : 'Not part of this file.'}</p>`}
    ${shown.length > 0 && html`<div class="table"><table>
      <thead><tr><th>Pod</th><th>State</th><th>Node</th></tr></thead>
      <tbody>${shown.map((member) => html`<tr key=${member.name}>
        <td>${member.name}</td>
        <td>${member.state}${member.message && html`<small>${member.message}</small>`}</td>
        <td>${member.node && html`<a href=${link({ view: 'overview', node: member.node })}>${member.node}</a>`}</td>
      </tr>`)}</tbody>
    </table></div>`}
    ${members.length > shown.length && html`<p class="after">${number(members.length - shown.length)} more.</p>`}
  </${Card}>`;
}

/** @param {{ detail: Detail | null }} props */
function Domains({ detail }) {
  const domains = detail?.domains ?? [];
  if (!domains.length) return null;

  return html`<${Card} id="domains" title="Domains" note="how many of its pods each has room for">
    <ul class="domains">${domains.map(({ domain, holds, lacks, refutedBy }) => html`<li key=${domain}>
      <span>${domain}</span>
      <span class="meter" aria-hidden="true"><i style=${{ width: `${(100 * holds) / Math.max(1, holds + lacks)}%` }}></i></span>
      <span>holds ${number(holds)}, lacks ${number(lacks)}${refutedBy === 'search' ? ', by search' : ''}</span>
    </li>`)}</ul>
  </${Card}>`;
}

/** @param {{ id: string, gang: PageGang }} props */
function Tree({ id, gang }) {
  const all = moment.value?.gangs ?? {};
  const group = (gang.group ?? []).filter((other) => other !== id);
  const siblings = gang.parent
    ? Object.keys(all).filter((other) => other !== id && all[other].parent === gang.parent
      && all[other].namespace === gang.namespace)
    : [];
  const others = [...new Set([...siblings, ...group])];
  if (!gang.parent && !others.length) return null;

  return html`<${Card} id="tree" title=${gang.parent ? 'Tree' : 'Starts together with'}>
    ${gang.parent && html`<p>Parent <b>${gang.parent}</b></p>`}
    <ul class="tree">
      <li aria-current="true"><${Key} id=${id} /> ${ownerName(id)} <${Phase} gang=${gang} /></li>
      ${others.map((other) => html`<li key=${other}><${Key} id=${other} /> <${Name} id=${other} />
        ${' '}${all[other] && html`<${Phase} gang=${all[other]} />`}</li>`)}
    </ul>
  </${Card}>`;
}

/** @param {{ detail: Detail | null }} props */
function Events({ detail }) {
  const events = detail?.events ?? [];
  const since = detail?.eventsSinceS;
  const from = detail?.eventsFrom ? `from ${detail.eventsFrom}` : '';
  const note = [from, since != null && `complete since ${at(since)}`].filter(Boolean).join(', ');
  return html`<${Card} id="events" title="What happened" note=${note}>
    <${Missing} of=${['history']} />
    ${!events.length && html`<p class="empty">Nothing is known.</p>`}
    <ol class="events">${events.map((event, place) => html`<li key=${place} class=${`event ${event.what.toLowerCase()}`}>
      <time>${at(event.atS, { seconds: true })}</time>
      <div><b>${event.what}</b>${(event.times ?? 1) > 1 && html` <span class="dim">${event.times} times</span>`}
        ${event.message && html`<p>${event.message}</p>`}</div>
    </li>`)}</ol>
  </${Card}>`;
}
