#!/bin/sh
# Installs Debian's redis-server (Redis 7, with TLS), which some tests start for themselves, where that is possible
# and it isn't there. Never fails: without it those tests are skipped, and say so.
set -u
if command -v redis-server >/dev/null; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "redis-server isn't installed and can't be here: the tests of Redis 7 are skipped" >&2
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 # installed, not started
quiet="-qq -o DPkg::Lock::Timeout=30 -o Acquire::Retries=1 -o Acquire::http::Timeout=20"
# shellcheck disable=SC2086 - several options
if timeout 180 apt-get $quiet update >/dev/null 2>&1 &&
  timeout 180 apt-get $quiet install -y --no-install-recommends redis-server >/dev/null 2>&1; then
  exit 0
fi
echo "redis-server couldn't be installed: the tests of Redis 7 are skipped" >&2
