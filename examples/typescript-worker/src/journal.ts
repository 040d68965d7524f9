/** What was done for a step, which coordinators keep: section "Journals" of docs/reference/worker-protocol.md.
 * Numbers in comments are those of its list. */

import type { NatsConnection } from "@nats-io/transport-node";

import {
  type ErrorInfo,
  type Json,
  type Place,
  StepError,
  type StepRequested,
  digestOf,
  readJson,
  writeJson,
} from "./messages.js";

const OPENING_TRIES = 8;
const ASK_MS = 2_000;
const UNAVAILABLE_MS = 30_000;

export type Kind = "step" | "signal" | "call";

/** One thing that was done, and what came of it. */
export interface Entry extends Place {
  kind: Kind;
  name: string;
  value?: Json;
  large?: boolean;
  error?: ErrorInfo | null;
  started_at_ms: number;
  finished_at_ms: number;
}

/** Another worker has the step by now: this attempt ends without a result, and says nothing of its message. */
export class LeftBehind extends Error {}

/** What failed, and the highest ordinal that the handler had asked for by then. */
interface Failure {
  entry: Entry;
  asked: number;
}

interface Written {
  number: number;
  input_digest?: string;
  begins?: boolean;
  entries?: Entry[];
}

interface Answer {
  messages?: Written[];
  last_seq?: number;
  more?: boolean;
  seq?: number;
  refusal?: "taken" | "full" | "refused" | "unavailable" | null;
  reason?: string;
}

/** The journal of one step, in the hands of one delivery of an attempt. */
export class Journal {
  private readonly known = new Map<string, Entry>();
  private readonly digest: string;
  private failed: Failure[] = [];
  private lost = false;
  private ended: "late" | "elsewhere" | undefined;
  /** Places of what the handler began after its time. */
  private readonly late = new Set<string>();
  private number = 0;
  private seq = 0;
  private begins = true;
  private opening: Promise<void> | undefined;
  private writing: Promise<void> = Promise.resolve();

  constructor(
    private readonly connection: NatsConnection,
    private readonly pool: string,
    private readonly step: StepRequested,
    private readonly delivery: number,
    private readonly worker: string,
  ) {
    this.digest = digestOf(step.input);
  }

  /** Whether another worker has written. */
  get isLost(): boolean {
    return this.lost;
  }

  /** Write nothing that the handler begins from now on, because its time is over, it failed, or its step
   * goes on elsewhere: the next attempt does something else there (6). */
  end(how: "late" | "elsewhere"): void {
    this.ended ??= how;
  }

  /** Return what an earlier attempt did at a place. */
  async find(place: Place, kind: Kind, name: string): Promise<Entry | undefined> {
    if (this.ended === "elsewhere") throw new LeftBehind();
    if (this.ended === "late") this.late.add(keyOf(place));
    await (this.opening ??= this.open());
    const found = this.known.get(keyOf(place));
    if (found !== undefined && (found.kind !== kind || found.name !== name)) {
      throw mismatch(`${kind} ${name}`, `${found.kind} ${found.name}`);
    }
    return found;
  }

  /** Tell whether it has what was done at a place. */
  has(place: Place): boolean {
    return this.known.has(keyOf(place));
  }

  /** Note what failed: it is kept where the handler goes on behind it. `asked` is the highest ordinal that
   * the handler has asked for so far. */
  note(entry: Entry, asked: number): void {
    if (!this.late.has(keyOf(entry))) this.failed.push({ entry, asked });
  }

  /** Add what was done, and return when it is kept (5). The failures before it are kept with it, but none
   * of what ran beside it: an entry that was asked for before something failed says nothing of that. */
  async record(entry: Entry): Promise<void> {
    if (this.late.has(keyOf(entry))) return;
    const before = this.failed.filter(({ asked }) => asked < entry.ordinal);
    this.failed = this.failed.filter(({ asked }) => asked >= entry.ordinal);
    await this.keep([...before.map((failure) => failure.entry), entry]);
  }

