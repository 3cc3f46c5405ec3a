// Chromium for the tests: the system's own, found in PATH.
import { accessSync, constants, mkdirSync } from "node:fs";
import { delimiter, join } from "node:path";
import { chromium } from "playwright-core";

const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  // Grey edges on letters: pictures get smaller, and look the same on every screen.
  "--disable-lcd-text",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** What must not happen, of each page that was opened. */
const troubles = new WeakMap();

export const SHOTS = new URL("../test-results/", import.meta.url).pathname;

/** The path of Chromium, or null where there is none. */
export function chromiumPath() {
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    for (const name of ["chromium", "chromium-browser", "google-chrome"]) {
      const path = join(folder, name);
      try {
        accessSync(path, constants.X_OK);
        return path;
      } catch {
        // Not here.
      }
    }
  }
  return null;
}

export async function launch() {
  mkdirSync(SHOTS, { recursive: true });
  return chromium.launch({ executablePath: chromiumPath(), args: FLAGS });
}

/** Opens `url`, and collects what must not happen: errors, requests to elsewhere, dialogs. */
export async function visit(browser, url, { width = 1280, height = 900, dark = false } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light" });
  const page = await context.newPage();
  const bad = [];
  page.on("pageerror", (error) => bad.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => {
    bad.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("console", (message) => {
    // A lost connection and an answer of 401 or 503 are reported by the browser itself.
    if (message.type() === "error" && !/Failed to load resource|net::ERR/.test(message.text())) bad.push(`console: ${message.text()}`);
  });
  page.on("request", (request) => {
    const { protocol, host } = new URL(request.url());
    if (protocol !== "data:" && host !== new URL(url).host) bad.push(`request: ${request.url()}`);
  });
  troubles.set(page, bad);
  await page.goto(url);
  return { page, bad };
}

export async function live(page) {
  try {
    await page.getByRole("status").filter({ hasText: "live" }).waitFor({ timeout: 60_000 });
  } catch (error) {
    const shown = await page.getByRole("status").allInnerTexts();
    throw new Error(`the page says ${shown.join(", ") || "nothing"}; ${troubles.get(page).join("; ") || "it reported no error"}`, { cause: error });
  }
}
