"""What a user of the official Python SDK does with a gateway that runs code, each as a scenario of its own.

usage: scenarios.py [NAME ...]

OPENAI_BASE_URL and OPENAI_API_KEY say where the gateway is. Its model is the scripted stub of internal/upstreamtest: it runs each fenced
Python block of the user's message, then says the line after "answer:", with {result} replaced by the last output. Prints one line a
scenario, PASS or FAIL, and exits 1 if any failed. scenarios.mjs has the same scenarios in JavaScript.
"""

import base64
import os
import pathlib
import sys
import time
import traceback

import openai

client = openai.OpenAI(max_retries=0, timeout=180)
TOOL = {"type": "code_interpreter", "container": {"type": "auto"}}
WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
WEATHER_RESPONSES = {"type": "function", "strict": False, **WEATHER}
WEATHER_CHAT = {"type": "function", "function": WEATHER}
OUTPUTS = ["code_interpreter_call.outputs"]
LIVE = {"x-lathe-live": "1"}
MIXED = "This is a mixed turn."  # the Go test looks for it in what reaches the stub
MADE = bytes(range(256)) * 40

PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()"
BEATS = """
import time
with open('/mnt/data/heartbeat', 'w', buffering=1) as f:
    for i in range(1200):
        print(time.time(), file=f)
        if i == 3: print('beating', flush=True)
        time.sleep(0.05)
"""
LAST_BEAT = """
import time
beats = open('/mnt/data/heartbeat').read().split()
time.sleep(1)
print(beats[-1], len(beats), len(open('/mnt/data/heartbeat').read().split()))
"""
SCENARIOS = {}


def scenario(f):
    SCENARIOS[f.__name__] = f
    return f


def prompt(*blocks, text="Please compute.", answer=None, args=None):
    lines = [text] + [f"```python\n{b.strip()}\n```" for b in blocks]
    if args:
        lines.append(f"args: {args}")
    if answer:
        lines.append(f"answer: {answer}")
    return "\n".join(lines)


def ask(content, model="stub", tools=(TOOL,), **kw):
    return client.responses.create(model=model, input=content, tools=list(tools), include=OUTPUTS, **kw)


def chat(content, model="stub", tools=(TOOL,), **kw):
    messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
    return client.chat.completions.create(model=model, messages=messages, tools=list(tools), **kw)


def runs(response):
    return [o for o in response.output if o.type == "code_interpreter_call"]


def logs(run):
    return "".join(o.logs for o in run.outputs if o.type == "logs")


def skill_uploads():
    """A skill's files in each form in which people send them: as they are, in their folder, as an archive."""
    folder = pathlib.Path(os.environ["SKILL_FOLDER"])
    files = [(f.relative_to(folder).as_posix(), f.read_bytes()) for f in folder.rglob("*") if f.is_file()]
    return {
        "files": files,
        "folder": [(f"{folder.name}/{name}", data) for name, data in files],
        "zip": ("stamp.zip", pathlib.Path(os.environ["SKILL_ZIP"]).read_bytes(), "application/zip"),
    }


def same(got, want, what="value"):
    assert got == want, f"{what} is {got!r}, want {want!r}"


@scenario
def models():
    assert client.models.retrieve("some/model").id == "some/model"
    client.models.list()


@scenario
def wrong_key():
    try:
        client.with_options(api_key="wrong").models.list()
    except openai.AuthenticationError as e:
        same(e.status_code, 401)
    else:
        raise AssertionError("a wrong key was accepted")


@scenario
def responses_plain():
    r = ask(prompt("print(6 * 7)"))
    same(r.status, "completed")
    same(r.output_text, "Let me compute.The result is 42")
    (run,) = runs(r)
    same((run.code.strip(), run.status, logs(run)), ("print(6 * 7)", "completed", "42\n"))
    assert run.container_id.startswith("cntr_"), run.container_id
    assert r.usage.input_tokens > 0 and r.usage.total_tokens == r.usage.input_tokens + r.usage.output_tokens, r.usage


