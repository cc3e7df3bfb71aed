// @ts-check
// Small pieces that several views use.

import { html } from './vendor.js';
import { at, choose, link, moment, route, view } from './state.js';
import { lengthText } from './times.js';
import { ownerName } from './words.js';

/** @typedef {import('./types.js').PageGang} PageGang */

/** The letter of a user in its colour; nothing for who has no mark. @param {{ id: string }} props */
export function Key({ id }) {
  const mark = view.value?.marks.get(id);
  if (!mark) return null;
  return html`<span class=${`key c${mark.colour}`} aria-hidden="true">${mark.letter}</span>`;
}

/** A gang as a link to its view; a plain pod has none. @param {{ id: string, short?: boolean }} props */
export function Name({ id, short = false }) {
  const text = ownerName(id);
  const shown = short ? text.replace(/^(pod )?[^/]*\//, '$1') : text;
  if (!moment.value?.gangs?.[id]) return html`<span class="name" title=${text}>${shown}</span>`;
  return html`<a class="name" title=${text} href=${link({ view: 'gang', gang: id })}>${shown}</a>`;
}

/**
 * A card with a heading.
 * @param {{ id: string, title: string, note?: any, tools?: any, children?: any, class?: string }} props
 */
export function Card({ id, title, note, tools, children, class: name = '' }) {
  return html`<section class=${`card ${name}`} aria-labelledby=${`${id}-h`}>
    <header>
      <h2 id=${`${id}-h`}>${title}</h2>
      ${note && html`<p class="note">${note}</p>`}
      ${tools && html`<div class="tools">${tools}</div>`}
    </header>
    ${children}
  </section>`;
}

/** What the page cannot know, and the right that is missing. @param {{ of: string[] }} props */
export function Missing({ of }) {
  const unknown = (moment.value?.unknown ?? []).filter(({ what }) => of.includes(what));
  return unknown.map(({ sentence, isRight }) => html`
    <p class=${`missing ${isRight ? 'right' : ''}`} key=${sentence}>${sentence}</p>`);
}

/** When a waiting gang starts, in few words. @param {PageGang} gang */
export function startText(gang) {
  const promised = gang.promisedS ?? gang.reserved?.startS;
  if (promised != null) return `starts ${at(promised, { up: true })} at the latest`;
  if (gang.reserved) return 'room is kept, no time known';
  return 'no start is promised';
}

/** @param {number | null | undefined} sinceS */
export function ageText(sinceS) {
  return sinceS == null ? '' : lengthText((moment.value?.atS ?? sinceS) - sinceS);
}

/** Isolates a gang on the map, or shows everything again. @param {{ id: string, children?: any }} props */
export function FocusButton({ id, children }) {
  const pressed = route.value.focus === id;
  return html`<button type="button" class="legend-key" aria-pressed=${pressed}
    onClick=${() => choose({ focus: pressed ? '' : id })}>${children}</button>`;
}

/** @param {{ parts: (string | false | null | undefined)[] }} props */
export function Facts({ parts }) {
  return html`<p class="facts">${parts.filter(Boolean).join(' · ')}</p>`;
}
