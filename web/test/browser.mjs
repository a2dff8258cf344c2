// node web/test/browser.mjs [chromium]: every kept program in a real browser, on the package in build/web/package. Exits with
// 1 if one gives other bytes.
import { spawn } from "node:child_process";
import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";

const root = new URL("../../", import.meta.url);
const TYPES = { ".mjs": "text/javascript", ".wasm": "application/wasm", ".html": "text/html" };
const names = (await readdir(new URL("tests/golden/programs/", root))).filter((name) => name.endsWith(".zpt"));
const page = `<!doctype html><meta http-equiv="Content-Security-Policy" content="default-src 'self' 'wasm-unsafe-eval' 'unsafe-inline'">
<script type="module">
import { load } from "/build/web/package/zeropoint.mjs";
import { arraysOf, difference } from "/web/test/arrays.mjs";
const file = async (name) => new Uint8Array(await (await fetch("/tests/golden/programs/" + name)).arrayBuffer());
const lines = [];
for (const name of ${JSON.stringify(names)}) {
  try {
    const arrays = await file(name.replace(".zpt", ".safetensors"));
    const program = await load(fetch("/tests/golden/programs/" + name));
    lines.push(name + ": " + (difference(program.run(arraysOf(arrays, "input")), arraysOf(arrays, "output")) || "equal"));
    program.free();
  } catch (error) {
    lines.push(name + ": " + error);
  }
}
await fetch("/result", { method: "POST", body: JSON.stringify(lines) });
</script>`;

let finish;
const finished = new Promise((resolve) => { finish = resolve; });
const server = createServer(async (request, response) => {
  const path = new URL(request.url, "http://localhost").pathname;
  if (path === "/") return response.setHeader("Content-Type", "text/html").end(page);
  if (path === "/result") {
    let body = "";
    for await (const part of request) body += part;
    response.end();
    return finish(JSON.parse(body));
  }
  try {
    response.setHeader("Content-Type", TYPES[extname(path)] ?? "application/octet-stream");
    response.end(await readFile(new URL(`.${path}`, root)));
  } catch {
    response.writeHead(404).end();
  }
});
await new Promise((resolve) => server.listen(0, "localhost", resolve));

const profile = await mkdtemp(join(tmpdir(), "chromium-"));
const browser = spawn(process.argv[2] ?? "chromium", ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync", `--user-data-dir=${profile}`,
  `http://localhost:${server.address().port}/`], { stdio: "ignore" });
const limit = setTimeout(() => finish(["no answer in two minutes"]), 120_000);
browser.on("error", (error) => finish([String(error)]));
const lines = await finished;
clearTimeout(limit);
browser.kill();
await new Promise((resolve) => (browser.exitCode === null && browser.pid ? browser.on("exit", resolve) : resolve()));
server.close();
server.closeAllConnections();
await rm(profile, { recursive: true, force: true, maxRetries: 5 });
const wrong = lines.filter((line) => !line.endsWith(": equal"));
console.log([...wrong, `browser: ${lines.length - wrong.length} of ${names.length} programs have the same bytes`].join("\n"));
process.exitCode = wrong.length === 0 && lines.length === names.length ? 0 : 1;
