/** A node type of one's own: `crm.lookup`. */

import { StepError } from "./messages.js";
import { Worker } from "./worker.js";

const worker = new Worker({
  "crm.lookup": {
    version: "1",
    description: "Find the person behind a lead.",
    concurrency: 8,
    timeoutMs: 2_000,
    input: {
      type: "object",
      required: ["email"],
      properties: { email: { type: "string" } },
    },
    handler: (input, { step }) => {
      const email = (input as { email?: unknown } | null)?.email;
      if (typeof email !== "string" || !email.includes("@")) {
        throw new StepError("invalid_input", "`input.email` is no address", "invalid");
      }
      return { name: email.slice(0, email.indexOf("@")), region: step.config["region"] ?? "eu" };
    },
  },
});

await worker.run();
