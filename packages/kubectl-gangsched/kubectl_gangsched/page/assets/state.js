// @ts-check
// What the page shows now: the document's moments, which of them, and what the user looks at.

import { batch, computed, signal } from './vendor.js';
import { timeText } from './times.js';
import { viewOf } from './view.js';

/** @typedef {import('./types.js').Document} Document */
/** @typedef {import('./types.js').Moment} Moment */
/** @typedef {import('./moments.js').FileMoments | import('./moments.js').LiveMoments} Moments */
/** @typedef {{ status: 'file' | 'connecting' | 'live' | 'behind' | 'ended', sinceMs: number, text: string }} Connection */

export const VIEWS = /** @type {const} */ (['overview', 'queue', 'gang', 'time', 'what-if', 'health']);

/** @type {import('./vendor.js').Signal<Document | null>} */
export const page = signal(null);
/** One sentence where there is no document to show. */
export const fault = signal('');
/** @type {import('./vendor.js').Signal<Moments | null>} */
export const moments = signal(null);
/** Counts what was pushed to live moments, which are the same object. */
export const pushed = signal(0);
/** The moment that is shown; -1 is the latest. */
export const shown = signal(-1);
/** @type {import('./vendor.js').Signal<Connection>} */
export const connection = signal({ status: 'connecting', sinceMs: 0, text: '' });

/** @param {string} hash */
function parsed(hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?');
  const [view, ...rest] = path.split('/');
  const known = VIEWS.find((name) => name === view);
  const settings = new URLSearchParams(query);
  return {
    view: known ?? 'overview',
    gang: known === 'gang' ? rest.map(decoded).join('/') : '',
    focus: settings.get('focus') ?? '',
    node: settings.get('node') ?? '',
  };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const route = signal(parsed(location.hash));

addEventListener('hashchange', () => {
  const before = route.value.view;
  route.value = parsed(location.hash);
  if (route.value.view !== before) scrollTo(0, 0);
});

/**
 * The address of a view, with what is isolated and chosen kept where it still means something.
 * @param {{ view?: string, gang?: string, focus?: string, node?: string }} to
 */
export function link({ view = route.value.view, gang = '', focus = '', node = '' }) {
  const settings = new URLSearchParams();
  if (focus) settings.set('focus', focus);
  if (node) settings.set('node', node);
  const query = settings.size ? `?${settings}` : '';
  return `#${view}${gang ? `/${gang.split('/').map(encodeURIComponent).join('/')}` : ''}${query}`;
}

/** @param {Parameters<typeof link>[0]} to */
export function go(to) {
  location.hash = link(to);
}

/** Change what is isolated or chosen, and stay in the view. @param {{ focus?: string, node?: string }} to */
export function choose(to) {
  const { view, gang, focus, node } = route.value;
  const next = { view, gang, focus, node, ...to };
  history.replaceState(null, '', link(next));
  route.value = { ...route.value, ...to };
}

export const count = computed(() => (pushed.value, moments.value?.times.length ?? 0));
export const place = computed(() => {
  const last = count.value - 1;
  return shown.value < 0 ? last : Math.min(shown.value, last);
});
export const isLatest = computed(() => place.value === count.value - 1);
/** @type {import('./vendor.js').Signal<Moment | null>} */
export const moment = computed(() => {
  const at = place.value;
  return (pushed.value, moments.value && at >= 0 ? moments.value.at(at) : null);
});
export const view = computed(() => (moment.value ? viewOf(moment.value) : null));
export const isLive = computed(() => page.value?.source === 'live');

/** @param {number} atS @param {{ up?: boolean, seconds?: boolean }} [how] */
export function at(atS, how = {}) {
  const simulated = page.value?.clock === 'simulated';
  return timeText(atS, moment.value?.atS ?? atS, { ...how, simulated });
}

/** @param {Document} document @param {Moments} of */
export function open(document, of) {
  batch(() => {
    page.value = document;
    moments.value = of;
    // A simulation is a story; of a cluster the last moment matters most.
    shown.value = document.source === 'simulation' ? 0 : -1;
    fault.value = '';
  });
}
