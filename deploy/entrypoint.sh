#!/bin/sh
# Puts the keys (hashes, as `twofold keys` writes them) where the server reads them, and becomes the server.
# TWOFOLD_STORE and TWOFOLD_KEYS_JSON come from the platform's secret store.
set -eu
umask 077
: "${TWOFOLD_STORE:?set it to the address of the store}"
if [ -n "${TWOFOLD_KEYS_JSON:-}" ]; then
    TWOFOLD_KEYS=/run/twofold/keys.json
    printf '%s' "$TWOFOLD_KEYS_JSON" > "$TWOFOLD_KEYS"
    export TWOFOLD_KEYS
    unset TWOFOLD_KEYS_JSON
fi
exec twofold serve --host 0.0.0.0 --port 8420 "$@"
