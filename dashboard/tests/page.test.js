// The page against a mock of the API. `npm test` builds nothing: run `npm run build` first.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { chromiumPath, launch, live, SHOTS, visit } from "./browser.js";
import { Mock } from "./mock.js";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const skip = chromiumPath() === null ? "there is no chromium in PATH" : false;
let browser;

before(async () => {
  if (!skip) browser = await launch();
});
after(async () => browser?.close());

/** Runs `body` with a page that shows a mock, and checks that nothing bad happened on the way. */
function check(name, { mock: options = {}, view = {} } = {}, body) {
  test(name, { skip, timeout: 120_000 }, async () => {
    const mock = new Mock(options);
    await mock.start();
    const { page, bad } = await visit(browser, mock.url, view);
    try {
      await body(page, mock);
      assert.deepEqual(bad, []);
    } finally {
      await page.context().close();
      await mock.stop();
    }
  });
}

async function violations(page) {
  // The page's own policy forbids scripts from elsewhere; the test's comes in through the debugger.
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  return violations.map((found) => `${found.id}: ${found.nodes.map((node) => node.html).join(" | ").slice(0, 300)}`);
}

const sideways = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

for (const [width, dark] of [[1280, false], [1280, true], [390, false], [390, true]]) {
  check(`the page is accessible and fits at ${width} px, ${dark ? "dark" : "light"}`, { view: { width, dark } }, async (page, mock) => {
    await live(page);
    mock.event("started shop-2 on n2: gold at p95 412 ms missed 250 ms");
    mock.event("shop-1 ended with status 1", "error", "instance");
    await page.getByText("started shop-2 on n2").waitFor();
    assert.deepEqual(await violations(page), []);
    assert.equal(await sideways(page), 0);
    await page.screenshot({ path: `${SHOTS}mock-${width}-${dark ? "dark" : "light"}.png`, fullPage: true });
  });
}

check("the page says who is worst off and why, and asks the controller for more", {}, async (page) => {
  await live(page);
  const text = await page.locator("#headline").innerText();
  assert.match(text, /search \(gold\) is worst off\. P95 is \d+ ms, the goal is p95 < 500ms\. The CPU of n1 and n2 is all allocated/);
  await page.getByRole("button", { name: "Why?" }).click();
  await page.getByText("Because of search.").waitFor();
});

check("nodes, flows, seats and queues are there, with charts that say their values", {}, async (page) => {
  await live(page);
  assert.equal(await page.locator("section[aria-labelledby=nodes] .grid > li").count(), 4);
  assert.equal(await page.locator("section[aria-labelledby=flows] .grid > li").count(), 3);
  const card = page.locator("section[aria-labelledby=flows] .grid > li").first();
  assert.match(await card.innerText(), /shop gold[\s\S]*Goal[\s\S]*p95 < 250ms[\s\S]*Seats/);
  const label = await card.getByRole("img").first().getAttribute("aria-label");
  assert.match(label, /Response time against its goal\. Now: response time: \d+ ms, goal: p95 < 250ms: 250 ms/);
  // The past came with the first screen: something is drawn before any second status came.
  const drawn = await card.locator("canvas").first().evaluate((canvas) => {
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    return pixels.some((value) => value !== 0);
  });
  assert.ok(drawn);
});

check("the charts reach back as far as is asked for", { mock: { hours: 8 } }, async (page, mock) => {
  await live(page);
  assert.equal(mock.since_s, 15 * 60);
  const begin = (seconds) => {
    const times = mock.history.map((sample) => sample.time / 1e9).filter((time) => time >= mock.now - seconds);
    return `from ${new Date(times[0] * 1000).toTimeString().slice(0, 5)}`;
  };
  const range = page.getByLabel("The last");
  for (const [words, seconds] of [["6 h", 6 * 3600], ["24 h", 24 * 3600], ["15 min", 15 * 60]]) {
    await range.selectOption({ label: words });
    await page.getByText(begin(seconds), { exact: true }).waitFor();
    assert.equal(mock.since_s, seconds);
  }
  assert.deepEqual(await violations(page), []);
  // After a lost connection as well.
  await range.selectOption({ label: "6 h" });
  await page.getByText(begin(6 * 3600), { exact: true }).waitFor();
  await mock.stop();
  await page.getByText("connection lost").waitFor();
  await mock.start(mock.port);
  await live(page);
  assert.equal(mock.since_s, 6 * 3600);
});

