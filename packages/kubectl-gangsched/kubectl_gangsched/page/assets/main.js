// @ts-check
// The frame of the page: what it is about, its views, how fresh it is, and its moments.

import { html, render, signal } from './vendor.js';
import { Find, find } from './find.js';
import { Gang } from './gang.js';
import { HealthView } from './health.js';
import { Overview } from './overview.js';
import { Queue } from './queue.js';
import { start } from './source.js';
import {
  at, connection, count, fault, isLatest, isLive, link, moment, page, place, route, shown, view,
} from './state.js';
import { Time } from './time.js';
import { lengthText } from './times.js';
import { WhatIf } from './what_if.js';

const TITLES = /** @type {const} */ ([
  ['overview', 'Overview'], ['queue', 'Queue'], ['gang', 'Gang'], ['time', 'Time'],
  ['what-if', 'What if'], ['health', 'Health'],
]);
const VIEWS = {
  overview: Overview, queue: Queue, gang: Gang, time: Time, 'what-if': WhatIf, health: HealthView,
};
const SOURCES = { live: 'live', snapshot: 'snapshot', replay: 'replay', simulation: 'simulation' };
/** Counts seconds, so that an age is shown anew. */
const second = signal(0);

function App() {
  if (fault.value) {
    return html`<${Header} /><main id="main"><h1 class="fault">${fault.value}</h1></main>`;
  }

  const Shown = VIEWS[route.value.view];
  if (!view.value) return html`<${Header} /><main id="main"><h1 class="loading">Reading the cluster…</h1></main>`;

  return html`
    <a class="skip" href="#main" onClick=${skipped}>Skip to the content</a>
    <${Header} />
    <main id="main" tabIndex="-1" class=${`view-${route.value.view}`}>
      <${Title} />
      <${Trouble} />
      <${Shown} />
    </main>
    <${Moments} />
    <${Find} />
    <${Stripes} />`;
}

/** The hash is the address of a view, so that a link cannot move the focus. @param {Event} event */
function skipped(event) {
  event.preventDefault();
  document.getElementById('main')?.focus();
}

function Title() {
  const { sentence, remark } = moment.value ?? {};
  const size = route.value.view === 'overview' ? '' : 'small';
  return html`<h1 class=${size}>${sentence || 'The cluster'} ${remark && html`<small>${remark}</small>`}</h1>`;
}

/** Why what is shown may be old. */
function Trouble() {
  const { status, text } = connection.value;
  return status === 'behind' && text ? html`<p class="missing" role="status">${text}</p>` : null;
}

function Header() {
  const { title, user } = page.value ?? {};
  const source = page.value && !isLive.value ? `${SOURCES[page.value.source]} ` : '';
  return html`<header class="top">
    <span class="brand"><svg width="20" height="20" viewBox="0 0 20 20" aria-hidden="true">
      <rect class="fill c0" x="1" y="1" width="8" height="8" rx="2" /><rect class="fill c0" x="11" y="1" width="8" height="8" rx="2" />
      <rect class="fill c0" x="1" y="11" width="8" height="8" rx="2" /><rect class="gap" x="12" y="12" width="6" height="6" rx="1.5" />
    </svg>gangsched</span>
    ${page.value && html`<span class="who">${source}<b>${title}</b>${user && ` · you are ${user}`}</span>`}
    <nav aria-label="Views">${TITLES.map(([name, text]) => html`
      <a key=${name} href=${link({ view: name, gang: name === 'gang' ? route.value.gang : '' })}
        aria-current=${route.value.view === name ? 'page' : undefined}>${text}</a>`)}</nav>
    <div class="right">
      <button type="button" class="find-button" onClick=${find}
        aria-keyshortcuts="/" disabled=${!view.value}>Find <kbd>/</kbd></button>
      <${Fresh} />
    </div>
  </header>`;
}

/** How fresh what is shown is. */
function Fresh() {
  const { status, sinceMs, text } = connection.value;
  const now = moment.value;
  void second.value;
  if (fault.value) return null;

  const zone = page.value?.clock === 'simulated' ? '' : ' UTC';
  const time = now ? `${at(now.atS, { seconds: true })}${zone}` : '';
  const ageS = (Date.now() - sinceMs) / 1000;
  const word = {
    file: 'file', connecting: 'connecting…', live: isLatest.value ? 'live' : 'earlier',
    behind: `behind for ${lengthText(ageS)}`, ended: 'ended',
  }[status];
  return html`<p class=${`fresh ${status}`} role="status" title=${text}>
    <i aria-hidden="true"></i>${word}${time && ` · ${time}`}</p>`;
}

/** The slider, where there are several moments. */
function Moments() {
  const last = count.value - 1;
  if (last < 1) return null;

  const now = place.value;
  const step = (/** @type {number} */ to) => {
    shown.value = to >= last ? -1 : Math.max(0, to);
  };
  const of = `moment ${now + 1} of ${count.value}`;
  const time = moment.value ? at(moment.value.atS, { seconds: true }) : '';
  return html`<footer class="moments">
    <button type="button" aria-label="Earlier" disabled=${now === 0} onClick=${() => step(now - 1)}>◀</button>
    <input type="range" min="0" max=${last} value=${now} aria-label="Moment that the page shows"
      aria-valuetext=${`${time}, ${of}`}
      onInput=${(/** @type {any} */ event) => step(Number(event.currentTarget.value))} />
    <button type="button" aria-label="Later" disabled=${now === last} onClick=${() => step(now + 1)}>▶</button>
    <span class="moment-text">${time} <small>${of}</small></span>
    <button type="button" aria-pressed=${now === last} onClick=${() => step(last)}>
      ${isLive.value ? 'Live' : 'Last'}</button>
    ${isLive.value && html`<small class="since">kept by this page since it was opened</small>`}
  </footer>`;
}

/** Patterns that every bar refers to. */
function Stripes() {
  return html`<svg width="0" height="0" class="defs" aria-hidden="true"><defs>${[0, 1, 2, 3, 4, 5, 6, 7].map((colour) => html`
    <pattern key=${colour} id=${`stripes-${colour}`} width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
      <rect width="4" height="7" class=${`fill c${colour}`} /></pattern>`)}</defs></svg>`;
}

setInterval(() => {
  if (connection.value.status === 'behind') second.value += 1;
}, 1000);

const root = /** @type {HTMLElement} */ (document.getElementById('page'));
render(html`<${App} />`, root);
void start().then(() => {
  const title = page.value?.title;
  if (title) document.title = `gangsched: ${title}`;
});
