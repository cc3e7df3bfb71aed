// @ts-check
// Where the document comes from: the file itself, or the server that `kubectl gangsched ui` started.
//
// The server: GET session (with the code of the link, once) gives the key that all others need;
// GET document; GET changes, a stream of `change`, `document` and `state` events;
// GET detail and GET helps of a gang; POST plan with a manifest. Nothing else is ever asked for.

import { batch, signal } from './vendor.js';
import { applied, FileMoments, LiveMoments } from './moments.js';
import { connection, fault, isLive, moments, open, page, pushed } from './state.js';

/** @typedef {import('./types.js').Document} Document */
/** @typedef {import('./types.js').Change} Change */
/** @typedef {import('./types.js').Detail} Detail */

const FORMAT = 1;
const KEY = 'gangsched-session';
const RETRY_MS = 1000;
const LONGEST_RETRY_MS = 8000;
/** Without a word from the server for so long the page says that it is behind. */
const SILENT_MS = 2000;
const DETAIL_EVERY_MS = 5000;

/** Details of gangs that were asked for. */
export const details = signal(/** @type {Map<string, Detail>} */ (new Map()));
let key = '';

/** The start of the page. */
export async function start() {
  const element = document.getElementById('document');
  if (element) {
    try {
      openFile(await embedded(element));
    } catch {
      fault.value = 'This file is damaged or incomplete: its document cannot be read. Make it again.';
    }
    return;
  }

  await live();
}

/** @param {HTMLElement} element @returns {Promise<Document>} */
async function embedded(element) {
  const text = (element.textContent ?? '').trim();
  if (text.startsWith('{')) return JSON.parse(text);

  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(stream).json();
}

/** @param {Document} read */
function openFile(read) {
  if (!read?.moment) throw new Error('no moment');
  if ((read.format ?? FORMAT) > FORMAT) {
    fault.value = 'This file was written by a newer release of gangsched.';
    return;
  }

  open(read, new FileMoments(read.moment, read.changes ?? []));
  connection.value = { status: 'file', sinceMs: Date.now(), text: '' };
}

async function live() {
  const code = new URLSearchParams(location.hash.slice(1)).get('code');
  // The code works once: it is taken out of the address before anybody copies that.
  if (code) history.replaceState(null, '', '#overview');
  try {
    if (code) {
      const answer = await fetch('session', { headers: { Authorization: `Code ${code}` } });
      if (answer.ok) sessionStorage.setItem(KEY, (await answer.json()).key);
    }
  } catch {
    // What follows says that nobody answers.
  }

  key = sessionStorage.getItem(KEY) ?? '';
  if (!key) {
    fault.value = 'This link was used already. Run kubectl gangsched ui again.';
    return;
  }

  setInterval(watchSilence, 500);
  void follow();
}

const headers = () => ({ Authorization: `Bearer ${key}` });
let heardMs = Date.now();

/** Read the document and then its changes, again and again. */
async function follow() {
  let waitMs = RETRY_MS;
  for (;;) {
    try {
      const answer = await fetch('changes', { headers: headers(), cache: 'no-store' });
      if (answer.status === 401 || answer.status === 403) {
        connection.value = { status: 'ended', sinceMs: Date.now(), text: 'the session has ended' };
        if (!page.value) fault.value = 'The session has ended. Run kubectl gangsched ui again.';
        return;
      }

      if (answer.ok && answer.body) {
        waitMs = RETRY_MS;
        await heard(answer.body);
      }
    } catch {
      // The server is away: the next try says whether it still is.
    }

    await new Promise((done) => setTimeout(done, waitMs));
    waitMs = Math.min(2 * waitMs, LONGEST_RETRY_MS);
  }
}

/** Server-sent events, read by hand: EventSource cannot send a key. @param {ReadableStream<Uint8Array>} body */
async function heard(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;

    heardMs = Date.now();
    rest += decoder.decode(value, { stream: true });
    const parts = rest.split('\n\n');
    rest = parts.pop() ?? '';
    batch(() => parts.forEach(take));
  }
}

/** @param {string} event */
function take(event) {
  let name = 'message';
  let data = '';
  for (const line of event.split('\n')) {
    if (line.startsWith('event:')) name = line.slice(6).trim();
    if (line.startsWith('data:')) data += line.slice(5).trimStart();
  }

  if (!data) return;

  const read = JSON.parse(data);
  if (name === 'document') takeDocument(read);
  else if (name === 'change') takeChange(read);
  else if (name === 'state') takeState(read);
}

/** @param {Document} read */
function takeDocument(read) {
  const known = moments.value;
  if (known instanceof LiveMoments) {
    page.value = read;
    known.push(read.moment);
    pushed.value += 1;
  } else {
    open(read, new LiveMoments(read.moment));
  }

  connection.value = { status: 'live', sinceMs: Date.now(), text: '' };
}

/** @param {Change} change */
function takeChange(change) {
  const known = moments.value;
  if (!(known instanceof LiveMoments)) return;

  known.push(applied(known.latest, [change]));
  pushed.value += 1;
  if (connection.value.status !== 'live') {
    connection.value = { status: 'live', sinceMs: Date.now(), text: '' };
  }
}

/** @param {{ behindSinceS?: number | null, sentence?: string }} state */
function takeState({ behindSinceS, sentence = '' }) {
  connection.value = behindSinceS == null
    ? { status: 'live', sinceMs: Date.now(), text: '' }
    : { status: 'behind', sinceMs: behindSinceS * 1000, text: sentence };
}

/** The stream has a word each second; where none comes, what is shown is old. */
function watchSilence() {
  if (connection.value.status === 'live' && Date.now() - heardMs > SILENT_MS) {
    connection.value = { status: 'behind', sinceMs: heardMs, text: 'kubectl gangsched ui does not answer' };
  }
}

/**
 * Ask the scheduler something. An answer that cannot be had has a `fault`, one sentence.
 * @param {string} what
 * @param {Record<string, string>} settings
 * @param {string} [body]
 * @returns {Promise<any>}
 */
export async function ask(what, settings, body) {
  const query = new URLSearchParams(settings);
  try {
    const answer = await fetch(`${what}${query.size ? `?${query}` : ''}`, {
      headers: headers(), method: body === undefined ? 'GET' : 'POST', body, cache: 'no-store',
    });
    const read = await answer.json().catch(() => ({}));
    if (answer.ok) return read;
    return { fault: read.sentence || `The answer was refused with status ${answer.status}.` };
  } catch {
    return { fault: 'kubectl gangsched ui does not answer.' };
  }
}

/** @type {Map<string, number>} */
const askedMs = new Map();

/** Read a gang's detail, at most every few seconds. @param {string} id */
export async function wantDetail(id) {
  const nowMs = Date.now();
  if (!isLive.value || nowMs - (askedMs.get(id) ?? 0) < DETAIL_EVERY_MS) return;

  askedMs.set(id, nowMs);
  const detail = await ask('detail', { gang: id });
  // The last few: a page that is open for days must not grow.
  if (!detail.fault) details.value = new Map([...[...details.value].slice(-20), [id, detail]]);
}