@scenario
def responses_streamed():
    code, text, kinds, final = "", "", [], None
    for n, ev in enumerate(ask(prompt("x = 20", PLOT, "print(x + 22)"), stream=True)):
        same(ev.sequence_number, n, "sequence_number")
        kinds.append(ev.type)
        if ev.type == "response.code_interpreter_call_code.delta":
            code += ev.delta
        if ev.type == "response.output_text.delta":
            text += ev.delta
        if ev.type == "response.completed":
            final = ev.response
        assert not ev.type.startswith("lathe."), "an event of ours that nobody asked for"
    same(kinds[:2], ["response.created", "response.in_progress"])
    same(text, final.output_text)
    same(code, "".join(r.code for r in runs(final)))
    _, plot, last = runs(final)
    same(logs(last), "42\n")
    images = [o for o in plot.outputs if o.type == "image"]
    assert images and images[0].url.startswith("data:image/png;base64,iVBOR"), "no plot"


@scenario
def responses_failure_is_data():
    r = ask(prompt("1 / 0", answer="It failed."))
    (run,) = runs(r)
    same((r.status, run.status), ("completed", "completed"))
    assert "ZeroDivisionError" in logs(run), logs(run)


@scenario
def chat_plain():
    r = chat(prompt("print(6 * 7)"))
    (choice,) = r.choices
    same((choice.finish_reason, choice.message.content), ("stop", "Let me compute.\n\nThe result is 42"))
    assert not choice.message.tool_calls, "a call to a tool that the client does not have"
    (run,) = choice.message.code_interpreter_calls
    same((run["code"].strip(), run["status"]), ("print(6 * 7)", "completed"))
    same("".join(o["logs"] for o in run["outputs"]), "42\n")
    same(choice.message.container["id"], run["container_id"])
    assert r.usage.total_tokens > 0, r.usage


