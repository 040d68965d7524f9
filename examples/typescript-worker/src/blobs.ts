/** Values that are too large for a message: they lie in files, and a reference stands in their place. */

import { createHash, randomUUID } from "node:crypto";
import { mkdir, readFile, rename, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

import { type Json, StepError, writeJson } from "./messages.js";

const MAX_OUTPUT_BYTES = 500 * 1024; // 512 KiB is for the whole message
const MAX_BLOB_BYTES = 64 * 1024 * 1024;
const HASH = /^[0-9a-f]{64}$/;
const TENANT = /^[A-Za-z0-9_-]+$/;

export class Blobs {
  constructor(private readonly folder: string | undefined) {}

  /** Return a value with what its references point to in their places. */
  async resolved(tenant: string, value: Json): Promise<Json> {
    if (Array.isArray(value)) {
      return Promise.all(value.map((item) => this.resolved(tenant, item)));
    }
    if (value === null || typeof value !== "object") return value;
    if (isReference(value)) return this.read(tenant, value);
    const entries = Object.entries(value).map(
      async ([name, item]) => [name, await this.resolved(tenant, item)] as const,
    );
    return Object.fromEntries(await Promise.all(entries));
  }

  /** Return a value, or a reference to it where it is too large for a message. */
  async lightened(tenant: string, output: Json, limit = MAX_OUTPUT_BYTES): Promise<Json> {
    const isText = typeof output === "string";
    const data = Buffer.from(writeJson(output));
    if (data.length <= limit) return output;
    const kept = isText ? Buffer.from(output) : data;
    if (kept.length > MAX_BLOB_BYTES || this.folder === undefined) {
      const cure = this.folder === undefined ? "set HOCKET_BLOBS_DIR" : "give back less";
      throw new StepError("output_too_large", `the output has ${kept.length} bytes: ${cure}`, "invalid");
    }
    const hash = createHash("sha256").update(kept).digest("hex");
    const path = this.path(tenant, hash);
    await mkdir(dirname(path), { recursive: true });
    const aside = `${path}.${randomUUID()}`;
    await writeFile(aside, kept);
    await rename(aside, path); // nobody sees half of it
    return { $blob: hash, size: kept.length, type: isText ? "text" : "json" };
  }

  private async read(tenant: string, reference: Reference): Promise<Json> {
    const path = this.path(tenant, reference.$blob);
    if ((await stat(path)).size !== reference.size || reference.size > MAX_BLOB_BYTES) {
      throw new StepError("blob_damaged", `the blob ${reference.$blob} has another size`);
    }
    const data = await readFile(path);
    if (createHash("sha256").update(data).digest("hex") !== reference.$blob) {
      throw new StepError("blob_damaged", `the blob ${reference.$blob} holds other bytes`);
    }
    const text = new TextDecoder("utf-8", { fatal: true }).decode(data);
    return reference.type === "text" ? text : (JSON.parse(text) as Json);
  }

  private path(tenant: string, hash: string): string {
    if (this.folder === undefined) {
      throw new StepError("blobs_missing", "the input is in a blob: set HOCKET_BLOBS_DIR");
    }
    if (!HASH.test(hash) || !TENANT.test(tenant)) {
      throw new StepError("invalid_input", `there is no blob \`${hash}\``, "invalid");
    }
    return join(this.folder, `tenant-${tenant}`, hash.slice(0, 2), hash);
  }
}

interface Reference {
  $blob: string;
  size: number;
  type: "text" | "json";
}

function isReference(value: object): value is Reference {
  const { $blob, size, type } = value as Partial<Reference>;
  return typeof $blob === "string" && typeof size === "number" && (type === "text" || type === "json");
}
