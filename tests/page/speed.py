"""Measures the page in a browser: its first paint, a step of the slider, and frames while it moves.

`python -m tests.page.speed` prints the figures of 5,000 nodes of eight GPUs and 10,000 gangs that
wait.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, sync_playwright

from kubectl_gangsched.page import file_host
from tests.page.browser import Opened, launched, opened
from tests.page_examples import big

MOMENTS = 30
FRAMES = 90
STEP = """
async () => {
  const slider = document.querySelector('input[type=range]');
  const times = [];
  for (let n = 0; n < 20; n++) {
    const start = performance.now();
    slider.value = String((n * 7) % Number(slider.max));
    slider.dispatchEvent(new Event('input', { bubbles: true }));
    await new Promise(requestAnimationFrame);
    await new Promise(done => setTimeout(done));
    times.push(performance.now() - start);
  }
  return times;
}
"""
"""Milliseconds from the event until the frame behind it is drawn."""
_FRAMES = """
async ([frames, move]) => {
  const act = eval(move);
  const times = [];
  let before = await new Promise(requestAnimationFrame);
  for (let n = 0; n < frames; n++) {
    act(n);
    const now = await new Promise(requestAnimationFrame);
    times.push(now - before);
    before = now;
  }
  return times;
}
"""
_PAN = """
(n) => {
  const canvas = document.querySelector('canvas');
  const box = canvas.getBoundingClientRect();
  const at = (type, x, y) => canvas.dispatchEvent(new PointerEvent(type, {
    pointerId: 1, button: 0, clientX: box.left + x, clientY: box.top + y, bubbles: true }));
  if (n === 0) {
    canvas.setPointerCapture = () => {};
    for (let k = 0; k < 4; k++) document.querySelector('[aria-label="Zoom in"]').click();
    at('pointerdown', 300, 100);
  }
  at('pointermove', 300 + 40 * Math.sin(n / 9), 100 + 60 * Math.sin(n / 13));
}
"""
_ZOOM = """
(n) => {
  const canvas = document.querySelector('canvas');
  const box = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new WheelEvent('wheel', {
    deltaY: Math.floor(n / 30) % 2 ? 60 : -60, clientX: box.left + 300, clientY: box.top + 90,
    bubbles: true, cancelable: true, ctrlKey: true }));
}
"""
_SCROLL = "(n) => { document.querySelector('.long').scrollTop = n * 400; }"


class Figures(NamedTuple):
    """Milliseconds, but for the size and the number of elements."""

    first_ms: float
    step_ms: float
    slowest_step_ms: float
    pan_ms: float
    slowest_pan_ms: float
    zoom_ms: float
    slowest_zoom_ms: float
    scroll_ms: float
    slowest_scroll_ms: float
    heap_mib: float


def measured(browser: Browser, path: Path) -> Figures:
    """The figures of a file with several moments and a map on a canvas."""
    with opened(browser, path) as there:
        # Until the canvas has its pixels: two frames after the first elements.
        first_ms = float(there.ask("performance.now()"))
        steps = [float(value) for value in there.ask(STEP)]
        pans = _frames(there, _PAN)
        zooms = _frames(there, _ZOOM)
        there.view("queue")
        scrolls = _frames(there, _SCROLL)
        heap = float(there.ask("performance.memory.usedJSHeapSize")) / 2**20

    return Figures(
        first_ms,
        statistics.median(steps),
        max(steps),
        statistics.median(pans),
        max(pans),
        statistics.median(zooms),
        max(zooms),
        statistics.median(scrolls),
        max(scrolls),
        heap,
    )


def _frames(there: Opened, move: str) -> list[float]:
    times = there.page.evaluate(_FRAMES, [FRAMES, move])
    return [float(value) for value in times][2:]


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "big.html"
        path.write_text(file_host.html(big(moments=MOMENTS)), encoding="utf-8")
        browser = launched(playwright)
        figures = measured(browser, path)
        browser.close()

    for name, value in figures._asdict().items():
        sys.stdout.write(f"{name:20} {value:8.1f}\n")


if __name__ == "__main__":
    main()
