//! Runtimes with networking of their own: Python asyncio, node, java.

use shunt_tests::apps::{LONG, Stage, free_port, have, twice};

/// A server and a client from one script; both print what they saw.
fn script(stage: &mut Stage, program: &str, words: &[&str], name: &str, text: &str) -> String {
    stage.file(name, text.as_bytes());
    let port = free_port();
    let port_text = port.to_string();
    let start = stage
        .launch(program)
        .args(words)
        .args(["server", &port_text]);
    let server = stage.serve(start, port);
    let start = stage
        .launch(program)
        .args(words)
        .args(["client", &port_text]);
    let client = stage.client(start, program);
    let end = server.finish(LONG);
    end.expect_ok("server");
    stage.assert_shm("client", &client.report, 1, 4 << 20);
    stage.assert_shm("server", &end.report, 1, 4 << 20);
    client.stdout + &end.stdout
}

#[test]
fn python_asyncio() {
    if have(&["python3"]) {
        twice(|stage| script(stage, "python3", &["a.py"], "a.py", ASYNCIO));
    }
}

const ASYNCIO: &str = r#"
import asyncio, hashlib, sys
port = int(sys.argv[2])
async def serve():
    done = asyncio.Event()
    async def one(reader, writer):
        while line := await reader.readline():
            if line == b"stop\n":
                done.set()
                break
            size = int(line)
            data = await reader.readexactly(size)
            writer.write(data[::-1])
            await writer.drain()
        writer.close()
    server = await asyncio.start_server(one, "127.0.0.1", port)
    await done.wait()
    server.close()
async def ask(seed):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    mark = hashlib.sha256()
    for i in range(60):
        data = bytes((seed + i + j) % 251 for j in range(i * i * 10))
        writer.write(b"%d\n" % len(data) + data)
        back = await reader.readexactly(len(data))
        assert back == data[::-1]
        mark.update(back)
    writer.close()
    return mark.hexdigest()
async def main():
    print(await asyncio.gather(*(ask(i) for i in range(8))))
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"stop\n")
    await writer.drain()
    writer.close()
asyncio.run(serve() if sys.argv[1] == "server" else main())
"#;

#[test]
fn python_blocking_threads_and_files() {
    if have(&["python3"]) {
        twice(|stage| script(stage, "python3", &["b.py"], "b.py", BLOCKING));
    }
}