check("an application is seen to fall asleep, sink and wake on the ladder", {}, async (page, mock) => {
  await live(page);
  assert.equal(await page.locator("#ladder").count(), 0, "nothing sleeps: nothing is said");
  const rung = (name) => page.locator("section[aria-labelledby=ladder] ol > li").filter({ hasText: name });
  mock.sleep("suspended", 2 ** 28, 0, null);
  await rung("frozen, all in memory").getByText("256 MiB in memory, 0 B in swap").waitFor();
  assert.deepEqual(await violations(page), []);
  mock.sleep("parked", 2 ** 20, 2 ** 28, null);
  await rung("frozen and paged out").getByText("1.0 MiB in memory, 256 MiB in swap").waitFor();
  mock.sleep("ready", 2 ** 25, 2 ** 27, 43.2);
  await rung("takes requests").getByText("last woken in 43 ms").waitFor();
});

check("a new status changes the page without a reload", {}, async (page, mock) => {
  await live(page);
  await page.evaluate(() => (globalThis.sameDocument = true));
  mock.push((status) => {
    status.flows[0].seats = 4711;
    status.apps[2].state = "failed";
    status.apps[2].detail = "the program does not exist";
  });
  await page.getByText("4711").waitFor();
  assert.match(await page.locator("#headline").innerText(), /feed has failed\. The program does not exist\./);
  assert.ok(await page.evaluate(() => globalThis.sameDocument));
});

check("when nothing has traffic the page says so", {}, async (page, mock) => {
  await live(page);
  mock.push((status) => status.flows.forEach((flow) => Object.assign(flow, { achieved: null, utility: null })));
  await page.getByText("No requests have come in lately.").waitFor();
});

check("the page comes back by itself after the controller restarts, with what it missed", {}, async (page, mock) => {
  await live(page);
  mock.event("before the restart");
  await page.getByText("before the restart").waitFor();
  await mock.stop();
  await page.getByText("connection lost").waitFor();
  mock.events.push({ ...mock.events[0], id: 2, time: mock.now * 1e9 + 1, text: "while it was away" });
  await mock.start(mock.port);
  await live(page);
  await page.getByText("while it was away").waitFor();
  assert.equal(await page.getByText("before the restart").count(), 1);
  mock.push((status) => (status.flows[0].seats = 815));
  await page.getByText("815").waitFor();
});

test("a page opened while the controller is not ready waits for it", { skip, timeout: 60_000 }, async () => {
  const mock = new Mock();
  mock.unready = true;
  await mock.start();
  const { page, bad } = await visit(browser, mock.url);
  await page.getByText("connection lost").waitFor();
  mock.unready = false;
  await live(page);
  assert.deepEqual(bad, []);
  await page.context().close();
  await mock.stop();
});

const MARKUP = `<img src=x onerror=alert(1)>"'&amp;`;
check("markup in a name is text", { mock: { apps: [MARKUP, "shop"] } }, async (page, mock) => {
  await live(page);
  mock.event(`started ${MARKUP}`);
  await page.getByText(`started ${MARKUP}`).waitFor();
  assert.ok((await page.getByText(MARKUP).count()) >= 4);
  assert.equal(await page.locator("img").count(), 0);
});

const many = { apps: Array.from({ length: 200 }, (_, index) => `app-${index}`), nodes: 50 };
for (const width of [1280, 390]) {
  check(`200 flows and 50 nodes stay usable at ${width} px`, { mock: many, view: { width } }, async (page, mock) => {
    await live(page);
    assert.equal(await page.locator("section[aria-labelledby=nodes] .grid > li").count(), 50);
    // 12 cards with two charts each, and three for all.
    assert.equal(await page.locator("canvas").count(), 27);
    assert.match(await page.locator("section[aria-labelledby=flows] .grid > li").first().innerText(), /app-1 gold/);
    await page.getByRole("button", { name: "Next" }).click();
    await page.getByText("13–24 of 200").waitFor();
    await page.getByLabel("Find").fill("app-137");
    await page.locator("section[aria-labelledby=flows] h3", { hasText: "app-137" }).waitFor();
    assert.equal(await page.locator("section[aria-labelledby=flows] .grid > li").count(), 1);
    mock.push((status) => (status.flows[137].seats = 99));
    await page.locator("section[aria-labelledby=flows] dd", { hasText: /^99$/ }).waitFor();
    assert.equal(await sideways(page), 0);
    await page.screenshot({ path: `${SHOTS}mock-many-${width}.png`, fullPage: true });
  });
}

