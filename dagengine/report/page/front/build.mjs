// Bundles the page into ../page.js and ../page.css, and the licences of what is inside.
// `node build.mjs DIR` writes to DIR instead.

import { build } from "esbuild";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const target = process.argv[2] ?? "..";
const result = await build({
  entryPoints: { page: "main.tsx" },
  bundle: true,
  format: "iife",
  minify: true,
  target: ["chrome100", "firefox115", "safari16.4"],
  charset: "ascii", // the file may be read under any encoding
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  metafile: true,
  outdir: target,
});
await build({
  entryPoints: { page: "page.css" },
  minify: true,
  charset: "ascii",
  outdir: target,
});

const folders = new Set();
for (const file of Object.keys(result.metafile.inputs)) {
  const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file);
  if (found) folders.add(found[1]);
}
const notices = [...folders].sort().map((name) => {
  const { version, license } = JSON.parse(readFileSync(join("node_modules", name, "package.json"), "utf8"));
  const text = readFileSync(join("node_modules", name, "LICENSE"), "utf8").replaceAll("\r\n", "\n").trim();
  return `${name} ${version} (${license})\n\n${text}\n`;
});
const head = "page.js holds code of these libraries.\n";
writeFileSync(join(target, "LICENCES.txt"), [head, ...notices].join(`\n${"-".repeat(72)}\n\n`));
