// node build.mjs [FILE HASH]: the page as one HTML file, ../assets/page.html by default.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { build } from "esbuild";

/** The same as in assets.cmake: the hash of the hashes of all sources, by name. */
function hashOfSources() {
  const names = readdirSync(".").filter((name) => /\.(js|css|html)$|^package(-lock)?\.json$|^build\.mjs$/.test(name));
  const sha256 = (data) => createHash("sha256").update(data).digest("hex");
  return sha256(names.sort().map((name) => sha256(readFileSync(name)) + "\n").join(""));
}

const [file = "../assets/page.html", hash = hashOfSources()] = process.argv.slice(2);
const built = await build({
  entryPoints: ["main.js", "style.css"],
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "inline",
  outdir: "out",
  write: false,
});
const text = (ending) => built.outputFiles.find((output) => output.path.endsWith(ending)).text;
const page = readFileSync("index.html", "utf8")
  .replace("<!-- built -->", () => `<!-- built from ${hash} -->`)
  .replace("/* style */", () => text(".css"))
  .replace("/* script */", () => text(".js"));
mkdirSync(dirname(file), { recursive: true });
writeFileSync(file, page);
