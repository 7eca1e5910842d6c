// The TypeScript SDK's client against `twofold mcp`: lists and calls, prints what it got as JSON.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

let input = "";
for await (const chunk of process.stdin) input += chunk;
const { server, steps } = JSON.parse(input);
const transport = server.url
  ? new StreamableHTTPClientTransport(new URL(server.url))
  : new StdioClientTransport(server);
const client = new Client({ name: "twofold-tests", version: "1" });
await client.connect(transport);

const results = [];
const filled = (value) => {
  if (Array.isArray(value)) return value.map(filled);
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, filled(v)]));
  if (typeof value !== "string") return value;
  const path = (text) => text.split(".").slice(1).reduce((at, part) => at[part], results[parseInt(text, 10)]);
  if (value.startsWith("$")) return path(value.slice(1));
  return value.replace(/\{\$([^}]*)\}/g, (_, inner) => path(inner));
};
const out = {
  info: client.getServerVersion(),
  tools: (await client.listTools()).tools,
  resources: (await client.listResources()).resources,
  templates: (await client.listResourceTemplates()).resourceTemplates,
  prompts: (await client.listPrompts()).prompts,
  results,
};
for (const [method, name, args] of steps) {
  try {
    if (method === "call") results.push(await client.callTool({ name, arguments: filled(args) }));
    else if (method === "read") results.push(await client.readResource({ uri: filled(name) }));
    else if (method === "prompt") results.push(await client.getPrompt({ name, arguments: args }));
    else results.push(await client.complete({ ref: { type: "ref/prompt", name }, argument: args }));
  } catch (error) {
    results.push({ protocolError: error.message, code: error.code });
  }
}
await client.close();
console.log(JSON.stringify(out));
