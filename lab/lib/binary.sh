# shellcheck shell=bash
# Selects the pgio to run: LAB_BINARY, else the newest that cargo built in this repository.

# Prints its path; fails when there is none.
pgio_binary() {
    local target=${CARGO_TARGET_DIR:-$HERE/../target} newest=$LAB_BINARY binary
    if [ -z "$newest" ]; then
        for binary in "$target/release/pgio" "$target/debug/pgio"; do
            if [ -x "$binary" ] && [ "$binary" -nt "$newest" ]; then newest=$binary; fi
        done
    fi
    [ -x "$newest" ] && realpath "$newest"
}
