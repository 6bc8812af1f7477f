// What a user of the official JavaScript SDK does with a gateway that runs code: the scenarios of ../python/scenarios.py, in the same
// order. See there for what the stub does.
//
// usage: node scenarios.mjs [NAME ...]

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import OpenAI, { toFile } from "openai";

const client = new OpenAI({ maxRetries: 0, timeout: 180_000 });
const TOOL = { type: "code_interpreter", container: { type: "auto" } };
const WEATHER = { name: "weather", parameters: { type: "object", properties: { city: { type: "string" } } } };
const WEATHER_RESPONSES = { type: "function", strict: false, ...WEATHER };
const WEATHER_CHAT = { type: "function", function: WEATHER };
const LIVE = { headers: { "x-lathe-live": "1" } };
const MIXED = "This is a mixed turn."; // the Go test looks for it in what reaches the stub
const MADE = Buffer.from(Array.from({ length: 256 * 40 }, (_, i) => i % 256));

const PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()";
const BEATS = `
import time
with open('/mnt/data/heartbeat', 'w', buffering=1) as f:
    for i in range(1200):
        print(time.time(), file=f)
        if i == 3: print('beating', flush=True)
        time.sleep(0.05)
`;
const LAST_BEAT = `
import time
beats = open('/mnt/data/heartbeat').read().split()
time.sleep(1)
print(beats[-1], len(beats), len(open('/mnt/data/heartbeat').read().split()))
`;
const EARLY = "import time\nprint('early', flush=True)\ntime.sleep(3)";

function prompt(blocks, { text = "Please compute.", answer, args } = {}) {
  const lines = [text, ...[blocks].flat().map((b) => "```python\n" + b.trim() + "\n```")];
  if (args) lines.push(`args: ${args}`);
  if (answer) lines.push(`answer: ${answer}`);
  return lines.join("\n");
}

function ask(input, params = {}, options = {}) {
  return client.responses.create(
    { model: "stub", input, tools: [TOOL], include: ["code_interpreter_call.outputs"], ...params },
    options,
  );
}

function chat(content, params = {}, options = {}) {
  const messages = Array.isArray(content) ? content : [{ role: "user", content }];
  return client.chat.completions.create({ model: "stub", messages, tools: [TOOL], ...params }, options);
}

const runs = (response) => response.output.filter((o) => o.type === "code_interpreter_call");
const logs = (run) => run.outputs.filter((o) => o.type === "logs").map((o) => o.logs).join("");
const inContainer = (container) => ({ tools: [{ type: "code_interpreter", container }] });

// A skill's files in each form in which people send them: as they are, in their folder, as an archive.
async function skillUploads() {
  const names = ["SKILL.md", "scripts/stamp.py"];
  const files = (prefix) => Promise.all(names.map(async (n) => toFile(await readFile(`${process.env.SKILL_FOLDER}/${n}`), prefix + n)));
  const zip = await toFile(await readFile(process.env.SKILL_ZIP), "stamp.zip", { type: "application/zip" });
  return [await files(""), await files("stamp/"), zip];
}

const stamp = (read) => `Make a stamp.\nread: ${read}\nanswer: Here [it](sandbox:/mnt/data/stamp.bin) is.`;

async function made(container, annotations) {
  assert.equal(annotations.length, 1);
  const got = await client.containers.files.content.retrieve(annotations[0].file_id, { container_id: container });
  assert.ok(MADE.equals(Buffer.from(await got.arrayBuffer())), "other bytes came back than were written");
}

async function stampByResponses(model, container, read = "read_skill") {
  const r = await ask(stamp(read), { model, ...inContainer(container) });
  const run = runs(r).at(-1);
  assert.equal(logs(run).trim(), "stamped");
  await made(run.container_id, r.output.filter((o) => o.type === "message").flatMap((m) => m.content).flatMap((c) => c.annotations));
}

async function fails(what, promise) {
  try {
    await promise;
  } catch (e) {
    return e;
  }
  assert.fail(`${what}: no error`);
}

// goneAfter says how long the heartbeat went on after its client had left, in seconds; it must have stopped.
async function goneAfter(left, where) {
  const r = await ask(prompt(LAST_BEAT), where);
  const [last, before, after] = logs(runs(r)[0]).trim().split(" ");
  assert.equal(after, before, "the heartbeat still grows");
  const late = Number(last) - left;
  // The promise is one second; the rest is for a machine that is busy with other tests.
  assert.ok(late < 3, `the code went on for ${late.toFixed(1)} s`);
  return `${late.toFixed(2)} s`;
}

