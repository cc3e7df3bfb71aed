// @ts-check
// The map of a large cluster on a canvas: a bitmap of what is in sight and a margin around it is kept,
// so that panning copies pixels and draws nothing.

import { html, useEffect, useRef, useState } from './vendor.js';
import { holds, layoutOf } from './big_layout.js';
import { drawMap } from './big_draw.js';
import { nodeText } from './boxes.js';
import { inks, scheme } from './inks.js';
import { emptiest, rackName } from './racks.js';
import { choose, route, view } from './state.js';
import { counted, number, unitOf } from './words.js';

/** @typedef {import('./big_layout.js').Layout} Layout */
/** @typedef {import('./big_layout.js').RackArea} RackArea */
/** @typedef {import('./big_layout.js').NodeArea} NodeArea */
/** @typedef {import('./big_layout.js').Area} Area */
/** @typedef {import('./big_draw.js').Camera} Camera */

const PAD = 10;
/** Part of the window that the bitmap reaches beyond each edge. */
const MARGIN = 0.4;
const MAX_SCALE = 2.2;
const STEP = 1.5;
const GLIDE_MS = 220;
const BLURRED_MS = 90;
/** Scale from which on a click means a node and no rack. */
const NODES_FROM = 0.24;
const ROOM_SHOWN = 3;

class Canvas {
  /** @param {HTMLCanvasElement} canvas @param {(text: string) => void} say */
  constructor(canvas, say) {
    this.canvas = canvas;
    this.to = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d', { alpha: false }));
    this.bitmap = document.createElement('canvas');
    this.say = say;
    /** @type {Layout} */
    this.layout = { width: 1, height: 1, racks: [], labels: [] };
    /** @type {Camera} */
    this.camera = { x: 0, y: 0, scale: 0 };
    /** @type {Camera & { valid: boolean }} */
    this.drawn = { x: 0, y: 0, scale: 0, valid: false };
    this.width = this.height = 1;
    this.isFit = true;
    this.asked = 0;
    this.sharpAtMs = 0;
    /** @type {RackArea | null} */
    this.cursor = null;
    /** @type {NodeArea | null} */
    this.nodeCursor = null;
    /** @type {RackArea[]} */
    this.emptiest = [];
  }

  /** Take over what the view shows now. */
  update() {
    const now = view.peek();
    if (!now) return;

    this.layout = layoutOf(now.kinds, Math.max(50, this.width - 2 * PAD), Math.max(50, this.height - 2 * PAD));
    const key = this.cursor?.rack.key;
    this.cursor = key ? this.layout.racks.find((area) => area.rack.key === key) ?? null : null;
    const name = this.nodeCursor?.box.name;
    this.nodeCursor = this.cursor?.nodes.find((area) => area.box.name === name) ?? null;
    const first = new Set(now.kinds.flatMap((kind) => emptiest(kind, 1)));
    this.emptiest = this.layout.racks.filter(({ rack }) => first.has(rack));
    if (this.isFit) this.fit();
    this.redraw();
  }

  redraw() {
    this.drawn.valid = false;
    this.ask();
  }

  ask() {
    if (!this.asked) this.asked = requestAnimationFrame(() => this.frame());
  }

  resize() {
    const { clientWidth, clientHeight } = this.canvas;
    if (!clientWidth || !clientHeight) return;

    const ratio = devicePixelRatio || 1;
    this.width = clientWidth;
    this.height = clientHeight;
    this.canvas.width = Math.round(clientWidth * ratio);
    this.canvas.height = Math.round(clientHeight * ratio);
    this.bitmap.width = Math.round(clientWidth * (1 + 2 * MARGIN) * ratio);
    this.bitmap.height = Math.round(clientHeight * (1 + 2 * MARGIN) * ratio);
    this.update();
  }

  get fitScale() {
    const wide = (this.width - 2 * PAD) / this.layout.width;
    const high = (this.height - 2 * PAD) / this.layout.height;
    return Math.max(0.005, Math.min(wide, high, 1));
  }

  fit() {
    this.isFit = true;
    this.camera = this.around({ x: 0, y: 0, w: this.layout.width, h: this.layout.height }, this.fitScale);
  }

