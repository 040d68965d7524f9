/** The type that `hocket conformance worker` asks for. */

import { setTimeout as sleep } from "node:timers/promises";

import { type Json, StepError } from "./messages.js";
import { Worker } from "./worker.js";

interface Task {
  do: string;
  value?: Json;
  ms?: number;
  message?: string;
  chars?: number;
}

async function work(task: Task, signal: AbortSignal): Promise<Json> {
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
    default:
      throw new StepError("invalid_input", `\`input.do\` is \`${task.do}\``, "invalid");
  }
}

await new Worker({
  "conformance.step": {
    concurrency: 4,
    handler: (input, context) => work(input as unknown as Task, context.signal),
  },
}).run();
