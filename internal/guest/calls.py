"""The client's tools as functions of the program (programmatic tool calling). Part of kernel.py, which see; wire is its.

A call waits until nothing else of the event loop can go on, so that all calls of a gather go out together. Then the whole interpreter
stops in one exchange with the guest, for as long as the client takes: what it holds is memory like any other, and survives a checkpoint.
"""


class Tools:
    MOST, LARGEST = 100, 1 << 20  # calls, and bytes of their arguments, in one exchange

    def __init__(self):
        self.made = {}  # name -> the function of that name
        self.engine, self.count, self.loop, self.batch = None, 0, None, []

    def offer(self, names, engine):
        """Puts functions into the namespace of a cell, and takes those away that the request does not have any more."""
        self.engine, self.batch, space = engine, [], engine.names
        for name in [name for name in self.made if name not in names]:
            function = self.made.pop(name)
            if space.get(name) is function:
                space.pop(name, None)
        for name in names:
            if name not in self.made:
                self.made[name] = self.make(name)
            space[name] = self.made[name]

    def make(self, name):
        async def tool(args=None, /, **named):
            return await self.call(name, args, named)

        tool.__name__ = tool.__qualname__ = name
        tool.__doc__ = f"Calls the tool {name} with a dict of arguments and returns its result as a str: await {name}({{...}})"
        return tool

    def call(self, name, args, named):
        import asyncio
        import json
        if get_ident() != MAIN or not wire.alive or not wire.busy:
            raise RuntimeError(f"{name} can be called in the main thread only")
        if name not in self.made:
            raise RuntimeError(f"the tool {name} is not available any more")
        if args is not None and not isinstance(args, dict):
            raise TypeError(f"{name} takes one dict, not {type(args).__name__}")
        text = json.dumps({**(args or {}), **named})
        if len(text) > self.LARGEST:
            raise ValueError(f"the arguments of {name} are larger than {self.LARGEST} bytes")
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if self.loop is not loop or not self.batch:
            self.loop, self.batch = loop, []
            loop.call_soon(self.gather, loop, 0)
        self.count += 1
        self.batch.append((str(self.count), name, text, future))
        return future

    def gather(self, loop, tries):
        """Called by the event loop until it has nothing else to do."""
        if getattr(loop, "_ready", None) and tries < 1000:
            loop.call_soon(self.gather, loop, tries + 1)
            return
        batch, size = [], 0
        while self.batch and len(batch) < self.MOST and (not batch or size + len(self.batch[0][2]) <= self.LARGEST):
            size += len(self.batch[0][2])
            batch.append(self.batch.pop(0))
        if self.batch:
            loop.call_soon(self.gather, loop, 0)
        verdict, answers = self.exchange(batch)
        for number, name, _, future in batch:
            if future.done():
                continue
            failed, text = answers.get(number, ("1", "there is no result"))
            if verdict == "timeout":
                names = [call[1] for call in batch]
                future.set_exception(TimeoutError(f"Calling tool {names!r} timed out (no response after 270s)."))
            elif failed == "1":
                future.set_exception(RuntimeError(text))
            else:
                future.set_result(text)

    def exchange(self, batch):
        flush()
        with wire:
            wire.send(CALLS, enlist(item for call in batch for item in call[:3]))
            while True:
                kind, payload = wire.receive()
                if kind == RESUME:
                    break
                if kind != RENEW:
                    os._exit(0)
                try:
                    done = renew(self.engine, *renewal(payload))
                except Exception as error:
                    done = b"error", 1, describe(error)
                wire.send(RESULT, b"%s\0%d\0%s" % (done[0], done[1], done[2].encode()))
            wire.send(STARTED)
            verdict, *rest = unlist(payload)
            if verdict == "interrupt":
                wire.pending = True  # raised where this ends
        return verdict, {rest[i]: (rest[i + 1], rest[i + 2]) for i in range(0, len(rest), 3)}


def enlist(items):
    out = []
    for item in items:
        data = item.encode("utf-8", "backslashreplace")
        out += len(data).to_bytes(4, "big"), data
    return b"".join(out)