  /** @param {Area} area @param {number} scale @returns {Camera} */
  around(area, scale) {
    return {
      scale,
      x: area.x + area.w / 2 - this.width / 2 / scale,
      y: area.y + area.h / 2 - this.height / 2 / scale,
    };
  }

  frame() {
    this.asked = 0;
    const now = view.peek();
    if (!now || !this.camera.scale) return;

    if (!this.covers() && !this.isBlurred()) this.paint(now);
    const ratio = this.canvas.width / this.width;
    const { drawn, camera, to } = this;
    const zoom = camera.scale / drawn.scale;
    to.setTransform(1, 0, 0, 1, 0, 0);
    to.fillStyle = inks().card;
    to.fillRect(0, 0, this.canvas.width, this.canvas.height);
    // Whole pixels, so that names stay sharp.
    to.drawImage(
      this.bitmap,
      Math.round((drawn.x - camera.x) * camera.scale * ratio),
      Math.round((drawn.y - camera.y) * camera.scale * ratio),
      this.bitmap.width * zoom,
      this.bitmap.height * zoom,
    );
    to.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.outline();
  }

  /** While the scale changes the bitmap is stretched; it is painted again when that has ended. */
  isBlurred() {
    const stretch = this.camera.scale / this.drawn.scale;
    const isChanging = performance.now() < this.sharpAtMs;
    if (!this.drawn.valid || !isChanging || stretch < 0.5 || stretch > 2) return false;

    setTimeout(() => this.ask(), BLURRED_MS);
    return true;
  }

  covers() {
    const { drawn, camera } = this;
    if (!drawn.valid || drawn.scale !== camera.scale) return false;

    const left = (camera.x - drawn.x) * camera.scale;
    const top = (camera.y - drawn.y) * camera.scale;
    return left >= 0 && top >= 0 && left <= 2 * MARGIN * this.width && top <= 2 * MARGIN * this.height;
  }

  /** @param {import('./view.js').View} now */
  paint(now) {
    const ratio = this.canvas.width / this.width;
    const { camera } = this;
    this.drawn = {
      x: camera.x - (MARGIN * this.width) / camera.scale,
      y: camera.y - (MARGIN * this.height) / camera.scale,
      scale: camera.scale,
      valid: true,
    };
    const into = /** @type {CanvasRenderingContext2D} */ (this.bitmap.getContext('2d', { alpha: false }));
    into.setTransform(ratio, 0, 0, ratio, 0, 0);
    const wide = this.width * (1 + 2 * MARGIN);
    const high = this.height * (1 + 2 * MARGIN);
    drawMap(into, this.layout, now, this.drawn, wide, high, route.peek().focus);
  }

  /** Around what is chosen, and the rack or node that the keyboard is at. */
  outline() {
    const ink = inks();
    const chosen = route.peek().node;
    const near = this.camera.scale >= NODES_FROM;
    if (chosen) {
      for (const rack of this.layout.racks) {
        for (const area of rack.nodes) if (area.box.name === chosen) this.frameOf(area, ink.accent, 3);
      }
    }

    if (!near) {
      for (const rack of this.emptiest) this.frameOf(rack, ink.ink, 1.5);
    }

    const cursor = this.nodeCursor ?? this.cursor;
    const hasFocus = document.activeElement === this.canvas;
    if (cursor && hasFocus) this.frameOf(cursor, ink.ink, near ? 2.5 : 2);
  }

  /** @param {Area} area @param {string} colour @param {number} wide */
  frameOf(area, colour, wide) {
    const { camera, to } = this;
    to.strokeStyle = colour;
    to.lineWidth = wide;
    to.strokeRect(
      (area.x - camera.x) * camera.scale - wide / 2,
      (area.y - camera.y) * camera.scale - wide / 2,
      area.w * camera.scale + wide,
      area.h * camera.scale + wide,
    );
  }

