// `npm run screenshots`: takes the pictures of docs/images/dashboard anew. A real pool runs the demo's applications under real load with
// batch jobs beside them; what a picture shows is what that pool measured.
import { mkdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { launch, live, visit } from "./tests/browser.js";
import { missing, Pool, ROOT } from "./tests/pool.js";

const FOLDER = join(ROOT, "docs/images/dashboard");
/** Everybody who clones the repository has the pictures. */
const MOST_BYTES = 150_000;
/** A busy machine takes its time. */
const PATIENCE_MS = 180_000;
/** Pixels around a section. */
const MARGIN = 12;
/** More than the pool can carry: a person must see which application is worst off, and why. */
const STEPS = 'steps = [{ at = "50s", sessions = 45 }]';
/** The application that these steps bring below its goal. */
const WORST = "search";
/** How long the charts show jobs before the load outgrows the pool, and how long after. */
const BEFORE_MS = 40_000;
const AFTER_MS = 45_000;

/** From the top of the page to the end of its section `last`. */
async function fromTop(page, last) {
  const end = await section(page, last).evaluate((element) => element.getBoundingClientRect().bottom + globalThis.scrollY);
  return { x: 0, y: 0, width: page.viewportSize().width, height: Math.ceil(end) + MARGIN };
}

/** What `locator` shows, over the whole width of the page. */
async function around(page, locator) {
  const [top, height] = await locator.evaluate((element) => {
    const box = element.getBoundingClientRect();
    return [box.top + globalThis.scrollY, box.height];
  });
  return { x: 0, y: Math.max(0, Math.floor(top) - MARGIN), width: page.viewportSize().width, height: Math.ceil(height) + 2 * MARGIN };
}

const section = (page, name) => page.locator(`section[aria-labelledby=${name}]`);

async function keep(page, name, clip) {
  const path = join(FOLDER, `${name}-${page.viewportSize().width}.png`);
  await page.screenshot({ path, fullPage: true, clip });
  const bytes = statSync(path).size;
  console.log(`${path.slice(ROOT.length)}: ${clip.width} × ${clip.height}, ${bytes} bytes`);
  if (bytes > MOST_BYTES) throw new Error(`${path} has ${bytes} bytes, more than ${MOST_BYTES}`);
}

/** Opens one application with its reasons and its log, which take a token. */
async function open(page, app, token) {
  await page.getByRole("button", { name: `More about ${app}` }).click();
  await page.getByRole("button", { name: `Logs of ${app}` }).click();
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Use this token" }).click();
  await page.getByRole("button", { name: `Logs of ${app}` }).click();
  await page.getByRole("region", { name: `Logs of ${app}` }).waitFor();
  await page.getByRole("button", { name: `Why is ${app} so?` }).click();
  await opened(page).locator(".why li").first().waitFor();
}

const opened = (page) => section(page, "apps").locator(".grid > li:has([aria-expanded=true])");

/** Until the pool has more to do than it can, for long enough that the charts show it. */
async function somebodyMisses(page) {
  const worst = page.locator("#headline", { hasText: "is worst off" });
  await worst.waitFor().catch(async () => {
    throw new Error(`nobody became worst off: ${await page.locator("#headline").innerText()}`);
  });
  await page.waitForTimeout(AFTER_MS);
  await worst.waitFor();
}

/** Charts are drawn in the colours that the page had when it was opened. */
async function charts(pages) {
  for (const page of pages) {
    await keep(page, "overview", await fromTop(page, page === pages[0] ? "apps" : "overview"));
    await keep(page, "jobs", await around(page, section(page, "jobs")));
  }
}

async function lists(pages) {
  for (const page of pages) {
    await keep(page, "application", await around(page, opened(page)));
    await keep(page, "nodes", await around(page, section(page, "nodes")));
    await keep(page, "events", await around(page, section(page, "events")));
  }
}

async function take(pool, browser) {
  // Opening a page takes so much CPU that all response times jump: the pictures come well after it.
  const views = [await visit(browser, pool.api, { width: 1280 }), await visit(browser, pool.api, { width: 390, dark: true })];
  const pages = views.map((view) => view.page);
  for (const page of pages) page.setDefaultTimeout(PATIENCE_MS);
  await Promise.all(pages.map(live));
  await pool.load();
  pool.submit("--array", "1-3", join(ROOT, "examples/demo/sums.sh"));
  await pages[0].waitForTimeout(BEFORE_MS);
  await somebodyMisses(pages[0]);
  await pool.atOneMoment(() => charts(pages));

  for (const page of pages) await open(page, WORST, pool.token);
  await pages[0].emulateMedia({ colorScheme: "dark" });
  await pages[1].emulateMedia({ colorScheme: "light" });
  await Promise.all(pages.map(live));
  await pool.atOneMoment(() => lists(pages));
  const bad = views.flatMap((view) => view.bad);
  if (bad.length > 0) throw new Error(bad.join("\n"));
}

const absent = missing();
if (absent) throw new Error(absent);
mkdirSync(FOLDER, { recursive: true });
const pool = await Pool.start({ steps: STEPS });
const browser = await launch();
try {
  await take(pool, browser);
} catch (error) {
  throw new Error(`${error.message}\nThe pool said:\n${pool.output}`, { cause: error });
} finally {
  await browser.close();
  await pool.stop();
}
