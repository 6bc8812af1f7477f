// Lathe's node kernel: one long-lived context that runs cells for the guest. See kernel.py for what it says and hears on fds 3 and 4; it
// knows START only. node's own REPL evaluates: top-level await, declarations that live on, and the value of the last expression.
(function (require) {
  "use strict";
  const fs = require("fs"), net = require("net"), repl = require("repl"), util = require("util"), { PassThrough, Writable } = require("stream");
  const HELLO = 2, START = 3, STARTED = 6, OUTPUT = 8, RESULT = 12;
  const STDERR = 2, VALUE = 3, CHUNK = 256 << 10;
  const write = (fd, data) => {
    data = Buffer.from(data);
    for (let at = 0; at < data.length;) {
      try {
        at += fs.writeSync(fd, data, at);
      } catch (error) {
        if (error.code !== "EAGAIN") throw error;
      }
    }
  };

  let call = Buffer.alloc(4), ready = Buffer.alloc(0), busy = false, stop = null, outer = {}, count = 0;
  const send = (kind, payload = Buffer.alloc(0)) => {
    const head = Buffer.alloc(5);
    head.writeUInt32BE(payload.length);
    head[4] = kind;
    write(4, Buffer.concat([head, call, payload]));
  };
  const text = (stream, string) => {
    const data = Buffer.from(string);
    for (let at = 0; at < data.length; at += CHUNK) {
      send(OUTPUT, Buffer.concat([Buffer.from([stream]), data.subarray(at, at + CHUNK)]));
    }
  };

  class Exit extends Error {}
  const interrupted = () => Object.assign(new Error("interrupted"), { name: "Interrupted" });
  const describe = error => {
    try {
      return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
    } catch {
      return "an error that has no text";
    }
  };
  // The stack without the frames of the kernel and of node itself.
  const trace = error => {
    if (!(error instanceof Error) || typeof error.stack !== "string") return `Uncaught ${util.inspect(error)}\n`;
    const lines = error.stack.split("\n").filter(l => !/<lathe kernel>|\bnode:|^\s+at (REPLServer|Domain|new Promise)/.test(l));
    return lines.join("\n") + "\n";
  };

  const realExit = process.exit;
  process.exit = code => {
    if (!busy) realExit.call(process, code); // a timer of an earlier cell
    const exit = new Exit();
    exit.code = Number(code ?? process.exitCode ?? 0) & 255;
    if (stop) stop(exit); // where the program's own code catches it
    throw exit;
  };

  // What a callback throws ends the cell that runs, and is only told where none does.
  const uncaught = error => {
    if (stop) stop(error);
    else if (!(error instanceof Exit) && error?.code !== "ERR_SCRIPT_EXECUTION_INTERRUPTED") write(2, trace(error));
  };
  const output = new Writable({ write: (data, _, done) => { write(2, data); done(); } });
  const input = new PassThrough();
  const shell = repl.start({ prompt: "", input, output, terminal: false, useGlobal: true, breakEvalOnSigint: true, ignoreUndefined: true });
  if (shell._domain) shell._domain.removeAllListeners("error").on("error", uncaught); // where the REPL sends what a cell throws
  else process.setUncaughtExceptionCaptureCallback(uncaught);
  const interrupt = () => {
    if (!busy) return;
    if (shell.listenerCount("SIGINT")) shell.emit("SIGINT"); // ends an await
    if (stop) stop(interrupted());
  };
  process.on("SIGINT", interrupt);

  const evaluate = code => new Promise((resolve, reject) => {
    stop = reject;
    // Around the part that runs at once the REPL has a handler of its own, which a listener's would replace.
    process.removeListener("SIGINT", interrupt);
    shell.eval(code, shell.context, `cell-${++count}`, (error, value) => {
      if (error instanceof repl.Recoverable) error = error.err;
      if (error) reject(error);
      else resolve({ value }); // in an object: a value that is a promise is not to be awaited
    });
    process.on("SIGINT", interrupt);
  }).finally(() => { stop = null; });

  const environment = env => {
    for (const [name, value] of Object.entries(outer)) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    outer = Object.fromEntries(Object.keys(env).map(name => [name, process.env[name]]));
    Object.assign(process.env, env);
  };

  const cell = async ([code, where, ...pairs]) => {
    const env = {};
    for (let i = 0; i < pairs.length; i += 2) env[pairs[i]] = pairs[i + 1];
    environment(env);
    if (where) process.chdir(where);
    busy = true;
    process.exitCode = undefined;
    send(STARTED);
    try {
      const { value } = await evaluate(code + "\n");
      if (value !== undefined) text(VALUE, util.inspect(value) + "\n");
      return ["ok", 0, ""];
    } catch (error) {
      if (error instanceof Exit) return error.code === 0 ? ["ok", 0, ""] : ["error", error.code, `process.exit(${error.code})`];
      text(STDERR, trace(error));
      return ["error", 1, describe(error)];
    } finally {
      busy = false;
    }
  };

  const unlist = payload => {
    const items = [];
    for (let at = 0; at < payload.length;) {
      const end = at + 4 + payload.readUInt32BE(at);
      items.push(payload.toString("utf8", at + 4, end));
      at = end;
    }
    return items;
  };

  const answer = async payload => {
    let done;
    try {
      done = await cell(unlist(payload));
    } catch (error) {
      done = ["error", 1, describe(error)];
    }
    send(RESULT, Buffer.from(`${done[0]}\0${done[1]}\0${done[2].slice(0, 4096)}`));
  };

  const requests = new net.Socket({ fd: 3, readable: true, writable: false });
  requests.on("data", data => {
    ready = Buffer.concat([ready, data]);
    while (ready.length >= 9 && ready.length >= 9 + ready.readUInt32BE()) {
      const end = 9 + ready.readUInt32BE(), kind = ready[4], payload = Buffer.from(ready.subarray(9, end));
      call = Buffer.from(ready.subarray(5, 9));
      ready = ready.subarray(end);
      if (kind !== START) realExit.call(process, 0);
      answer(payload);
    }
  });
  requests.on("close", () => realExit.call(process, 0));
  send(HELLO, Buffer.from("node"));
})