/// socketserver with threads; makefile, selectors and sendfile on the client.
const BLOCKING: &str = r#"
import hashlib, selectors, socket, socketserver, sys, tempfile, threading
port = int(sys.argv[2])
class One(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            if line == b"stop\n":
                threading.Thread(target=self.server.shutdown).start()
                return
            data = self.rfile.read(int(line))
            self.wfile.write(hashlib.sha256(data).hexdigest().encode() + b"\n")
            self.wfile.write(data)
if sys.argv[1] == "server":
    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
    with Server(("127.0.0.1", port), One) as server:
        server.serve_forever()
else:
    s = socket.create_connection(("127.0.0.1", port))
    f = s.makefile("rb")
    for i in range(20):
        data = bytes((i * j) % 256 for j in range(1000 * i))
        s.sendall(b"%d\n" % len(data) + data)
        print(f.readline())
        assert f.read(len(data)) == data
    big = bytes(range(256)) * 16384
    with tempfile.TemporaryFile() as t:
        t.write(big)
        t.seek(0)
        s.sendall(b"%d\n" % len(big))
        sender = threading.Thread(target=s.sendfile, args=(t,))
        sender.start()
        print(f.readline())
        assert f.read(len(big)) == big
        sender.join()
    s.sendall(b"stop\n")
    wait = selectors.DefaultSelector()
    wait.register(s, selectors.EVENT_READ)
    print(len(wait.select()), s.recv(10))
"#;

#[test]
fn node() {
    if have(&["node"]) {
        twice(|stage| script(stage, "node", &["c.js"], "c.js", NODE));
    }
}

const NODE: &str = r#"
const http = require("http"), crypto = require("crypto");
const port = Number(process.argv[3]);
if (process.argv[2] === "server") {
  const server = http.createServer((ask, answer) => {
    const parts = [];
    ask.on("data", (p) => parts.push(p));
    ask.on("end", () => {
      const body = Buffer.concat(parts);
      if (ask.url === "/stop") {
        answer.setHeader("connection", "close");
        answer.end("stopped");
        server.close();
        server.closeIdleConnections();
      } else {
        answer.end(body.reverse());
      }
    });
  });
  server.listen(port, "127.0.0.1");
} else {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
  const ask = (path, body) => new Promise((good, bad) => {
    const r = http.request({ port, host: "127.0.0.1", path, method: "POST", agent }, (answer) => {
      const parts = [];
      answer.on("data", (p) => parts.push(p));
      answer.on("end", () => good(Buffer.concat(parts)));
    });
    r.on("error", bad);
    r.end(body);
  });
  const mark = (b) => crypto.createHash("sha256").update(b).digest("hex");
  (async () => {
    for (let i = 0; i < 40; i++) {
      const all = await Promise.all([1, 2, 3, 4].map((n) => ask("/", Buffer.alloc(n * i * 50, String(n)))));
      console.log(mark(Buffer.concat(all)));
    }
    const big = Buffer.alloc(6 << 20, "0123456789abcdef!");
    console.log(mark(await ask("/", big)));
    console.log(String(await ask("/stop", "")));
    agent.destroy();
  })();
}
"#;

#[test]
fn java() {
    if have(&["java", "javac"]) {
        twice(|stage| {
            stage.file("Talk.java", JAVA.as_bytes());
            let compile = stage.plain("javac").args(["Talk.java"]);
            compile.start().finish(LONG * 2).expect_ok("javac");
            script(
                stage,
                "java",
                &["-Xmx256m", "-cp", ".", "Talk"],
                "unused",
                "",
            )
        });
    }
}

/// Blocking sockets, a selector, and a socket closed under its blocked reader.
const JAVA: &str = r#"
import java.io.*;
import java.net.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.util.*;

public class Talk {
    public static void main(String[] words) throws Exception {
        int port = Integer.parseInt(words[1]);
        if (words[0].equals("server")) serve(port); else ask(port);
    }

    static void serve(int port) throws Exception {
        ServerSocketChannel lis = ServerSocketChannel.open();
        lis.bind(new InetSocketAddress("127.0.0.1", port));
        lis.configureBlocking(false);
        Selector selector = Selector.open();
        lis.register(selector, SelectionKey.OP_ACCEPT);
        int open = 0, seen = 0;
        while (seen < 6 || open > 0) {
            selector.select();
            for (Iterator<SelectionKey> it = selector.selectedKeys().iterator(); it.hasNext(); ) {
                SelectionKey key = it.next();
                it.remove();
                if (key.isAcceptable()) {
                    SocketChannel c = lis.accept();
                    if (c == null) continue;
                    c.configureBlocking(false);
                    c.register(selector, SelectionKey.OP_READ, ByteBuffer.allocate(60000));
                    open++;
                    seen++;
                    continue;
                }
                SocketChannel c = (SocketChannel) key.channel();
                ByteBuffer room = (ByteBuffer) key.attachment();
                int n = key.isReadable() ? c.read(room) : 0;
                if (n < 0 && room.position() == 0) {
                    c.close();
                    open--;
                    continue;
                }
                room.flip();
                c.write(room);
                room.compact();
                int want = room.hasRemaining() ? SelectionKey.OP_READ : 0;
                key.interestOps(room.position() > 0 ? want | SelectionKey.OP_WRITE : want);
            }
        }
        System.out.println("served " + seen);
    }

    static void ask(int port) throws Exception {
        for (int i = 0; i < 5; i++) {
            Socket s = new Socket("127.0.0.1", port);
            DataOutputStream out = new DataOutputStream(new BufferedOutputStream(s.getOutputStream()));
            DataInputStream in = new DataInputStream(new BufferedInputStream(s.getInputStream()));
            long sum = 0;
            for (int j = 0; j < 100; j++) {
                out.writeInt(i * 1000 + j);
                out.flush();
                sum += in.readInt();
            }
            byte[] big = new byte[1 << 20];
            new Random(i).nextBytes(big);
            Thread writer = new Thread(() -> {
                try { out.write(big); out.flush(); } catch (IOException e) { System.out.println(e); }
            });
            writer.start();
            byte[] back = new byte[big.length];
            in.readFully(back);
            writer.join();
            System.out.println(sum + " " + Arrays.equals(big, back));
            s.shutdownOutput();
            System.out.println(in.read());
            s.close();
        }
        Socket s = new Socket("127.0.0.1", port);
        s.getOutputStream().write(7);
        System.out.println(s.getInputStream().read());
        Thread closer = new Thread(() -> {
            try { Thread.sleep(200); s.close(); } catch (Exception e) { System.out.println(e); }
        });
        closer.start();
        try {
            System.out.println(s.getInputStream().read());
        } catch (SocketException e) {
            System.out.println(e.getMessage());
        }
        closer.join();
    }
}
"#;
