#!/bin/sh
# Checks that Go is there and new enough for go.mod, which it says in one sentence when it is not.
set -u
cd "$(dirname "$0")/.." || exit 1
wanted=$(sed -n 's/^go \([0-9]*\.[0-9]*\).*/\1/p' go.mod)
where="install it from https://go.dev/dl/ and put its bin folder on PATH"
where="$where (Debian 12's package golang is too old)"
if ! command -v go >/dev/null; then
	echo "Go $wanted or newer is needed, and there is no go in PATH: $where" >&2
	exit 1
fi
# "go env" itself refuses a go.mod that is too new for it and that it cannot fetch a newer Go for.
if ! found=$(go env GOVERSION 2>/dev/null) ||
	[ "$(printf 'go%s\n%s\n' "$wanted" "$found" | sort -V | head -n 1)" != "go$wanted" ]; then
	echo "Go $wanted or newer is needed, and $(command -v go) is older: $where" >&2
	exit 1
fi
