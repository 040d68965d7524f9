/** A worker: it takes the steps of its node types, runs them, and posts what came of them. Written from
 * docs/reference/worker-protocol.md; numbers in comments are those of its section "Steps". */

import { randomUUID } from "node:crypto";

import {
  AckPolicy,
  type ConsumerMessages,
  DeliverPolicy,
  JetStreamApiError,
  type JetStreamClient,
  type JetStreamManager,
  type JsMsg,
  ReplayPolicy,
  jetstream,
  jetstreamManager,
} from "@nats-io/jetstream";
import { InvalidArgumentError, type NatsConnection, connect, headers, nanos } from "@nats-io/transport-node";

import { Attempts, type Handler } from "./attempts.js";
import { Blobs } from "./blobs.js";
import { Journal, LeftBehind } from "./journal.js";
import {
  type Json,
  type Outcome,
  StepError,
  type StepRequested,
  identityOf,
  readCancelled,
  readSteps,
  resultId,
  writeJson,
} from "./messages.js";

const LANES = ["urgent", "normal", "batch"] as const;
const ACK_WAIT_MS = 10_000;
const ANNOUNCE_MS = 2_000;
const DESCRIBE_MS = 30_000;
const FETCH_MS = 30_000;
const AGAIN_MS = 1_000;
const MAX_DELIVERIES = 20;
const MAX_RESULT_BYTES = 512 * 1024;
const UNSTORED_MS = 30_000;
const TOO_LARGE_CODE = 10_054; // of JetStream: "message size exceeds maximum allowed"

export interface NodeType {
  handler: Handler;
  /** How many steps run at once in one pool. */
  concurrency: number;
  version?: string;
  description?: string;
  timeoutMs?: number;
  input?: { [name: string]: Json };
  output?: { [name: string]: Json };
}

/** The steps of one node type in one queue: how many it has, and how many of them run. */
class Pool {
  private held = 0;
  private running = 0;
  private readonly waiting: (() => void)[] = [];

  constructor(
    readonly name: string,
    readonly node: NodeType,
  ) {}

  /** The pool's name in subjects and consumers. */
  get label(): string {
    return this.name.replaceAll(".", "-");
  }

  /** How many more steps may be asked for. */
  get free(): number {
    return Math.max(0, this.node.concurrency - this.held);
  }

  /** Count a step that came, whether it runs or waits. */
  hold(): void {
    this.held += 1;
  }

  letGo(): void {
    this.held -= 1;
    this.wake();
  }

  /** Take a slot, and tell whether one was free. */
  take(): boolean {
    if (this.running >= this.node.concurrency) return false;
    this.running += 1;
    return true;
  }

  release(): void {
    this.running -= 1;
    this.wake();
  }

  /** Let all that wait look again, in their order. */
  wake(): void {
    for (const wake of this.waiting.splice(0)) wake();
  }

  /** Wait until it may look different. */
  async changed(): Promise<void> {
    await new Promise<void>((resolve) => this.waiting.push(resolve));
  }
}

/** A message that came, and how many of its steps have not ended. */
class Arrival {
  private left: number;

  constructor(
    public message: JsMsg,
    readonly steps: number,
  ) {
    this.left = steps;
  }

  /** Acknowledge it once all of its steps have ended, or went back. */
  ended(): void {
    this.left -= 1;
    if (this.left === 0) this.message.ack();
  }
}

export class Worker {
  private readonly name = `typescript-${process.pid}-${randomUUID().slice(0, 8)}`;
  private readonly attempts = new Attempts(new Blobs(process.env["HOCKET_BLOBS_DIR"]));
  private readonly pools: Pool[];
  private readonly running = new Set<Promise<void>>();
  /** The message of each step that runs. */
  private readonly held = new Map<string, Arrival>();
  private readonly fetching = new Set<ConsumerMessages>();
  private stopping = false;
  private connection!: NatsConnection;
  private js!: JetStreamClient;

  constructor(
    private readonly types: { [name: string]: NodeType },
    queues: string[] = ["default"],
  ) {
    this.pools = Object.entries(types).flatMap(([type, node]) =>
      queues.map((queue) => new Pool(queue === "default" ? type : `${type}@${queue}`, node)),
    );
  }

