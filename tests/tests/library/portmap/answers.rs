//! Who answers, for whom, and how the thread that does lives in its process.

use super::*;

#[test]
fn listeners_that_may_use_iwarp_are_answered_for() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let _one = scene.puppet(7001, &[IWARP]);
    let _two = scene.puppet(7002, &[IWARP]);
    let _plain = scene.plain_puppet(7003);
    let _auto = scene.puppet(7004, &[]);
    for port in [7001, 7002] {
        assert!(scene.becomes(port, Verdict::Accepted), "{port}");
    }
    let v6: Ipv6Addr = Host::Two.v6();
    for (port, expected) in [
        (7001, Verdict::Accepted),
        (7002, Verdict::Accepted),
        (7003, Verdict::Denied),
        (7004, Verdict::Denied),
        (7005, Verdict::Denied),
    ] {
        assert_eq!(scene.ask(Host::Two.v4(), port), Some(expected), "{port}");
        assert_eq!(scene.ask(v6, port), Some(expected), "{port} by IPv6");
    }
    assert_eq!(
        [7001, 7002, 7004].map(|p| scene.threads(p)),
        [1, 0, 0],
        "one thread, for all of the host"
    );
}

#[test]
fn a_listener_that_is_closed_is_denied() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let _one = scene.puppet(7001, &[IWARP]);
    assert_eq!(scene.tell(7001, "listen(7009)"), "None");
    assert!(scene.becomes(7009, Verdict::Accepted));
    assert_eq!(scene.tell(7001, "kept.pop().close()"), "None");
    assert!(scene.becomes(7009, Verdict::Denied));
    assert_eq!(scene.ask(Host::Two.v4(), 7001), Some(Verdict::Accepted));
}

#[test]
fn rules_say_which_listeners_take_it() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let rules =
        b"use iwarp listen python3 *:7001\nuse auto listen * *:7002\nuse tcp listen * *:7003\n";
    let rules = scene.stage.file("rules", rules);
    let rules = ("SHUNT_RULES", rules.to_str().unwrap());
    let ports = [7001, 7002, 7003, 7004];
    let _all = ports.map(|port| scene.puppet(port, &[rules]));
    for port in [7001, 7002] {
        assert!(scene.becomes(port, Verdict::Accepted), "{port}");
    }
    for port in [7003, 7004] {
        assert_eq!(
            scene.ask(Host::Two.v4(), port),
            Some(Verdict::Denied),
            "{port}"
        );
    }
}

#[test]
fn silence_and_no_port_mapper_are_told_apart() {
    let Some(scene) = Scene::new() else { return };
    if !have(&["nft"]) {
        return;
    }
    let service = SocketAddr::new(Host::Two.v4().into(), 7001);
    // A first wait of an hour: what is known before that is known by ICMP.
    let patient = Timing {
        first_us: 3_600_000_000,
        requests: 1,
    };
    let on = |what: &(dyn Fn() -> Option<Verdict> + Sync)| scene.hosts.on(Host::One, what);
    assert_eq!(on(&|| ask(service, patient, LONG)), Some(Verdict::Silent));
    scene
        .hosts
        .run(Host::Two, "nft", &["add", "table", "inet", "t"]);
    let chain = "add chain inet t c { type filter hook input priority 0 ; }";
    scene.hosts.run(Host::Two, "nft", &[chain]);
    let rule = format!("add rule inet t c udp dport {PORT} counter drop");
    scene.hosts.run(Host::Two, "nft", &[&rule]);
    let short = Duration::from_millis(100);
    assert_eq!(on(&|| ask(service, patient, short)), None, "not known yet");
    let quick = Timing {
        first_us: 1_000,
        requests: 4,
    };
    assert_eq!(on(&|| ask(service, quick, LONG)), Some(Verdict::Silent));
    let count = scene.hosts.run(Host::Two, "nft", &["list", "ruleset"]);
    assert!(count.contains("counter packets 5 "), "1 + 4: {count}");
}

#[test]
fn another_takes_over_from_one_that_ends() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let one = scene.puppet(7001, &[IWARP]);
    assert!(scene.becomes(7001, Verdict::Accepted));
    let _two = scene.puppet(7002, &[IWARP]);
    assert!(scene.becomes(7002, Verdict::Accepted));
    one.stop(libc::SIGKILL);
    assert_eq!(scene.ask(Host::Two.v4(), 7002), Some(Verdict::Silent));
    // It notices at an accept, if the last try is not too recent.
    assert!(eventually(|| scene.threads(7002) == 1));
    assert!(scene.becomes(7002, Verdict::Accepted));
    assert_eq!(scene.ask(Host::Two.v4(), 7001), Some(Verdict::Denied));
}

#[test]
fn a_child_answers_by_a_thread_of_its_own() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let launch = scene.stage.launch("python3");
    let launch = puppet(launch, "::", 7001, &[IWARP]).args(["nested"]);
    let _all = scene.hosts.serve(Host::Two, launch, 7001);
    assert!(scene.becomes(7001, Verdict::Accepted));
    let one = scene.tell(7001, "os.getpid()");
    assert_eq!(scene.tell(7001, "move()"), "None");
    // The port goes with the parent.
    assert!(scene.becomes(7001, Verdict::Silent));
    assert!(eventually(|| scene.threads(7001) == 1));
    assert_ne!(scene.tell(7001, "os.getpid()"), one);
    assert!(scene.becomes(7001, Verdict::Accepted));
}

