#!/usr/bin/env bash
# Look the locked dependencies of the image up among known vulnerabilities, with pip-audit. Exit code 0: none is known;
# 1: some are, and are listed; 2: they cannot be looked up, in one sentence. `--strict`: a package that the service does not
# know is one that was not looked up; without it pip-audit says so and ends with 0.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=$1
pip_audit=2.10.1
locked=$(mktemp) found=$(mktemp)
trap 'rm -f "$locked" "$found"' EXIT
"$uv" export --quiet --frozen --no-dev --extra scheduler --extra uvloop --no-emit-workspace --output-file "$locked" >/dev/null
if "$uv" tool run --quiet --from "pip-audit==$pip_audit" pip-audit --strict --disable-pip --require-hashes \
  --progress-spinner off --timeout 15 --requirement "$locked" >"$found" 2>&1; then
  cat "$found"
elif grep -q '^Found .* known vulnerabilit' "$found"; then
  cat "$found"
  exit 1
else
  echo "The dependencies cannot be looked up, since pip-audit or the service with the advisories does not answer:" \
    "$(tail -n 1 "$found" | cut -c1-300)" >&2
  exit 2
fi
