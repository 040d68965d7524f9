/** One attempt of a step: within its time, until it is cancelled. */

import { createHash } from "node:crypto";

import type { Blobs } from "./blobs.js";
import { Durable, Suspended } from "./durable.js";
import { type Journal, LeftBehind } from "./journal.js";
import {
  type Json,
  type Outcome,
  type StepCancelled,
  StepError,
  type StepRequested,
  told,
} from "./messages.js";

const REMEMBERED_MS = 120_000;
const MAX_REMEMBERED = 10_000;

/** What a handler is told. `signal` says when it is to stop, `durable` does things once for the step. */
export interface Context {
  step: StepRequested;
  attemptId: string;
  signal: AbortSignal;
  durable: Durable;
}

export type Handler = (input: Json, context: Context) => Promise<Json> | Json;

/** Attempts that run now, and the cancellations of the last two minutes. */
export class Attempts {
  private readonly running = new Set<{ step: StepRequested; abort: AbortController }>();
  private readonly heard: { cancelled: StepCancelled; atMs: number }[] = [];

  constructor(private readonly blobs: Blobs) {}

  /** Run a step to its end; nothing that a handler does throws here. Throws LeftBehind where another worker
   * has its journal. */
  async run(step: StepRequested, journal: Journal, handler: Handler): Promise<Outcome> {
    const abort = new AbortController();
    const attempt = { step, abort };
    let timer: NodeJS.Timeout | undefined;
    try {
      const leftMs = timeLeft(step);
      this.forgetOld();
      if (this.isCancelled(step)) throw cancelledError();
      this.running.add(attempt);
      const late = lateError();
      const ended = new Promise<never>((_, reject) => {
        abort.signal.addEventListener("abort", () => {
          const reason = abort.signal.reason as Error;
          if (reason === late) journal.end("late");
          if (reason instanceof Suspended) journal.end("elsewhere");
          reject(reason);
        });
      });
      timer = setTimeout(() => abort.abort(late), leftMs);
      // a handler that does not listen to its signal keeps nobody waiting
      const durable = new Durable(step, journal, this.blobs, (how) => abort.abort(how));
      const handled = this.handled(step, handler, abort.signal, durable);
      handled.catch(() => {
        if (!abort.signal.aborted) journal.end("late"); // what ran beside it may go on
      });
      const output = await Promise.race([handled, ended]);
      if (journal.isLost) throw new LeftBehind();
      return { output };
    } catch (error) {
      if (error instanceof LeftBehind || journal.isLost) throw new LeftBehind();
      if (error instanceof Suspended) return error.outcome;
      return { error: told(error).info() };
    } finally {
      clearTimeout(timer);
      this.running.delete(attempt);
    }
  }

  /** Tell whether a step was cancelled. */
  isCancelled(step: StepRequested): boolean {
    return this.heard.some(({ cancelled }) => concerns(cancelled, step));
  }

  /** Return why nobody waits for an attempt any longer: it was cancelled, or its time is over. */
  over(step: StepRequested, startedAtMs: number): StepError | undefined {
    if (this.isCancelled(step)) return cancelledError();
    const endMs = Math.min(startedAtMs + step.timeout_ms, step.run_deadline_at_ms ?? step.deadline_at_ms);
    return Date.now() < endMs ? undefined : lateError();
  }

  /** Stop the attempts that a cancellation names, and remember it for those that come later. */
  cancel(cancelled: StepCancelled): void {
    this.forgetOld();
    this.heard.push({ cancelled, atMs: Date.now() });
    for (const { step, abort } of this.running) {
      if (concerns(cancelled, step)) abort.abort(cancelledError());
    }
  }

  private async handled(
    step: StepRequested,
    handler: Handler,
    signal: AbortSignal,
    durable: Durable,
  ): Promise<Json> {
    const input = await this.blobs.resolved(step.tenant, step.input);
    const attemptId = `${step.run_id}:${step.step}:${step.attempt}`;
    const output = await handler(input, { step, attemptId, signal, durable });
    return this.blobs.lightened(step.tenant, output ?? null);
  }

  private forgetOld(): void {
    const sinceMs = Date.now() - REMEMBERED_MS;
    while (this.heard.length > MAX_REMEMBERED || (this.heard[0]?.atMs ?? Infinity) < sinceMs) {
      this.heard.shift();
    }
  }
}

/** Return the time that an attempt has, or throw where it has none any more. */
function timeLeft(step: StepRequested): number {
  const nowMs = Date.now();
  const endMs = step.run_deadline_at_ms ?? step.deadline_at_ms;
  if (nowMs >= endMs) {
    throw new StepError("deadline_passed", "the step came after its run's deadline", "timeout");
  }
  if (step.start_by_at_ms != null && nowMs >= step.start_by_at_ms) {
    throw new StepError("held_too_long", "the step came too late to be begun", "timeout");
  }
  return Math.min(step.timeout_ms, endMs - nowMs, 2 ** 31 - 1);
}

function concerns(cancelled: StepCancelled, step: StepRequested): boolean {
  return (
    cancelled.run_id === step.run_id &&
    (cancelled.step ?? step.step) === step.step &&
    (cancelled.attempt ?? step.attempt) === step.attempt &&
    (cancelled.capability_sha256 ?? null) === shown(step.capability ?? null)
  );
}

/** What a cancellation shows of an attempt's capability. */
function shown(capability: string | null): string | null {
  return capability === null ? null : createHash("sha256").update(capability).digest("hex");
}

function lateError(): StepError {
  return new StepError("attempt_timeout", "the attempt took too long", "timeout");
}

function cancelledError(): StepError {
  return new StepError("attempt_cancelled", "the attempt was cancelled", "cancelled");
}
