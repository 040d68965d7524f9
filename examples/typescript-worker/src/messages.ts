/** The messages of the protocol that this worker reads and writes, as far as it needs their fields. */

import { createHash } from "node:crypto";

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** Cut off at the fields that a worker uses: a reader ignores what it does not know. */
export interface StepRequested {
  run_id: string;
  tenant: string;
  step: string;
  type: string;
  attempt: number;
  input: Json;
  config: { [name: string]: Json };
  deadline_at_ms: number;
  run_deadline_at_ms?: number | null;
  start_by_at_ms?: number | null;
  timeout_ms: number;
  partition: number;
  dispatched_at_ms?: number | null;
  capability?: string | null;
  journal?: boolean;
  suspends?: boolean;
  calls?: string[];
  resumption?: Resumption | null;
}

/** What a suspended step goes on with. */
export interface Resumption {
  ended?: WaitEnded[];
  waits?: HandlerWait[];
}

/** A place in the journal: what a handler asks for there, it asks for in every attempt. */
export interface Place {
  scope: string;
  ordinal: number;
}

/** What a handler waits for: a signal, or a node that it calls. */
export interface HandlerWait extends Place {
  signal?: string | null;
  call?: NodeCall | null;
}

export interface NodeCall {
  name: string;
  digest: string;
  input?: Json;
  number?: number;
}

/** What came of a wait. */
export interface WaitEnded extends HandlerWait {
  payload?: Json;
  output?: Json;
  error?: ErrorInfo | null;
}

export interface ErrorInfo {
  code: string;
  message: string;
  error_class: ErrorClass;
  retryable?: boolean;
}

export type ErrorClass =
  | "transient"
  | "timeout"
  | "rate_limited"
  | "unavailable"
  | "invalid"
  | "budget"
  | "permanent"
  | "cancelled";

/** Without `step` it concerns every step of the run, without `attempt` every attempt of the step. */
export interface StepCancelled {
  run_id: string;
  step?: string | null;
  attempt?: number | null;
  reason?: string;
  capability_sha256?: string | null;
}

/** A step that ended: `output` or `error`; or one whose handler waits. */
export type Outcome =
  | { output: Json }
  | { error: ErrorInfo }
  | { error: ErrorInfo; waits: HandlerWait[]; journaled: Place[] };

const MAX_MESSAGE_CHARS = 2_000; // an error must fit into a message

/** What a handler throws to say how its step failed. Anything else that it throws is permanent. A node with
 * `retry` is tried again after the classes and codes that it names there; one without it only after the code
 * `retryable`, in the class `transient`. `retryable: true` alone changes nothing of that. */
export class StepError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly errorClass: ErrorClass = "permanent",
    readonly retryable = false,
  ) {
    super(message);
  }

  /** Return what an error that was told was. */
  static of({ code, message, error_class, retryable }: ErrorInfo): StepError {
    return new StepError(code, message, error_class, retryable);
  }

  info(): ErrorInfo {
    const { code, errorClass: error_class, retryable } = this;
    return { code, message: this.message.slice(0, MAX_MESSAGE_CHARS), error_class, retryable };
  }
}

/** What a handler threw, as its step's error. */
export function told(error: unknown): StepError {
  if (error instanceof StepError) return error;
  const message = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  return new StepError("handler_failed", message);
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Read JSON in UTF-8, or throw. */
export function readJson(data: Uint8Array): Json {
  return JSON.parse(utf8.decode(data)) as Json;
}

const HALF_A_PAIR = /(?<!\\)((?:\\\\)*)\\ud[89a-f][0-9a-f]{2}/g;

/** Write JSON. Halves of surrogate pairs, which `slice` leaves of an emoji, become U+FFFD: nobody reads a
 * message that has one. */
export function writeJson(value: unknown): string {
  return JSON.stringify(value).replace(HALF_A_PAIR, "$1\\ufffd");
}

/** Read the steps of a message, one or a bundle, or throw an error that names the field. */
export function readSteps(data: Uint8Array): [StepRequested, ...StepRequested[]] {
  const first = objectOf(readJson(data), "the body");
  const more = first["more"] ?? [];
  if (!Array.isArray(more)) throw new TypeError("`more` is no list");
  return [readStep(first), ...more.map(readStep)];
}

function readStep(body: Json): StepRequested {
  const step = objectOf(body, "a step");
  for (const name of ["run_id", "tenant", "step", "type"]) {
    if (typeof step[name] !== "string") throw new TypeError(`\`${name}\` is no text`);
  }
  for (const name of ["attempt", "deadline_at_ms", "timeout_ms", "partition"]) {
    if (typeof step[name] !== "number") throw new TypeError(`\`${name}\` is no number`);
  }
  for (const name of ["run_deadline_at_ms", "start_by_at_ms", "dispatched_at_ms"]) {
    if (step[name] != null && typeof step[name] !== "number") {
      throw new TypeError(`\`${name}\` is no number`);
    }
  }
  if (step["capability"] != null && typeof step["capability"] !== "string") {
    throw new TypeError("`capability` is no text");
  }
  if (step["input"] === undefined) throw new TypeError("`input` is missing");
  objectOf(step["config"], "`config`");
  return step as unknown as StepRequested;
}

/** Read a cancellation; undefined where it is none. */
export function readCancelled(data: Uint8Array): StepCancelled | undefined {
  try {
    const cancelled = objectOf(readJson(data), "the body");
    return typeof cancelled["run_id"] === "string"
      ? (cancelled as unknown as StepCancelled)
      : undefined;
  } catch {
    return undefined; // anybody can publish there
  }
}

/** What a result and what is given back have from their step. */
export function identityOf({ run_id, step, attempt, dispatched_at_ms, capability }: StepRequested) {
  return { run_id, step, attempt, dispatched_at_ms, capability };
}

/** The `Nats-Msg-Id` of a result, by which the stream drops repeats. */
export function resultId(step: StepRequested): string {
  const parts = [step.run_id, step.step, String(step.attempt)];
  if (step.dispatched_at_ms != null) parts.push(roundHalfToEven(step.dispatched_at_ms * 1_000));
  parts.push("f");
  if (step.capability != null) parts.push(step.capability);
  return parts.join(":");
}

function roundHalfToEven(value: number): string {
  const floor = Math.floor(value);
  const isHalf = value - floor === 0.5;
  return String(isHalf ? floor + (floor % 2) : Math.round(value));
}

function objectOf(value: Json | undefined, what: string): { [name: string]: Json } {
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    throw new TypeError(`${what} is no object`);
  }
  return value;
}

/** A digest of a value, whatever the order of its fields. */
export function digestOf(value: Json): string {
  return createHash("sha256").update(writeJson(sorted(value))).digest("hex").slice(0, 32);
}

function sorted(value: Json): Json {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  const names = Object.keys(value).sort();
  return Object.fromEntries(names.map((name) => [name, sorted(value[name] ?? null)]));
}
