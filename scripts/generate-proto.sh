#!/usr/bin/env bash
# Generate Python code and type stubs from proto/ into a folder: generate-proto.sh [FOLDER], the project itself by default.
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-.}"
bin="$(cd "${VENV:-.venv}/bin" && pwd)"
PATH="$bin:$PATH" "$bin/python" -m grpc_tools.protoc --proto_path=proto \
  --python_out="$out" --grpc_python_out="$out" --mypy_out="quiet:$out" --mypy_grpc_out="quiet:$out" \
  proto/promising/v1/*.proto
