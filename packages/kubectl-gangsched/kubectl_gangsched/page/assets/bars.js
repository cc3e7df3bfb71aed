// @ts-check
// Bars of time: solid happened, striped expected, dashed promised, dotted waiting. Up to some hundred
// are SVG, more are drawn on a canvas of which only what is in sight is drawn.

import { html, useEffect, useLayoutEffect, useRef, useState } from './vendor.js';
import { inks, MARK_COLOURS, scheme } from './inks.js';
import { Key, Name } from './pieces.js';
import { at, moment, view } from './state.js';
import { lengthText, ticks } from './times.js';
import { ownerName } from './words.js';

/** @typedef {import('./types.js').Bar} Bar */
/** @typedef {{ id: string, title: string, bars: { id: string, bar: Bar }[] }} Row */
/** @typedef {{ fromS: number, toS: number, width: number, nowS: number }} Axis */
/** @typedef {{ x: number, w: number, kind: string, open: boolean, colour: number, late: boolean, text: string, where: 'in' | 'after' | 'before' }} Shape */

const ROW_H = 24;
const BAR_H = 15;
const MOST_SVG = 500;
const HOUR_S = 3600;
const FONT = '11px Inter, system-ui, "DejaVu Sans", sans-serif';

/** @param {string} id @param {Bar[]} bars @returns {Row} */
export const rowOf = (id, bars) => ({ id, title: ownerName(id), bars: bars.map((bar) => ({ id, bar })) });

/**
 * From a little before the earliest to a little after the latest, within some hours of now.
 * @param {Row[]} rows
 * @param {number} nowS
 * @param {number} most in seconds, to each side
 */
export function spanOf(rows, nowS, most = 6 * HOUR_S) {
  let fromS = nowS - HOUR_S / 2;
  let toS = nowS + HOUR_S / 2;
  for (const { bars } of rows) {
    for (const { bar } of bars) {
      fromS = Math.min(fromS, bar.fromS ?? nowS);
      toS = Math.max(toS, bar.toS ?? (bar.kind === 'promised' ? (bar.fromS ?? nowS) + HOUR_S : nowS));
    }
  }

  fromS = Math.max(fromS, nowS - most);
  toS = Math.min(toS, nowS + most);
  return { fromS: fromS - (toS - fromS) * 0.02, toS: toS + (toS - fromS) * 0.03 };
}

/** @param {Axis} axis @param {number} s */
const xOf = ({ fromS, toS, width }, s) => ((s - fromS) / (toS - fromS)) * width;

/** @param {{ rows: Row[], fromS?: number, toS?: number, label?: string }} props */
export function Chart({ rows, fromS, toS, label = 'Time' }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [width, setWidth] = useState(0);
  const nowS = moment.value?.atS ?? 0;
  const span = fromS != null && toS != null ? { fromS, toS } : spanOf(rows, nowS);
  const axis = { ...span, width, nowS };
  const number = rows.reduce((sum, row) => sum + row.bars.length, 0);

  useLayoutEffect(() => {
    const element = /** @type {HTMLElement} */ (box.current);
    const measure = () => setWidth(Math.max(80, element.clientWidth));
    measure();
    const sizes = new ResizeObserver(measure);
    sizes.observe(element);
    return () => sizes.disconnect();
  }, []);

  return html`<div class="chart">
    <div class="chart-axis"><span class="labels"></span>
      <div class="chart-area" ref=${box}>${width > 0 && html`<${Ticks} axis=${axis} />`}</div>
    </div>
    ${width > 0 && (number > MOST_SVG
      ? html`<${CanvasRows} rows=${rows} axis=${axis} label=${label} />`
      : html`<div class="chart-scroll whole" tabIndex="0" role="group" aria-label=${label}>
          <${SvgRows} rows=${rows} axis=${axis} /></div>`)}
  </div>`;
}

/** @param {{ axis: Axis }} props */
function Ticks({ axis }) {
  const { width, nowS } = axis;
  const now = xOf(axis, nowS);
  const inSight = now >= 0 && now <= width;
  const nowText = `now ${at(nowS)}`;
  const nowW = nowText.length * 6.6 + 6;
  const left = now + 4 + nowW > width ? now - nowW : now + 4;
  return html`<svg width=${width} height="20" aria-hidden="true">
    ${ticks(axis.fromS, axis.toS, Math.max(2, width / 96)).map((s) => {
      const x = xOf(axis, s);
      const hidden = inSight && x > left - 26 && x < left + nowW + 22;
      return !hidden && x > 18 && x < width - 18
        && html`<text key=${s} x=${x} y="13" text-anchor="middle">${at(s)}</text>`;
    })}
    ${inSight && html`<text class="now" x=${left} y="13">${nowText}</text>`}
  </svg>`;
}

