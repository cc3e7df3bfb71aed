// @ts-check
// Where the document comes from: the file itself, or the server that `kubectl gangsched ui` started.
//
// Of the server it asks for the session's key (with the code of the link, once), the document, the
// stream of changes, a gang's detail and the health, and posts questions to the scheduler.

import { batch, signal } from './vendor.js';
import { applied, FileMoments, LiveMoments } from './moments.js';
import { connection, fault, isLive, moments, open, page, pushed, VIEWS } from './state.js';

/** @typedef {import('./types.js').Document} Document */
/** @typedef {import('./types.js').Change} Change */
/** @typedef {import('./types.js').Detail} Detail */

const FORMAT = 1;
const KEY = 'gangsched-session';
const RETRY_MS = 1000;
const LONGEST_RETRY_MS = 8000;
/** Without a word from the server for so long the page says that it is behind. */
const SILENT_MS = 12_000;
const SILENCE = 'kubectl gangsched ui does not answer';
const DETAIL_EVERY_MS = 5000;
const HEALTH_EVERY_MS = 30_000;

/** Details of gangs that were asked for. */
export const details = signal(/** @type {Map<string, Detail>} */ (new Map()));
/** The findings that were asked for. */
export const health = signal(/** @type {import('./types.js').Health | null} */ (null));
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
  const code = codeOf(location.hash);
  // The code works once: it is taken out of the address before anybody copies that.
  if (code) history.replaceState(null, '', '#overview');
  try {
    if (code) {
      const answer = await fetch('api/session', { headers: { Authorization: `Code ${code}` } });
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

  setInterval(watchSilence, 1000);
  void follow();
}

/** The code in the fragment of the link; "" where that is the address of a view. @param {string} hash */
function codeOf(hash) {
  const [text] = hash.slice(1).split(/[/?]/);
  return VIEWS.some((name) => name === text) ? '' : text;
}

const headers = () => ({ Authorization: `Bearer ${key}` });
let heardMs = Date.now();
let lastId = 0;

/** Read the document and then its changes, again and again. */
async function follow() {
  let waitMs = 0;
  let isKnown = false;
  for (;;) {
    await new Promise((done) => setTimeout(done, waitMs));
    waitMs = Math.min(Math.max(RETRY_MS, 2 * waitMs), LONGEST_RETRY_MS);
    try {
      if (!isKnown) {
        const answer = await fetch('api/document', { headers: headers(), cache: 'no-store' });
        if (answer.status === 401 || answer.status === 403) return ended('the session has ended');
        if (!answer.ok) continue;

        takeDocument(await answer.json());
        isKnown = true;
      }

      const stream = await fetch(`api/changes?after=${lastId}`, { headers: headers() });
      if (stream.status === 401) return ended('the session has ended');
      if (!stream.ok || !stream.body) {
        // Too many tabs are open: the document stays as it is, and is not read again meanwhile.
        behind(heardMs, (await stream.json()).sentence);
        continue;
      }

      waitMs = 0;
      isKnown = false;
      isLiveNow();
      if (await heard(stream.body) === 'over') return ended('kubectl gangsched ui has ended');
    } catch {
      // The server is away: the next try says whether it still is.
    }

    if (connection.value.status === 'live') behind(heardMs, SILENCE);
  }
}

/** @param {string} text */
function ended(text) {
  connection.value = { status: 'ended', sinceMs: Date.now(), text };
  if (!page.value) fault.value = 'The session has ended. Run kubectl gangsched ui again.';
}

/** @param {number} sinceMs @param {string} text */
function behind(sinceMs, text) {
  connection.value = { status: 'behind', sinceMs, text };
}

/**
 * Server-sent events, read by hand: EventSource cannot send a key. The last one may say why there
 * are no more.
 * @param {ReadableStream<Uint8Array>} body
 */
async function heard(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  let last = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done || last) return last;

    heardMs = Date.now();
    rest += decoder.decode(value, { stream: true });
    const parts = rest.split('\n\n');
    rest = parts.pop() ?? '';
    batch(() => parts.forEach((part) => (last = take(part) || last)));
  }
}

/** Apply an event; the name of one behind which none comes. @param {string} event */
function take(event) {
  let name = '';
  let data = '';
  for (const line of event.split('\n')) {
    if (line.startsWith('event: ')) name = line.slice(7);
    if (line.startsWith('data: ')) data = line.slice(6);
  }

  if (name === 'over' || name === 'again') return name;
  if (name === 'change') takeChange(JSON.parse(data));
  if (name === 'behind') takeBehind(JSON.parse(data));
  return '';
}

/** @param {Document & { id?: number }} read */
function takeDocument(read) {
  const known = moments.value;
  heardMs = Date.now();
  lastId = read.id ?? 0;
  if (known instanceof LiveMoments) {
    page.value = read;
    known.push(read.moment);
    pushed.value += 1;
  } else {
    open(read, new LiveMoments(read.moment));
  }

  isLiveNow();
}

function isLiveNow() {
  if (connection.value.status !== 'live') {
    connection.value = { status: 'live', sinceMs: Date.now(), text: '' };
  }
}

/** @param {Change} change */
function takeChange(change) {
  const known = moments.value;
  if (!(known instanceof LiveMoments)) return;

  known.push(applied(known.latest, [change]));
  pushed.value += 1;
}

/** @param {{ seconds: number, sentence: string }} told */
function takeBehind({ seconds, sentence }) {
  if (seconds) behind(Date.now() - seconds * 1000, sentence);
  else isLiveNow();
}

/** The stream has a word every few seconds; where none comes, what is shown may be old. */
function watchSilence() {
  if (connection.value.status === 'live' && Date.now() - heardMs > SILENT_MS) behind(heardMs, SILENCE);
}

/**
 * Ask something of the server. An answer that cannot be had has a `fault`, one sentence.
 * @param {string} path
 * @param {Record<string, string>} [question] what is posted
 * @returns {Promise<any>}
 */
export async function ask(path, question) {
  const posted = question && {
    method: 'POST', body: JSON.stringify(question),
    headers: { ...headers(), 'Content-Type': 'application/json' },
  };
  try {
    const answer = await fetch(`api/${path}`, { headers: headers(), cache: 'no-store', ...posted });
    const read = await answer.json().catch(() => ({}));
    if (answer.ok) return read;
    return { fault: read.sentence || `The answer was refused with status ${answer.status}.` };
  } catch {
    return { fault: `${SILENCE[0].toUpperCase()}${SILENCE.slice(1)}.` };
  }
}

/** @type {Map<string, number>} */
const askedMs = new Map();

/** Whether something has not been asked for a while. @param {string} what @param {number} everyMs */
function isDue(what, everyMs) {
  const nowMs = Date.now();
  if (!isLive.value || nowMs - (askedMs.get(what) ?? 0) < everyMs) return false;

  askedMs.set(what, nowMs);
  return true;
}

/** Read a gang's detail, at most every few seconds. @param {string} id */
export async function wantDetail(id) {
  if (!isDue(id, DETAIL_EVERY_MS)) return;

  const detail = await ask(`gang?${new URLSearchParams({ id })}`);
  // The last few: a page that is open for days must not grow.
  if (!detail.fault) details.value = new Map([...[...details.value].slice(-20), [id, detail]]);
}

/** Read the findings, which cost the API server some requests. */
export async function wantHealth() {
  if (!isDue('health', HEALTH_EVERY_MS)) return;

  const read = await ask('health');
  health.value = read.fault ? { notChecked: { Findings: read.fault } } : read;
}
