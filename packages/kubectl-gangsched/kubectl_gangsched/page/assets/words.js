// @ts-check
// Amounts and names as words.

/** @typedef {import('./types.js').PageGang} PageGang */

const SHORT = new Map([['nvidia.com/gpu', 'GPU'], ['amd.com/gpu', 'GPU']]);
const NUMBER = new Intl.NumberFormat('en-US');

/** @param {number} n */
export const number = (n) => NUMBER.format(n);

/**
 * @param {number} n
 * @param {string} one
 */
export const counted = (n, one) => `${number(n)} ${one}${n === 1 ? '' : 's'}`;

/**
 * An amount of a resource: GPUs by that name, any other by its own.
 * @param {number | string} amount
 * @param {string} resource
 */
export function amountOf(amount, resource) {
  const short = SHORT.get(resource);
  if (!short) return `${amount} ${resource}`;
  return `${amount} ${short}${String(amount) === '1' ? '' : 's'}`;
}

/** @param {string} resource */
export const unitOf = (resource) => SHORT.get(resource) ?? resource;

/** The last part of a label's key. @param {string} label */
export const levelName = (label) => label.slice(label.lastIndexOf('/') + 1);

/** How a gang, a plain pod or everybody else is called. @param {string} id */
export function ownerName(id) {
  if (id === 'others') return 'other namespaces';
  return id.startsWith('pod:') ? `pod ${id.slice(4)}` : id;
}

/**
 * What the pods of a gang ask for, scarce resources only where they ask for any.
 * @param {PageGang} gang
 * @param {Set<string>} scarce
 */
export function needText(gang, scarce) {
  const texts = [];
  for (const { pods, requests = {} } of gang.needs ?? []) {
    const all = Object.entries(requests);
    const some = all.filter(([resource]) => scarce.has(resource));
    const what = (some.length ? some : all).map(([resource, amount]) => amountOf(amount, resource));
    texts.push(`${counted(pods, 'pod')}${what.length ? ` × ${what.join(' + ')}` : ''}`);
  }

  return texts.length ? texts.join(', ') : counted(gang.pods ?? 0, 'pod');
}