  /** Run until SIGTERM or SIGINT, and end what was begun. */
  async run(): Promise<void> {
    const servers = process.env["NATS_URL"] ?? "nats://127.0.0.1:4222";
    this.connection = await connect({ ...placeOf(servers), name: this.name, maxReconnectAttempts: -1 });
    this.js = jetstream(this.connection);
    const stopped = new Promise<void>((resolve) => {
      for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => resolve());
    });
    this.connection.subscribe("hocket.cancel", {
      callback: (_, message) => {
        const cancelled = readCancelled(message.data);
        if (cancelled === undefined) return;
        this.attempts.cancel(cancelled);
        for (const pool of this.pools) pool.wake(); // it may name a step that waits for a slot
      },
    });
    this.connection.subscribe("hocket.worker.asked", {
      callback: () => {
        this.announce();
        this.describe();
      },
    });
    const manager = await this.manager();
    const loops = this.pools.flatMap((pool) => LANES.map((lane) => this.serve(manager, pool, lane)));
    this.announce();
    this.describe();
    const timers = [
      setInterval(() => this.announce(), ANNOUNCE_MS),
      setInterval(() => this.describe(), DESCRIBE_MS),
    ];
    await Promise.race([stopped, ...loops]); // a loop ends by a fault alone, which ends the process
    await this.drain();
    timers.forEach(clearInterval);
    await this.connection.close();
  }

  /** Take no more, and wait for what runs. */
  private async drain(): Promise<void> {
    this.stopping = true;
    this.announce();
    for (const messages of this.fetching) messages.stop();
    for (const pool of this.pools) pool.wake();
    await Promise.all(this.running);
    await this.connection.flush();
  }

  private announce(): void {
    const entries = this.pools.map((pool) => [pool.name, pool.node.concurrency] as const);
    const slots = this.stopping ? {} : Object.fromEntries(entries);
    const announced = { worker: this.name, slots, bundles: true };
    this.connection.publish("hocket.worker.announced", JSON.stringify(announced));
  }

  private describe(): void {
    for (const [type, node] of Object.entries(this.types)) {
      const { concurrency, version, description, timeoutMs: timeout_ms, input, output } = node;
      const described = { worker: this.name, type, concurrency, version, description, timeout_ms, input, output };
      this.connection.publish("hocket.worker.described", JSON.stringify(described));
    }
  }

  /** Return the manager of streams, once the platform has made the stream of steps. */
  private async manager(): Promise<JetStreamManager> {
    for (;;) {
      try {
        const manager = await jetstreamManager(this.connection);
        await manager.streams.info("STEPS");
        return manager;
      } catch (error) {
        console.error(`waiting for the stream STEPS: ${String(error)}`);
        await pause(AGAIN_MS);
      }
    }
  }

  /** Take the steps of one lane, as many as there are slots. */
  private async serve(manager: JetStreamManager, pool: Pool, lane: string): Promise<void> {
    const durable = `step-${pool.label}-${lane}`;
    while (!this.stopping) {
      if (pool.free === 0) {
        await pool.changed();
        continue;
      }
      try {
        await ensureConsumer(manager, pool, lane);
        const consumer = await this.js.consumers.get("STEPS", durable);
        const max_messages = Math.max(1, Math.floor(pool.free / LANES.length));
        const messages = await consumer.fetch({ max_messages, expires: FETCH_MS });
        this.fetching.add(messages);
        try {
          for await (const message of messages) this.start(pool, message);
        } finally {
          this.fetching.delete(messages);
        }
      } catch (error) {
        if (this.stopping) return;
        console.error(`no steps of ${durable}: ${String(error)}`);
        await pause(AGAIN_MS);
      }
    }
  }

  private start(pool: Pool, message: JsMsg): void {
    let steps: [StepRequested, ...StepRequested[]];
    try {
      steps = readSteps(message.data);
    } catch (error) {
      this.go(this.bury(message, "step_malformed", String(error)));
      return;
    }
    const isBundle = steps.length > 1;
    if (this.stopping && !isBundle) {
      message.nak();
      return;
    }
    const held = steps.map((step) => this.held.get(keyOf(step)));
    const before = held.find((one) => one !== undefined && (one.steps > 1 || !isBundle));
    if (before !== undefined && before.steps > 1 && !isBundle) {
      before.ended(); // it came in a bundle, and now alone: this message counts for it
      this.held.set(keyOf(steps[0]), new Arrival(message, 1));
    } else if (before !== undefined) {
      before.message = message; // the same one once more
    } else if (isBundle && (this.stopping || message.info.deliveryCount > 1)) {
      this.go(this.giveBack(steps, message));
    } else {
      const arrival = new Arrival(message, steps.length);
      // every lane asks for one step at least, and a bundle has several: those without a slot wait for one
      for (const step of steps) {
        pool.hold();
        this.held.set(keyOf(step), arrival);
        const took = isBundle && step === steps[0] ? steps.length : 0;
        this.go(this.take(pool, step, message.info.deliveryCount, took).finally(() => pool.letGo()));
      }
    }
  }

  /** Let something run to its end, and wait for it when the worker stops. */
  private go(work: Promise<void>): void {
    const running = work
      .catch((error: unknown) => console.error(`a step was left to others: ${String(error)}`))
      .finally(() => this.running.delete(running));
    this.running.add(running);
  }

  /** Run a step once a slot is free, post its result, and only then acknowledge it (5). */
  private async take(pool: Pool, step: StepRequested, delivery: number, took: number): Promise<void> {
    const key = keyOf(step);
    const beating = setInterval(() => this.held.get(key)?.message.working(), ACK_WAIT_MS / 3); // (4)
    let hasSlot = pool.take();
    try {
      while (!hasSlot && !this.stopping && !this.attempts.isCancelled(step)) {
        await pool.changed();
        hasSlot = pool.take();
      }
      if (!hasSlot && this.stopping) {
        await this.putBack(step);
        return;
      }
      const startedAtMs = Date.now();
      if (delivery > MAX_DELIVERIES) {
        const text = `the step was delivered ${delivery} times and never ended`;
        const error = { code: "step_undeliverable", message: text, error_class: "permanent" } as const;
        await this.post(step, { error }, delivery, startedAtMs, took);
        const arrival = this.held.get(key);
        if (arrival !== undefined) await this.bury(arrival.message, error.code, text);
        return;
      }
      const journal = new Journal(this.connection, pool.label, step, delivery, this.name);
      const outcome = await this.attempts.run(step, journal, pool.node.handler);
      await this.post(step, outcome, delivery, startedAtMs, took);
      this.held.get(key)?.ended();
    } catch (error) {
      if (!(error instanceof LeftBehind)) throw error; // its message is another worker's
    } finally {
      clearInterval(beating);
      this.held.delete(key);
      if (hasSlot) pool.release();
    }
  }

  /** Give back a step that has not begun. */
  private async putBack(step: StepRequested): Promise<void> {
    const arrival = this.held.get(keyOf(step));
    if (arrival?.steps === 1) {
      arrival.message.nak();
      return;
    }
    await this.handBack(step);
    arrival?.ended();
  }

  /** Give the steps of a bundle back: each comes again alone, unless it has ended. */
  private async giveBack(steps: StepRequested[], message: JsMsg): Promise<void> {
    for (const step of steps) await this.handBack(step);
    message.ack();
  }

  private async handBack(step: StepRequested): Promise<void> {
    await this.publish([`hocket.log.${step.partition}.returned`, JSON.stringify(identityOf(step))]);
  }

  /** Post a result until the stream has it: its id drops repeats. One that no message holds ends the attempt
   * with an error instead, and so does one that is not stored before a cancellation or the attempt's end.
   * Where that error is not stored either, the step is left to others. */
  private async post(
    step: StepRequested,
    outcome: Outcome,
    delivery: number,
    startedAtMs: number,
    took: number,
  ): Promise<void> {
    const times = { started_at_ms: startedAtMs, finished_at_ms: Date.now() };
    const told = took > 0 ? { took } : {};
    const result = { ...identityOf(step), worker: this.name, delivery, ...times, ...told };
    const subject = `hocket.log.${step.partition}.finished`;
    const id = { msgID: took > 0 ? `${resultId(step)}:took` : resultId(step) };
    try {
      const body = writeJson({ ...result, ...outcome });
      const size = Buffer.byteLength(body);
      if (size > MAX_RESULT_BYTES) throw tooLarge(`${size} bytes`);
      await this.publish([subject, body, id], () => this.attempts.over(step, startedAtMs));
    } catch (error) {
      if (!(error instanceof StepError)) throw error;
      const body = writeJson({ ...result, error: error.info() });
      const untilMs = Date.now() + UNSTORED_MS;
      await this.publish([subject, body, id], () => (Date.now() < untilMs ? undefined : error));
    }
  }

  /** Make a message that nobody can finish a dead letter (6). */
  private async bury(message: JsMsg, code: string, text: string): Promise<void> {
    const told = headers();
    told.set("Hocket-Dead-Subject", message.subject);
    const error_class = code === "step_malformed" ? "invalid" : "permanent";
    told.set("Hocket-Dead-Error", writeJson({ code, error_class, message: text.slice(0, 500) }));
    await this.publish(["hocket.dlq.step._unattributed", message.data, { headers: told }]);
    message.term();
  }

  /** Publish until the stream has it. Throws where that is in vain, or `over` says why it is to end. */
  private async publish(
    what: Parameters<JetStreamClient["publish"]>,
    over: () => StepError | undefined = () => undefined,
  ): Promise<void> {
    for (;;) {
      try {
        await this.js.publish(...what);
        return;
      } catch (error) {
        if (this.connection.isClosed()) throw error;
        if (isOfItsSize(error)) throw tooLarge(String(error));
        const ended = over();
        if (ended !== undefined) throw ended;
        console.error(`not stored, and sent again: ${String(error)}`);
        await pause(AGAIN_MS);
      }
    }
  }
}

