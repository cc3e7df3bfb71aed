#!/usr/bin/env bash
# Make sure that chromium is in PATH, with fonts: Debian's packages, which root installs. No browser is downloaded by Playwright.
set -euo pipefail
if command -v chromium >/dev/null || command -v google-chrome >/dev/null; then
  exit
fi
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
  echo "the tests of the page need chromium in PATH: install your distribution's package" >&2
  exit 1
fi
install() { DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium fonts-inter fonts-dejavu-core >/dev/null; }
install 2>/dev/null || { apt-get update -qq >/dev/null && install; }
