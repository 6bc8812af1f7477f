"""What a user of the official Anthropic SDK for Python does with a gateway that runs code, each as a scenario of its own.

usage: messages.py [NAME ...]

ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY say where the gateway is. Its model is the scripted stub of internal/upstreamtest: it runs each
fenced block (python, bash, edit) of the user's message, then says the line after "answer:", with {result} replaced by the last output.
Prints one line a scenario, PASS or FAIL, and exits 1 if any failed. messages.mjs has the same scenarios in JavaScript.
"""

import os
import pathlib
import sys
import traceback

import anthropic
from anthropic import beta_tool

client = anthropic.Anthropic(max_retries=0, timeout=180)
PYTHON = {"type": "code_execution_20250522", "name": "code_execution"}
TOOLS = {"type": "code_execution_20260120", "name": "code_execution"}
WEATHER = {"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
MADE = bytes(range(256)) * 40
SCENARIOS = {}


def scenario(f):
    SCENARIOS[f.__name__] = f
    return f


def prompt(*blocks, text="Please compute.", answer=None, args=None):
    lines = [text]
    for b in blocks:
        lang, code = b if isinstance(b, tuple) else ("python", b)
        lines.append(f"```{lang}\n{code.strip()}\n```")
    if args:
        lines.append(f"args: {args}")
    if answer:
        lines.append(f"answer: {answer}")
    return "\n".join(lines)


def user(content):
    return {"role": "user", "content": content}


def ask(messages, model="stub", api=None, **kw):
    messages = [user(messages)] if isinstance(messages, str) else messages
    return (api or client).messages.create(model=model, max_tokens=2000, messages=messages, **kw)


def stream(messages, model="stub", api=None, **kw):
    messages = [user(messages)] if isinstance(messages, str) else messages
    with (api or client).messages.stream(model=model, max_tokens=2000, messages=messages, **kw) as s:
        for _ in s:
            pass
        return s.get_final_message()


def text(message):
    return "".join(b.text for b in message.content if b.type == "text")


def only(message, kind):
    return [b for b in message.content if b.type == kind]


def same(got, want, what="value"):
    assert got == want, f"{what} is {got!r}, want {want!r}"


def fails(kind, call, part=""):
    try:
        call()
    except kind as e:
        assert part in str(e), f"{e} has no {part}"
        assert e.body["type"] == "error" and e.request_id == e.body["request_id"], e.body
        return e
    raise AssertionError(f"no {kind.__name__}")


@scenario
def plain():
    m = ask("hi", model="stub-text")
    same((text(m), m.stop_reason, m.role, m.model), ("Hello from the stub.", "end_turn", "assistant", "stub-text"))
    assert m.usage.input_tokens > 0 and m.usage.output_tokens > 0 and m._request_id.startswith("req_"), m.usage
    same(text(ask("hi", model="stub-text", api=client.beta)), "Hello from the stub.")


@scenario
def streamed():
    for api in (client, client.beta):
        m = stream("hi", model="stub-text", api=api)
        same((text(m), m.stop_reason), ("Hello from the stub.", "end_turn"))
    pieces = [ev.type for ev in client.messages.create(model="stub-text", max_tokens=100, messages=[user("hi")], stream=True)]
    same((pieces[0], pieces[-2:]), ("message_start", ["message_delta", "message_stop"]))


@scenario
def code_two_turns():
    for do in (ask, stream):
        said = [user(prompt("x = 41\nprint(x)", answer="It is {result}"))]
        m = do(said, tools=[PYTHON])
        same([b.type for b in m.content], ["text", "server_tool_use", "code_execution_tool_result", "text"])
        (result,) = only(m, "code_execution_tool_result")
        same((result.content.stdout, result.content.return_code), ("41\n", 0))
        same(result.tool_use_id, only(m, "server_tool_use")[0].id)
        assert m.container.id.startswith("cntr_") and m.container.expires_at, m.container
        said += [{"role": "assistant", "content": m.content}, user(prompt("print(x + 1)", answer="Now {result}"))]
        again = do(said, tools=[PYTHON], container=m.container.id)
        assert text(again).endswith("Now 42"), text(again)
        same(again.container.id, m.container.id)


@scenario
def bash_and_editor():
    blocks = (
        ("edit", '{"command": "create", "path": "/mnt/data/a.txt", "file_text": "one\\ntwo\\n"}'),
        ("edit", '{"command": "str_replace", "path": "/mnt/data/a.txt", "old_str": "two", "new_str": "drei"}'),
        ("edit", '{"command": "view", "path": "/mnt/data/a.txt"}'),
        ("bash", "cat /mnt/data/a.txt; exit 3"),
        "print(6 * 7)",
    )
    for api in (client, client.beta):
        m = stream(prompt(*blocks, answer="{result}"), tools=[TOOLS], api=api)
        create, replace, view = [b.content for b in only(m, "text_editor_code_execution_tool_result")]
        same(create.is_file_update, False)
        same(replace.lines, [" one", "-two", "+drei"])
        same((view.content.strip(), view.file_type, view.total_lines), ("one\ndrei", "text", 2))
        (bash,) = only(m, "bash_code_execution_tool_result")
        same((bash.content.stdout, bash.content.return_code), ("one\ndrei\n", 3))
        (python,) = only(m, "code_execution_tool_result")
        same(python.content.stdout, "42\n")


@scenario
def failure_is_data():
    m = ask(prompt("1 / 0", answer="It failed."), tools=[PYTHON])
    (result,) = only(m, "code_execution_tool_result")
    assert result.content.return_code != 0 and "ZeroDivisionError" in result.content.stderr, result
    same(m.stop_reason, "end_turn")


@scenario
def made_file():
    code = "import os\nopen(os.path.join(os.environ['OUTPUT_DIR'], 'made.bin'), 'wb').write(bytes(range(256)) * 40)"
    m = ask(prompt(code, answer="done"), tools=[PYTHON])
    (result,) = only(m, "code_execution_tool_result")
    (made,) = result.content.content
    meta = client.files.retrieve_metadata(made.file_id)
    same((meta.filename, meta.size_bytes, meta.downloadable), ("made.bin", len(MADE), True))
    same(client.files.download(made.file_id).read(), MADE)
    same(client.beta.files.download(made.file_id).read(), MADE)


@scenario
def uploads():
    up = client.files.upload(file=("data.csv", b"a,b\n1,2\n", "text/csv"))
    same((up.filename, up.mime_type, up.size_bytes, up.downloadable), ("data.csv", "text/csv", 8, False))
    code = "import os\nprint(open(os.path.join(os.environ['INPUT_DIR'], 'data.csv')).read().split()[1])"
    content = [{"type": "container_upload", "file_id": up.id}, {"type": "text", "text": prompt(code, answer="row {result}")}]
    assert text(ask([user(content)], tools=[PYTHON])).endswith("row 1,2")
    document = [{"type": "document", "source": {"type": "file", "file_id": up.id}}, {"type": "text", "text": "hi"}]
    fails(anthropic.BadRequestError, lambda: client.files.download(up.id), "not downloadable")
    assert up.id in [f.id for f in client.files.list()], "not in the list"
    assert up.id in [f.id for f in client.beta.files.list(betas=["files-api-2025-04-14"]).data], "not in the older list"
    same(client.files.delete(up.id).type, "file_deleted")
    fails(anthropic.NotFoundError, lambda: client.files.retrieve_metadata(up.id), "not found")
    fails(anthropic.NotFoundError, lambda: ask([user(document)]), up.id)


@scenario
def client_tool():
    for do in (ask, stream):
        said = [user(prompt(args='{"city": "Oslo"}', answer="It is {result}"))]
        m = do(said, model="stub-client_tool", tools=[WEATHER])
        (call,) = only(m, "tool_use")
        same((call.name, call.input, m.stop_reason), ("weather", {"city": "Oslo"}, "tool_use"))
        said += [{"role": "assistant", "content": m.content}, user([{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}])]
        same(text(do(said, model="stub-client_tool", tools=[WEATHER])), "It is sunny")


@scenario
def mixed():
    said = [user(prompt("print(41)", args='{"city": "Oslo"}', answer="Both: {result}"))]
    m = stream(said, model="stub-mixed", tools=[PYTHON, WEATHER])
    same([b.type for b in m.content], ["server_tool_use", "code_execution_tool_result", "tool_use"])
    assert m.container.id, "no container though the turn goes on"
    said += [{"role": "assistant", "content": m.content}, user([{"type": "tool_result", "tool_use_id": m.content[2].id, "content": "sunny"}])]
    same(text(ask(said, model="stub-mixed", tools=[PYTHON, WEATHER], container=m.container.id)), "Both: sunny")


@scenario
def tool_runner():
    asked = []

    @beta_tool
    def weather(city: str) -> str:
        """The weather.

        Args:
            city: where
        """
        asked.append(city)
        return "sunny"

    said = prompt(args='{"city": "Oslo"}', answer="It is {result}")
    for streamed in (False, True):
        runner = client.beta.messages.tool_runner(model="stub-client_tool", max_tokens=100, tools=[weather], messages=[user(said)], stream=streamed)
        if streamed:
            final = None
            for s in runner:
                for _ in s:
                    pass
                final = s.get_final_message()
        else:
            final = runner.until_done()
        same(text(final), "It is sunny")
    same(asked, ["Oslo", "Oslo"])


@scenario
def thinking():
    m = stream(prompt("print(6 * 7)"), model="stub-reasoning", tools=[PYTHON], thinking={"type": "adaptive"})
    first, *_ = m.content
    same((first.type, first.thinking), ("thinking", "The user wants an answer."))
    assert first.signature, "no signature"
    said = [user(prompt("print(6 * 7)")), {"role": "assistant", "content": m.content}, user("Thanks.")]
    assert "Thanks." in text(ask(said, model="stub-reasoning", thinking={"type": "adaptive"}, tools=[PYTHON]))


@scenario
def count_and_models():
    n = client.messages.count_tokens(model="stub", messages=[user("hello there")])
    assert 3 <= n.input_tokens <= 30, n
    same(client.models.retrieve("some/model").id, "some/model")
    client.models.list()
    client.beta.models.list()


@scenario
def errors():
    fails(anthropic.AuthenticationError, lambda: ask("hi", api=client.with_options(api_key="wrong")))
    fails(anthropic.BadRequestError, lambda: ask("hi", extra_body={"bogus": 1}), "bogus: Extra inputs are not permitted")
    fails(anthropic.BadRequestError, lambda: ask("hi", extra_body={"temperature": 0.5}), "temperature")
    fails(anthropic.RateLimitError, lambda: ask("hi", model="stub-rate_limit"))
    fails(anthropic.BadRequestError, lambda: ask("hi", model="stub-error_before"))
    try:
        stream("hi", model="stub-error_after")
    except anthropic.APIError as e:
        assert "api_error" in str(e.body), e.body
    else:
        raise AssertionError("a broken answer was taken for a whole one")


@scenario
def betas():
    raw = client.beta.messages.with_raw_response.create(
        model="stub-text", max_tokens=100, messages=[user("hi")], betas=["skills-2025-10-02", "novel-2030-01-01"])
    same(raw.headers.get("x-lathe-ignored-betas"), "novel-2030-01-01")
    same(text(raw.parse()), "Hello from the stub.")


@scenario
def paused():
    # The gateway of this test asks a model eight times in one turn.
    said = [user(prompt(*[f"print({i})" for i in range(9)], answer="It is {result}"))]
    first = stream(said, tools=[PYTHON])
    same((first.stop_reason, len(only(first, "code_execution_tool_result"))), ("pause_turn", 8))
    said.append({"role": "assistant", "content": first.content})
    second = stream(said, tools=[PYTHON], container=first.container.id)
    same((second.stop_reason, text(second), second.container.id), ("end_turn", "It is 8", first.container.id))


@scenario
def programmatic():
    weather = {**WEATHER, "allowed_callers": ["code_execution_20260120"]}
    code = "import asyncio\nboth = await asyncio.gather(weather({'city': 'Oslo'}), weather({'city': 'Rome'}))\nprint(both)"
    for do in (ask, stream):
        said = [user(prompt(code, answer="They are {result}"))]
        m = do(said, tools=[TOOLS, weather])
        (program,) = only(m, "server_tool_use")
        calls = only(m, "tool_use")
        same((m.stop_reason, [c.input for c in calls]), ("tool_use", [{"city": "Oslo"}, {"city": "Rome"}]))
        assert all(c.caller.type == "code_execution_20260120" and c.caller.tool_id == program.id for c in calls), calls
        results = [{"type": "tool_result", "tool_use_id": c.id, "content": f"sunny in {c.input['city']}"} for c in calls]
        said += [{"role": "assistant", "content": m.content}, user(results)]
        fails(anthropic.BadRequestError, lambda: do(said, tools=[TOOLS, weather]), "container_id is required")
        end = do(said, tools=[TOOLS, weather], container=m.container.id)
        same((end.content[0].type, end.content[0].tool_use_id), ("code_execution_tool_result", program.id))
        same(end.content[0].content.stdout, "['sunny in Oslo', 'sunny in Rome']\n")
        same(end.stop_reason, "end_turn")


def skill_uploads():
    """A skill's files in each form in which people send them: as they are, in their folder, as an archive."""
    folder = pathlib.Path(os.environ["SKILL_FOLDER"])
    files = [(f.relative_to(folder).as_posix(), f.read_bytes()) for f in folder.rglob("*") if f.is_file()]
    return {
        "files": files,
        "folder": [(f"{folder.name}/{name}", data) for name, data in files],
        "zip": [("stamp.zip", pathlib.Path(os.environ["SKILL_ZIP"]).read_bytes(), "application/zip")],
    }


@scenario
def skills():
    uploads = skill_uploads()
    for form, model in zip(uploads, ("skill-chat", "skill-responses", "skill-anthropic")):
        skill = client.skills.create(files=uploads[form])
        container = {"skills": [{"type": "custom", "skill_id": skill.id, "version": "latest"}]}
        for do, tool, read in ((ask, TOOLS, "edit"), (stream, TOOLS, "bash"), (ask, PYTHON, "read_skill")):
            api = client.beta if do is stream else client
            m = do(f"Make a stamp.\nread: {read}\nanswer: {{result}}", model=model, tools=[tool], container=container, api=api)
            assert "stamped" in text(m), text(m)
            same([(s.type, s.skill_id) for s in m.container.skills], [("custom", skill.id)])
            (file,) = m.content[-2].content.content
            same(client.files.download(file.file_id).read(), MADE)
        client.skills.delete(skill.id)
        fails(anthropic.BadRequestError, lambda: ask("hi", model=model, tools=[PYTHON], container=container), skill.id)


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
