// The page against a running `weal up`: the demo's applications on free ports, under real load. With WEAL_URL it also looks at
// a pool that runs already; with WEAL_IMAGES=1 it writes the pictures of docs/images anew.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { chromiumPath, launch, live, SHOTS, visit } from "./browser.js";

const ROOT = new URL("../../", import.meta.url).pathname;
const PROGRAMS = process.env.WEAL_PROGRAMS ?? join(ROOT, "target/debug");
const WEAL = join(PROGRAMS, "weal");
const IMAGES = join(ROOT, "docs/images/");
const DEADLINE_MS = 60_000;

/** What the demo's four slices can carry; for the pictures more than that: a person must see who is worst off, and why. */
const LOAD = `
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
${process.env.WEAL_IMAGES ? 'steps = [{ at = "12s", sessions = 60 }]' : ""}

[[load]]
app = "feed"
class = "silver"
rate = "20/s"
`;

function missing() {
  if (chromiumPath() === null) return "there is no chromium in PATH";
  const absent = ["weal", "weal-demo-shop", "weal-demo-search", "weal-demo-feed"].find((name) => !existsSync(join(PROGRAMS, name)));
  return absent === undefined ? false : `there is no ${join(PROGRAMS, absent)}: run cargo build --bins, or set WEAL_PROGRAMS`;
}

test("a living pool is shown under load, and the page survives the death of the controller", { skip: missing(), timeout: process.env.WEAL_IMAGES ? 400_000 : 180_000 }, async () => {
  const pool = await Pool.start();
  const browser = await launch();
  try {
    const { page, bad } = await visit(browser, pool.api);
    await live(page);
    await pool.load();
    for (const flow of ["feed silver", "search silver", "shop bronze", "shop gold"]) {
      await card(page, flow).getByText(VERDICT).waitFor({ timeout: DEADLINE_MS });
    }
    assert.match(await card(page, "shop gold").innerText(), /p95 < 250ms/);
    assert.equal(await page.locator("section[aria-labelledby=nodes] .grid > li").count(), 4);
    await page.locator("section[aria-labelledby=nodes] .grid > li", { hasText: "shop-1" }).first().waitFor();
    await showAllEvents(page);
    await page.locator("section[aria-labelledby=events] li", { hasText: "start shop-1 on" }).waitFor();
    await saysWhoIsWorstOff(page, pool);
    await page.getByRole("button", { name: "Why?" }).click();
    await page.locator(".why li").first().waitFor();
    await page.getByRole("button", { name: "Close" }).click();

    const phone = await visit(browser, pool.api, { width: 390, dark: true });
    await live(phone.page);
    // Opening a page takes so much CPU that all response times jump: the pictures come well after it.
    if (process.env.WEAL_IMAGES) await somebodyMisses(page);
    await pool.atOneMoment(async () => {
      await keepPictures(page, 1280, "nodes");
      await keepPictures(phone.page, 390, "overview");
    });
    assert.deepEqual(phone.bad, []);
    await phone.page.context().close();

    await jobsAreShown(page, pool);

    process.kill(pool.pidOf("controller"), "SIGKILL");
    await page.getByText("connection lost").waitFor({ timeout: DEADLINE_MS });
    await live(page);
    await card(page, "shop gold").getByText(VERDICT).waitFor({ timeout: DEADLINE_MS });
    // What happened before is still there, once.
    await showAllEvents(page);
    assert.equal(await page.locator("section[aria-labelledby=events] li", { hasText: "start shop-1 on" }).count(), 1);
    assert.deepEqual(bad, []);
  } catch (error) {
    throw new Error(`${error.message}\nThe pool said:\n${pool.output}`, { cause: error });
  } finally {
    await browser.close();
    await pool.stop();
  }
});

test("the page shows the pool at WEAL_URL", { skip: process.env.WEAL_URL ? missing() : "WEAL_URL is not set" }, async () => {
  const browser = await launch();
  try {
    for (const [width, dark] of [[1280, false], [390, true]]) {
      const { page, bad } = await visit(browser, process.env.WEAL_URL, { width, dark });
      await live(page);
      await page.screenshot({ path: `${SHOTS}pool-${width}.png`, fullPage: true });
      assert.deepEqual(bad, []);
    }
  } finally {
    await browser.close();
  }
});

