// @ts-check
// "What would help now?": asked of the scheduler only when somebody wants to know.

import { html, useState } from './vendor.js';
import { ask } from './source.js';
import { at } from './state.js';

/** @typedef {{ suggestions?: string[], message?: string, atS?: number, fault?: string }} Answer */

/** @param {{ id: string }} props */
export function Helps({ id }) {
  const [answer, setAnswer] = useState(/** @type {Answer | null} */ (null));
  const [isAsked, setAsked] = useState(false);

  const onClick = async () => {
    setAsked(true);
    setAnswer(await ask('helps', { gang: id }));
    setAsked(false);
  };

  return html`<div class="helps">
    <button type="button" class="ask" disabled=${isAsked} onClick=${onClick}>
      ${isAsked ? 'The scheduler plans…' : answer ? 'Ask again' : 'What would help now?'}</button>
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
      : html`<p>${answer.message || 'No single change was found that would let it start now.'}</p>`}
    ${answer.atS != null && html`<p class="facts">Each was planned on the state of
      ${' '}${at(answer.atS, { seconds: true })}.</p>`}`;
}