  /** Keep what failed, before the handler waits; nothing once the attempt has ended. */
  async keepFailures(): Promise<void> {
    if (this.ended !== undefined) return;
    const entries = this.failed.splice(0).map((failure) => failure.entry);
    if (entries.length > 0) await this.keep(entries);
  }

  private async keep(entries: Entry[]): Promise<void> {
    await this.inTurn(() => this.write(entries));
    for (const one of entries) this.known.set(keyOf(one), one);
  }

  private async open(): Promise<void> {
    for (let tried = 0; tried < OPENING_TRIES; tried += 1) {
      await this.read();
      const isFirst = this.number === 0 && this.step.attempt === 1 && this.delivery === 1;
      if (isFirst || (await this.wasWritten([]))) return; // (2)
    }
    throw new StepError("journal_unavailable", "others write into the journal all the time", "unavailable", true);
  }

  /** Read all of it (1). */
  private async read(): Promise<void> {
    this.known.clear();
    [this.number, this.seq, this.begins] = [0, 0, true];
    for (;;) {
      const page = await this.ask("read", { after_seq: this.seq });
      if (page.refusal === "taken") throw this.leftBehind();
      for (const written of page.messages ?? []) this.take(written);
      this.seq = page.last_seq ?? 0;
      if (!page.more) break;
    }
    if (this.begins) this.known.clear(); // it is of another input
  }

  private take(written: Written): void {
    if (written.number !== this.number) {
      throw new StepError("journal_incomplete", `message ${this.number} of the journal is not there`);
    }
    this.number += 1;
    if (written.begins) this.known.clear();
    this.begins = written.input_digest !== this.digest; // (3)
    for (const entry of written.entries ?? []) this.known.set(keyOf(entry), entry);
  }

  private async write(entries: Entry[]): Promise<void> {
    if (this.lost || !(await this.wasWritten(entries))) throw this.leftBehind();
  }

  private leftBehind(): LeftBehind {
    this.lost = true;
    return new LeftBehind();
  }

  /** Write behind what is known (4); tell whether nobody else has written. */
  private async wasWritten(entries: Entry[]): Promise<boolean> {
    const { digest: input_digest, delivery, worker, begins, seq: after_seq } = this;
    const kept = await this.ask("write", { after_seq, delivery, worker, input_digest, begins, entries });
    if (kept.refusal === "taken") return false;
    [this.seq, this.begins] = [kept.seq ?? 0, false];
    this.number += 1;
    return true;
  }

  private async ask(what: "read" | "write", fields: object): Promise<Answer> {
    const { tenant, run_id, step, attempt, dispatched_at_ms, capability } = this.step;
    const body = writeJson({ tenant, run_id, step, attempt, dispatched_at_ms, capability, ...fields });
    const subject = `hocket.worker.journal.${what}.${this.pool}`;
    const untilMs = Date.now() + UNAVAILABLE_MS;
    for (;;) {
      const answer = await this.connection
        .request(subject, body, { timeout: ASK_MS })
        .then((message) => readJson(message.data) as unknown as Answer)
        .catch((): Answer => ({ refusal: "unavailable", reason: "nobody answers" }));
      if (answer.refusal === "full") throw new StepError("journal_full", answer.reason ?? "", "invalid");
      if (answer.refusal === "refused") throw new StepError("journal_refused", answer.reason ?? "", "invalid");
      if (answer.refusal !== "unavailable") return answer;
      if (Date.now() > untilMs) throw new StepError("journal_unavailable", answer.reason ?? "", "unavailable", true);
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }

  /** One write at a time. */
  private async inTurn(write: () => Promise<void>): Promise<void> {
    const turn = this.writing.then(write);
    this.writing = turn.catch(() => undefined);
    await turn;
  }
}

export function keyOf({ scope = "", ordinal }: Place): string {
  return `${scope} ${ordinal}`;
}

export function mismatch(asked: string, done: string): StepError {
  return new StepError("journal_mismatch", `the handler asks for \`${asked}\`, where \`${done}\` was done`);
}
