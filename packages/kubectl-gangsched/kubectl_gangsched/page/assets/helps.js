// @ts-check
// "What would help now?": asked of the scheduler only when somebody wants to know.

import { html, useState } from './vendor.js';
import { ask } from './source.js';
import { at, moment } from './state.js';

/** @typedef {{ suggestions?: string[], holders?: string, atS?: number, fault?: string }} Answer */

/** @param {{ id: string }} props */
export function Helps({ id }) {
  const [answer, setAnswer] = useState(/** @type {Answer | null} */ (null));
  const [isAsked, setAsked] = useState(false);

  const onClick = async () => {
    setAsked(true);
    const read = await ask('ask', { gang: id });
    setAnswer({ ...read, atS: moment.peek()?.atS });
    setAsked(false);
  };

  return html`<div class="helps">
    <div class="ask-head">${answer && html`<h3>What would help now?</h3>`}
      <button type="button" class="ask" disabled=${isAsked} onClick=${onClick}>
        ${isAsked ? 'The scheduler plans…' : answer ? 'Ask again' : 'What would help now?'}</button></div>
    <div aria-live="polite">${answer && html`<${Suggestions} answer=${answer} />`}</div>
  </div>`;
}

/** @param {{ answer: Answer }} props */
export function Suggestions({ answer }) {
  if (answer.fault) return html`<p class="missing">${answer.fault}</p>`;

  const suggestions = answer.suggestions ?? [];
  return html`
    ${suggestions.length
      ? html`<ul>${suggestions.map((sentence) => html`<li key=${sentence}>${sentence}</li>`)}</ul>`
      : html`<p>No single change was found that would let it start now.</p>`}
    ${answer.holders && html`<p>${answer.holders}</p>`}
    ${answer.atS != null && html`<p class="facts">Each was planned on the state of
      ${' '}${at(answer.atS, { seconds: true })}.</p>`}`;
}
