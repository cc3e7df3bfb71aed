// @ts-check
// The queue in the scheduler's order: a few gangs with their sentences, or ten thousand as a list of
// which only what is in sight exists.

import { html, signal, useEffect, useRef, useState } from './vendor.js';
import { Helps } from './helps.js';
import { ageText, Card, Facts, Key, Missing, startText } from './pieces.js';
import { isLive, link, moment, page, view } from './state.js';
import { lengthText } from './times.js';
import { counted, needText, number } from './words.js';

/** @typedef {import('./view.js').Waiting} Waiting */

const ROW_H = 92;
const BEYOND = 4;
/** As many gangs are shown with their whole sentence. */
const MOST_WHOLE = 40;
const BRIEF = 3;

const text = signal('');
const namespace = signal('');
const reason = signal('');
const mine = signal(false);

/** @param {Waiting} waiting */
function factsOf({ gang }) {
  const scarce = view.value?.scarce ?? new Set();
  const pods = gang.pods ?? 0;
  const min = gang.minMember;
  const start = min == null || !pods ? '' : min >= pods ? 'all at once' : `at least ${number(min)}`;
  return [
    needText(gang, scarce),
    start,
    gang.waitingSinceS != null && `waits ${ageText(gang.waitingSinceS)}`,
    gang.runTimeS != null && `runs ${lengthText(gang.runTimeS)}`,
    gang.priority ? `priority ${number(gang.priority)}` : '',
  ];
}

/** @param {number} position */
function aheadText(position) {
  if (moment.value?.order === 'age' || position < 1) return '';
  return position === 1 ? 'no gang ahead' : `${counted(position - 1, 'gang')} ahead`;
}

/** A gang that waits, with all that is known of why. @param {{ waiting: Waiting, helps?: boolean }} props */
export function WaitingGang({ waiting, helps = false }) {
  const { id, position, gang } = waiting;
  const mark = view.value?.marks.get(id);
  return html`<li class=${`waiting ${mark ? `c${mark.colour} marked` : ''}`}>
    <${Head} waiting=${waiting} />
    <${Facts} parts=${[...factsOf(waiting), aheadText(position)]} />
    ${gang.sentence && html`<p title=${gang.sentence}>${gang.sentence}</p>`}
    ${gang.promise && html`<p>${gang.promise}</p>`}
    ${helps && isLive.value && html`<${Helps} id=${id} />`}
  </li>`;
}

/** @param {{ waiting: Waiting }} props */
function Head({ waiting }) {
  const { id, position, gang } = waiting;
  return html`<div class="waiting-head">
    <span class="position">${moment.value?.order === 'age' ? '' : position || ''}</span>
    <${Key} id=${id} />
    <a class="name" href=${link({ view: 'gang', gang: id })} title=${id}>${id}</a>
    <span class=${`starts ${gang.promisedS != null || gang.reserved ? 'known' : ''}`}>${startText(gang)}</span>
  </div>`;
}

/** The first gangs of the queue, for the overview. */
export function QueueBrief() {
  const waiting = view.value?.waiting ?? [];
  const first = waiting.slice(0, BRIEF);
  const more = waiting.length - first.length;
  return html`<div class="brief">
    <${Missing} of=${['queue', 'order']} />
    ${!waiting.length && html`<p class="empty">No gang waits.</p>`}
    <ol class="waitings">
      ${first.map((one) => html`<${WaitingGang} key=${one.id} waiting=${one} helps />`)}
    </ol>
    ${more > 0 && html`<p class="after"><a href=${link({ view: 'queue' })}>
      ${number(more)} more ${more === 1 ? 'gang waits' : 'gangs wait'}</a></p>`}
  </div>`;
}

/** @returns {Waiting[]} */
function filtered() {
  const waiting = view.value?.waiting ?? [];
  const wanted = text.value.trim().toLowerCase();
  const own = page.value?.namespace ?? '';
  return waiting.filter(({ id, gang }) =>
    (!namespace.value || gang.namespace === namespace.value)
    && (!reason.value || (gang.reason ?? '') === reason.value)
    && (!mine.value || gang.namespace === own)
    && (!wanted || id.toLowerCase().includes(wanted)
      || (gang.sentence ?? '').toLowerCase().includes(wanted)));
}

