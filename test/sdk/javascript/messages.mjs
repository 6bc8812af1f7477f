// What a user of the official Anthropic SDK for JavaScript does with a gateway that runs code: the scenarios of ../python/messages.py, in the
// same order. See there for what the stub does.
//
// usage: node messages.mjs [NAME ...]

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import Anthropic, { toFile } from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";

const client = new Anthropic({ maxRetries: 0, timeout: 180_000 });
const PYTHON = { type: "code_execution_20250522", name: "code_execution" };
const TOOLS = { type: "code_execution_20260120", name: "code_execution" };
const WEATHER = { name: "weather", input_schema: { type: "object", properties: { city: { type: "string" } } } };
const MADE = Buffer.from(Array.from({ length: 256 * 40 }, (_, i) => i % 256));

function prompt(blocks = [], { text = "Please compute.", answer, args } = {}) {
  const lines = [text];
  for (const b of [blocks].flat()) {
    const [lang, code] = typeof b === "string" ? ["python", b] : [b.lang, b.code];
    lines.push("```" + lang + "\n" + code.trim() + "\n```");
  }
  if (args) lines.push(`args: ${args}`);
  if (answer) lines.push(`answer: ${answer}`);
  return lines.join("\n");
}

const user = (content) => ({ role: "user", content });
const body = (messages, params) => ({
  model: "stub",
  max_tokens: 2000,
  messages: Array.isArray(messages) ? messages : [user(messages)],
  ...params,
});
const ask = (messages, params = {}, api = client) => api.messages.create(body(messages, params));
const stream = (messages, params = {}, api = client) => api.messages.stream(body(messages, params)).finalMessage();
const text = (m) => m.content.filter((b) => b.type === "text").map((b) => b.text).join("");
const only = (m, type) => m.content.filter((b) => b.type === type);
const bytes = async (response) => Buffer.from(await response.arrayBuffer());

// A skill's files in each form in which people send them: as they are, in their folder, as an archive.
async function skillUploads() {
  const names = ["SKILL.md", "scripts/stamp.py"];
  const files = (prefix) => Promise.all(names.map(async (n) => toFile(await readFile(`${process.env.SKILL_FOLDER}/${n}`), prefix + n)));
  const zip = await toFile(await readFile(process.env.SKILL_ZIP), "stamp.zip", { type: "application/zip" });
  return [await files(""), await files("stamp/"), [zip]];
}

async function fails(kind, promise, part = "") {
  try {
    await promise;
  } catch (e) {
    assert(e instanceof kind, `${e.constructor.name}: ${e.message}`);
    assert(e.message.includes(part), e.message);
    assert.equal(e.error.type, "error");
    assert.equal(e.requestID, e.error.request_id);
    return;
  }
  assert.fail(`no ${kind.name}`);
}

