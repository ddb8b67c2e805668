#!/usr/bin/env bash
# Hold the wire contract to its rules: names and comments, layout, nothing broken since the kept image, generated code fresh.
set -euo pipefail
cd "$(dirname "$0")/.."
bin="${VENV:-.venv}/bin"
"$bin/buf" lint proto
"$bin/buf" format proto --diff --exit-code
"$bin/buf" breaking proto --against tests/proto/testdata/promising_v1.binpb

fresh="$(mktemp -d)"
trap 'rm -rf "$fresh"' EXIT
scripts/generate-proto.sh "$fresh"
# Both ways: a file that is no longer generated is stale, too.
diff --recursive --brief --exclude=__init__.py --exclude=__pycache__ promising/v1 "$fresh/promising/v1" \
  || { echo "promising/v1 is not what proto/ gives: run make proto" >&2; exit 1; }