export function Queue() {
  const waiting = view.value?.waiting ?? [];
  const some = filtered();
  const order = moment.value?.order === 'age' ? 'the oldest first' : "in the scheduler's order";
  const how = some.length === waiting.length ? counted(some.length, 'gang')
    : `${number(some.length)} of ${counted(waiting.length, 'gang')}`;

  return html`<${Card} id="queue" title="Queue" note=${`${how}, ${order}`} class="fill">
    <${Missing} of=${['queue', 'order', 'reservations']} />
    <${Filters} waiting=${waiting} />
    ${!waiting.length && html`<p class="empty">No gang waits.</p>`}
    ${waiting.length > 0 && !some.length && html`<p class="empty">No waiting gang matches the filters.</p>`}
    ${some.length > MOST_WHOLE
      ? html`<${LongList} rows=${some} />`
      : html`<div class="scroll" tabIndex="0" role="group" aria-label="Waiting gangs">
          <ol class="waitings whole">${some.map((one) => html`<${WaitingGang} key=${one.id}
            waiting=${one} />`)}</ol>
        </div>`}
  </${Card}>`;
}

/** @param {Waiting[]} waiting @param {(waiting: Waiting) => string} of */
function values(waiting, of) {
  return [...new Set(waiting.map(of))].filter(Boolean).sort();
}

/** @param {{ waiting: Waiting[] }} props */
function Filters({ waiting }) {
  const own = page.value?.namespace ?? '';
  return html`<form class="filters" role="search" aria-label="Filter the queue"
    onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <label>Contains <input type="search" value=${text.value} placeholder="name or sentence"
      onInput=${(/** @type {any} */ event) => (text.value = event.currentTarget.value)} /></label>
    <${Choice} title="Namespace" of=${namespace} among=${values(waiting, ({ gang }) => gang.namespace)} />
    <${Choice} title="Reason" of=${reason} among=${values(waiting, ({ gang }) => gang.reason ?? '')} />
    ${own && html`<label class="check"><input type="checkbox" checked=${mine.value}
      onChange=${(/** @type {any} */ event) => (mine.value = event.currentTarget.checked)} />
      only mine (${own})</label>`}
  </form>`;
}

/** @param {{ title: string, of: import('./vendor.js').Signal<string>, among: string[] }} props */
function Choice({ title, of, among }) {
  const known = of.value && !among.includes(of.value) ? [of.value, ...among] : among;
  return html`<label>${title} <select value=${of.value}
    onChange=${(/** @type {any} */ event) => (of.value = event.currentTarget.value)}>
    <option value="">any</option>
    ${known.map((value) => html`<option key=${value} value=${value}>${value}</option>`)}
  </select></label>`;
}

/** Rows of one height, of which only those in sight exist. @param {{ rows: Waiting[] }} props */
function LongList({ rows }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);

  useEffect(() => {
    const element = /** @type {HTMLElement} */ (box.current);
    const sizes = new ResizeObserver(() => setHeight(element.clientHeight));
    sizes.observe(element);
    return () => sizes.disconnect();
  }, []);

  const first = Math.max(0, Math.floor(top / ROW_H) - BEYOND);
  const last = Math.min(rows.length, Math.ceil((top + height) / ROW_H) + BEYOND);

  /** @param {KeyboardEvent} event */
  const onKey = (event) => {
    const element = /** @type {HTMLElement} */ (box.current);
    if (event.key === 'Home') element.scrollTop = 0;
    else if (event.key === 'End') element.scrollTop = rows.length * ROW_H;
    else return;
    event.preventDefault();
  };

  return html`<div class="scroll long" ref=${box} tabIndex="0" role="group" aria-label="Waiting gangs"
    onKeyDown=${onKey}
    onScroll=${(/** @type {any} */ event) => setTop(event.currentTarget.scrollTop)}>
    <div class="spacer" role="list" style=${{ height: `${rows.length * ROW_H}px` }}>
      ${rows.slice(first, last).map((waiting, place) => html`
        <${Row} key=${waiting.id} waiting=${waiting} place=${first + place} of=${rows.length} />`)}
    </div>
  </div>`;
}

/** @param {{ waiting: Waiting, place: number, of: number }} props */
function Row({ waiting, place, of }) {
  const mark = view.value?.marks.get(waiting.id);
  return html`<div class=${`waiting row ${mark ? `c${mark.colour} marked` : ''}`} role="listitem"
    aria-posinset=${place + 1} aria-setsize=${of} style=${{ top: `${place * ROW_H}px` }}>
    <${Head} waiting=${waiting} />
    <${Facts} parts=${factsOf(waiting)} />
    <p class="one-line" title=${waiting.gang.sentence}>${waiting.gang.sentence}</p>
  </div>`;
}
