// @ts-check
// Times and lengths of time as words. A promise is rounded up to its minute and anything else down,
// as in the scheduler's sentences, so that nothing is said to start before it does.

const MINUTE_S = 60;
const HOUR_S = 3600;
const DAY_S = 86400;
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

/** @param {number} n */
const two = (n) => String(n).padStart(2, '0');

/**
 * A minute in UTC, with its day if that is another than that of `nowS`; in a simulation the time
 * since it began.
 * @param {number} atS
 * @param {number} nowS
 * @param {{ simulated?: boolean, up?: boolean, seconds?: boolean }} [how]
 */
export function timeText(atS, nowS, { simulated = false, up = false, seconds = false } = {}) {
  const minute = (up ? Math.ceil(atS / MINUTE_S) : Math.floor(atS / MINUTE_S)) * MINUTE_S;
  const shown = seconds ? Math.floor(atS) : minute;
  const inDay = ((shown % DAY_S) + DAY_S) % DAY_S;
  const clock = `${two(Math.floor(inDay / HOUR_S))}:${two(Math.floor((inDay % HOUR_S) / 60))}`;
  const text = seconds ? `${clock}:${two(inDay % 60)}` : clock;
  const day = Math.floor(shown / DAY_S);

  if (simulated) return `day ${day + 1} ${text}`;
  if (day === Math.floor(nowS / DAY_S)) return text;

  const date = new Date(shown * 1000);
  const month = MONTHS[date.getUTCMonth()];
  const year = date.getUTCFullYear();
  const sameYear = year === new Date(nowS * 1000).getUTCFullYear();
  return `${date.getUTCDate()} ${month}${sameYear ? '' : ` ${year}`} ${text}`;
}

/** @param {number} lengthS */
export function lengthText(lengthS) {
  const s = Math.max(0, Math.floor(lengthS));
  if (s < MINUTE_S) return `${s} s`;
  if (s < HOUR_S) return `${Math.floor(s / MINUTE_S)} min`;

  const [large, small, unit, below] = s < DAY_S
    ? [HOUR_S, MINUTE_S, 'h', 'min'] : [DAY_S, HOUR_S, 'd', 'h'];
  const rest = Math.floor((s % large) / small);
  return `${Math.floor(s / large)} ${unit}${rest ? ` ${rest} ${below}` : ''}`;
}

/**
 * Where the lines of a time axis are: the shortest round step that gives at most `most` of them.
 * @param {number} fromS
 * @param {number} toS
 * @param {number} most
 */
export function ticks(fromS, toS, most) {
  const steps = [60, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, DAY_S, 2 * DAY_S, 7 * DAY_S];
  const spanS = toS - fromS;
  const stepS = steps.find((step) => spanS / step <= most) ?? Math.ceil(spanS / most / DAY_S) * DAY_S;
  const at = [];
  for (let s = Math.ceil(fromS / stepS) * stepS; s <= toS; s += stepS) at.push(s);
  return at;
}
