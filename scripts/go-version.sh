#!/bin/sh
# Checks that Go is installed and new enough for go.mod; otherwise it prints one sentence.
set -u
cd "$(dirname "$0")/.." || exit 1
wanted=$(sed -n 's/^go \([0-9]*\.[0-9]*\).*/\1/p' go.mod)
where="install it from https://go.dev/dl/ and put its bin folder on PATH"
where="$where (Debian 12's package golang is too old)"
if ! command -v go >/dev/null; then
	echo "Go $wanted or newer is needed, and there is no go in PATH: $where" >&2
	exit 1
fi
# "go env" itself fails if go.mod needs a newer Go that cannot be fetched.
if ! found=$(go env GOVERSION 2>/dev/null) ||
	[ "$(printf 'go%s\n%s\n' "$wanted" "$found" | sort -V | head -n 1)" != "go$wanted" ]; then
	echo "Go $wanted or newer is needed, and $(command -v go) is older: $where" >&2
	exit 1
fi
