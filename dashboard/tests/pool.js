// The demo's applications on free ports, run by a real weal, for tests and pictures.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromiumPath } from "./browser.js";

export const ROOT = new URL("../../", import.meta.url).pathname;
const PROGRAMS = process.env.WEAL_PROGRAMS ?? join(ROOT, "target/debug");
const WEAL = join(PROGRAMS, "weal");
export const DEADLINE_MS = 60_000;

/** What the demo's four slices can carry. `steps` are those of the sessions at search. */
const load = (steps) => `
intent = "Every flow has traffic."
duration = "10min"
config = "weal.toml"

[[load]]
app = "shop"
class = "gold"
rate = "25/s"

[[load]]
app = "shop"
class = "bronze"
path = "/report/today"
sessions = 2
think = "1s"

[[load]]
app = "search"
class = "silver"
sessions = 8
think = "200ms"
${steps}

[[load]]
app = "feed"
class = "silver"
rate = "20/s"
`;

/** Why no pool can be shown here; false when one can. */
export function missing() {
  if (chromiumPath() === null) return "there is no chromium in PATH";
  const absent = ["weal", "weal-demo-shop", "weal-demo-search", "weal-demo-feed"].find((name) => !existsSync(join(PROGRAMS, name)));
  return absent === undefined ? false : `there is no ${join(PROGRAMS, absent)}: run cargo build --bins, or set WEAL_PROGRAMS`;
}

/** The demo's applications on free ports, with shorter cycles. */
export class Pool {
  /** Starts one and waits until its applications are ready. */
  static async start({ steps = "" } = {}) {
    const pool = new Pool();
    pool.folder = mkdtempSync(join(tmpdir(), "weal-dashboard-"));
    // The gateway and the controller run as another user when the test runs as root.
    chmodSync(pool.folder, 0o755);
    const [clients, api] = [await freePort(), await freePort()];
    pool.api = `http://127.0.0.1:${api}/`;
    writeFileSync(join(pool.folder, "weal.toml"), config(clients, api));
    writeFileSync(join(pool.folder, "load.toml"), load(steps));
    pool.target = ["-f", join(pool.folder, "weal.toml"), "--state", join(pool.folder, "state")];
    pool.output = "";
    pool.supervisor = spawn(WEAL, ["up", ...pool.target], { stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [pool.supervisor.stdout, pool.supervisor.stderr]) stream.on("data", (data) => (pool.output += data));
    pool.ended = new Promise((resolve) => pool.supervisor.on("exit", resolve));
    try {
      await pool.until((status) => status.apps.every((app) => app.state === "ready" || app.min === 0));
    } catch (error) {
      await pool.stop();
      throw error;
    }
    return pool;
  }

  /** Starts the load, which ends with the pool. */
  async load() {
    const scenario = join(this.folder, "load.toml");
    this.driver = spawn(WEAL, ["load", "--scenario", scenario, ...this.target], { stdio: ["ignore", "ignore", "pipe"] });
    this.driver.stderr.on("data", (data) => (this.output += data));
    await this.until((status) => {
      assert.equal(this.driver.exitCode, null, this.output);
      return status.flows.every((flow) => flow.arrival_per_s > 0 || flow.app === "notes");
    });
  }

  submit(...words) {
    const { status, stderr } = spawnSync(WEAL, ["submit", ...this.target, ...words], { encoding: "utf8" });
    assert.equal(status, 0, stderr);
  }

  until(holds) {
    return until(async () => {
      assert.equal(this.supervisor.exitCode, null, this.output);
      const response = await fetch(`${this.api}v1/status`);
      return response.ok && holds(await response.json());
    });
  }

  /** Does `what` while load and controller stand still: drawing needs CPU that they take, and two pictures show the same. */
  async atOneMoment(what) {
    const pids = [this.driver.pid, this.pidOf("controller")];
    pids.forEach((pid) => process.kill(pid, "SIGSTOP"));
    try {
      await what();
    } finally {
      pids.forEach((pid) => process.kill(pid, "SIGCONT"));
    }
  }

  /** The operator's token, for orders and logs. */
  get token() {
    return readFileSync(join(this.folder, "state", "controller", "token"), "utf8").trim();
  }

  pidOf(role) {
    const record = JSON.parse(readFileSync(join(this.folder, "state", "supervisor.json"), "utf8"));
    return record.roles.find((entry) => entry.role === role).pid;
  }

  async stop() {
    this.driver?.kill("SIGKILL");
    if (this.supervisor.exitCode === null) this.supervisor.kill("SIGTERM");
    await this.ended;
    rmSync(this.folder, { recursive: true, force: true });
  }
}

function config(clients, api) {
  const demo = readFileSync(join(ROOT, "examples/demo/weal.toml"), "utf8");
  const changed = demo
    .replace(/^listen = .*$/m, `name = "demo"\nlisten = "127.0.0.1:${clients}"`)
    .replace(/^api = .*$/m, `api = "127.0.0.1:${api}"\nflow-cycle = "1s"\nplacement-cycle = "4s"`)
    .replaceAll("../../target/debug/", `${PROGRAMS}/`);
  assert.ok(changed.includes(`:${api}"`) && changed.includes(`"${PROGRAMS}/weal-demo-shop"`), "the demo's config has changed its form");
  return changed;
}

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Waits until `done()` is true, for no longer than the deadline. */
export async function until(done) {
  const deadline = Date.now() + DEADLINE_MS;
  let trouble;
  while (Date.now() < deadline) {
    try {
      if (await done()) return;
    } catch (error) {
      if (error instanceof assert.AssertionError) throw error;
      trouble = error;
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  throw new Error(`did not come true: ${done}`, { cause: trouble });
}
