// Holds one conversation with a server through an official TypeScript client, and prints what it saw as JSON.
//
//   node talk.mjs {"sdk": "1" | "2", "era": "legacy" | "modern", "url": "..."} or {..., "command": ["...", ...]}

const { sdk, era, url, command } = JSON.parse(process.argv[2]);
const LIMIT = 20_000;
const URI = "config://app";
const ANSWERS = { "Your name?": { name: "Ada" }, "Your age?": { age: 36 } };

const library = await load();
const seen = { asked: [], logged: [], errors: [] };
const listed = waiting();
const updated = waiting();

async function load() {
  if (sdk === "2") {
    const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
    return { ...(await import("@modelcontextprotocol/client")), StdioClientTransport };
  }
  const base = "@modelcontextprotocol/sdk";
  const { Client } = await import(`${base}/client/index.js`);
  const { StdioClientTransport } = await import(`${base}/client/stdio.js`);
  const { StreamableHTTPClientTransport } = await import(`${base}/client/streamableHttp.js`);
  return { Client, StdioClientTransport, StreamableHTTPClientTransport, types: await import(`${base}/types.js`) };
}

// What the two libraries spell differently.

function onRequest(client, method, schema, handler) {
  client.setRequestHandler(sdk === "2" ? method : library.types[schema], handler);
}

function onNotification(client, method, schema, handler) {
  client.setNotificationHandler(sdk === "2" ? method : library.types[schema], handler);
}

function call(client, name, args = {}, options = {}) {
  const params = { name, arguments: args };
  return sdk === "2" ? client.callTool(params, options) : client.callTool(params, undefined, options);
}

// Waiting.

function waiting() {
  const items = [];
  let wake = () => {};
  return {
    put(item) {
      items.push(item);
      wake();
    },
    async until(found) {
      while (!items.some(found)) {
        await bounded(new Promise((resolve) => (wake = resolve)));
      }
      return items.find(found);
    },
  };
}

function bounded(promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing within ${LIMIT} ms`)), LIMIT);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function step(name, work) {
  try {
    seen[name] = await bounded(work());
  } catch (error) {
    seen[name] = { threw: error.message, code: error.code, data: error.data };
  }
}

// The conversation.

function made(capabilities, options = {}) {
  const mode = era === "modern" ? { pin: "2026-07-28" } : "legacy";
  const client = new library.Client(
    { name: "talk", version: "1" },
    { capabilities, ...(sdk === "2" ? { versionNegotiation: { mode } } : {}), ...options },
  );
  client.onerror = (error) => seen.errors.push(String(error));
  return client;
}

async function connected(client) {
  const transport = url
    ? new library.StreamableHTTPClientTransport(new URL(url))
    : new library.StdioClientTransport({ command: command[0], args: command.slice(1), stderr: "ignore" });
  if (sdk === "1") {
    // Only the transport is told.
    const tell = transport.setProtocolVersion?.bind(transport) ?? (() => {});
    transport.setProtocolVersion = (version) => tell((seen.version = version));
  }
  await bounded(client.connect(transport));
  if (sdk === "2") {
    seen.version = client.getNegotiatedProtocolVersion();
  }
}

async function names(client) {
  const found = [];
  let cursor;
  let pages = 0;
  do {
    const page = await client.listTools(cursor === undefined ? undefined : { cursor });
    found.push(...page.tools.map((tool) => tool.name));
    cursor = page.nextCursor;
    pages += 1;
  } while (cursor !== undefined);
  return { pages, found };
}

const client = made(
  { elicitation: { form: {} } },
  { listChanged: { tools: { debounceMs: 0, onChanged: (error, tools) => listed.put({ error, tools }) } } },
);
onRequest(client, "elicitation/create", "ElicitRequestSchema", ({ params }) => {
  seen.asked.push(params.message);
  return { action: "accept", content: ANSWERS[params.message] };
});
onNotification(client, "notifications/message", "LoggingMessageNotificationSchema", ({ params }) => {
  seen.logged.push([params.level, params.data]);
});
onNotification(client, "notifications/resources/updated", "ResourceUpdatedNotificationSchema", ({ params }) => {
  updated.put(params.uri);
});
await connected(client);
seen.server = client.getServerVersion();

await step("list", () => names(client));
await step("call", () => call(client, "add", { a: 15, b: 27 }));
await step("structured", () => call(client, "stock", { item: "tea" }));
await step("fail", () => call(client, "fail"));
await step("wrong", () => call(client, "add", { a: "x" }));
await step("unknown", () => call(client, "ad"));
await step("paging", async () => {
  await call(client, "crowd", { size: 2500 });
  const { found } = await names(client);
  await call(client, "crowd", { size: 0 });
  return { all: found.length, different: new Set(found).size };
});
await step("changed", async () => {
  await call(client, "grow", { name: "grown" });
  await listed.until(({ tools }) => tools?.some((tool) => tool.name === "grown"));
  const answer = await call(client, "grown");
  await call(client, "shrink", { name: "grown" });
  return answer;
});
await step("progress", async () => {
  const steps = [];
  // The clients answer a call before they pass on progress that they read in the same moment; so not all at once.
  const onprogress = (each) => steps.push(each);
  const answer = await call(client, "steps", { upto: 3, pause: 0.05 }, { onprogress });
  return { steps, answer };
});
for (const tool of ["hang", "busy"]) {
  await step(`cancel ${tool}`, async () => {
    const mark = `${tool} ${sdk} ${era}`;
    const abort = new AbortController();
    const options = { signal: abort.signal, onprogress: () => abort.abort("enough") };
    const outcome = await call(client, tool, { mark }, options).then(
      () => "answered",
      () => "gave up",
    );
    return { outcome, answer: await call(client, "cancelled", { mark }) };
  });
}
await step("time-out", async () => {
  const mark = `late ${sdk} ${era}`;
  const outcome = await call(client, "hang", { mark }, { timeout: 300 }).then(
    () => "answered",
    () => "gave up",
  );
  return { outcome, answer: await call(client, "cancelled", { mark }) };
});
await step("ask twice", () => call(client, "ask_twice"));
await step("ask together", () => call(client, "ask_together"));
await step("pay", () => call(client, "pay"));
await step("log", async () => {
  if (era === "legacy") {
    await client.setLoggingLevel("info");
  }
  const params = { name: "chat", arguments: {} };
  if (era === "modern") {
    params._meta = { "io.modelcontextprotocol/logLevel": "info" };
  }
  return client.callTool(params);
});
await step("updated", async () => {
  if (era === "legacy") {
    await client.subscribeResource({ uri: URI });
  } else {
    await client.listen({ resourceSubscriptions: [URI] });
  }
  await call(client, "touch", { uri: URI });
  return updated.until((uri) => uri === URI);
});
await step("resources", () => client.listResources());
await step("templates", () => client.listResourceTemplates());
await step("read", () => client.readResource({ uri: "users://ada/notes" }));
await step("prompts", () => client.listPrompts());
await step("prompt", () => client.getPrompt({ name: "review", arguments: { code: "x" } }));
await step("complete", () =>
  client.complete({ ref: { type: "ref/prompt", name: "review" }, argument: { name: "language", value: "E" } }),
);
await step("mute", async () => {
  const mute = made({});
  await connected(mute);
  try {
    return await call(mute, "greet");
  } finally {
    await mute.close();
  }
});
await step("close", async () => {
  await client.close();
  return "closed";
});
process.stdout.write(JSON.stringify(seen));
