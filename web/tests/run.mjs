// Bundles each test file with Vite and hands the results to Node's own test runner.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";

const here = dirname(fileURLToPath(import.meta.url));
const out = mkdtempSync(join(here, "../node_modules/.tests-"));
try {
  const tests = readdirSync(here).filter((name) => name.endsWith(".test.ts"));
  await build({
    root: dirname(here),
    configFile: false,
    logLevel: "error",
    build: { ssr: true, outDir: out, rollupOptions: { input: tests.map((name) => join(here, name)), output: { entryFileNames: "[name].mjs" } } },
  });
  const files = readdirSync(out).filter((name) => name.endsWith(".test.mjs"));
  const { status } = spawnSync(process.execPath, ["--test", ...files.map((name) => join(out, name))], { stdio: "inherit" });
  process.exitCode = status ?? 1;
} finally {
  rmSync(out, { recursive: true, force: true });
}
