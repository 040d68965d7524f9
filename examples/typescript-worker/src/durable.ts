/** What a handler does once for its step, and what it waits for: sections "Handlers that wait" and "Handlers
 * that call nodes" of docs/reference/worker-protocol.md. */

import type { Blobs } from "./blobs.js";
import { type Entry, type Journal, type Kind, LeftBehind, keyOf, mismatch } from "./journal.js";
import {
  type HandlerWait,
  type Json,
  type NodeCall,
  type Outcome,
  type Place,
  StepError,
  type StepRequested,
  type WaitEnded,
  digestOf,
  told,
  writeJson,
} from "./messages.js";

const MAX_ENTRY_BYTES = 256 * 1024;
const MAX_CALL_BYTES = 192 * 1024;
const MAX_WAITS = 100;
const MAX_WAITS_BYTES = 384 * 1024; // of the inputs of calls
const QUIET_MS = 20; // for what a handler begins side by side

/** The attempt ends because its handler waits. */
export class Suspended extends Error {
  constructor(
    private readonly waits: HandlerWait[],
    private readonly journaled: Place[],
  ) {
    super("the handler waits");
  }

  get outcome(): Outcome {
    const error = new StepError("retryable", this.message, "transient", true).info();
    return { error, waits: this.waits, journaled: this.journaled };
  }
}

/** What one attempt does by its journal. `suspend` ends it so. */
export class Durable {
  private readonly open = new Map<string, HandlerWait>();
  private readonly ended: Map<string, WaitEnded>;
  private readonly known: Map<string, HandlerWait>;
  private ordinal = 0;
  private atWork = 0;

  constructor(
    private readonly step: StepRequested,
    private readonly journal: Journal,
    private readonly blobs: Blobs,
    private readonly suspend: (how: Suspended) => void,
  ) {
    this.ended = new Map((step.resumption?.ended ?? []).map((one) => [keyOf(one), one]));
    this.known = new Map((step.resumption?.waits ?? []).map((one) => [keyOf(one), one]));
  }

  /** Do something once, whatever becomes of the attempt. */
  async once(name: string, work: () => Promise<Json> | Json): Promise<Json> {
    const place = this.place();
    return this.working(async () => {
      const found = await this.journal.find(place, "step", name);
      if (found !== undefined) return this.valueOf(found);
      const startedAtMs = Date.now();
      try {
        return await this.record(place, "step", name, startedAtMs, await work());
      } catch (error) {
        if (error instanceof LeftBehind) throw error;
        const failed = told(error);
        this.journal.note(entryOf(place, "step", name, startedAtMs, failed), this.ordinal);
        throw failed;
      }
    });
  }

  /** Return the payload of a signal of the run, which may come in days. */
  async waitForSignal(name: string): Promise<Json> {
    const place = this.place();
    const startedAtMs = Date.now();
    const found = await this.working(() => this.journal.find(place, "signal", name));
    if (found !== undefined) return this.valueOf(found);
    const ended = await this.came({ ...place, signal: name });
    return this.working(() => this.record(place, "signal", name, startedAtMs, ended.payload ?? null));
  }

  /** Call a node that the pipeline names under `calls`, and return its output. */
  async callNode(name: string, input: Json): Promise<Json> {
    const place = this.place();
    if (!this.step.calls?.includes(name)) {
      throw new StepError("call_not_named", `the node does not name \`${name}\` under \`calls\``, "invalid");
    }
    const startedAtMs = Date.now();
    const found = await this.working(() => this.journal.find(place, "call", name));
    if (found !== undefined) return this.valueOf(found);
    const call = await this.working(() => this.callOf(name, input));
    const ended = await this.came({ ...place, call });
    return this.working(async () => {
      if (ended.error != null) {
        const error = StepError.of(ended.error);
        this.journal.note(entryOf(place, "call", name, startedAtMs, error), this.ordinal);
        throw error;
      }
      const output = await this.blobs.resolved(this.step.tenant, ended.output ?? null);
      return this.record(place, "call", name, startedAtMs, output);
    });
  }