/** @param {Row} row @param {Axis} axis @returns {Shape[]} */
function shapesOf(row, axis) {
  const { nowS, width } = axis;
  const marks = view.peek()?.marks;
  const shapes = [];
  for (const { id, bar } of row.bars) {
    const isPast = bar.kind === 'happened' || bar.kind === 'waited';
    const fromS = bar.fromS ?? nowS;
    const toS = bar.toS ?? (isPast ? nowS : axis.toS);
    const x = Math.max(-8, xOf(axis, fromS));
    const end = Math.min(width + 8, xOf(axis, toS));
    if (end < 0 || x > width) continue;

    const room = end - x;
    const [text, where] = textOf(bar, room, row.bars.length, xOf(axis, fromS), width - end);
    shapes.push({
      x, w: Math.max(2, room), kind: bar.kind, open: !isPast && bar.toS == null,
      colour: marks?.get(id)?.colour ?? 7, late: bar.late ?? false, text, where,
    });
  }

  return shapes;
}

/**
 * What is written at a bar, and where there is room for it.
 * @param {Bar} bar
 * @param {number} room
 * @param {number} bars of the row
 * @param {number} before
 * @param {number} after
 * @returns {[string, 'in' | 'after' | 'before']}
 */
function textOf(bar, room, bars, before, after) {
  const wide = (/** @type {string} */ text) => text.length * 6.2 + 12;
  if (bar.kind === 'expected' && bar.toS != null && bars < 4) {
    const isOver = bar.toS < (moment.value?.atS ?? 0);
    const text = `${isOver ? 'overdue since' : 'ends'} ${at(bar.toS)}`;
    return after > wide(text) ? [text, 'after'] : ['', 'after'];
  }

  if (bar.kind === 'promised' && bar.fromS != null) {
    const short = at(bar.fromS, { up: true });
    const text = bar.late ? `late: promised ${short}` : `promised: ${short} at the latest`;
    const whole = bar.late || bar.toS == null ? text : `${text}, for ${lengthText(bar.toS - bar.fromS)}`;
    return [[whole, text, short].find((one) => room > wide(one)) ?? '', 'in'];
  }

  if (bar.kind === 'waited' && bar.toS == null && bar.fromS != null && bars < 4) {
    const text = `waits since ${at(bar.fromS)}`;
    return before > wide(text) ? [text, 'before'] : ['', 'before'];
  }

  return ['', 'in'];
}

/** What a row shows, as text. @param {Row} row */
function rowText(row) {
  const nowS = moment.value?.atS ?? 0;
  const texts = row.bars.slice(0, 4).map(({ bar }) => {
    const from = at(bar.fromS ?? nowS, { up: bar.kind === 'promised' });
    const to = bar.toS == null ? '' : ` to ${at(bar.toS)}`;
    const late = bar.late ? ', later than promised' : '';
    return `${bar.kind === 'happened' ? 'ran' : bar.kind} from ${from}${to}${late}`;
  });
  return texts.join('; ');
}

/** @param {{ row: Row }} props */
function Label({ row }) {
  return html`<span class="chart-label"><${Key} id=${row.id} />
    ${row.bars.every(({ id }) => id === row.id)
      ? html`<${Name} id=${row.id} short />` : html`<span class="name">${row.title}</span>`}
    <span class="sr">${rowText(row)}</span></span>`;
}

/** @param {{ rows: Row[], axis: Axis }} props */
function SvgRows({ rows, axis }) {
  const { width } = axis;
  const height = rows.length * ROW_H + 4;
  const now = xOf(axis, axis.nowS);
  return html`<div class="chart-rows">
    <ul class="labels">${rows.map((row) => html`<li key=${row.id}><${Label} row=${row} /></li>`)}</ul>
    <div class="chart-area"><svg width=${width} height=${height} aria-hidden="true">
      ${ticks(axis.fromS, axis.toS, Math.max(2, width / 96)).map((s) => html`
        <line key=${s} class="grid" x1=${xOf(axis, s)} x2=${xOf(axis, s)} y1="0" y2=${height} />`)}
      ${rows.map((row, place) => html`<g key=${row.id} transform=${`translate(0 ${place * ROW_H + 4})`}>
        ${shapesOf(row, axis).map((shape, n) => html`<${SvgBar} key=${n} shape=${shape} />`)}</g>`)}
      ${now >= 0 && now <= width && html`<line class="now" x1=${now} x2=${now} y1="0" y2=${height} />`}
    </svg></div>
  </div>`;
}

/** @param {{ shape: Shape }} props */
function SvgBar({ shape }) {
  const { x, w, kind, open, colour, late, text, where } = shape;
  const middle = BAR_H / 2;
  const place = where === 'after' ? x + w + 5 : where === 'before' ? x - 5 : x + 7;
  const anchor = where === 'before' ? 'end' : 'start';
  return html`<g class=${`bar ${kind} c${colour} ${open ? 'open' : ''} ${late ? 'late' : ''}`}>
    ${kind === 'waited'
      ? html`<line x1=${x} x2=${x + w} y1=${middle} y2=${middle} />`
      : html`<rect x=${x} y="0.5" width=${w} height=${BAR_H} rx="3"
          fill=${kind === 'expected' ? `url(#stripes-${colour})` : undefined} />`}
    ${text && html`<text x=${place} y=${middle + 4.5} text-anchor=${anchor}>${text}</text>`}
  </g>`;
}

