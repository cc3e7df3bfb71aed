// @ts-check
// The colours of the style sheet for canvases, which cannot read variables.

import { signal } from './vendor.js';

/** @typedef {Record<string, string>} Inks */

const NAMES = [
  'bg', 'card', 'ink', 'dim', 'line', 'soft', 'accent', 'warn', 'bad', 'free', 'free-line', 'hatch', 'now',
];
/** Of each colour of a gang; the last is that of everybody else. */
export const MARK_COLOURS = [
  '#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#f0e442', '#8b93a3',
];
export const MARK_INKS = ['#fff', '#000', '#000', '#000', '#000', '#000', '#000', '#000'];

/** Counts changes between light and dark. */
export const scheme = signal(0);
/** @type {Inks | null} */
let known = null;

for (const query of ['(prefers-color-scheme: dark)', '(forced-colors: active)']) {
  matchMedia(query).addEventListener('change', () => {
    known = null;
    scheme.value += 1;
  });
}

/** @returns {Inks} */
export function inks() {
  if (known) return known;

  const probe = document.createElement('span');
  probe.hidden = true;
  document.body.append(probe);
  known = {};
  for (const name of NAMES) {
    probe.style.color = `var(--${name})`;
    known[name] = getComputedStyle(probe).color;
  }

  probe.remove();
  return known;
}