const VERDICT = /✓ met|✕ missed/;
const card = (page, flow) => page.locator("section[aria-labelledby=flows] .grid > li", { hasText: flow });

/** The list begins with the newest events only, and on a slow machine there are more. */
async function showAllEvents(page) {
  const all = page.getByRole("button", { name: /^All / });
  if ((await all.count()) > 0) await all.click();
}

/** The first sentence names the flow that the API says has the lowest utility: asked until both are of the same moment. */
async function saysWhoIsWorstOff(page, pool) {
  await until(async () => {
    const { flows, time } = await (await fetch(`${pool.api}v1/status`)).json();
    const text = await page.locator("#headline").innerText();
    const after = await (await fetch(`${pool.api}v1/status`)).json();
    if (after.time !== time) return false;
    const worst = flows.filter((flow) => flow.utility !== null).reduce((a, b) => (b.utility < a.utility ? b : a));
    return text.includes(`${worst.app} (${worst.class})`) && text.includes(worst.goal_text);
  });
}

/** Jobs run beside the applications: they stand on the time line, and take their part of the CPU in the chart above it. */
async function jobsAreShown(page, pool) {
  pool.submit("--array", "1-3", join(ROOT, "examples/demo/sums.sh"));
  const jobs = page.locator("section[aria-labelledby=jobs]");
  await jobs.locator(".rows > li", { hasText: "sums-" }).locator(".segment.running").first().waitFor({ timeout: DEADLINE_MS });
  await until(async () => {
    const label = await jobs.getByRole("img", { name: /^CPU used/ }).getAttribute("aria-label");
    const [both, apps] = [...label.matchAll(/: (\d+\.\d+)/g)].map((found) => Number(found[1]));
    return both > apps;
  });
  const utilities = await jobs.getByRole("img", { name: /^Utility of the worst-off/ }).getAttribute("aria-label");
  assert.match(utilities, /worst-off application: [+−-]?\d.*worst-off job: [+−-]?\d/);
  if (!process.env.WEAL_IMAGES) return;
  // Long enough that the charts show what the jobs take and leave.
  await page.waitForTimeout(45_000);
  await pool.atOneMoment(() => jobs.screenshot({ path: join(IMAGES, "jobs-1280.png") }));
}

/** For the pictures: the load has outgrown the pool, for long enough that the charts show it. */
async function somebodyMisses(page) {
  await page.locator("#headline", { hasText: "is worst off" }).waitFor({ timeout: DEADLINE_MS });
  await page.waitForTimeout(20_000);
  await page.locator("#headline", { hasText: "is worst off" }).waitFor({ timeout: DEADLINE_MS });
}

/** The whole page; for the docs, what stands above the end of one of its sections. */
async function keepPictures(page, width, section) {
  await page.screenshot({ path: `${SHOTS}live-${width}.png`, fullPage: true });
  if (!process.env.WEAL_IMAGES) return;
  mkdirSync(IMAGES, { recursive: true });
  const last = page.locator(`section[aria-labelledby=${section}]`);
  const end = await last.evaluate((element) => element.getBoundingClientRect().bottom + globalThis.scrollY);
  const clip = { x: 0, y: 0, width, height: Math.ceil(end) + 12 };
  await page.screenshot({ path: join(IMAGES, `dashboard-${width}.png`), fullPage: true, clip });
}

/** The demo's applications on free ports, with shorter cycles. */
class Pool {
  static async start() {
    const pool = new Pool();
    pool.folder = mkdtempSync(join(tmpdir(), "weal-dashboard-"));
    // The gateway and the controller run as another user when the test runs as root.
    chmodSync(pool.folder, 0o755);
    const [clients, api] = [await freePort(), await freePort()];
    pool.api = `http://127.0.0.1:${api}/`;
    writeFileSync(join(pool.folder, "weal.toml"), config(clients, api));
    writeFileSync(join(pool.folder, "load.toml"), LOAD);
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

async function until(done) {
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