@scenario
def chat_streamed():
    text, code, container, usage, finish = "", "", None, None, None
    for chunk in chat(prompt("print(6 * 7)"), stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for call in getattr(choice.delta, "code_interpreter_calls", None) or []:
                code += call.get("code") or ""
            container = getattr(choice.delta, "container", None) or container
            assert not getattr(choice.delta, "code_interpreter_output", None), "live output that nobody asked for"
    same((text, finish), ("Let me compute.\n\nThe result is 42", "stop"))
    same(code.strip(), "print(6 * 7)")
    assert container["id"].startswith("cntr_") and usage.total_tokens > 0


@scenario
def responses_mixed():
    said = {"role": "user", "content": prompt("print(41)", text=MIXED, args='{"city": "Oslo"}')}
    first = ask([said], model="stub-mixed", tools=(TOOL, WEATHER_RESPONSES))
    (run,) = runs(first)
    (call,) = [o for o in first.output if o.type == "function_call"]
    same((logs(run), call.name, call.arguments), ("41\n", "weather", '{"city": "Oslo"}'))
    answer = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    second = ask([said, *first.output, answer], model="stub-mixed", tools=(TOOL, WEATHER_RESPONSES))
    same(second.output_text, "The result is sunny")


@scenario
def chat_mixed():
    said = {"role": "user", "content": prompt("print(41)", text=MIXED, args='{"city": "Oslo"}')}
    (choice,) = chat([said], model="stub-mixed", tools=(TOOL, WEATHER_CHAT)).choices
    (call,) = choice.message.tool_calls
    same((choice.finish_reason, call.function.name, call.function.arguments), ("tool_calls", "weather", '{"city": "Oslo"}'))
    # An ordinary client keeps only what the protocol has: the hidden run must come back by the call's id.
    kept = {"role": "assistant", "content": choice.message.content, "tool_calls": [call.model_dump(exclude_none=True)]}
    answer = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    second = chat([said, kept, answer], model="stub-mixed", tools=(TOOL, WEATHER_CHAT))
    same(second.choices[0].message.content, "The result is sunny")


@scenario
def responses_two_turns():
    container = runs(ask(prompt("kept = 40")))[0].container_id
    r = ask(prompt("print(kept + 2)"), tools=({"type": "code_interpreter", "container": container},))
    same((logs(runs(r)[0]), runs(r)[0].container_id), ("42\n", container))
    session = {"session_id": f"python-{time.time_ns()}"}
    ask(prompt("kept = 50"), metadata=session)
    r = ask(prompt("print(kept + 2)"), metadata=session)
    same((logs(runs(r)[0]), r.metadata), ("52\n", session))


@scenario
def chat_two_turns():
    container = chat(prompt("kept = 40")).choices[0].message.container["id"]
    r = chat(prompt("print(kept + 2)"), tools=({"type": "code_interpreter", "container": container},))
    same(r.choices[0].message.content, "Let me compute.\n\nThe result is 42")


@scenario
def error_before():
    for send in (ask, chat):
        for stream in (False, True):
            try:
                send(prompt("print(1)"), model="stub-error_before", stream=stream)
            except openai.BadRequestError as e:
                same((e.status_code, e.code), (400, "context_length_exceeded"))
            else:
                raise AssertionError(f"{send.__name__}, stream={stream}: no error")


@scenario
def error_after():
    text = ""
    try:
        for ev in ask(prompt("print(1)"), model="stub-error_frame", stream=True):
            text += ev.delta if ev.type == "response.output_text.delta" else ""
    except openai.APIError as e:
        same(type(e), openai.APIError)  # none of a status or a connection
    else:
        raise AssertionError("responses: no error")
    same(text, "Hello from ")
    text = ""
    try:
        for chunk in chat(prompt("print(1)"), model="stub-error_frame", stream=True):
            text += chunk.choices[0].delta.content or "" if chunk.choices else ""
    except openai.APIError as e:
        same(type(e), openai.APIError)  # none of a status or a connection
    else:
        raise AssertionError("chat: no error")
    same(text, "Hello from ")


@scenario
def files():
    up = client.files.create(file=("numbers.csv", b"n\n1\n2\n39\n"), purpose="user_data")
    add = """
import csv, glob
(path,) = glob.glob('/mnt/data/*numbers.csv')
print(sum(int(row['n']) for row in csv.DictReader(open(path))))
"""
    make = "open('/mnt/data/made.bin', 'wb').write(bytes(range(256)) * 40)"
    tool = {"type": "code_interpreter", "container": {"type": "auto", "file_ids": [up.id]}}
    r = ask(prompt(add, make, answer="See [it](sandbox:/mnt/data/made.bin)."), tools=(tool,))
    same(logs(runs(r)[0]), "42\n")
    container = runs(r)[0].container_id
    (cited,) = [a for o in r.output if o.type == "message" for c in o.content for a in c.annotations]
    same((cited.type, cited.container_id, cited.filename), ("container_file_citation", container, "made.bin"))
    text = r.output[-1].content[0].text
    same(text[cited.start_index : cited.end_index], "sandbox:/mnt/data/made.bin")
    (listed,) = [f for f in client.containers.files.list(container) if f.path == "/mnt/data/made.bin"]
    for file_id in (cited.file_id, listed.id):
        got = client.containers.files.content.retrieve(file_id, container_id=container).read()
        assert got == MADE, f"{len(got)} bytes came back, not the {len(MADE)} that were written"


@scenario
def early_code():
    """The code comes while the model still writes it: the stub takes a second for each piece of the call."""
    first, last = {}, {}
    for ev in ask(prompt("print('a' * 20)"), model="stub-slow_args", stream=True):
        if ev.type == "response.code_interpreter_call_code.delta":
            last["responses"] = time.monotonic()
            first.setdefault("responses", last["responses"])
    for chunk in chat(prompt("print('a' * 20)"), model="stub-slow_args", stream=True):
        for choice in chunk.choices:
            if any(c.get("code") for c in getattr(choice.delta, "code_interpreter_calls", None) or []):
                last["chat"] = time.monotonic()
                first.setdefault("chat", last["chat"])
    for surface in ("responses", "chat"):
        assert last[surface] - first[surface] > 0.5, f"{surface}: all the code came at once"


@scenario
def live_responses():
    seen = ended = 0.0
    for ev in ask(prompt("import time\nprint('early', flush=True)\ntime.sleep(3)"), stream=True, extra_headers=LIVE):
        if ev.type == "lathe.output.delta" and "early" in ev.text:
            seen = time.monotonic()
        if ev.type == "response.code_interpreter_call.completed":
            ended = time.monotonic()
    assert seen and ended - seen > 2, f"the line came {ended - seen:.1f} s before the end, want 2"


@scenario
def live_chat():
    seen = ended = 0.0
    for chunk in chat(prompt("import time\nprint('early', flush=True)\ntime.sleep(3)"), stream=True, extra_headers=LIVE):
        for choice in chunk.choices:
            out = getattr(choice.delta, "code_interpreter_output", None)
            if out and "early" in out["text"]:
                seen = time.monotonic()
            if any(c.get("status") for c in getattr(choice.delta, "code_interpreter_calls", None) or []):
                ended = time.monotonic()
    assert seen and ended - seen > 2, f"the line came {ended - seen:.1f} s before the end, want 2"


def gone_after(left, **where):
    """Says how long the heartbeat went on after its client had left, in seconds; it must have stopped."""
    last, before, after = logs(runs(ask(prompt(LAST_BEAT), **where))[0]).split()
    same(after, before, "the number of heartbeats a second later")
    late = float(last) - left
    # The promise is one second; the rest is for a machine that is busy with other tests.
    assert late < 3, f"the code went on for {late:.1f} s"
    return f"{late:.2f} s"


@scenario
def leave_responses():
    session = {"session_id": f"python-leave-{time.time_ns()}"}
    with ask(prompt(BEATS), metadata=session, stream=True, extra_headers=LIVE) as stream:
        for ev in stream:
            if ev.type == "lathe.output.delta":
                break
    return gone_after(time.time(), metadata=session)


@scenario
def leave_chat():
    container = client.containers.create(name="leave").id
    tool = {"type": "code_interpreter", "container": container}
    with chat(prompt(BEATS), tools=(tool,), stream=True, extra_headers=LIVE) as stream:
        for chunk in stream:
            if chunk.choices and getattr(chunk.choices[0].delta, "code_interpreter_output", None):
                break
    return gone_after(time.time(), tools=(tool,))


STAMP = "Make a stamp.\nread: {}\nanswer: Here [it](sandbox:/mnt/data/stamp.bin) is."


def made(container, annotations):
    (cited,) = annotations
    got = client.containers.files.content.retrieve(cited.file_id, container_id=container).read()
    assert got == MADE, f"{len(got)} bytes came back, not the {len(MADE)} that were written"


def stamp_by_responses(model, tool, read="read_skill"):
    r = ask(STAMP.format(read), model=model, tools=(tool,))
    same(logs(runs(r)[-1]).strip(), "stamped")
    made(runs(r)[-1].container_id, [a for o in r.output if o.type == "message" for c in o.content for a in c.annotations])


@scenario
def skills():
    uploads = skill_uploads()
    for form, model, read in zip(uploads, ("skill-chat", "skill-responses", "skill-anthropic"), ("read_skill", "python", "read_skill")):
        skill = client.skills.create(files=uploads[form])
        same((skill.name, skill.default_version), ("stamp", "1"), form)
        reference = {"type": "skill_reference", "skill_id": skill.id}
        stamp_by_responses(model, {"type": "code_interpreter", "container": {"type": "auto", "skills": [reference]}}, read)
        latest = {"type": "custom", "skill_id": skill.id, "version": "latest"}
        message = chat(STAMP.format(read), model=model, tools=(), extra_body={"container": {"skills": [latest]}}).choices[0].message
        same("".join(o["logs"] for o in message.code_interpreter_calls[-1]["outputs"]).strip(), "stamped")
        made(message.container["id"], message.annotations)
        client.skills.delete(skill.id)
        try:
            stamp_by_responses(model, {"type": "code_interpreter", "container": {"type": "auto", "skills": [reference]}})
        except openai.BadRequestError as e:
            assert skill.id in str(e), e
        else:
            raise AssertionError("a deleted skill was used")


@scenario
def skill_container():
    """A container that is made with a skill out of the request itself has it in every turn."""
    source = {"type": "base64", "media_type": "application/zip", "data": base64.b64encode(skill_uploads()["zip"][1]).decode()}
    inline = {"type": "inline", "name": "stamp", "description": "Makes stamps.", "source": source}
    container = client.containers.create(name="stamps", skills=[inline]).id
    stamp_by_responses("skill-chat", {"type": "code_interpreter", "container": container})


def main():
    failed = False
    for name in sys.argv[1:] or SCENARIOS:
        try:
            note = SCENARIOS[name]()
            print(f"PASS {name}" + (f": {note}" if note else ""), flush=True)
        except Exception as e:
            failed = True
            traceback.print_exc()
            print(f"FAIL {name}: {type(e).__name__}: {e}".replace("\n", " "), flush=True)
    sys.exit(failed)


main()