#[test]
fn the_thread_is_like_any_of_the_program_and_takes_none_of_its_signals() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let _one = scene.puppet(7001, &[IWARP]);
    assert!(scene.becomes(7001, Verdict::Accepted));
    let blocked = scene.tell(7001, &format!("status({THREAD:?}, 'SigBlk')"));
    // All but the two of libc's, SIGKILL and SIGSTOP.
    assert_eq!(blocked, "'fffffffe7ffbfeff'");
    assert_eq!(
        scene.tell(7001, "os.setresuid(65534, 65534, 65534)"),
        "None"
    );
    let user = scene.tell(7001, &format!("status({THREAD:?}, 'Uid').split()"));
    assert_eq!(user, "['65534', '65534', '65534', '65534']");
    assert_eq!(scene.ask(Host::Two.v4(), 7001), Some(Verdict::Accepted));
}

#[test]
fn a_sandbox_ends_it() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let _one = scene.puppet(7001, &[IWARP]);
    assert!(scene.becomes(7001, Verdict::Accepted));
    // PR_SET_SECCOMP with a filter that cannot be read: the kernel refuses, after the library has been told.
    let prctl = "ctypes.CDLL(None, use_errno=True).prctl(22, 2, 8, 0, 0)";
    assert_eq!(scene.tell(7001, prctl), "-1");
    assert_eq!(scene.threads(7001), 0);
    assert_eq!(scene.ask(Host::Two.v4(), 7001), Some(Verdict::Silent));
}

#[test]
fn the_service_answers_instead() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let command = || Launch::new(library().with_file_name("shunt")).args(["portmap"]);
    let service = scene.hosts.launch(Host::Two, command()).start();
    assert!(eventually(|| {
        let table = format!("/proc/{}/net/udp6", service.pid());
        let table = std::fs::read_to_string(table).unwrap_or_default();
        table.contains(&format!(":{PORT:04X} "))
    }));
    let _one = scene.puppet(7001, &[IWARP]);
    assert!(scene.becomes(7001, Verdict::Accepted));
    assert_eq!(scene.threads(7001), 0);
    assert_eq!(scene.ask(Host::Two.v6(), 7002), Some(Verdict::Denied));
    let second = scene.hosts.launch(Host::Two, command()).start();
    let second = second.finish(LONG);
    assert_eq!(second.ending(), "exit 1");
    assert_eq!(second.stdout, "");
    let line = second
        .stderr
        .strip_prefix("shunt: portmap: UDP port 3935 is taken: ");
    assert!(
        line.is_some_and(|l| l.lines().count() == 1),
        "{}",
        second.stderr
    );
    let waiting = scene.hosts.launch(Host::Two, command().args(["--wait"]));
    let mut waiting = waiting.start();
    let service = service.stop(libc::SIGTERM);
    assert_eq!(service.stdout, "answering at UDP port 3935\n");
    assert_eq!(
        (service.ending(), service.stderr),
        ("signal 15".to_owned(), String::new())
    );
    assert!(scene.becomes(7001, Verdict::Accepted));
    assert!(waiting.running());
}

/// The first thread leaves by pthread_exit: the process ends with the program's last thread, not with ours.
#[test]
fn a_process_ends_with_the_programs_last_thread() {
    const LEAVES: &str = r#"
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
static pthread_t first;
static int before;
static int tasks(void) {
    int n = -2;
    DIR *d = opendir("/proc/self/task");
    while (readdir(d)) n++;
    closedir(d);
    return n;
}
static void *last(void *unused) {
    pthread_join(first, 0);
    printf("%d threads, then %d\n", before, tasks());
    return 0;
}
int main(void) {
    pthread_t t;
    first = pthread_self();
    listen(socket(AF_INET, SOCK_STREAM, 0), 1);
    before = tasks();
    pthread_create(&t, 0, last, 0);
    pthread_exit(0);
}
"#;
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let source = scene.stage.file("leaves.c", LEAVES.as_bytes());
    let words = ["-pthread", "-o", "leaves"];
    let compile = scene.stage.plain("gcc").args(words).args([source]).start();
    compile.finish(LONG).expect_ok("gcc");
    let program = scene.stage.folder.path("leaves");
    for (settings, says) in [
        (IWARP, "2 threads, then 2\n"),
        (("SHUNT_TRANSPORT", "auto"), "1 threads, then 2\n"),
    ] {
        let start = scene.stage.launch("sh");
        let start = start.args(["-c", "exec \"$0\"", program.to_str().unwrap()]);
        let start = start.env(settings.0, settings.1);
        let done = scene.hosts.launch(Host::Two, start).start().finish(LONG);
        done.expect_ok("leaves");
        assert_eq!(done.stdout, says, "{settings:?}");
    }
}

/// Threads fork, and their children connect, while questions come.
#[test]
fn forks_and_questions_do_not_get_into_each_others_way() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let _one = scene.puppet(7001, &[IWARP]);
    assert!(scene.becomes(7001, Verdict::Accepted));
    assert_eq!(scene.tell(7001, "storm()"), "'begun'");
    let mut asked = 0;
    assert!(eventually(|| {
        asked += 1;
        scene.ask(Host::Two.v4(), 7001) == Some(Verdict::Accepted)
            && scene.tell(7001, "len(stormy)") == "0"
    }));
    assert!(asked > 1);
    assert_eq!(scene.tell(7001, "failed"), "[]");
    assert_eq!(scene.threads(7001), 1);
}