/** What tells an attempt from all others. */
function keyOf({ run_id, step, attempt, dispatched_at_ms }: StepRequested): string {
  return JSON.stringify([run_id, step, attempt, dispatched_at_ms]);
}

/** Make the durable consumer of a lane, where it is not there. */
async function ensureConsumer(manager: JetStreamManager, pool: Pool, lane: string): Promise<void> {
  const durable_name = `step-${pool.label}-${lane}`;
  try {
    await manager.consumers.info("STEPS", durable_name);
  } catch {
    await manager.consumers.add("STEPS", {
      durable_name,
      ack_policy: AckPolicy.Explicit,
      ack_wait: nanos(ACK_WAIT_MS),
      deliver_policy: DeliverPolicy.All,
      replay_policy: ReplayPolicy.Instant,
      max_deliver: -1,
      max_ack_pending: 65_536,
      max_waiting: 8_192,
      filter_subject: `hocket.step.${pool.label}.${lane}`,
    });
  }
}

/** Tell whether a message can never be published, because it is too large for the server or the stream. */
function isOfItsSize(error: unknown): boolean {
  if (error instanceof JetStreamApiError) return error.code === TOO_LARGE_CODE;
  return error instanceof InvalidArgumentError && error.message.includes("max_payload");
}

function tooLarge(why: string): StepError {
  return new StepError("output_too_large", `the result does not fit into a message: ${why}`, "invalid");
}

