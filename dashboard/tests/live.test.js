// The page against a running `weal up`: the demo's applications on free ports, under real load. With WEAL_URL it also looks at
// a pool that runs already.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { launch, live, SHOTS, visit } from "./browser.js";
import { DEADLINE_MS, missing, Pool, ROOT, until } from "./pool.js";

test("a living pool is shown under load, and the page survives the death of the controller", { skip: missing(), timeout: 180_000 }, async () => {
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
    await page.screenshot({ path: `${SHOTS}live-1280.png`, fullPage: true });
    await phone.page.screenshot({ path: `${SHOTS}live-390.png`, fullPage: true });
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
}
