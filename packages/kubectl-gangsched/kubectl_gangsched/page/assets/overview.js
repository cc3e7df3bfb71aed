// @ts-check
// The overview: one sentence, four answers, the map, the queue, what runs, and time.

import { html } from './vendor.js';
import { endText, Inspector } from './inspector.js';
import { MapCard } from './map.js';
import { ageText, Card, Key, Name } from './pieces.js';
import { QueueBrief } from './queue.js';
import { emptiest, rackName } from './racks.js';
import { at, link, moment, view } from './state.js';
import { TimeStrip } from './time.js';
import { total } from './view.js';
import { amountOf, counted, number, unitOf } from './words.js';

/** @typedef {import('./view.js').Run} Run */

const MOST_RUNS = 8;

export function Overview() {
  return html`<div class="overview">
    <${Answers} />
    <div class="columns">
      <${MapCard} />
      <div class="side">
        <${Inspector} />
        <${QueueCard} />
      </div>
    </div>
    <${TimeStrip} />
  </div>`;
}

function QueueCard() {
  const note = moment.value?.order === 'age' ? 'the oldest first' : "in the scheduler's order";
  return html`<${Card} id="brief" title="Queue" note=${note} class="queue-card">
    <div class="scroll" tabIndex="0" role="group" aria-label="Waiting and running gangs">
      <${QueueBrief} />
      <${Runs} />
    </div>
  </${Card}>`;
}

/** What most people come for, each as a link to where it is explained. */
function Answers() {
  const now = view.value;
  const kind = now?.kinds[0];
  if (!now || !kind) return null;

  const totals = now.moment.totals?.find(({ resource }) => resource === kind.resource);
  const [rack] = emptiest(kind, 1);
  const starts = now.waiting.filter(({ gang }) => gang.promisedS != null);
  starts.sort((a, b) => Number(a.gang.promisedS) - Number(b.gang.promisedS));
  const ends = now.runs.find(({ endS }) => endS != null && endS >= now.moment.atS);

  return html`<div class="answers-row">
    <${Free} free=${kind.free} of=${kind.total} resource=${kind.resource} closed=${totals?.closed ?? {}} />
    ${rack
      ? html`<${Answer} title=${rack.level ? `Most room in one ${rack.level}` : 'Most room'}
          value=${rack.level ? rack.name || rackName(rack) : amountOf(number(rack.free), kind.resource)}
          note=${`${number(rack.free)} free, at most ${number(Math.max(...rack.nodes.map((box) => box.free)))} on a node`}
          href=${link({ view: 'overview', node: mostFree(rack) })} />`
      : html`<${Answer} title="Most room" value="none" note=${`No ${unitOf(kind.resource)} is free`} />`}
    ${starts.length
      ? html`<${Answer} title="Starts next" value=${at(Number(starts[0].gang.promisedS), { up: true })}
          note=${`${starts[0].id}, at the latest`} href=${link({ view: 'gang', gang: starts[0].id })} />`
      : html`<${Answer} title="Starts next" value=${now.waiting.length ? 'not promised' : 'nothing waits'}
          note=${now.waiting.length ? `${number(now.waiting.length)} wait` : ''}
          href=${link({ view: 'queue' })} />`}
    ${ends
      ? html`<${Answer} title="Ends next" value=${at(Number(ends.endS))}
          note=${`${ends.id.replace(/^pod:/, 'pod ')}${ends.use ? `, frees ${number(total(ends.use))}` : ''}`}
          href=${ends.gang ? link({ view: 'gang', gang: ends.id }) : link({ view: 'time' })} />`
      : html`<${Answer} title="Ends next" value="not declared" note=${`${counted(now.runs.length, 'gang or pod').replace('gang or pods', 'gangs and pods')} run`}
          href=${link({ view: 'time' })} />`}
  </div>`;
}

/** @param {import('./racks.js').Rack} rack */
function mostFree(rack) {
  return rack.nodes.reduce((best, box) => (box.free > best.free ? box : best)).name;
}

/** @param {{ title: string, value: string, note: string, href?: string }} props */
function Answer({ title, value, note, href }) {
  const inner = html`<span class="answer-title">${title}</span>
    <span class="answer-value">${value}</span><span class="answer-note" title=${note}>${note}</span>`;
  return href ? html`<a class="answer" href=${href}>${inner}</a>` : html`<div class="answer">${inner}</div>`;
}

/** @param {{ free: number, of: number, resource: string, closed: Record<string, number> }} props */
function Free({ free, of, resource, closed }) {
  const lost = Object.values(closed).reduce((sum, units) => sum + units, 0);
  const used = Math.max(0, of - free - lost);
  const part = (/** @type {number} */ units) => ({ width: `${(100 * units) / Math.max(1, of)}%` });
  return html`<div class="answer">
    <span class="answer-title">Free ${unitOf(resource) === 'GPU' ? 'GPUs' : resource}</span>
    <span class="answer-value">${number(free)} <small>of ${number(of)}</small></span>
    <span class="share" aria-hidden="true"><i class="used" style=${part(used)}></i><i class="lost" style=${part(lost)}></i></span>
  </div>`;
}

function Runs() {
  const runs = view.value?.runs ?? [];
  const shown = runs.slice(0, MOST_RUNS);
  if (!runs.length) return null;

  return html`<div class="runs">
    <h3>Runs <span>the first to end first</span></h3>
    <table>
      <thead><tr><th>Gang or pod</th><th class="num">Has</th><th class="num">For</th><th class="num">Ends</th></tr></thead>
      <tbody>${shown.map((run) => html`<${RunRow} key=${run.id} run=${run} />`)}</tbody>
    </table>
    ${runs.length > shown.length && html`<p class="after"><a href=${link({ view: 'time' })}>
      ${number(runs.length - shown.length)} more</a></p>`}
  </div>`;
}

/** @param {{ run: Run }} props */
function RunRow({ run }) {
  return html`<tr>
    <td><${Key} id=${run.id} /> <${Name} id=${run.id} /></td>
    <td class="num">${run.use ? number(total(run.use)) : counted(run.gang?.bound ?? 0, 'pod')}</td>
    <td class="num">${ageText(run.sinceS)}</td>
    <td class="num">${endText(run.id)}</td>
  </tr>`;
}
