// What vendor.js exports, for `make page-types`.
export { Fragment, render } from 'preact';
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
export { batch, computed, effect, signal, untracked } from '@preact/signals';
export type { ReadonlySignal, Signal } from '@preact/signals';
/** Templates are not checked: their parts may be anything. */
export const html: (strings: TemplateStringsArray, ...values: any[]) => any;
