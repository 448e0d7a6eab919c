// Drives the TypeScript SDK as drive.py drives the Python ones: one process, one case, the peer in place of the CLI.

import { readFileSync } from "node:fs";

const given = JSON.parse(process.argv[2]);

// The clock starts before the import, so that the import is timed too.
const begun = process.hrtime.bigint();
const sdk = given.import === "nothing" ? null : await import("@anthropic-ai/claude-agent-sdk");
const servers = given.tools === "typed" ? await makeTyped() : {};
const took = Number(process.hrtime.bigint() - begun);

async function makeTyped() {
  const { z } = await import("zod");
  const add = sdk.tool("add", "Add two numbers.", { a: z.number(), b: z.number() }, async ({ a, b }) => ({
    content: [{ type: "text", text: (a + b).toFixed(1) }],
  }));
  return { calc: sdk.createSdkMcpServer({ name: "calc", tools: [add] }) };
}

function readMemory(key) {
  return Number(readFileSync("/proc/self/status", "utf8").match(new RegExp(`${key}:\\s+(\\d+)`))[1]);
}

function countCharacters(message) {
  if (message === null) return 0;
  if (message.event) return message.event.delta.text.length;
  return message.message.content.reduce((sum, block) => sum + block.text.length, 0);
}

async function converse() {
  const options = {
    pathToClaudeCodeExecutable: given.peer,
    mcpServers: servers,
    includePartialMessages: given.partial === true,
    env: process.env,
  };
  let [count, last, cpu, latest] = [0, 0n, 0, null];
  for await (const message of sdk.query({ prompt: "go", options })) {
    if (message.type !== "result") {
      count += 1;
      last = process.hrtime.bigint();
      latest = message;
    } else if (!message.is_error) {
      const used = process.cpuUsage();
      cpu = (used.user + used.system) * 1000;
    }
  }
  if (!cpu) throw new Error(`no successful result arrived, after ${count} messages`);
  return { messages: count, last: Number(last), cpu, size: countCharacters(latest) };
}

const seen = given.peer ? await converse() : {};
process.stdout.write(JSON.stringify({ ...seen, took, rss: readMemory("VmRSS"), peak: readMemory("VmHWM") }));
process.exit(0);
