#!/usr/bin/env bash
# Make sure that the given Python is new enough and can create virtual environments; on Debian, install what is missing.
set -euo pipefail
python=${1:-python3}
if ! command -v "$python" >/dev/null; then
  echo "gangsched needs Python 3.11 or newer; '$python' was not found: install it or call make PYTHON=/path/to/python3.11" >&2
  exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "gangsched needs Python 3.11 or newer; '$python' is $("$python" -V 2>&1): call make PYTHON=/path/to/python3.11" >&2
  exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    { apt-get update -qq && apt-get install -qq -y python3-venv; } >/dev/null
  else
    echo "'$python' cannot create virtual environments: install the package python3-venv" >&2
    exit 1
  fi
fi