/** @param {{ rows: Row[], axis: Axis, label: string }} props */
function CanvasRows({ rows, axis, label }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(400);
  const first = Math.max(0, Math.floor(top / ROW_H) - 1);
  const last = Math.min(rows.length, Math.ceil((top + height) / ROW_H) + 1);

  useEffect(() => {
    const element = /** @type {HTMLElement} */ (box.current);
    const sizes = new ResizeObserver(() => setHeight(element.clientHeight));
    sizes.observe(element);
    return () => sizes.disconnect();
  }, []);

  useLayoutEffect(() => {
    if (canvas.current) drawBars(canvas.current, rows.slice(first, last), axis, first * ROW_H - top, height);
  }, [rows, axis.fromS, axis.toS, axis.width, axis.nowS, top, height, scheme.value]);

  return html`<div class="chart-scroll" ref=${box} tabIndex="0" role="group" aria-label=${label}
    onScroll=${(/** @type {any} */ event) => setTop(event.currentTarget.scrollTop)}>
    <div class="spacer" style=${{ height: `${rows.length * ROW_H}px` }}>
      <div class="chart-rows pinned" style=${{ height: `${Math.min(height, rows.length * ROW_H)}px` }}>
        <ul class="labels" style=${{ marginTop: `${first * ROW_H - top}px` }}>
          ${rows.slice(first, last).map((row) => html`<li key=${row.id}><${Label} row=${row} /></li>`)}
        </ul>
        <div class="chart-area"><canvas ref=${canvas} aria-hidden="true"
          style=${{ width: `${axis.width}px`, height: `${height}px` }}></canvas></div>
      </div>
    </div>
  </div>`;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Row[]} rows
 * @param {Axis} axis
 * @param {number} y
 * @param {number} height
 */
function drawBars(canvas, rows, axis, y, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(axis.width * ratio);
  canvas.height = Math.round(height * ratio);
  const to = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  const ink = inks();
  to.scale(ratio, ratio);
  to.strokeStyle = ink.line;
  for (const s of ticks(axis.fromS, axis.toS, Math.max(2, axis.width / 96))) line(to, xOf(axis, s), height);

  to.font = FONT;
  to.textBaseline = 'middle';
  for (const row of rows) {
    for (const shape of shapesOf(row, axis)) drawBar(to, shape, y + 4, ink);
    y += ROW_H;
  }

  to.strokeStyle = ink.now;
  line(to, xOf(axis, axis.nowS), height);
}

/** @type {Map<number, CanvasPattern>} */
const striped = new Map();

/** @param {CanvasRenderingContext2D} to @param {number} colour */
function stripes(to, colour) {
  const known = striped.get(colour);
  if (known) return known;

  const tile = document.createElement('canvas');
  tile.width = tile.height = 8;
  const on = /** @type {CanvasRenderingContext2D} */ (tile.getContext('2d'));
  on.strokeStyle = MARK_COLOURS[colour];
  on.lineWidth = 3;
  for (const x of [-8, 0, 8]) {
    on.beginPath();
    on.moveTo(x - 1, 9);
    on.lineTo(x + 9, -1);
    on.stroke();
  }

  const pattern = /** @type {CanvasPattern} */ (to.createPattern(tile, 'repeat'));
  striped.set(colour, pattern);
  return pattern;
}

/** @param {CanvasRenderingContext2D} to @param {number} x @param {number} height */
function line(to, x, height) {
  to.beginPath();
  to.moveTo(x, 0);
  to.lineTo(x, height);
  to.stroke();
}

/**
 * @param {CanvasRenderingContext2D} to
 * @param {Shape} shape
 * @param {number} y
 * @param {import('./inks.js').Inks} ink
 */
function drawBar(to, { x, w, kind, open, colour, late, text, where }, y, ink) {
  to.save();
  to.fillStyle = to.strokeStyle = MARK_COLOURS[colour];
  to.lineWidth = 2;
  if (kind === 'waited') {
    to.setLineDash([2, 4]);
    to.beginPath();
    to.moveTo(x, y + BAR_H / 2);
    to.lineTo(x + w, y + BAR_H / 2);
    to.stroke();
  } else if (kind === 'promised') {
    to.setLineDash([6, 4]);
    if (late) to.strokeStyle = ink.bad;
    to.strokeRect(x, y, w, BAR_H);
  } else {
    if (kind === 'expected') {
      to.fillStyle = stripes(to, colour);
      to.globalAlpha = open ? 0.45 : 1;
    }

    to.fillRect(x, y, w, BAR_H);
    to.globalAlpha = 1;
    if (late) {
      to.fillStyle = ink.bad;
      to.fillRect(x, y, 4, BAR_H);
    }
  }

  to.restore();
  if (!text) return;

  to.fillStyle = ink.ink;
  to.textAlign = where === 'before' ? 'right' : 'left';
  to.fillText(text, where === 'after' ? x + w + 5 : where === 'before' ? x - 5 : x + 7, y + BAR_H / 2 + 1);
}
