//! Adapters that give up, as they do where the peer's machine stands still or a link is bad, and adapters that take long to
//! connect: whatever they do, and at whichever end, each octet comes once. By the stand-in for an adapter, which can be made to
//! be so.

use super::resting::run;

/// Connections at once, and questions on each, all of which differ, for so long. Half of them have gone by an adapter at least.
const ALL: usize = 40;
const CLIENT: &str = r#"
all = [connect() for i in range(int(open("connections").read()))]
began, rode, rounds = time.time(), set(), 0
while time.time() < began + SECONDS or len(rode) < len(all) / 2:
    assert time.time() < began + 60, "%d have had an adapter" % len(rode)
    rounds += 1
    question = lambda i: b"%c%c%c" % (i, rounds // 250 % 250, rounds % 250)
    for i, s in enumerate(all): s.sendall(question(i))
    for i, s in enumerate(all): assert s.recv(300, socket.MSG_WAITALL) == 100 * question(i)
    if rounds % 40 == 0:
        env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        stat = json.loads(subprocess.check_output([sys.argv[1], "stat", "--json"], env=env))
        own = [c for p in stat if p["pid"] == os.getpid() for c in p["connections"]]
        rode |= {c["local"] for c in own if c["transport"] == "verbs"}
        FAILED
"#;

#[test]
fn adapters_that_give_up_lose_nothing() {
    let client = CLIENT.replace("SECONDS", "3").replace(
        "FAILED",
        r#"if not any("adapter_failed" in c["demotions"] for c in own): rode.clear()"#,
    );
    run("client", &client, ALL, "1!30");
}

#[test]
fn adapters_that_connect_late_or_never_lose_nothing() {
    // (so late that one end has given up at some of them when the other begins)
    let client = CLIENT.replace("SECONDS", "8").replace("FAILED", "");
    run("client", &client, ALL, "1?6000");
}
