#!/usr/bin/env bash
# Put prometheus and promtool into .cache/prometheus/bin: those of PATH, else of Debian's package. The package is unpacked
# and not installed, so that no service starts.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.cache/prometheus/bin
mkdir -p "$bin"
if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
  ln -sf "$(command -v prometheus)" "$(command -v promtool)" "$bin"
  exit
fi
if ! command -v apt-get >/dev/null; then
  echo "the tests of metrics need prometheus and promtool in PATH: install Prometheus 2.40 or newer" >&2
  exit 1
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
download() { (cd "$folder" && apt-get download -qq -o APT::Sandbox::User=root prometheus) >/dev/null 2>"$folder/said"; }
if ! download && [ "$(id -u)" = 0 ]; then
  apt-get update -qq >/dev/null
  download || true
fi
if ! ls "$folder"/*.deb >/dev/null 2>&1; then
  echo "the tests of metrics need Debian's package prometheus: $(tail -1 "$folder/said")" >&2
  exit 1
fi
dpkg-deb -x "$folder"/*.deb "$folder/unpacked"
cp "$folder"/unpacked/usr/bin/{prometheus,promtool} "$bin"
