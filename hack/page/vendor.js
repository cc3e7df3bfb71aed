// What the page takes from others, as one module: vendor.sh bundles it.
import { h } from 'preact';
import htm from 'htm';

export { render, Fragment } from 'preact';
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
export { batch, computed, effect, signal, untracked } from '@preact/signals';
export const html = htm.bind(h);
