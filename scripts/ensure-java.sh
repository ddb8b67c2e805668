#!/usr/bin/env bash
# Succeeds when a Java of version 17 or newer runs. Without one: as root on Debian (or a relative) installs it, else
# prints the command that does and fails. Only the tests that compare our hash with Spark's need Java.
set -euo pipefail

readonly wanted=17
readonly package=openjdk-17-jre-headless

java_major() {
  # "17.0.15" -> 17, "1.8.0_402" -> 8; nothing when java is absent or does not start.
  local java=java
  if [ -n "${JAVA_HOME:-}" ]; then java="$JAVA_HOME/bin/java"; fi
  "$java" -version 2>&1 | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' | head -n 1
}

have=$(java_major || true)
if [ -n "$have" ] && [ "$have" -ge "$wanted" ]; then
  exit 0
fi

sudo=""
if [ "$(id -u)" -ne 0 ]; then sudo="sudo "; fi
echo "Java $wanted or newer is needed for the Spark tests; found: ${have:-none}." >&2
echo "On Debian or Ubuntu this installs it:" >&2
echo "  ${sudo}apt-get update && ${sudo}apt-get install -y $package" >&2

if [ -n "${JAVA_HOME:-}" ]; then
  echo "JAVA_HOME is $JAVA_HOME: point it to a Java $wanted, or unset it." >&2
  exit 1
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  exit 1
fi
echo "Running it now." >&2
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install -y "$package"
have=$(java_major || true)
if [ -z "$have" ] || [ "$have" -lt "$wanted" ]; then
  echo "Installed $package, but 'java' on the PATH is still: ${have:-none}." >&2
  exit 1
fi
