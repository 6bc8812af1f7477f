"""Runs code in a container with the official Python SDK.

usage: outlive.py new CODE        runs it in a new container and prints the container's id
       outlive.py run ID CODE     runs it there and prints what it printed

OPENAI_BASE_URL and OPENAI_API_KEY say where the gateway is; its model is the scripted stub of internal/upstreamtest.
"""

import sys

import openai

client = openai.OpenAI(max_retries=0, timeout=180)


def run(container, code):
    response = client.responses.create(
        model="stub", input=f"Please compute.\n```python\n{code}\n```", include=["code_interpreter_call.outputs"],
        tools=[{"type": "code_interpreter", "container": container}])
    return next(item for item in response.output if item.type == "code_interpreter_call")


if sys.argv[1] == "new":
    print(run({"type": "auto"}, sys.argv[2]).container_id)
else:
    call = run(sys.argv[2], sys.argv[3])
    print("".join(output.logs for output in call.outputs), end="")