  /** @param {number} scale @param {number} x @param {number} y */
  zoomAt(scale, x, y) {
    const next = Math.max(this.fitScale, Math.min(MAX_SCALE, scale));
    this.sharpAtMs = performance.now() + BLURRED_MS;
    const { camera } = this;
    if (next <= this.fitScale * 1.001) {
      this.fit();
    } else {
      this.isFit = false;
      this.camera = this.inside({
        scale: next,
        x: camera.x + x / camera.scale - x / next,
        y: camera.y + y / camera.scale - y / next,
      });
    }

    this.ask();
  }

  /** @param {number} factor */
  zoom(factor) {
    this.zoomAt(this.camera.scale * factor, this.width / 2, this.height / 2);
  }

  /** @param {number} dx @param {number} dy in pixels */
  pan(dx, dy) {
    const { camera } = this;
    if (this.isFit) return;
    this.camera = this.inside({
      scale: camera.scale, x: camera.x - dx / camera.scale, y: camera.y - dy / camera.scale,
    });
    this.ask();
  }

  /** So that half of the window always shows nodes. @param {Camera} camera */
  inside(camera) {
    const halfW = this.width / 2 / camera.scale;
    const halfH = this.height / 2 / camera.scale;
    return {
      scale: camera.scale,
      x: Math.max(-halfW, Math.min(this.layout.width - halfW, camera.x)),
      y: Math.max(-halfH, Math.min(this.layout.height - halfH, camera.y)),
    };
  }

  /** @param {Area} area @param {number} [least] */
  show(area, least = 0) {
    const scale = Math.min(
      1.15, (this.width - 40) / area.w, (this.height - 40) / area.h);
    this.isFit = false;
    this.glide(this.around(area, Math.max(least, this.fitScale, scale)));
  }

  /** @param {Camera} to */
  glide(to) {
    if (matchMedia('(prefers-reduced-motion: reduce)').matches) {
      this.camera = to;
      this.ask();
      return;
    }

    const from = this.camera;
    const start = performance.now();
    const step = () => {
      const t = Math.min(1, (performance.now() - start) / GLIDE_MS);
      const part = 1 - (1 - t) ** 3;
      const mix = (/** @type {number} */ a, /** @type {number} */ b) => a + (b - a) * part;
      const scale = from.scale * (to.scale / from.scale) ** part;
      this.camera = t === 1 ? to : { x: mix(from.x, to.x), y: mix(from.y, to.y), scale };
      this.ask();
      if (t < 1) requestAnimationFrame(step);
    };
    step();
  }

  /** @param {number} x @param {number} y in pixels */
  under(x, y) {
    const wx = this.camera.x + x / this.camera.scale;
    const wy = this.camera.y + y / this.camera.scale;
    const rack = this.layout.racks.find((area) => holds(area, wx, wy)) ?? null;
    const node = rack?.nodes.find((area) => holds(area, wx, wy)) ?? null;
    return { rack, node };
  }

  /** @param {number} x @param {number} y */
  click(x, y) {
    const { rack, node } = this.under(x, y);
    if (!rack) return;

    this.cursor = rack;
    if (this.camera.scale < NODES_FROM) {
      this.show(rack);
      return;
    }

    this.nodeCursor = node;
    if (node) choose({ node: route.peek().node === node.box.name ? '' : node.box.name });
    this.ask();
  }

  /** @param {string} key */
  showRack(key) {
    const area = this.layout.racks.find(({ rack }) => rack.key === key);
    if (!area) return;

    this.cursor = area;
    this.nodeCursor = null;
    this.show(area);
    this.say(this.rackText(area));
  }

  /** @param {string} name */
  showNode(name) {
    for (const rack of this.layout.racks) {
      const node = rack.nodes.find(({ box }) => box.name === name);
      if (!node) continue;

      this.cursor = rack;
      this.nodeCursor = node;
      this.show(rack, NODES_FROM * 2);
      return;
    }
  }

  /** @param {RackArea} area */
  rackText({ rack, resource }) {
    const free = `${number(rack.free)} of ${number(rack.total)} ${unitOf(resource)} free`;
    return `${rackName(rack)}: ${free} on ${counted(rack.nodes.length, 'node')}`;
  }

