/** The type that `hocket conformance worker` asks for. */

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import type { Context } from "./attempts.js";
import { type Json, StepError } from "./messages.js";
import { Worker } from "./worker.js";

interface Task {
  do: string;
  value?: Json;
  ms?: number;
  message?: string;
  chars?: number;
  signal?: string;
  node?: string;
  input?: Json;
  count?: number;
}

async function work(task: Task, { step, signal, durable }: Context): Promise<Json> {
  switch (task.do) {
    case "echo":
      return task.value ?? null;
    case "sleep":
      await sleep(task.ms ?? 0, undefined, { signal });
      return task.value ?? null;
    case "fail":
      throw new Error(task.message);
    case "length":
      return [...String(task.value)].length;
    case "large":
      return { text: "y".repeat(task.chars ?? 0) };
    case "journaled": {
      const made = await durable.once("made", () => randomUUID());
      await sleep(task.ms ?? 0, undefined, { signal });
      await durable.once("second", () => null);
      if (step.attempt === 1) throw new StepError("attempt_failed", "attempt 1 is told to fail");
      return made;
    }
    case "waits": {
      const made = await durable.once("made", () => randomUUID());
      return [made, await durable.waitForSignal(task.signal ?? "")];
    }
    case "calls": {
      const made = await durable.once("made", () => randomUUID());
      return [made, await durable.callNode(task.node ?? "", task.input ?? null)];
    }
    case "beside": {
      const [charged, slow] = await Promise.allSettled([
        durable.once("charge", () => {
          if (step.attempt === 1) throw new StepError("attempt_failed", "attempt 1 is told to fail");
          return "charged";
        }),
        durable.once("slow", async () => {
          await sleep(task.ms ?? 0, undefined, { signal });
          return randomUUID();
        }),
      ]);
      if (charged.status === "rejected") throw charged.reason;
      if (slow.status === "rejected") throw slow.reason;
      return [charged.value, slow.value];
    }
    case "call-many": {
      const text = "x".repeat(task.chars ?? 0);
      const numbers = Array.from({ length: task.count ?? 0 }, (_, number) => number);
      return Promise.all(numbers.map((number) => durable.callNode(task.node ?? "", { number, text })));
    }
    default:
      throw new StepError("invalid_input", `\`input.do\` is \`${task.do}\``, "invalid");
  }
}

await new Worker({
  "conformance.step": {
    concurrency: 4,
    handler: (input, context) => work(input as unknown as Task, context),
  },
}).run();
