// @ts-check
// What if: would these pods start now?

import { html, signal } from './vendor.js';
import { Card, Missing } from './pieces.js';
import { ask } from './source.js';
import { isLive } from './state.js';
import { counted, number } from './words.js';

/** @typedef {{ gang: string, fits: boolean, reason?: string, message?: string, pods?: number, nodes?: { kind: string, count: number }[], assignments?: { podSet: string, node: string, count: number }[], preempts?: string[], suggestions?: string[], problems?: string[] }} Plan */
/** @typedef {{ fault?: string, gangs?: Plan[], notes?: string[], instead?: string }} Answer */

const MOST_BYTES = 64 * 1024;

const manifest = signal('');
const answer = signal(/** @type {Answer | null} */ (null));
const isAsked = signal(false);
const isOver = signal(false);

async function plan() {
  if (new Blob([manifest.value]).size > MOST_BYTES) {
    answer.value = { fault: 'The manifest is larger than 64 KB: leave out what has no pods.' };
    return;
  }

  isAsked.value = true;
  answer.value = await ask('ask', { manifest: manifest.value });
  isAsked.value = false;
}

/** @param {DragEvent} event */
async function dropped(event) {
  event.preventDefault();
  isOver.value = false;
  const file = event.dataTransfer?.files[0];
  manifest.value = file ? await file.text() : event.dataTransfer?.getData('text') ?? '';
}

export function WhatIf() {
  if (!isLive.value) {
    return html`<${Card} id="what-if" title="What if">
      <p class="empty">A file cannot ask the scheduler. Open the page of a cluster with
        ${' '}<code>kubectl gangsched ui</code>, or run <code>kubectl gangsched plan -f FILE</code>.</p>
    </${Card}>`;
  }

  return html`<${Card} id="what-if" title="What if" note="would these pods start now? Nothing is created">
    <${Missing} of=${['what-if']} />
    <div class=${`what-if ${isOver.value ? 'over' : ''}`} onDrop=${dropped}
      onDragOver=${(/** @type {DragEvent} */ event) => (event.preventDefault(), (isOver.value = true))}
      onDragLeave=${() => (isOver.value = false)}>
      <label for="manifest">Manifest: paste it, or drop a file</label>
      <textarea id="manifest" rows="14" spellcheck=${false} value=${manifest.value}
        onInput=${(/** @type {any} */ event) => (manifest.value = event.currentTarget.value)}></textarea>
      <button type="button" class="primary" disabled=${isAsked.value || !manifest.value.trim()}
        onClick=${plan}>${isAsked.value ? 'The scheduler plans…' : 'Plan'}</button>
    </div>
    <div class="answers" aria-live="polite">
      ${answer.value && html`<${Answers} answer=${answer.value} />`}
    </div>
  </${Card}>`;
}

/** @param {{ answer: Answer }} props */
function Answers({ answer: { fault, gangs = [], notes = [], instead } }) {
  if (fault) return html`<p class="missing">${fault}</p>`;

  return html`
    ${gangs.map((gang) => html`<${Planned} key=${gang.gang} plan=${gang} />`)}
    ${[...notes, instead].filter(Boolean).map((note) => html`<p class="facts" key=${note}>${note}</p>`)}`;
}

/** @param {{ plan: Plan }} props */
function Planned({ plan: { gang, fits, message, pods = 0, nodes = [], assignments = [], preempts = [], suggestions = [], problems = [] } }) {
  const kinds = nodes.map(({ kind, count }) => `${number(count)} × ${kind}`).join(', ');
  return html`<article class=${`planned ${fits ? 'good' : 'bad'}`}>
    <h3>${gang || 'The gang'} ${fits ? 'would start now' : 'would wait'}</h3>
    ${message && html`<p>${message}</p>`}
    <p class="facts">${[counted(pods, 'pod'), kinds && `on ${kinds}`].filter(Boolean).join(' ')}</p>
    ${listed('It would preempt', preempts)}
    ${listed('What would help', suggestions)}
    ${listed('Problems', problems)}
    ${assignments.length > 0 && listed('Nodes', assignments.map(
      ({ podSet, node, count }) => `${counted(count, 'pod')}${podSet ? ` of ${podSet}` : ''} on ${node}`))}
  </article>`;
}

/** @param {string} title @param {string[]} texts */
function listed(title, texts) {
  if (!texts.length) return null;
  return html`<h4>${title}</h4><ul>${texts.map((text) => html`<li key=${text}>${text}</li>`)}</ul>`;
}