interface Place {
  servers: string[];
  user?: string;
  pass?: string;
  token?: string;
}

/** Divide the URLs of servers, separated by commas, into what this client takes apart: the servers, and who
 * asks, as the first URL that says so has it. What it throws shows no password. */
function placeOf(text: string): Place {
  const parts = text.split(",").map((part) => part.trim());
  const urls = parts.filter((part) => part !== "").map(urlOf);
  if (urls.length === 0) throw new Error("NATS_URL names no server: write nats://USER:PASSWORD@HOST:PORT");
  const servers = urls.map((url) => url.host);
  const asking = urls.find((url) => url.username !== "");
  if (asking === undefined) return { servers };
  const [user, pass] = [decodeURIComponent(asking.username), decodeURIComponent(asking.password)];
  return pass ? { servers, user, pass } : { servers, token: user };
}

function urlOf(part: string, index: number): URL {
  try {
    const url = new URL(part.includes("://") ? part : `nats://${part}`);
    decodeURIComponent(url.username + url.password);
    if (url.host !== "") return url;
  } catch {
    // its error has all of the URL
  }
  const which = `server ${index + 1} of NATS_URL`;
  throw new Error(`${which} is no URL: write nats://USER:PASSWORD@HOST:PORT, several separated by commas`);
}

async function pause(ms: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, ms));
}