check("jobs stand on a time line, beside what they take from applications", { mock: { jobs: 3 } }, async (page, mock) => {
  await live(page);
  const jobs = page.locator("section[aria-labelledby=jobs]");
  assert.equal(await jobs.locator(".rows > li").count(), 3);
  const first = jobs.locator(".rows > li").first();
  assert.match(await first.innerText(), /render-1/);
  assert.ok((await first.locator(".segment.running").count()) >= 2 && (await first.locator(".segment.paused").count()) >= 2);
  assert.equal(await first.locator(".expected").count(), 1);
  assert.ok((await first.locator(".moved").count()) >= 1, "it was on another node before");
  assert.match(await first.locator(".moved").first().getAttribute("title"), /moved from n[12] to n[12]/);
  assert.match(await first.locator(".segment.running").last().getAttribute("title"), /running on n[12] from/);
  assert.match(await jobs.locator(".rows > li").nth(2).innerText(), /2 tasks on n1 and n2/);
  const goal = await first.locator(".goal").boundingBox();
  const end = await first.locator(".expected").boundingBox();
  assert.ok(goal.x >= end.x + end.width - 4, "it is expected to be done before its goal");
  assert.match(await jobs.locator(".rows > li").nth(1).innerText(), /waiting[\s\S]*would gain by running now/);
  // Two jobs use half a core each; three applications use 0.43 cores together.
  const label = await jobs.getByRole("img", { name: /CPU used/ }).getAttribute("aria-label");
  const [both, apps] = [...label.matchAll(/: (\d+\.\d+)/g)].map((found) => Number(found[1]));
  assert.ok(both - apps >= 0.45 && both - apps <= 1.05, label);
  mock.push((status) => (status.jobs[1].deadline = status.time - 13_740e9));
  await jobs.locator(".rows > li", { hasText: "goal missed by 3.8 h" }).waitFor();
  mock.push((status) => (status.jobs = []));
  await jobs.waitFor({ state: "detached" });
});

check("what is said twice and what changes at each moment does not stop the page", { mock: { jobs: 3 } }, async (page, mock) => {
  await live(page);
  const fresh = page.locator("section[aria-labelledby=jobs] .rows > li", { hasText: "fresh-1" });
  for (const state of ["waiting", "running", "paused", "running", "suspended"]) {
    mock.push((status) => status.jobs.unshift({ ...status.jobs[0], id: "fresh-1", state }));
    await fresh.locator(".state", { hasText: state }).waitFor();
  }
  assert.ok((await fresh.locator(".segment").count()) >= 4);
  mock.push((status) => (status.problems = ["the disk is full", "the disk is full"]));
  await page.getByRole("alert").nth(1).waitFor();
  mock.push();
  await page.getByRole("alert").first().waitFor({ state: "detached" });
});

check("an hour of being open does not fill memory", {}, async (page, mock) => {
  await live(page);
  const debug = await page.context().newCDPSession(page);
  const heap = async (marker) => {
    mock.push((status) => (status.flows[0].seats = marker));
    await page.locator("dd", { hasText: new RegExp(`^${marker}$`) }).waitFor();
    await debug.send("HeapProfiler.collectGarbage");
    return (await debug.send("Runtime.getHeapUsage")).usedSize;
  };
  const cycles = async (count) => {
    for (let cycle = 0; cycle < count; cycle += 1) {
      mock.push();
      mock.event(`cycle ${mock.step}`);
      // Lets the page draw now and then, as it would.
      if (cycle % 50 === 0) await page.evaluate(() => new Promise(requestAnimationFrame));
    }
  };
  // The first quarter of an hour (450 cycles of 2 s) and a bit fills the window; the rest of the hour must add nothing.
  await cycles(600);
  const full = await heap(100_001);
  await cycles(1800);
  const later = await heap(100_002);
  assert.ok(later < full * 1.25 + 2e6, `${full} bytes after 20 minutes, ${later} after 80`);
  assert.ok((await page.locator("section[aria-labelledby=events] li").count()) <= 26);
});

check("an API that wants a token is opened with it", { mock: { token: "s3cret" } }, async (page) => {
  await page.getByText("needs a token").waitFor();
  await page.getByLabel("Token").fill("wrong");
  await page.getByRole("button", { name: "Show the pool" }).click();
  await page.getByLabel("Token").waitFor();
  await page.getByLabel("Token").fill("s3cret");
  await page.getByRole("button", { name: "Show the pool" }).click();
  await live(page);
  assert.equal(await page.getByLabel("Token").count(), 0);
});