const scenarios = {
  async models() {
    assert.equal((await client.models.retrieve("some/model")).id, "some/model");
    await client.models.list();
  },

  async wrong_key() {
    const e = await fails("wrong key", client.withOptions({ apiKey: "wrong" }).models.list());
    assert.equal(e.status, 401);
  },

  async responses_plain() {
    const r = await ask(prompt("print(6 * 7)"));
    assert.equal(r.status, "completed");
    assert.equal(r.output_text, "Let me compute.The result is 42");
    const [run] = runs(r);
    assert.deepEqual([run.code.trim(), run.status, logs(run)], ["print(6 * 7)", "completed", "42\n"]);
    assert.match(run.container_id, /^cntr_/);
    assert.ok(r.usage.input_tokens > 0);
    assert.equal(r.usage.total_tokens, r.usage.input_tokens + r.usage.output_tokens);
  },

  async responses_streamed() {
    let code = "", text = "", final;
    const kinds = [];
    for await (const ev of await ask(prompt(["x = 20", PLOT, "print(x + 22)"]), { stream: true })) {
      assert.equal(ev.sequence_number, kinds.length);
      kinds.push(ev.type);
      if (ev.type === "response.code_interpreter_call_code.delta") code += ev.delta;
      if (ev.type === "response.output_text.delta") text += ev.delta;
      if (ev.type === "response.completed") final = ev.response;
      assert.ok(!ev.type.startsWith("lathe."), "an event of ours that nobody asked for");
    }
    assert.deepEqual(kinds.slice(0, 2), ["response.created", "response.in_progress"]);
    const messages = final.output.filter((o) => o.type === "message");
    assert.equal(text, messages.map((m) => m.content[0].text).join(""));
    assert.equal(code, runs(final).map((r) => r.code).join(""));
    const [, plot, last] = runs(final);
    assert.equal(logs(last), "42\n");
    const image = plot.outputs.find((o) => o.type === "image");
    assert.match(image.url.slice(0, 40), /^data:image\/png;base64,iVBOR/);
  },

  async responses_failure_is_data() {
    const r = await ask(prompt("1 / 0", { answer: "It failed." }));
    const [run] = runs(r);
    assert.deepEqual([r.status, run.status], ["completed", "completed"]);
    assert.match(logs(run), /ZeroDivisionError/);
  },

  async chat_plain() {
    const r = await chat(prompt("print(6 * 7)"));
    const [choice] = r.choices;
    assert.deepEqual([choice.finish_reason, choice.message.content], ["stop", "Let me compute.\n\nThe result is 42"]);
    assert.ok(!choice.message.tool_calls, "a call to a tool that the client does not have");
    const [run] = choice.message.code_interpreter_calls;
    assert.deepEqual([run.code.trim(), run.status, logs(run)], ["print(6 * 7)", "completed", "42\n"]);
    assert.equal(choice.message.container.id, run.container_id);
    assert.ok(r.usage.total_tokens > 0);
  },

  async chat_streamed() {
    let text = "", code = "", container, usage, finish;
    for await (const chunk of await chat(prompt("print(6 * 7)"), { stream: true, stream_options: { include_usage: true } })) {
      usage = chunk.usage ?? usage;
      for (const choice of chunk.choices) {
        text += choice.delta.content ?? "";
        finish = choice.finish_reason ?? finish;
        for (const call of choice.delta.code_interpreter_calls ?? []) code += call.code ?? "";
        container = choice.delta.container ?? container;
        assert.ok(!choice.delta.code_interpreter_output, "live output that nobody asked for");
      }
    }
    assert.deepEqual([text, finish, code.trim()], ["Let me compute.\n\nThe result is 42", "stop", "print(6 * 7)"]);
    assert.match(container.id, /^cntr_/);
    assert.ok(usage.total_tokens > 0);
  },

  async responses_mixed() {
    const said = { role: "user", content: prompt("print(41)", { text: MIXED, args: '{"city": "Oslo"}' }) };
    const params = { model: "stub-mixed", tools: [TOOL, WEATHER_RESPONSES] };
    const first = await ask([said], params);
    const [call] = first.output.filter((o) => o.type === "function_call");
    assert.deepEqual([logs(runs(first)[0]), call.name, call.arguments], ["41\n", "weather", '{"city": "Oslo"}']);
    const answer = { type: "function_call_output", call_id: call.call_id, output: "sunny" };
    const second = await ask([said, ...first.output, answer], params);
    assert.equal(second.output_text, "The result is sunny");
  },

  async chat_mixed() {
    const said = { role: "user", content: prompt("print(41)", { text: MIXED, args: '{"city": "Oslo"}' }) };
    const params = { model: "stub-mixed", tools: [TOOL, WEATHER_CHAT] };
    const [choice] = (await chat([said], params)).choices;
    const [call] = choice.message.tool_calls;
    assert.deepEqual(
      [choice.finish_reason, call.function.name, call.function.arguments],
      ["tool_calls", "weather", '{"city": "Oslo"}'],
    );
    // An ordinary client keeps only what the protocol has: the hidden run must come back by the call's id.
    const kept = { role: "assistant", content: choice.message.content, tool_calls: [call] };
    const answer = { role: "tool", tool_call_id: call.id, content: "sunny" };
    const second = await chat([said, kept, answer], params);
    assert.equal(second.choices[0].message.content, "The result is sunny");
  },

  async responses_two_turns() {
    const container = runs(await ask(prompt("kept = 40")))[0].container_id;
    let r = await ask(prompt("print(kept + 2)"), inContainer(container));
    assert.deepEqual([logs(runs(r)[0]), runs(r)[0].container_id], ["42\n", container]);
    const metadata = { session_id: `javascript-${process.hrtime.bigint()}` };
    await ask(prompt("kept = 50"), { metadata });
    r = await ask(prompt("print(kept + 2)"), { metadata });
    assert.deepEqual([logs(runs(r)[0]), r.metadata], ["52\n", metadata]);
  },

  async chat_two_turns() {
    const container = (await chat(prompt("kept = 40"))).choices[0].message.container.id;
    const r = await chat(prompt("print(kept + 2)"), inContainer(container));
    assert.equal(r.choices[0].message.content, "Let me compute.\n\nThe result is 42");
  },

  async error_before() {
    for (const send of [ask, chat]) {
      for (const stream of [false, true]) {
        const e = await fails(`${send.name}, stream: ${stream}`, send(prompt("print(1)"), { model: "stub-error_before", stream }));
        assert.deepEqual([e.status, e.code], [400, "context_length_exceeded"]);
      }
    }
  },

  async error_after() {
    for (const [name, send, delta] of [
      ["responses", ask, (ev) => (ev.type === "response.output_text.delta" ? ev.delta : "")],
      ["chat", chat, (chunk) => chunk.choices[0]?.delta.content ?? ""],
    ]) {
      let text = "";
      const read = async () => {
        for await (const ev of await send(prompt("print(1)"), { model: "stub-error_frame", stream: true })) text += delta(ev);
      };
      const e = await fails(name, read());
      assert.equal(e.constructor, OpenAI.APIError, `${name}: ${e}`); // none of a status or a connection
      assert.equal(text, "Hello from ");
    }
  },

  async files() {
    const up = await client.files.create({ file: await toFile(Buffer.from("n\n1\n2\n39\n"), "numbers.csv"), purpose: "user_data" });
    const add = `
import csv, glob
(path,) = glob.glob('/mnt/data/*numbers.csv')
print(sum(int(row['n']) for row in csv.DictReader(open(path))))
`;
    const make = "open('/mnt/data/made.bin', 'wb').write(bytes(range(256)) * 40)";
    const tools = [{ type: "code_interpreter", container: { type: "auto", file_ids: [up.id] } }];
    const r = await ask(prompt([add, make], { answer: "See [it](sandbox:/mnt/data/made.bin)." }), { tools });
    assert.equal(logs(runs(r)[0]), "42\n");
    const container = runs(r)[0].container_id;
    const texts = r.output.filter((o) => o.type === "message").flatMap((m) => m.content);
    const cited = texts.flatMap((c) => c.annotations);
    assert.equal(cited.length, 1);
    assert.deepEqual([cited[0].type, cited[0].container_id, cited[0].filename], ["container_file_citation", container, "made.bin"]);
    assert.equal(texts.at(-1).text.slice(cited[0].start_index, cited[0].end_index), "sandbox:/mnt/data/made.bin");
    const listed = [];
    for await (const f of client.containers.files.list(container)) if (f.path === "/mnt/data/made.bin") listed.push(f.id);
    assert.equal(listed.length, 1);
    for (const id of [cited[0].file_id, listed[0]]) {
      const got = await client.containers.files.content.retrieve(id, { container_id: container });
      assert.ok(MADE.equals(Buffer.from(await got.arrayBuffer())), "other bytes came back than were written");
    }
  },

  // The code comes while the model still writes it: the stub takes a second for each piece of the call.
  async early_code() {
    const params = { model: "stub-slow_args", stream: true };
    const times = { responses: [], chat: [] };
    for await (const ev of await ask(prompt("print('a' * 20)"), params)) {
      if (ev.type === "response.code_interpreter_call_code.delta") times.responses.push(performance.now());
    }
    for await (const chunk of await chat(prompt("print('a' * 20)"), params)) {
      if (chunk.choices[0]?.delta.code_interpreter_calls?.some((c) => c.code)) times.chat.push(performance.now());
    }
    for (const [surface, at] of Object.entries(times)) {
      assert.ok(at.at(-1) - at[0] > 500, `${surface}: all the code came at once`);
    }
  },

  async live_responses() {
    let seen = 0, ended = 0;
    for await (const ev of await ask(prompt(EARLY), { stream: true }, LIVE)) {
      if (ev.type === "lathe.output.delta" && ev.text.includes("early")) seen = performance.now();
      if (ev.type === "response.code_interpreter_call.completed") ended = performance.now();
    }
    assert.ok(seen && ended - seen > 2000, `the line came ${ended - seen} ms before the end, want 2000`);
  },

  async live_chat() {
    let seen = 0, ended = 0;
    for await (const chunk of await chat(prompt(EARLY), { stream: true }, LIVE)) {
      const delta = chunk.choices[0]?.delta;
      if (delta?.code_interpreter_output?.text.includes("early")) seen = performance.now();
      if (delta?.code_interpreter_calls?.some((c) => c.status)) ended = performance.now();
    }
    assert.ok(seen && ended - seen > 2000, `the line came ${ended - seen} ms before the end, want 2000`);
  },

  async leave_responses() {
    const metadata = { session_id: `javascript-leave-${process.hrtime.bigint()}` };
    const stream = await ask(prompt(BEATS), { metadata, stream: true }, LIVE);
    for await (const ev of stream) if (ev.type === "lathe.output.delta") break;
    stream.controller.abort();
    return goneAfter(Date.now() / 1000, { metadata });
  },

  async leave_chat() {
    const { id } = await client.containers.create({ name: "leave" });
    const stream = await chat(prompt(BEATS), { ...inContainer(id), stream: true }, LIVE);
    for await (const chunk of stream) if (chunk.choices[0]?.delta.code_interpreter_output) break;
    stream.controller.abort();
    return goneAfter(Date.now() / 1000, inContainer(id));
  },

  async skills() {
    const models = ["skill-chat", "skill-responses", "skill-anthropic"];
    const reads = ["read_skill", "python", "read_skill"];
    for (const [i, files] of (await skillUploads()).entries()) {
      const skill = await client.skills.create({ files });
      assert.deepEqual([skill.name, skill.default_version], ["stamp", "1"]);
      const container = { type: "auto", skills: [{ type: "skill_reference", skill_id: skill.id }] };
      await stampByResponses(models[i], container, reads[i]);
      const latest = { skills: [{ type: "custom", skill_id: skill.id, version: "latest" }] };
      const { message } = (await chat(stamp(reads[i]), { model: models[i], tools: [], container: latest })).choices[0];
      assert.equal(message.code_interpreter_calls.at(-1).outputs.map((o) => o.logs).join("").trim(), "stamped");
      await made(message.container.id, message.annotations);
      await client.skills.delete(skill.id);
      await assert.rejects(stampByResponses(models[i], container), (e) => e instanceof OpenAI.BadRequestError && e.message.includes(skill.id));
    }
  },

  // A container that is made with a skill out of the request itself has it in every turn.
  async skill_container() {
    const source = { type: "base64", media_type: "application/zip", data: await readFile(process.env.SKILL_ZIP, "base64") };
    const inline = { type: "inline", name: "stamp", description: "Makes stamps.", source };
    const container = await client.containers.create({ name: "stamps", skills: [inline] });
    await stampByResponses("skill-chat", container.id);
  },
};

let failed = false;
const names = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(scenarios);
for (const name of names) {
  try {
    const note = await scenarios[name]();
    console.log(`PASS ${name}${note ? `: ${note}` : ""}`);
  } catch (e) {
    failed = true;
    console.error(e);
    console.log(`FAIL ${name}: ${String(e).replaceAll("\n", " ")}`);
  }
}
process.exit(failed ? 1 : 0);
