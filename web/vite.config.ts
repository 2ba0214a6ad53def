import { copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

const OUT = "../src/antiphon/edge/static";
const COMPRESSED = /\.(?:html|js|css|svg|webmanifest)$/;
/** From here on the best compression takes longer than it is worth. */
const LARGE_BYTES = 400_000;

/** The diagram library as its authors built it: the frame loads it with a plain script element. */
function diagramLibrary(): Plugin {
  return {
    name: "diagram-library",
    apply: "build",
    writeBundle(options) {
      const folder = join(options.dir ?? OUT, "frame");
      mkdirSync(folder, { recursive: true });
      copyFileSync("node_modules/@mermaid-js/tiny/dist/mermaid.tiny.js", join(folder, "mermaid.js"));
    },
  };
}

/** Fonts in the one format that every browser of ours reads. */
function modernFonts(): Plugin {
  return {
    name: "modern-fonts",
    enforce: "pre",
    transform(code, id) {
      if (!id.includes("katex") || !id.includes(".css")) return undefined;
      return code.replace(/,url\([^)]*\.(?:woff|ttf)\) format\("[a-z]+"\)/g, "");
    },
  };
}

/** Writes `.gz` and `.br` beside each text file, for the server to send as they are. */
function precompress(): Plugin {
  return {
    name: "precompress",
    apply: "build",
    writeBundle: {
      sequential: true,
      order: "post",
      handler(options) {
        const folder = options.dir ?? OUT;
        for (const name of readdirSync(folder, { recursive: true, encoding: "utf8" })) {
          if (!COMPRESSED.test(name)) continue;
          const path = join(folder, name);
          const content = readFileSync(path);
          const quality = content.length > LARGE_BYTES ? 7 : 11;
          writeFileSync(`${path}.gz`, gzipSync(content, { level: 9 }));
          writeFileSync(`${path}.br`, brotliCompressSync(content, { params: { [constants.BROTLI_PARAM_QUALITY]: quality } }));
        }
      },
    },
  };
}

export default defineConfig({
  base: "/",
  plugins: [modernFonts(), diagramLibrary(), precompress()],
  build: {
    outDir: OUT,
    emptyOutDir: true,
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    sourcemap: false,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: { checks: { pluginTimings: false } },
  },
  server: {
    proxy: { "/v1": process.env["ANTIPHON_URL"] ?? "http://127.0.0.1:8484" },
  },
});