check("orders, logs and deploys ask for a token, and say when it does not count any more", { mock: { orderToken: "s3cret" } }, async (page, mock) => {
  await live(page);
  const apps = page.locator("section[aria-labelledby=apps]");
  await apps.getByRole("button", { name: "More about shop" }).click();
  await apps.getByRole("button", { name: "Restart shop" }).click();
  await page.getByText("Orders, logs and deploys need a token.").waitFor();
  await page.getByLabel("Token").fill("expired");
  await page.getByRole("button", { name: "Use this token" }).click();
  await apps.getByRole("button", { name: "Logs of shop" }).click();
  await page.getByText("This token does not count any more: wrong token").waitFor();
  assert.deepEqual(await violations(page), []);
  await page.getByLabel("Token").fill("s3cret");
  await page.getByRole("button", { name: "Use this token" }).click();
  assert.equal(await page.getByLabel("Token").count(), 0);

  await apps.getByRole("button", { name: "Logs of shop" }).click();
  await apps.getByRole("region", { name: "Logs of shop" }).getByText("<b>listening</b>").waitFor();
  for (const [button, verb] of [["Restart shop", "restart"], ["Put to sleep shop", "sleep"], ["Stop shop", "stop"]]) {
    await apps.getByRole("button", { name: button }).click();
    await apps.getByText(`${button.replace(" shop", "")}: weal has the order.`).waitFor();
    assert.ok(mock.ordered.includes(`POST /v1/apps/shop/${verb}`), mock.ordered.join(", "));
  }
  assert.equal(await apps.getByRole("link", { name: "shop" }).getAttribute("href"), "http://shop.localhost:8080/");

  await page.getByRole("button", { name: "Show versions" }).click();
  const versions = page.locator("section[aria-labelledby=versions]");
  assert.ok(await versions.getByRole("button", { name: "Deploy version 2 again" }).isDisabled(), "it did not come up");
  await versions.getByRole("button", { name: "Deploy version 1 again" }).click();
  await versions.getByRole("button", { name: "Yes, deploy version 1" }).click();
  await versions.getByText("Version 4: shop goes back.").waitFor();
  assert.ok(mock.ordered.includes("PUT /v1/config"));
  assert.deepEqual(await violations(page), []);
  assert.equal(await sideways(page), 0);
});

check("sleeping, crashing, idle and failed are told apart, the worst first", { mock: { apps: ["busy", "idle", "crashing", "asleep"] } }, async (page, mock) => {
  await live(page);
  mock.push((status) => {
    status.flows.forEach((flow) => Object.assign(flow, { utility: 0.5 }));
    Object.assign(status.flows[1], { arrival_per_s: 0, queue_mean: 0, utility: null });
    Object.assign(status.apps[2].instances[0], { state: "backoff", restarts: 7, detail: "ended by itself with status 1" });
    status.apps[2].state = "starting";
    Object.assign(status.apps[3], { state: "asleep", utility: null });
  });
  const cards = page.locator("section[aria-labelledby=apps] .grid > li");
  await cards.first().getByText("crashing-1 was started again 7 times: ended by itself with status 1").waitFor();
  const texts = await cards.allInnerTexts();
  const words = texts.map((text) => /(crashing|serving|idle|asleep)\s*\n/.exec(text.split("\n").slice(1).join("\n"))?.[1]);
  assert.deepEqual(words.slice(0, 2), ["crashing", "serving"], texts.join(" | "));
  assert.deepEqual(words.slice(2).sort(), ["asleep", "idle"]);
  assert.deepEqual(await violations(page), []);
});

check("events are found by words", {}, async (page, mock) => {
  await live(page);
  mock.event("started shop-2");
  mock.event("config 4 is in force", "info", "config");
  await page.getByText("started shop-2").waitFor();
  await page.getByLabel("With").fill("in force");
  await page.getByText("started shop-2").waitFor({ state: "detached" });
  assert.equal(await page.locator("section[aria-labelledby=events] li").count(), 1);
});

test("no script and no style but the page's own count, wherever they get in", { skip, timeout: 120_000 }, async () => {
  const mock = new Mock({});
  await mock.start();
  const { page, bad } = await visit(browser, mock.url);
  await live(page);
  assert.deepEqual(bad, []);
  const color = await page.evaluate(async () => {
    const script = document.createElement("script");
    script.textContent = "globalThis.intruder = 'an element'";
    document.body.append(script);
    document.body.insertAdjacentHTML("beforeend", `<p id="painted" style="color: rgb(1, 2, 3)">x</p>`);
    const image = document.createElement("img");
    image.setAttribute("onerror", "globalThis.intruder = 'an attribute'");
    const failed = new Promise((resolve) => image.addEventListener("error", resolve));
    image.src = "data:,";
    document.body.append(image);
    await failed;
    return getComputedStyle(document.getElementById("painted")).color;
  });
  const intruder = await page.evaluate(() => globalThis.intruder);
  await page.context().close();
  await mock.stop();
  assert.equal(intruder, undefined);
  assert.notEqual(color, "rgb(1, 2, 3)");
  assert.ok(bad.length >= 3 && bad.every((said) => said.includes("Content Security Policy")), bad.join("\n"));
});