  /** Whether the key was meant for the map. @param {string} key */
  key(key) {
    if (key === '+' || key === '=') return this.zoom(STEP), true;
    if (key === '-') return this.zoom(1 / STEP), true;
    if (key === '0') return this.fit(), this.ask(), true;
    if (key === 'Enter' || key === ' ') return this.enter(), true;
    if (key === 'Escape' && !this.isFit) return this.leave(), true;
    return key.startsWith('Arrow') && this.move(key);
  }

  enter() {
    if (this.nodeCursor) {
      choose({ node: this.nodeCursor.box.name });
    } else if (this.cursor) {
      this.nodeCursor = this.cursor.nodes[0] ?? null;
      this.show(this.cursor);
      this.sayNode();
    }

    this.ask();
  }

  leave() {
    if (this.nodeCursor) {
      this.nodeCursor = null;
    }

    this.fit();
    this.ask();
  }

  sayNode() {
    const area = this.nodeCursor;
    if (area) this.say(`${area.box.name}: ${nodeText(area.box, area.resource)}`);
  }

  /** @param {string} key */
  move(key) {
    const among = this.nodeCursor ? /** @type {RackArea} */ (this.cursor).nodes : this.layout.racks;
    const from = this.nodeCursor ?? this.cursor;
    const to = from ? nearest(/** @type {Area[]} */ (among), from, key) : among[0];
    if (!to) return true;

    if (this.nodeCursor) {
      this.nodeCursor = /** @type {NodeArea} */ (to);
      this.sayNode();
    } else {
      this.cursor = /** @type {RackArea} */ (to);
      this.say(this.rackText(this.cursor));
    }

    this.ask();
    return true;
  }
}

/** @param {Area[]} among @param {Area} from @param {string} key */
function nearest(among, from, key) {
  const isDown = key === 'ArrowDown' || key === 'ArrowUp';
  const sign = key === 'ArrowDown' || key === 'ArrowRight' ? 1 : -1;
  let best = null;
  let least = Infinity;
  for (const area of among) {
    const dx = area.x - from.x;
    const dy = area.y - from.y;
    const along = (isDown ? dy : dx) * sign;
    const far = along + 3 * Math.abs(isDown ? dx : dy);
    if (along > 1 && far < least) [best, least] = [area, far];
  }

  return best;
}

export function BigMap() {
  const element = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const map = useRef(/** @type {Canvas | null} */ (null));
  const [said, say] = useState('');
  const [tip, setTip] = useState(/** @type {{ x: number, y: number, text: string } | null} */ (null));
  const now = view.value;
  const { focus, node } = route.value;

  useEffect(() => {
    const canvas = /** @type {HTMLCanvasElement} */ (element.current);
    const drawing = new Canvas(canvas, say);
    map.current = drawing;
    const sizes = new ResizeObserver(() => drawing.resize());
    sizes.observe(canvas);
    const stop = pointers(canvas, drawing, setTip);
    return () => {
      sizes.disconnect();
      stop();
    };
  }, []);

  useEffect(() => map.current?.update(), [now]);
  useEffect(() => map.current?.redraw(), [focus, scheme.value]);
  useEffect(() => {
    const drawing = map.current;
    if (node && drawing && drawing.nodeCursor?.box.name !== node) drawing.showNode(node);
    else drawing?.ask();
  }, [node]);

  /** @param {KeyboardEvent} event */
  const onKey = (event) => {
    if (!event.ctrlKey && !event.metaKey && map.current?.key(event.key)) event.preventDefault();
  };

  return html`<div class="big-map">
    <${MostRoom} show=${(/** @type {string} */ key) => map.current?.showRack(key)} />
    <div class="canvas-box">
      <canvas ref=${element} tabIndex="0" role="application" onKeyDown=${onKey}
        onFocus=${() => map.current?.ask()} onBlur=${() => map.current?.ask()}
        aria-label="Map of racks. Arrow keys choose a rack, Enter opens it, plus and minus zoom, slash finds a node."></canvas>
      <div class="zoom-buttons">
        <button type="button" aria-label="Zoom in" onClick=${() => map.current?.zoom(STEP)}>+</button>
        <button type="button" aria-label="Zoom out" onClick=${() => map.current?.zoom(1 / STEP)}>−</button>
        <button type="button" aria-label="Show everything"
          onClick=${() => (map.current?.fit(), map.current?.ask())}>⤢</button>
      </div>
      ${tip && html`<div class="tip" aria-hidden="true" style=${{ left: `${tip.x}px`, top: `${tip.y}px` }}>${tip.text}</div>`}
    </div>
    <p class="sr" aria-live="polite">${said}</p>
  </div>`;
}

