import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

const OUT = "../src/antiphon/edge/static";
const COMPRESSED = /\.(?:html|js|css|svg|webmanifest)$/;

/** Writes `.gz` and `.br` beside each text file, for the server to send as they are. */
function precompress(): Plugin {
  return {
    name: "precompress",
    apply: "build",
    writeBundle(options) {
      const folder = options.dir ?? OUT;
      for (const name of readdirSync(folder, { recursive: true, encoding: "utf8" })) {
        if (!COMPRESSED.test(name)) continue;
        const path = join(folder, name);
        const content = readFileSync(path);
        writeFileSync(`${path}.gz`, gzipSync(content, { level: 9 }));
        writeFileSync(`${path}.br`, brotliCompressSync(content, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }));
      }
    },
  };
}

export default defineConfig({
  base: "/",
  plugins: [precompress()],
  build: {
    outDir: OUT,
    emptyOutDir: true,
    target: "es2022",
    sourcemap: false,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: {
    proxy: { "/v1": process.env["ANTIPHON_URL"] ?? "http://127.0.0.1:8484" },
  },
});
