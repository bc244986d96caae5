#!/bin/sh
# The original's runit.sh: one run as ./pgio.conf describes it. Arguments go to `pgio run`.
beside=$(dirname "$0")/../target/release/pgio
if command -v pgio >/dev/null 2>&1; then
    exec pgio run --classic-files . "$@"
elif [ -x "$beside" ]; then
    exec "$beside" run --classic-files . "$@"
fi
echo "runit.sh: pgio is neither in PATH nor built: run cargo build --release first" >&2
exit 2