/** @param {{ show: (key: string) => void }} props */
function MostRoom({ show }) {
  const now = view.value;
  const kinds = now?.kinds ?? [];
  return html`<p class="most-room">
    <span>Most room:</span>
    ${kinds.slice(0, 3).flatMap((kind) => emptiest(kind, ROOM_SHOWN).map((rack) => html`
      <button type="button" class="chip" key=${rack.key} onClick=${() => show(rack.key)}>
        ${rackName(rack)} <b>${number(rack.free)} free</b></button>`))}
  </p>`;
}

/**
 * Wheel, mouse and fingers.
 * @param {HTMLCanvasElement} canvas
 * @param {Canvas} drawing
 * @param {(tip: { x: number, y: number, text: string } | null) => void} setTip
 */
function pointers(canvas, drawing, setTip) {
  /** @type {Map<number, { x: number, y: number }>} */
  const down = new Map();
  let moved = 0;

  /** @param {WheelEvent} event */
  const wheel = (event) => {
    // Where the page itself scrolls, the wheel belongs to it.
    const root = document.documentElement;
    if (!event.ctrlKey && root.scrollHeight > root.clientHeight + 1) return;

    event.preventDefault();
    drawing.zoomAt(
      drawing.camera.scale * Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
  };

  /** @param {PointerEvent} event */
  const press = (event) => {
    if (event.button !== 0) return;
    down.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    canvas.setPointerCapture(event.pointerId);
    if (down.size === 1) moved = 0;
    setTip(null);
  };

  /** @param {PointerEvent} event */
  const move = (event) => {
    const before = down.get(event.pointerId);
    const here = { x: event.offsetX, y: event.offsetY };
    if (!before) {
      hover(here);
      return;
    }

    const other = [...down].find(([id]) => id !== event.pointerId)?.[1];
    down.set(event.pointerId, here);
    moved += Math.abs(here.x - before.x) + Math.abs(here.y - before.y);
    if (other) {
      const far = Math.hypot(here.x - other.x, here.y - other.y);
      const was = Math.hypot(before.x - other.x, before.y - other.y) || 1;
      drawing.zoomAt((drawing.camera.scale * far) / was, (here.x + other.x) / 2, (here.y + other.y) / 2);
    } else {
      drawing.pan(here.x - before.x, here.y - before.y);
    }
  };

  /** @param {{ x: number, y: number }} here */
  const hover = (here) => {
    const { rack, node } = drawing.under(here.x, here.y);
    const near = drawing.camera.scale >= NODES_FROM;
    const x = Math.min(here.x + 14, drawing.width - 250);
    const y = Math.min(here.y + 16, drawing.height - 60);
    if (near && node) setTip({ x, y, text: `${node.box.name}: ${nodeText(node.box, node.resource)}` });
    else setTip(rack ? { x, y, text: drawing.rackText(rack) } : null);
  };

  /** @param {PointerEvent} event */
  const release = (event) => {
    if (!down.delete(event.pointerId)) return;
    if (moved < 5 && !down.size) drawing.click(event.offsetX, event.offsetY);
  };

  const cancel = (/** @type {PointerEvent} */ event) => down.delete(event.pointerId);
  const out = () => setTip(null);
  canvas.addEventListener('wheel', wheel, { passive: false });
  canvas.addEventListener('pointerdown', press);
  canvas.addEventListener('pointermove', move);
  canvas.addEventListener('pointerup', release);
  canvas.addEventListener('pointercancel', cancel);
  canvas.addEventListener('pointerleave', out);
  return () => {
    canvas.removeEventListener('wheel', wheel);
    canvas.removeEventListener('pointerdown', press);
    canvas.removeEventListener('pointermove', move);
    canvas.removeEventListener('pointerup', release);
    canvas.removeEventListener('pointercancel', cancel);
    canvas.removeEventListener('pointerleave', out);
  };
}