const scenarios = {
  async plain() {
    const m = await ask("hi", { model: "stub-text" });
    assert.deepEqual([text(m), m.stop_reason, m.role, m.model], ["Hello from the stub.", "end_turn", "assistant", "stub-text"]);
    assert(m.usage.input_tokens > 0 && m.usage.output_tokens > 0 && m._request_id.startsWith("req_"));
    assert.equal(text(await ask("hi", { model: "stub-text" }, client.beta)), "Hello from the stub.");
  },

  async streamed() {
    for (const api of [client, client.beta]) {
      const m = await stream("hi", { model: "stub-text" }, api);
      assert.deepEqual([text(m), m.stop_reason], ["Hello from the stub.", "end_turn"]);
    }
    const kinds = [];
    for await (const ev of await ask("hi", { model: "stub-text", stream: true })) kinds.push(ev.type);
    assert.deepEqual([kinds[0], ...kinds.slice(-2)], ["message_start", "message_delta", "message_stop"]);
  },

  async code_two_turns() {
    for (const go of [ask, stream]) {
      const said = [user(prompt("x = 41\nprint(x)", { answer: "It is {result}" }))];
      const m = await go(said, { tools: [PYTHON] });
      assert.deepEqual(m.content.map((b) => b.type), ["text", "server_tool_use", "code_execution_tool_result", "text"]);
      const [result] = only(m, "code_execution_tool_result");
      assert.deepEqual([result.content.stdout, result.content.return_code], ["41\n", 0]);
      assert.equal(result.tool_use_id, only(m, "server_tool_use")[0].id);
      assert(m.container.id.startsWith("cntr_") && Date.parse(m.container.expires_at) > Date.now(), JSON.stringify(m.container));
      said.push({ role: "assistant", content: m.content }, user(prompt("print(x + 1)", { answer: "Now {result}" })));
      const again = await go(said, { tools: [PYTHON], container: m.container.id });
      assert(text(again).endsWith("Now 42"), text(again));
      assert.equal(again.container.id, m.container.id);
    }
  },

  async bash_and_editor() {
    const blocks = [
      { lang: "edit", code: '{"command": "create", "path": "/mnt/data/a.txt", "file_text": "one\\ntwo\\n"}' },
      { lang: "edit", code: '{"command": "str_replace", "path": "/mnt/data/a.txt", "old_str": "two", "new_str": "drei"}' },
      { lang: "edit", code: '{"command": "view", "path": "/mnt/data/a.txt"}' },
      { lang: "bash", code: "cat /mnt/data/a.txt; exit 3" },
      "print(6 * 7)",
    ];
    for (const api of [client, client.beta]) {
      const m = await stream(prompt(blocks, { answer: "{result}" }), { tools: [TOOLS] }, api);
      const [create, replace, view] = only(m, "text_editor_code_execution_tool_result").map((b) => b.content);
      assert.equal(create.is_file_update, false);
      assert.deepEqual(replace.lines, [" one", "-two", "+drei"]);
      assert.deepEqual([view.content.trim(), view.file_type, view.total_lines], ["one\ndrei", "text", 2]);
      const [bash] = only(m, "bash_code_execution_tool_result");
      assert.deepEqual([bash.content.stdout, bash.content.return_code], ["one\ndrei\n", 3]);
      assert.equal(only(m, "code_execution_tool_result")[0].content.stdout, "42\n");
    }
  },

  async failure_is_data() {
    const m = await ask(prompt("1 / 0", { answer: "It failed." }), { tools: [PYTHON] });
    const [{ content }] = only(m, "code_execution_tool_result");
    assert(content.return_code !== 0 && content.stderr.includes("ZeroDivisionError"), JSON.stringify(content));
    assert.equal(m.stop_reason, "end_turn");
  },

  async made_file() {
    const code = "import os\nopen(os.path.join(os.environ['OUTPUT_DIR'], 'made.bin'), 'wb').write(bytes(range(256)) * 40)";
    const m = await ask(prompt(code, { answer: "done" }), { tools: [PYTHON] });
    const [made] = only(m, "code_execution_tool_result")[0].content.content;
    const meta = await client.files.retrieveMetadata(made.file_id);
    assert.deepEqual([meta.filename, meta.size_bytes, meta.downloadable], ["made.bin", MADE.length, true]);
    assert((await bytes(await client.files.download(made.file_id))).equals(MADE), "other bytes");
    assert((await bytes(await client.beta.files.download(made.file_id))).equals(MADE), "other bytes in beta");
  },

  async uploads() {
    const up = await client.files.upload({ file: await toFile(Buffer.from("a,b\n1,2\n"), "data.csv", { type: "text/csv" }) });
    assert.deepEqual([up.filename, up.mime_type, up.size_bytes, up.downloadable], ["data.csv", "text/csv", 8, false]);
    const code = "import os\nprint(open(os.path.join(os.environ['INPUT_DIR'], 'data.csv')).read().split()[1])";
    const content = [{ type: "container_upload", file_id: up.id }, { type: "text", text: prompt(code, { answer: "row {result}" }) }];
    assert(text(await ask([user(content)], { tools: [PYTHON] })).endsWith("row 1,2"));
    await fails(Anthropic.BadRequestError, client.files.download(up.id), "not downloadable");
    const seen = [];
    for await (const f of client.files.list()) seen.push(f.id);
    assert(seen.includes(up.id), "not in the list");
    const older = await client.beta.files.list({ betas: ["files-api-2025-04-14"] });
    assert(older.data.some((f) => f.id === up.id), "not in the older list");
    assert.equal((await client.files.delete(up.id)).type, "file_deleted");
    await fails(Anthropic.NotFoundError, client.files.retrieveMetadata(up.id), "not found");
    const document = [{ type: "document", source: { type: "file", file_id: up.id } }, { type: "text", text: "hi" }];
    await fails(Anthropic.NotFoundError, ask([user(document)]), up.id);
  },

  async client_tool() {
    for (const go of [ask, stream]) {
      const said = [user(prompt([], { args: '{"city": "Oslo"}', answer: "It is {result}" }))];
      const m = await go(said, { model: "stub-client_tool", tools: [WEATHER] });
      const [call] = only(m, "tool_use");
      assert.deepEqual([call.name, call.input, m.stop_reason], ["weather", { city: "Oslo" }, "tool_use"]);
      said.push({ role: "assistant", content: m.content }, user([{ type: "tool_result", tool_use_id: call.id, content: "sunny" }]));
      assert.equal(text(await go(said, { model: "stub-client_tool", tools: [WEATHER] })), "It is sunny");
    }
  },

  async mixed() {
    const said = [user(prompt("print(41)", { args: '{"city": "Oslo"}', answer: "Both: {result}" }))];
    const m = await stream(said, { model: "stub-mixed", tools: [PYTHON, WEATHER] });
    assert.deepEqual(m.content.map((b) => b.type), ["server_tool_use", "code_execution_tool_result", "tool_use"]);
    assert(m.container.id, "no container though the turn goes on");
    said.push({ role: "assistant", content: m.content }, user([{ type: "tool_result", tool_use_id: m.content[2].id, content: "sunny" }]));
    const end = await ask(said, { model: "stub-mixed", tools: [PYTHON, WEATHER], container: m.container.id });
    assert.equal(text(end), "Both: sunny");
  },

  async tool_runner() {
    const asked = [];
    const weather = betaTool({
      name: "weather",
      description: "the weather",
      inputSchema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
      run: ({ city }) => {
        asked.push(city);
        return "sunny";
      },
    });
    const params = {
      model: "stub-client_tool", max_tokens: 100, tools: [weather],
      messages: [user(prompt([], { args: '{"city": "Oslo"}', answer: "It is {result}" }))],
    };
    assert.equal(text(await client.beta.messages.toolRunner(params)), "It is sunny");
    let last;
    for await (const s of client.beta.messages.toolRunner({ ...params, stream: true })) last = await s.finalMessage();
    assert.equal(text(last), "It is sunny");
    assert.deepEqual(asked, ["Oslo", "Oslo"]);
  },

  async thinking() {
    const params = { model: "stub-reasoning", tools: [PYTHON], thinking: { type: "adaptive" } };
    const said = [user(prompt("print(6 * 7)"))];
    const m = await stream(said, params);
    assert.deepEqual([m.content[0].type, m.content[0].thinking], ["thinking", "The user wants an answer."]);
    assert(m.content[0].signature, "no signature");
    said.push({ role: "assistant", content: m.content }, user("Thanks."));
    assert(text(await ask(said, params)).includes("Thanks."));
  },

  async count_and_models() {
    const { input_tokens: n } = await client.messages.countTokens({ model: "stub", messages: [user("hello there")] });
    assert(n >= 3 && n <= 30, n);
    assert.equal((await client.models.retrieve("some/model")).id, "some/model");
    await client.models.list();
    await client.beta.models.list();
  },

  async errors() {
    await fails(Anthropic.AuthenticationError, ask("hi", {}, new Anthropic({ apiKey: "wrong", maxRetries: 0 })));
    await fails(Anthropic.BadRequestError, ask("hi", { bogus: 1 }), "bogus: Extra inputs are not permitted");
    await fails(Anthropic.BadRequestError, ask("hi", { temperature: 0.5 }), "temperature");
    await fails(Anthropic.RateLimitError, ask("hi", { model: "stub-rate_limit" }));
    await fails(Anthropic.BadRequestError, ask("hi", { model: "stub-error_before" }));
    await assert.rejects(stream("hi", { model: "stub-error_after" }), Anthropic.APIError);
  },

  async betas() {
    const params = { model: "stub-text", max_tokens: 100, messages: [user("hi")], betas: ["skills-2025-10-02", "novel-2030-01-01"] };
    const { data, response } = await client.beta.messages.create(params).withResponse();
    assert.equal(response.headers.get("x-lathe-ignored-betas"), "novel-2030-01-01");
    assert.equal(text(data), "Hello from the stub.");
  },

  async paused() {
    // The gateway of this test asks a model eight times in one turn.
    const said = [user(prompt(Array.from({ length: 9 }, (_, i) => `print(${i})`), { answer: "It is {result}" }))];
    const first = await stream(said, { tools: [PYTHON] });
    assert.deepEqual([first.stop_reason, only(first, "code_execution_tool_result").length], ["pause_turn", 8]);
    said.push({ role: "assistant", content: first.content });
    const second = await stream(said, { tools: [PYTHON], container: first.container.id });
    assert.deepEqual([second.stop_reason, text(second), second.container.id], ["end_turn", "It is 8", first.container.id]);
  },

  async programmatic() {
    const tools = [TOOLS, { ...WEATHER, allowed_callers: ["code_execution_20260120"] }];
    const code = "import asyncio\nboth = await asyncio.gather(weather({'city': 'Oslo'}), weather({'city': 'Rome'}))\nprint(both)";
    for (const go of [ask, stream]) {
      const said = [user(prompt(code, { answer: "They are {result}" }))];
      const m = await go(said, { tools });
      const [program] = only(m, "server_tool_use");
      const calls = only(m, "tool_use");
      assert.deepEqual([m.stop_reason, calls.map((c) => c.input)], ["tool_use", [{ city: "Oslo" }, { city: "Rome" }]]);
      for (const c of calls) assert.deepEqual([c.caller.type, c.caller.tool_id], ["code_execution_20260120", program.id]);
      const results = calls.map((c) => ({ type: "tool_result", tool_use_id: c.id, content: `sunny in ${c.input.city}` }));
      said.push({ role: "assistant", content: m.content }, user(results));
      await fails(Anthropic.BadRequestError, go(said, { tools }), "container_id is required");
      const end = await go(said, { tools, container: m.container.id });
      assert.deepEqual([end.content[0].type, end.content[0].tool_use_id], ["code_execution_tool_result", program.id]);
      assert.equal(end.content[0].content.stdout, "['sunny in Oslo', 'sunny in Rome']\n");
      assert.equal(end.stop_reason, "end_turn");
    }
  },

  async skills() {
    const models = ["skill-chat", "skill-responses", "skill-anthropic"];
    const ways = [
      [ask, TOOLS, "edit", client],
      [stream, TOOLS, "bash", client.beta],
      [ask, PYTHON, "read_skill", client],
    ];
    for (const [i, files] of (await skillUploads()).entries()) {
      const skill = await client.skills.create({ files });
      const container = { skills: [{ type: "custom", skill_id: skill.id, version: "latest" }] };
      for (const [go, tool, read, api] of ways) {
        const said = `Make a stamp.\nread: ${read}\nanswer: {result}`;
        const m = await go(said, { model: models[i], tools: [tool], container }, api);
        assert(text(m).includes("stamped"), text(m));
        assert.deepEqual(m.container.skills.map((s) => [s.type, s.skill_id]), [["custom", skill.id]]);
        const [file] = m.content.at(-2).content.content;
        assert((await bytes(await client.files.download(file.file_id))).equals(MADE), "other bytes");
      }
      await client.skills.delete(skill.id);
      await fails(Anthropic.BadRequestError, ask("hi", { model: models[i], tools: [PYTHON], container }), skill.id);
    }
  },
};

let failed = false;
const names = process.argv.slice(2);
for (const name of names.length ? names : Object.keys(scenarios)) {
  try {
    await scenarios[name]();
    console.log(`PASS ${name}`);
  } catch (e) {
    failed = true;
    console.error(e);
    console.log(`FAIL ${name}: ${e?.constructor?.name}: ${e?.message}`.replaceAll("\n", " "));
  }
}
process.exit(failed ? 1 : 0);
