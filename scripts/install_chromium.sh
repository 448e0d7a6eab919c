#!/bin/sh
# Installs Chromium for `make browser`, unless there is one: Debian's package, if we may.
set -eu
for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then
        exit 0
    fi
done
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
else
    echo "make browser needs Chromium: install it (Debian: apt-get install chromium)" >&2
    exit 1
fi
