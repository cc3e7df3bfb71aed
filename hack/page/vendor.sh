#!/usr/bin/env bash
# Bundle what the page takes from others, at the locked versions, and note the hashes of lock file and bundle.
set -euo pipefail
cd "$(dirname "$0")"
out=../../packages/kubectl-gangsched/kubectl_gangsched/page/assets/vendor.js
# No package runs a script: esbuild finds its binary without.
npm ci --ignore-scripts --no-audit --no-fund --silent
version() { node -p "require('./node_modules/$1/package.json').version"; }
banner="/*! preact $(version preact) (MIT), @preact/signals $(version @preact/signals) (MIT), htm $(version htm) (Apache-2.0) */"
node_modules/.bin/esbuild vendor.js --bundle --minify --format=esm --target=es2022 --charset=utf8 --legal-comments=none \
  --banner:js="$banner" --log-level=warning --outfile="$out"
sha256sum package-lock.json vendor.js "$out" >vendor.sha256
