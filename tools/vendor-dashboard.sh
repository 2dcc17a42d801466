#!/bin/sh
# Make src/podium/web/dashboard/static/vendor.mjs again, from the npm registry, and print its hash.
set -eu
target="$(cd "$(dirname "$0")/.." && pwd)/src/podium/web/dashboard/static/vendor.mjs"
work="$(mktemp -d)"
cd "$work"
npm init -y >/dev/null
npm install --silent preact@11.2.0 htm@3.1.1 @preact/signals@2.11.4 @preact/signals-core@1.14.5 esbuild@0.28.2
cat >entry.mjs <<'EOF'
export { h, render, Fragment, createContext } from "preact";
export { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useContext } from "preact/hooks";
export { signal, computed, effect, batch, untracked, useSignal, useComputed, useSignalEffect } from "@preact/signals";
import { h } from "preact";
import htm from "htm";
export const html = htm.bind(h);
EOF
npx esbuild entry.mjs --bundle --format=esm --minify --legal-comments=none --outfile="$target"
sha256sum "$target"
rm -rf "$work"
