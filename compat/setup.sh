#!/bin/sh
# The original's setup.sh: loads the data set that ./pgio.conf describes. Arguments go to `pgio setup`.
beside=$(dirname "$0")/../target/release/pgio
if command -v pgio >/dev/null 2>&1; then
    exec pgio setup --classic-files . "$@"
elif [ -x "$beside" ]; then
    exec "$beside" setup --classic-files . "$@"
fi
echo "setup.sh: pgio is neither in PATH nor built: run cargo build --release first" >&2
exit 2