  private async callOf(name: string, input: Json): Promise<NodeCall> {
    const light = await this.blobs.lightened(this.step.tenant, input, MAX_CALL_BYTES);
    return { name, digest: digestOf(input), input: light };
  }

  private place(): Place {
    if (!this.step.journal) throw new StepError("journal_missing", "the step has no journal", "invalid");
    this.ordinal += 1;
    return { scope: "", ordinal: this.ordinal };
  }

  /** Return what came of a wait; the attempt ends where nothing has. */
  private async came(wait: HandlerWait): Promise<WaitEnded> {
    const before = this.ended.get(keyOf(wait)) ?? this.known.get(keyOf(wait));
    if (before !== undefined && asked(before) !== asked(wait)) throw mismatch(asked(wait), asked(before));
    const ended = this.ended.get(keyOf(wait));
    if (ended !== undefined) return ended;
    if (!this.step.suspends) {
      throw new StepError("cannot_suspend", "the step cannot be suspended", "invalid");
    }
    this.open.set(keyOf(wait), this.known.get(keyOf(wait)) ?? wait);
    await this.journal.keepFailures();
    this.look();
    return new Promise<never>(() => undefined); // the attempt ends before
  }

  private async working<T>(work: () => Promise<T>): Promise<T> {
    this.atWork += 1;
    try {
      return await work();
    } finally {
      this.atWork -= 1;
      this.look();
    }
  }

  /** End the attempt once nothing but waits is left. */
  private look(): void {
    const number = this.open.size;
    if (number === 0 || this.atWork > 0) return;
    setTimeout(() => {
      if (this.atWork > 0 || this.open.size !== number) return;
      const journaled = [...this.ended.values()].filter((one) => this.journal.has(one));
      this.suspend(
        new Suspended(
          this.told(),
          journaled.map(({ scope = "", ordinal }) => ({ scope, ordinal })),
        ),
      );
    }, QUIET_MS);
  }

  /** Return what is told of the waits: those under way first, and as many others as one result holds. The
   * rest follows with a later result. */
  private told(): HandlerWait[] {
    const first = (wait: HandlerWait) => (this.known.has(keyOf(wait)) ? 0 : 1);
    const waits = [...this.open.values()].sort((one, other) => first(one) - first(other));
    const told: HandlerWait[] = [];
    let leftBytes = MAX_WAITS_BYTES;
    for (const wait of waits.slice(0, MAX_WAITS)) {
      if (wait.call?.input !== undefined) leftBytes -= Buffer.byteLength(writeJson(wait.call.input));
      if (told.length > 0 && leftBytes < 0) break;
      told.push(wait);
    }
    return told;
  }

  private async record(place: Place, kind: Kind, name: string, startedAtMs: number, value: Json): Promise<Json> {
    const light = await this.blobs.lightened(this.step.tenant, value, MAX_ENTRY_BYTES);
    const entry = { ...entryOf(place, kind, name, startedAtMs), value: light, large: light !== value };
    await this.journal.record(entry);
    return value;
  }

  private async valueOf(found: Entry): Promise<Json> {
    if (found.error != null) throw StepError.of(found.error);
    const value = found.value ?? null;
    return found.large ? this.blobs.resolved(this.step.tenant, value) : value;
  }
}

function entryOf(place: Place, kind: Kind, name: string, startedAtMs: number, error?: StepError): Entry {
  const times = { started_at_ms: startedAtMs, finished_at_ms: Date.now() };
  return { ...place, kind, name, ...times, ...(error && { error: error.info() }) };
}

function asked(wait: HandlerWait): string {
  if (wait.call != null) return `call of ${wait.call.name} ${wait.call.digest}`;
  return `signal ${wait.signal ?? "none"}`;
}
