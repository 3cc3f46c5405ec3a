import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

// One file without any request of its own: the binary carries it, and the API serves it under a strict policy.
export default defineConfig({
  plugins: [svelte(), viteSingleFile()],
  build: { target: "es2022", assetsInlineLimit: Number.MAX_SAFE_INTEGER, modulePreload: false },
  server: { proxy: { "/v1": "http://127.0.0.1:8081" } },
});
